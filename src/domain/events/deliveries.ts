import { and, eq, sql } from "drizzle-orm";
import { type Param, preparedQuery } from "../../platform/db.ts";
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

/** The last two end a delivery that was not sent: its webhook was disabled, or the event is older than the trail is kept. */
export const ATTEMPT_ERRORS = [
  "timeout",
  "connection_failed",
  "address_refused",
  "secret_unreadable",
  "webhook_disabled",
  "event_purged",
] as const;

/** A try, and what came of it. */
export interface Attempt {
  /** Milliseconds since the epoch. */
  at: number;
  /** Null where no answer came. */
  httpStatus: number | null;
  /** Why no answer came, or why it does not count; null where the status says all. */
  error: (typeof ATTEMPT_ERRORS)[number] | null;
  durationMilliseconds: number;
  /** The first KiB. */
  responseBody: string;
}

/** Of a delivery that no connection was made for. */
export const unsent = (at: number, error: Attempt["error"]): Attempt => ({
  at,
  httpStatus: null,
  error,
  durationMilliseconds: 0,
  responseBody: "",
});

export const isDelivery = (param: Param<DeliveryKey>) =>
  and(eq(deliveries.webhookId, param("webhookId")), eq(deliveries.seq, param("seq")));

/** Nobody else has tried it meanwhile. */
export const isUntried = (param: Param<DeliveryKey & { before: number }>) =>
  and(isDelivery(param), eq(deliveries.status, "pending"), eq(deliveries.tries, param("before")));

/** Whether a webhook wants events of this type, both as SQL. */
export const wants = (types: ReturnType<typeof sql>, type: ReturnType<typeof sql>) =>
  sql`(${types} is null or exists (select 1 from json_each(${types}) where value = ${type}))`;

/** What a delivery's message says. */
export const JOB = { teamId: deliveries.teamId, webhookId: deliveries.webhookId, seq: deliveries.seq };

/** The columns of a delivery that is yet to be tried, as a select list. */
export const freshDelivery = (now: ReturnType<typeof sql>) =>
  sql`w.id, e.seq, w.team_id, e.type, 'pending', '[]', 0, ${now}, null, ${now}`;

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
