import { and, eq, isNull, sql } from "drizzle-orm";
import type { AfterLoss, Deps, LossOfAccess } from "../deps.ts";
import { recordedEach } from "../events/events.ts";
import { wake } from "../events/followers.ts";
import { WEBHOOK_EVENTS } from "./webhook-event-types.ts";
import { followerOf, unfollowDisabled } from "./webhook-rows.ts";
import { webhooks } from "./webhooks.schema.ts";

/**
 * Disables the webhooks that a user created, or whose URL, secret or status the user was the last to change, each with its event:
 * they would keep sending the team's events to an endpoint of the user. Their objects are awake before the response, and their pending
 * deliveries end unsent.
 */
export function disableOfUser(deps: Deps, { actor, user, cause, willLose }: LossOfAccess) {
  const { teamId } = user;
  const reason = cause === "deleted" ? ("creator_deleted" as const) : ("creator_demoted" as const);
  const now = deps.system.now();
  const setters = ["url", "secret", "status"].map((field) => sql`${webhooks.changedBy} ->> ${field}`);
  const isOfUser = and(
    eq(webhooks.teamId, teamId),
    sql`${user.id} in (${sql.join([sql`${webhooks.userId}`, ...setters], sql`, `)})`,
  );
  const disabled = deps.db
    .update(webhooks)
    .set({ disabledReason: reason, updatedAt: now, version: sql`${webhooks.version} + 1` })
    .where(and(isOfUser, isNull(webhooks.disabledReason), willLose))
    .returning({ id: webhooks.id, teamId: webhooks.teamId });
  const isDisabled = and(isOfUser, eq(webhooks.disabledReason, reason), eq(webhooks.updatedAt, now), willLose);
  const what = {
    type: WEBHOOK_EVENTS.disabled,
    initiator: actor,
    subject: { teamId, id: sql`${webhooks.id}`, version: sql`${webhooks.version}` },
    data: sql`json_object('_id', ${webhooks.id}, 'reason', ${reason})`,
    from: sql`${webhooks}`,
    where: isDisabled,
    reads: "after",
  } as const;
  const before = { disable: recordedEach(deps, what, disabled), unfollow: unfollowDisabled(deps, teamId, isOfUser) };
  return {
    before,
    async committed(rows) {
      await wake(deps, rows.disable.change.map(followerOf), true);
    },
  } satisfies AfterLoss<typeof before>;
}
