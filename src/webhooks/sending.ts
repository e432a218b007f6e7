import { and, eq, getTableColumns, isNotNull, lte, or, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { events } from "../events/events.schema.ts";
import {
  EVENT_OF_DELIVERY,
  isEventOfDelivery,
  newEvent,
  renderJoinedEvent,
  SYSTEM,
  writeWithEvent,
} from "../events/events.ts";
import { type Db, hasRow, type RowsOf, write } from "../platform/db.ts";
import type { JobOutcome } from "../platform/jobs.ts";
import type { WebhookJob } from "../platform/messages.ts";
import { MINUTE, newId, SECOND } from "../platform/system.ts";
import { addFailureBodies, unsent } from "./attempts.ts";
import {
  type DeliveryRow,
  deletePending,
  ENDED_ROWS,
  endPending,
  enqueueWebhooks,
  isWebhook,
  type WebhookKey,
  type WebhookRow,
  webhookByKey,
} from "./deliveries.ts";
import { type PostResult, postEvent } from "./posting.ts";
import { countAttempts, type Health, healthAfter, MAX_FAILURES, type Outcome, outcomeOf, random } from "./retries.ts";
import { deliveries, webhooks } from "./webhooks.schema.ts";

/*
 * Sends webhook deliveries in rounds. A queue message names a webhook and starts one round:
 *
 *   1. claim     one batch: lease the webhook, and read up to five due deliveries
 *   2. send      post them at the same time
 *   3. settle    one batch: store the outcomes, release the lease, and read when the next delivery is due
 *   4. continue  send the message of the next round, delayed until then
 *
 * The lease limits a webhook to one round at a time. A message that arrives during a round sends nothing and is acked. No
 * delivery is lost by that: it is inserted before its message is sent, and D1 runs batches one after another.
 *
 *   inserted before step 3    step 3 reads it, and step 4 sends a message
 *   inserted after step 3     its own message arrives after the lease was released, and starts a round
 *
 * A webhook may have to wait after a round: it pauses if its endpoint failed or asked for it, and rests if the round was
 * slow while consumers were busy. Messages that arrive in the meantime are acked too. So step 4 also sends a message if nothing
 * is due yet, which arrives at the end of the wait.
 *
 * The recovery job reads only the rows. It sends the messages of waits longer than 15 minutes, and covers failures:
 *
 *   message lost              the deliveries stay due
 *   died before step 3        the lease expires; deliveries that were sent are sent again, with the same `webhook-id`
 *   died before step 4        the lease is released; the remaining deliveries stay due
 */

/** Longer than a round: an attempt takes up to 15 s, and D1's retries a few more. A longer round may send events twice. */
export const LEASE_MILLISECONDS = 30 * SECOND;
/** An invocation has six connections. */
export const MAX_IN_FLIGHT = 5;
/** A message may arrive early by this much, because clocks differ. */
const CLOCK_SKEW_MILLISECONDS = 2 * SECOND;
/** The recovery job sends messages for later times. It runs every 5 minutes, a short delay for a wait this long. */
const MAX_MESSAGE_DELAY_MILLISECONDS = 15 * MINUTE;
/** A message that waits longer than this for a consumer shows that all consumers are busy. */
const FREE_WAIT_MILLISECONDS = SECOND;
/** While consumers are busy, a webhook rests after a round that takes longer than this. */
const FAST_ROUND_MILLISECONDS = SECOND;
/**
 * Rest = 30 × (round time − 1 s), ±50 %, so that slow endpoints leave the consumers to others, and not all at once. With 30,
 * 95 % of the events of a fast endpoint are sent within 3 s next to 300 slow ones (`npm run bench -- --only webhooks`).
 */
const REST_FACTOR = 30;

type Lease = WebhookKey & { leaseId: string };
type Claim = Lease & { leaseEndsAt: number; latest: number };

const hasLease = (lease: Lease) => and(isWebhook(lease), eq(webhooks.leaseId, lease.leaseId));

/** Idempotent, so it can be retried after a lost response. */
function claimWebhook(db: Db, { latest, ...claim }: Claim) {
  const { leaseId, leaseEndsAt } = claim;
  const isFree = and(
    eq(webhooks.status, "enabled"),
    lte(webhooks.leaseEndsAt, latest),
    lte(sql`coalesce(${webhooks.resumeAt}, 0)`, latest),
    hasRow(deliveries, and(eq(deliveries.webhookId, claim.id), lte(deliveries.dueAt, latest))),
  );
  return db
    .update(webhooks)
    .set({ leaseId, leaseEndsAt })
    .where(and(isWebhook(claim), or(isFree, eq(webhooks.leaseId, leaseId))));
}

/** Reads the oldest due deliveries and their events, if this round has the lease. */
const claimedDeliveries = (db: Db, claim: Claim) =>
  db
    .select({ ...getTableColumns(deliveries), ...EVENT_OF_DELIVERY })
    .from(webhooks)
    .innerJoin(deliveries, and(eq(deliveries.webhookId, webhooks.id), lte(deliveries.dueAt, claim.latest)))
    .leftJoin(events, isEventOfDelivery)
    .where(hasLease(claim))
    .orderBy(deliveries.dueAt, deliveries.seq)
    .limit(MAX_IN_FLIGHT);

/**
 * Stores all outcomes in one statement, because D1 runs statements one by one. A success is always stored. A failure is
 * dropped if the delivery has changed since it was read. It ends the delivery if the webhook is disabled, by the statement
 * before this one or by the team. If the team has changed the URL in the meantime, the webhook stays enabled, and the
 * delivery is retried.
 */
function storeOutcomes(db: Db, { teamId, id }: WebhookKey, outcomes: Outcome[]) {
  const stored = JSON.stringify(outcomes);
  const read = (name: keyof Outcome) => sql`(json_each.value ->> ${name})`;
  const isDisabled = hasRow(webhooks, and(isWebhook({ teamId, id }), eq(webhooks.status, "disabled")));
  const isEnded = sql`(${read("status")} = 'pending' and ${isDisabled})`;
  const isUnchanged = sql`${deliveries.status} = 'pending' and ${deliveries.attemptCount} = ${read("before")}`;
  return db
    .update(deliveries)
    .set({
      status: sql`iif(${isEnded}, 'failed', ${read("status")})`,
      attemptLog: read("attemptLog"),
      attemptCount: read("attemptCount"),
      isFailing: sql`${read("status")} <> 'succeeded'`,
      dueAt: sql`iif(${isEnded}, null, ${read("dueAt")})`,
    })
    .from(sql`json_each(${stored})`)
    .where(
      sql`${deliveries.webhookId} = ${id} and ${deliveries.teamId} = ${teamId}
        and ${deliveries.seq} in (select value ->> 'seq' from json_each(${stored}))
        and ${deliveries.seq} = ${read("seq")}
        and iif(${read("status")} = 'succeeded', ${deliveries.status} <> 'succeeded', ${isUnchanged})`,
    );
}

type Release = Pick<WebhookRow, "leaseEndsAt" | "failureBodies" | "lastResult" | "attemptCounts" | "version"> & {
  health: Omit<Health, "disabledReason">;
};
/** Stores the health only if the team has not updated the webhook since it was read. A new URL starts without failures. */
function releaseWebhook(db: Db, lease: Lease, { health, version, ...columns }: Release) {
  const ifUnchanged = (name: "failures" | "failingSince" | "resumeAt") =>
    sql`iif(${webhooks.version} = ${version}, ${health[name]}, ${webhooks[name]})`;
  return db
    .update(webhooks)
    .set({
      leaseId: null,
      ...columns,
      failures: ifUnchanged("failures"),
      failingSince: ifUnchanged("failingSince"),
      resumeAt: ifUnchanged("resumeAt"),
    })
    .where(hasLease(lease));
}

const disableWebhook = (db: Db, lease: Lease, version: number, disabledReason: "gone" | "failing", now: number) =>
  db
    .update(webhooks)
    .set({ status: "disabled", disabledReason, updatedAt: now, version: version + 1 })
    .where(and(hasLease(lease), eq(webhooks.version, version), eq(webhooks.status, "enabled")));

const nextDue = (db: Db, { id }: WebhookKey) =>
  db
    .select({ dueAt: sql<number | null>`min(${deliveries.dueAt})` })
    .from(deliveries)
    .where(and(eq(deliveries.webhookId, id), isNotNull(deliveries.dueAt)));

/** Runs one round of a webhook. A message that arrives twice, early, or late finds nothing to claim. */
export async function sendDueDeliveries(deps: Deps, job: WebhookJob): Promise<JobOutcome> {
  const now = deps.system.now();
  const key: WebhookKey = { teamId: job.teamId, id: job.webhookId };
  const lease: Lease = { ...key, leaseId: newId(deps.system, deps.db.number) };
  const claim = { ...lease, leaseEndsAt: now + LEASE_MILLISECONDS, latest: now + CLOCK_SKEW_MILLISECONDS };
  const { db } = deps;
  const queries = [claimWebhook(db, claim), webhookByKey(db, key), claimedDeliveries(db, claim)] as const;
  const [, [webhook], rows] = await write(deps, queries, { isIdempotent: true });
  if (webhook?.status !== "enabled") return endUnsent(deps, job, webhook);
  if (webhook.leaseId !== lease.leaseId) {
    if (webhook.leaseEndsAt > claim.latest) return webhook.leaseId === null ? "webhook_resting" : "webhook_leased";
    return (webhook.resumeAt ?? 0) > claim.latest ? "webhook_paused" : "nothing_due";
  }
  const round = rows.slice(0, webhook.failures < MAX_FAILURES ? MAX_IN_FLIGHT : 1);
  const sent = await Promise.all(round.map((row) => sendDelivery(deps, webhook, row)));
  const roundMilliseconds = deps.system.now() - now;
  const waited = now - (job.at ?? now);
  return settle(deps, lease, webhook, sent, restAfter(deps, waited, roundMilliseconds));
}

/** How long a webhook rests after a round, so that slow endpoints hold no consumer that others wait for. */
function restAfter({ system }: Deps, waitedMilliseconds: number, roundMilliseconds: number): number {
  const excess = Math.max(0, roundMilliseconds - FAST_ROUND_MILLISECONDS);
  if (waitedMilliseconds <= FREE_WAIT_MILLISECONDS || excess === 0) return 0;
  return Math.ceil(Math.min(excess * REST_FACTOR, MAX_MESSAGE_DELAY_MILLISECONDS) * (0.5 + random(system)));
}

interface SentDelivery {
  delivery: DeliveryRow;
  result: PostResult;
  isPurged: boolean;
}

type ClaimedDelivery = Awaited<ReturnType<typeof claimedDeliveries>>[number];

async function sendDelivery(deps: Deps, webhook: WebhookRow, delivery: ClaimedDelivery): Promise<SentDelivery> {
  const event = renderJoinedEvent(delivery);
  if (event === null) {
    const attempt = unsent(deps.system.now(), "event_purged");
    return { delivery, result: { attempt, isSuccess: false, retryAfterMilliseconds: 0 }, isPurged: true };
  }
  return { delivery, result: await postEvent(deps, webhook, event), isPurged: false };
}

async function settle(
  deps: Deps,
  lease: Lease,
  webhook: WebhookRow,
  sent: SentDelivery[],
  rest: number,
): Promise<JobOutcome> {
  const now = deps.system.now();
  const { teamId, id, version } = webhook;
  const posted = sent.flatMap(({ result, isPurged }) => (isPurged ? [] : [result]));
  const { disabledReason: reason, ...health } =
    posted.length > 0 ? healthAfter(webhook, posted, now) : { ...webhook, disabledReason: null };
  const outcomes = sent.map(({ delivery, result, isPurged }) => outcomeOf(deps.system, delivery, result, isPurged));
  const bodies = sent.map(({ delivery, result: { isSuccess, attempt } }) => ({
    seq: delivery.seq,
    body: isSuccess ? "" : attempt.responseBody,
  }));
  const { db } = deps;
  const failureBodies = addFailureBodies(webhook.failureBodies, bodies);
  const store = storeOutcomes(db, webhook, outcomes);
  const attemptCounts = posted.length > 0 ? countAttempts(webhook, posted, now) : webhook.attemptCounts;
  const last = posted.at(-1);
  const responseBody = last?.isSuccess ? "" : last?.attempt.responseBody;
  const lastResult = last ? JSON.stringify({ ...last.attempt, responseBody }) : webhook.lastResult;
  const columns = { leaseEndsAt: now + rest, failureBodies, lastResult, attemptCounts };
  const release = releaseWebhook(db, lease, { ...columns, health, version });
  const finish = [release, webhookByKey(db, lease), nextDue(db, lease)] as const;
  const disableAndFinish = (disabledReason: "gone" | "failing") => {
    const disable = disableWebhook(db, lease, version, disabledReason, now);
    const event = newEvent(deps, "webhook.disabled", SYSTEM, { teamId, id, version: version + 1 }, { reason });
    const queries = [disable, store, endPending(db, webhook, now), ...finish] as const;
    return writeWithEvent(deps, event, queries, { isIdempotent: true });
  };
  const rows = await (reason === null
    ? write(deps, [store, ...finish], { isIdempotent: true })
    : disableAndFinish(reason));
  const [, [released], [next]] = rows.slice(-finish.length) as unknown as RowsOf<typeof finish>;
  await continueLater(deps, released, next?.dueAt ?? null, rest > 0);
  if (reason !== null) return `webhook_disabled_${reason}`;
  return posted.some(({ isSuccess }) => isSuccess) ? "succeeded" : "failed";
}

/** Sends the message of the next round, unless another round has the lease and will send it. */
async function continueLater(
  deps: Deps,
  webhook: WebhookRow | undefined,
  dueAt: number | null,
  isResting: boolean,
): Promise<void> {
  if (!webhook || webhook.leaseId !== null) return;
  const job: WebhookJob = { teamId: webhook.teamId, webhookId: webhook.id };
  if (webhook.status === "disabled") {
    if (dueAt !== null) await enqueueWebhooks(deps, [job]);
    return;
  }
  if (dueAt === null && webhook.resumeAt === null && !isResting) return;
  const wait = Math.max(dueAt ?? 0, webhook.resumeAt ?? 0, webhook.leaseEndsAt) - deps.system.now();
  if (wait > MAX_MESSAGE_DELAY_MILLISECONDS) return;
  await enqueueWebhooks(deps, [job], Math.max(0, Math.ceil(wait / SECOND)));
}

/** Ends up to `ENDED_ROWS` pending deliveries of a webhook that is disabled or deleted. */
async function endUnsent(deps: Deps, job: WebhookJob, webhook: WebhookRow | undefined): Promise<JobOutcome> {
  const key: WebhookKey = { teamId: job.teamId, id: job.webhookId };
  const query = webhook ? endPending(deps.db, key, deps.system.now()) : deletePending(deps.db, key);
  const [ended] = await write(deps, [query], { isIdempotent: true });
  if (ended.length === ENDED_ROWS) await enqueueWebhooks(deps, [job]);
  return webhook ? "webhook_disabled" : "webhook_deleted";
}
