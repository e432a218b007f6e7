import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Db, hasRow } from "../platform/db.ts";
import type { WebhookJob } from "../platform/messages.ts";
import { SECOND } from "../platform/system.ts";
import { KEPT_ATTEMPTS, storedAttempt, unsent } from "./attempts.ts";
import { deliveries, webhooks } from "./webhooks.schema.ts";

/*
 * Rows of webhooks and deliveries. A delivery is one event that one webhook receives. It is inserted in the batch of its
 * event, so either both exist or neither. It must be sent from `due_at` on: a message only triggers the sending, and
 * without one, the recovery job does.
 */

export type WebhookRow = typeof webhooks.$inferSelect;
export type WebhookKey = Pick<WebhookRow, "teamId" | "id">;

export const isWebhook = ({ teamId, id }: WebhookKey) => and(eq(webhooks.teamId, teamId), eq(webhooks.id, id));
export const webhookByKey = (db: Db, key: WebhookKey) => db.select().from(webhooks).where(isWebhook(key));

export type DeliveryRow = typeof deliveries.$inferSelect;

/**
 * Whether the webhook `w` receives the event `e`, as SQL. `instr` finds the type in the JSON array without reading rows, as
 * `json_each` would. A webhook is not notified of its creation, because its endpoint does not know the secret yet, nor of
 * its deletion.
 */
export const isReceived = sql`(w.types is null or instr(w.types, json_quote(e.type)))
  and not (e.subject_id = w.id and e.type in ('webhook.created', 'webhook.deleted'))`;

/** The columns of a new delivery of `e` to `w`, as a select list. */
export const newDelivery = (now: number) => sql`w.id, e.seq, w.team_id, e.type, 'pending', '[]', 0, ${now}, ${now}, 0`;

/**
 * Inserts a delivery of the team's newest event for each enabled webhook that receives it. In a batch it follows the insert
 * of the event, and inserts nothing if there was no event. With `isMany`, of all events that the insert has inserted.
 */
export function insertDeliveries(db: Db, teamId: string, now: number, isMany = false) {
  const newest = isMany
    ? sql`in (select seq from events where team_id = ${teamId} order by seq desc limit changes())`
    : sql`= (select max(seq) from events where team_id = ${teamId})`;
  const event = sql`events e on e.team_id = w.team_id and e.seq ${newest}`;
  return db
    .insert(deliveries)
    .select(
      sql`select ${newDelivery(now)} from ${webhooks} w cross join ${event}
        where changes() > 0 and w.team_id = ${teamId} and w.status = 'enabled' and ${isReceived}`,
    )
    .onConflictDoNothing()
    .returning({ teamId: deliveries.teamId, webhookId: deliveries.webhookId });
}

/**
 * Pending deliveries that one statement ends. A webhook can have hundreds of thousands. D1 runs one query at a time, so
 * ending them all would block every team for seconds; 500 rows and their index entries take about 10 ms.
 */
export const ENDED_ROWS = 500;

const isNextPending = ({ teamId, id }: WebhookKey) =>
  sql`webhook_id = ${id} and team_id = ${teamId} and seq in (select seq from deliveries
    where webhook_id = ${id} and due_at is not null limit ${ENDED_ROWS})`;

/** Ends pending deliveries of a disabled webhook as `failed`, and stores the reason as their last attempt. */
export function endPending(db: Db, key: WebhookKey, now: number) {
  const attempt = JSON.stringify(storedAttempt(unsent(now, "webhook_disabled")));
  const kept = sql`iif(json_array_length(attempt_log) < ${KEPT_ATTEMPTS}, attempt_log, json_remove(attempt_log, '$[0]'))`;
  const isDisabled = hasRow(webhooks, and(isWebhook(key), eq(webhooks.status, "disabled")));
  return db
    .update(deliveries)
    .set({
      status: "failed",
      isFailing: true,
      dueAt: null,
      attemptLog: sql`json_insert(${kept}, '$[#]', json(${attempt}))`,
    })
    .where(and(isNextPending(key), isDisabled))
    .returning({ seq: deliveries.seq });
}

/** Deletes pending deliveries of a deleted webhook. */
export const deletePending = (db: Db, key: WebhookKey) =>
  db.delete(deliveries).where(isNextPending(key)).returning({ seq: deliveries.seq });

/** Sends one message for each webhook. If that fails, the deliveries stay due and the recovery job sends the messages. */
export async function enqueueWebhooks(deps: Deps, jobs: WebhookJob[], delaySeconds = 0): Promise<void> {
  if (jobs.length === 0) return;
  try {
    const at = deps.system.now() + delaySeconds * SECOND;
    await deps.webhookJobs.sendAll(
      jobs.map(({ teamId, webhookId }) => ({ teamId, webhookId, at })),
      delaySeconds,
    );
  } catch (cause) {
    deps.log("warn", "webhook_message_failed", { counts: { webhooks: jobs.length }, cause });
  }
}
