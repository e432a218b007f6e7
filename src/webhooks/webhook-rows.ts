import { and, eq, inArray, isNotNull, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import type { EventRow } from "../events/events.ts";
import { type FollowerKey, followers } from "../events/followers.schema.ts";
import { follow } from "../events/followers.ts";
import type { Db } from "../platform/db.ts";
import { WEBHOOK_EVENTS } from "./webhook-event-types.ts";
import { type WebhookKey, webhooks } from "./webhooks.schema.ts";

/** The kind of its follower, see events/followers.ts. */
export const WEBHOOK = "webhook";
export const followerOf = ({ teamId, id }: WebhookKey): FollowerKey => ({ teamId, kind: WEBHOOK, id });

/** Part of a batch: the webhook, if it exists, follows the log from the next event on. */
export const followAsWebhook = (deps: Deps, key: WebhookKey) =>
  follow(deps, followerOf(key), webhooks.types, sql`from ${webhooks} where ${isWebhook(key)}`);

/** Part of a batch: those of the webhooks that are disabled no longer follow the log. */
export const unfollowDisabled = ({ db }: Deps, teamId: string, isSelected: SQL | undefined) => {
  const disabled = db
    .select({ id: webhooks.id })
    .from(webhooks)
    .where(and(isSelected, isNotNull(webhooks.disabledReason)));
  return db
    .delete(followers)
    .where(and(eq(followers.teamId, teamId), eq(followers.kind, WEBHOOK), inArray(followers.id, disabled)));
};

export type WebhookRow = typeof webhooks.$inferSelect;

export const isWebhook = ({ teamId, id }: WebhookKey) => and(eq(webhooks.teamId, teamId), eq(webhooks.id, id));
export const isEnabled = ({ disabledReason }: Pick<WebhookRow, "disabledReason">): boolean => disabledReason === null;
export const webhookByKey = (db: Db, key: WebhookKey) => db.select().from(webhooks).where(isWebhook(key));

/**
 * Whether a webhook receives an event. It is not notified of its creation, because its endpoint does not know the secret yet,
 * nor of its deletion.
 */
export function isReceived(
  { id, types }: WebhookRow,
  { type, subjectId }: Pick<EventRow, "type" | "subjectId">,
): boolean {
  const isOwnEnd = subjectId === id && (type === WEBHOOK_EVENTS.created.name || type === WEBHOOK_EVENTS.deleted.name);
  return !isOwnEnd && (types === null || JSON.parse(types).includes(type));
}
