import { and, eq, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { hasRow, type Param, preparedQuery } from "../../platform/db.ts";
import { deliveries, webhooks } from "../../platform/event-schema.ts";
import type { WebhookJob } from "../../platform/jobs.ts";
import { KEPT_ATTEMPTS, storedAttempt, unsent } from "./attempts.ts";

/*
 * Rows of webhooks and deliveries. A delivery is one event that one webhook receives. It is inserted in the batch of its
 * event, so either both exist or neither. It must be sent from `due_at` on: a message only triggers the sending, and
 * without one, the recovery job does.
 */

export type WebhookRow = typeof webhooks.$inferSelect;
export type WebhookKey = Pick<WebhookRow, "teamId" | "id">;

export const isWebhook = (param: Param<WebhookKey>) =>
  and(eq(webhooks.teamId, param("teamId")), eq(webhooks.id, param("id")));
export const webhookByKey = preparedQuery((db, param: Param<WebhookKey>) =>
  db.select().from(webhooks).where(isWebhook(param)),
);

export type DeliveryRow = typeof deliveries.$inferSelect;

/**
 * Whether the webhook `w` receives the event `e`, as SQL. `instr` finds the type in the JSON array without reading rows, as
 * `json_each` would. A webhook is not notified of its creation, because its endpoint does not know the secret yet, nor of
 * its deletion.
 */
export const isReceived = sql`(w.types is null or instr(w.types, json_quote(e.type)))
  and not (e.subject_id = w.id and e.type in ('webhook.created', 'webhook.deleted'))`;

/** The columns of a new delivery of `e` to `w`, as a select list. */
export const newDelivery = (now: SQL) => sql`w.id, e.seq, w.team_id, e.type, 'pending', '[]', 0, ${now}, ${now}`;

/**
 * Inserts a delivery of the team's newest event for each enabled webhook that receives it. In a batch it follows the insert
 * of the event, and inserts nothing if there was no event.
 */
export const insertDeliveries = preparedQuery((db, param: Param<{ teamId: string; now: number }>) => {
  const newest = sql`(select max(seq) from events where team_id = ${param("teamId")})`;
  const event = sql`events e on e.team_id = w.team_id and e.seq = ${newest}`;
  return db
    .insert(deliveries)
    .select(
      sql`select ${newDelivery(sql`${param("now")}`)} from ${webhooks} w cross join ${event}
        where changes() > 0 and w.team_id = ${param("teamId")} and w.status = 'enabled' and ${isReceived}`,
    )
    .onConflictDoNothing()
    .returning({ teamId: deliveries.teamId, webhookId: deliveries.webhookId });
});

/**
 * Pending deliveries that one statement ends. A webhook can have hundreds of thousands. D1 runs one query at a time, so
 * ending them all would block every team for seconds; 500 rows and their index entries take about 10 ms.
 */
export const ENDED_ROWS = 500;

const pendingSeqs = (param: Param<WebhookKey>) =>
  sql`webhook_id = ${param("id")} and team_id = ${param("teamId")} and seq in (select seq from deliveries
    where webhook_id = ${param("id")} and due_at is not null limit ${ENDED_ROWS})`;

/** Ends pending deliveries of a disabled webhook as `failed`. `attempt` is JSON, and contains the reason. */
const failPending = preparedQuery((db, param: Param<WebhookKey & { attempt: string }>) => {
  const kept = sql`iif(json_array_length(attempt_log) < ${KEPT_ATTEMPTS}, attempt_log, json_remove(attempt_log, '$[0]'))`;
  const isDisabled = hasRow(webhooks, and(isWebhook(param), eq(webhooks.status, "disabled")));
  return db
    .update(deliveries)
    .set({ status: "failed", dueAt: null, attemptLog: sql`json_insert(${kept}, '$[#]', json(${param("attempt")}))` })
    .where(sql`${pendingSeqs(param)} and ${isDisabled}`)
    .returning({ seq: deliveries.seq });
});
export const endPending = ({ teamId, id }: WebhookKey, now: number) =>
  failPending({ teamId, id, attempt: JSON.stringify(storedAttempt(unsent(now, "webhook_disabled"))) });

/** Deletes pending deliveries of a deleted webhook. */
export const deletePending = preparedQuery((db, param: Param<WebhookKey>) =>
  db.delete(deliveries).where(pendingSeqs(param)).returning({ seq: deliveries.seq }),
);

/** Sends one message for each webhook. If that fails, the deliveries stay due and the recovery job sends the messages. */
export async function enqueueWebhooks(deps: Deps, jobs: WebhookJob[], delaySeconds = 0): Promise<void> {
  if (jobs.length === 0) return;
  try {
    await deps.webhookJobs.sendAll(jobs, delaySeconds);
  } catch (cause) {
    deps.log("warn", "webhook_message_failed", { counts: { webhooks: jobs.length }, cause });
  }
}
