import { type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Param, preparedQuery, write } from "../../platform/db.ts";
import type { DeliveryJob } from "../../platform/jobs.ts";
import { deliveries, webhooks } from "../../platform/schema.ts";
import { type DeliveryKey, isUntried, JOB } from "./deliveries.ts";

/*
 * Whose turn it is. Of each webhook's deliveries, those that have been due longest are sent, so many at a time and no
 * more: a receiver that takes its time holds its own share of the queue, whatever waits for it. The webhooks of a team
 * part `TEAM_SHARE` among them, so that ten of them hold no more of it than two, and none of them waits for another. The
 * rows themselves say whose turn it is, so nothing is written for it:
 *
 *   a message whose delivery is further back    is dropped
 *   a delivery that is no longer due            moves another one up, whose message is sent then
 *   a webhook that is paused                    drops its messages; its first success sends those of a full share
 *   a message that is lost                      is sent again by recovery, which sends a share of each webhook at most
 *   a share that grows as a webhook is deleted  is filled by recovery
 *   a share that shrinks as one is made         drops the messages beyond it, which recovery sends in their turn
 */

/** A webhook's, a fiftieth of what the queue's consumers hold at once: 250 invocations with 5 messages each. */
export const SHARE = 25;
/** Of all webhooks of a team. */
export const TEAM_SHARE = 2 * SHARE;
/** Recovery leaves a delivery to its message for so long, which is far longer than a try takes. */
const GRACE_MILLISECONDS = 2 * 60 * 1000;
/** It sends a message again after twice the time each time, up to this: the queue may merely be long. */
const MAX_RESEND_MILLISECONDS = 15 * 60 * 1000;
/** What one batch of recovery takes. */
export const DUE_DELIVERIES = 500;

/** Of a delivery: how many of its webhook have been due for longer, as far as it matters. Thousands may be due since one instant. */
const aheadOf = (delivery: SQL) => sql<number>`(select count(*) from (
  select 1 from deliveries e where e.webhook_id = ${delivery}.webhook_id and e.due_at < ${delivery}.due_at
  union all
  select 1 from deliveries e
    where e.webhook_id = ${delivery}.webhook_id and e.due_at = ${delivery}.due_at and e.seq < ${delivery}.seq
  limit ${SHARE}) ahead)`;
/** How many of its webhook may be sent at once. Disabled webhooks count, so that a team gains nothing by changing them. */
const shareOf = (delivery: SQL) =>
  sql<number>`cast(min(${SHARE}, ${TEAM_SHARE} / max(1, (select count(*) from webhooks where team_id = ${delivery}.team_id))) as integer)`;

/** What a delivery is read with: it is its turn where `ahead` is below `share`. */
export const turn = { ahead: aheadOf(sql`deliveries`), share: shareOf(sql`deliveries`) };

type NextValues = DeliveryKey & { before: number; now: number; limit: number; offset: number };
/** The message of the one that moves up, or those of a full share, once this delivery is not due any more. */
const take = preparedQuery((db, param: Param<NextValues>) => {
  const next = sql`select seq from deliveries
    where webhook_id = ${param("webhookId")} and due_at is not null and due_at <= ${param("now")} and seq <> ${param("seq")}
    order by due_at, seq limit ${param("limit")} offset ${param("offset")}`;
  return db
    .update(deliveries)
    .set({ sentAt: sql`${param("now")}` })
    .where(
      sql`webhook_id = ${param("webhookId")} and seq in (${next}) and exists (select 1 from deliveries where ${isUntried(param)})`,
    )
    .returning(JOB);
});

/**
 * Stands in front of the change by which a delivery is no longer due, in the same batch.
 * `isRestart`: nobody else is under way, so that a full share is sent.
 */
export const takeNext = (
  deps: Deps,
  { webhookId, seq, tries, share }: DeliveryKey & { tries: number; share: number },
  { isRestart = false } = {},
) =>
  take({
    webhookId,
    seq,
    before: tries,
    now: deps.system.now(),
    limit: isRestart ? share : 1,
    offset: isRestart ? 0 : share - 1,
  });

type Sent = Pick<typeof deliveries.$inferSelect, "status" | "dueAt" | "sentAt"> & { resumeAt: number | null };

/** Whether a message of the delivery is under way, as far as its row tells: one that is lost, recovery sends again. */
export function hasMessage({ status, dueAt, sentAt, resumeAt }: Sent, now: number): boolean {
  // A webhook that is paused drops its messages.
  if (status !== "pending" || dueAt === null || dueAt > now || (resumeAt ?? 0) > now) return false;
  return Math.max(dueAt, sentAt ?? 0) > now - GRACE_MILLISECONDS;
}

/** Sends messages. Where that fails their deliveries are due all the same, and recovery sends them. */
export async function enqueueDeliveries(deps: Deps, jobs: DeliveryJob[], delaySeconds = 0): Promise<void> {
  if (jobs.length === 0) return;
  try {
    const messages = jobs.map(({ teamId, webhookId, seq }) => ({ teamId, webhookId, seq }));
    await deps.deliveryJobs.sendAll(messages, delaySeconds);
  } catch (cause) {
    deps.log("warn", "messages left to recovery", { counts: { deliveries: jobs.length }, cause });
  }
}

/** Of each webhook that has any, found by one look into the index, those whose turn it is and whose message is overdue. */
const takeOverdue = preparedQuery((db, param: Param<{ now: number; before: number }>) => {
  const first = sql`select min(webhook_id) from deliveries where due_at is not null`;
  const turns = sql`select seq from deliveries where webhook_id = one.id and due_at is not null and due_at <= ${param("before")}
    order by due_at, seq limit ${SHARE}`;
  const sentAt = sql`coalesce(d.sent_at, 0)`;
  const wait = sql`min(max(${GRACE_MILLISECONDS}, ${sentAt} - d.due_at), ${MAX_RESEND_MILLISECONDS})`;
  const resumeAt = sql`iif(w.status = 'enabled', coalesce(w.resume_at, 0), 0)`;
  const overdue = sql`with recursive one(id) as
      (${first} union all select (${first} and webhook_id > one.id) from one where one.id is not null)
    select d.webhook_id, d.seq from one
      join deliveries d on d.webhook_id = one.id and d.seq in (${turns})
      left join ${webhooks} w on w.team_id = d.team_id and w.id = d.webhook_id
    where ${resumeAt} <= ${param("before")} and ${sentAt} <= ${param("now")} - ${wait}
      and (${shareOf(sql`d`)} = ${SHARE} or ${aheadOf(sql`d`)} < ${shareOf(sql`d`)})
    limit ${DUE_DELIVERIES}`;
  return db
    .update(deliveries)
    .set({ sentAt: sql`${param("now")}` })
    .where(sql`(webhook_id, seq) in (${overdue})`)
    .returning(JOB);
});

/** Sends the messages of deliveries that are overdue: for a later try, lost, or left by a Worker that died. @returns how many */
export async function sendDueDeliveries(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const [rows] = await write(deps, [takeOverdue({ now, before: now - GRACE_MILLISECONDS })], { isIdempotent: true });
  await deps.deliveryJobs.sendAll(rows);
  return rows.length;
}
