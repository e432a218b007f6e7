import { and, asc, eq, isNotNull, lte, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Param, preparedQuery, write } from "../../platform/db.ts";
import type { DeliveryJob } from "../../platform/jobs.ts";
import { deliveries, webhooks } from "../../platform/schema.ts";

/*
 * The rows of webhooks and of deliveries: one event on its way to one webhook. They are inserted in the batch that inserts the event, so
 * there are both or neither; `due_at` then says what is owed, and a message only makes it happen sooner.
 */

export type WebhookRow = typeof webhooks.$inferSelect;
export type WebhookKey = Pick<WebhookRow, "teamId" | "id">;

export const isWebhook = (param: Param<WebhookKey>) =>
  and(eq(webhooks.teamId, param("teamId")), eq(webhooks.id, param("id")));
export const webhookByKey = preparedQuery((db, param: Param<WebhookKey>) =>
  db.select().from(webhooks).where(isWebhook(param)),
);

export type DeliveryRow = typeof deliveries.$inferSelect;
export type DeliveryKey = Pick<DeliveryRow, "webhookId" | "seq">;

/** A try, and what came of it. */
export interface Attempt {
  /** Milliseconds since the epoch. */
  at: number;
  /** Null where no answer came. */
  httpStatus: number | null;
  /** Why no answer came, or why it does not count; null where the status says all. */
  error: "timeout" | "connection_failed" | "address_refused" | "secret_unreadable" | null;
  durationMilliseconds: number;
  /** The first KiB. */
  responseBody: string;
}

/** Recovery leaves a try to its message for so long, which is far longer than a try takes. */
const GRACE_MILLISECONDS = 2 * 60 * 1000;
/** What one batch of recovery takes. */
export const DUE_DELIVERIES = 500;

export const isDelivery = (param: Param<DeliveryKey>) =>
  and(eq(deliveries.webhookId, param("webhookId")), eq(deliveries.seq, param("seq")));

/** Whether a webhook wants events of this type, both as SQL. */
export const wants = (types: ReturnType<typeof sql>, type: ReturnType<typeof sql>) =>
  sql`(${types} is null or exists (select 1 from json_each(${types}) where value = ${type}))`;

/** What a delivery's message says. */
export const JOB = { teamId: deliveries.teamId, webhookId: deliveries.webhookId, seq: deliveries.seq };

/** The columns of a delivery that is yet to be tried, as a select list. */
export const freshDelivery = (now: ReturnType<typeof sql>) =>
  sql`w.id, e.seq, w.team_id, e.type, 'pending', '[]', 0, ${now}, ${now}`;

/**
 * A delivery of the team's newest event to each enabled webhook that wants it. It stands right behind the event's
 * insert, in the same batch, and adds nothing where that inserted nothing.
 */
export const deliveriesOf = preparedQuery((db, param: Param<{ teamId: string; now: number }>) => {
  const newest = sql`(select max(seq) from events where team_id = ${param("teamId")})`;
  const event = sql`events e on e.team_id = w.team_id and e.seq = ${newest}`;
  return db
    .insert(deliveries)
    .select(
      sql`select ${freshDelivery(sql`${param("now")}`)} from ${webhooks} w cross join ${event}
        where changes() > 0 and w.team_id = ${param("teamId")} and w.status = 'enabled'
        and ${wants(sql`w.types`, sql`e.type`)}`,
    )
    .onConflictDoNothing()
    .returning(JOB);
});

/** Sends the deliveries' messages. Where that fails they are due all the same, and recovery sends them. */
export async function enqueueDeliveries(deps: Deps, jobs: DeliveryJob[]): Promise<void> {
  try {
    await deps.deliveryJobs.sendAll(jobs.map(({ teamId, webhookId, seq }) => ({ teamId, webhookId, seq })));
  } catch (cause) {
    deps.log("warn", "messages left to recovery", { counts: { deliveries: jobs.length }, cause });
  }
}

const takeDue = preparedQuery((db, param: Param<{ now: number; before: number }>) => {
  const due = db
    .select({ webhookId: deliveries.webhookId, seq: deliveries.seq })
    .from(deliveries)
    .where(and(isNotNull(deliveries.dueAt), lte(deliveries.dueAt, param("before"))))
    .orderBy(asc(deliveries.dueAt))
    .limit(DUE_DELIVERIES);
  return db
    .update(deliveries)
    .set({ dueAt: sql`${param("now")}` })
    .where(and(sql`(${deliveries.webhookId}, ${deliveries.seq}) in ${due}`, isNotNull(deliveries.dueAt)))
    .returning(JOB);
});

/** Sends the messages of deliveries that are overdue: for a later try, lost, or left by a Worker that died. @returns how many */
export async function sendDueDeliveries(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const [rows] = await write(deps, [takeDue({ now, before: now - GRACE_MILLISECONDS })], { isIdempotent: true });
  await deps.deliveryJobs.sendAll(rows);
  return rows.length;
}
