import { and, eq, getTableColumns, isNotNull, lte, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { given, type Param, preparedQuery, type RowsOf, write } from "../../platform/db.ts";
import type { JobOutcome, WebhookJob } from "../../platform/jobs.ts";
import { deliveries, events, webhooks } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
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
import { newEvent, renderEvent, SYSTEM, writeWithEvent } from "./events.ts";
import { type PostResult, postEvent } from "./posting.ts";
import { type Health, healthAfter, MAX_FAILURES, type Outcome, outcomeOf } from "./retries.ts";

/*
 * A message names a webhook. Its consumer runs one round:
 *
 *   1. claim     lease the webhook, and read up to five deliveries that are due: one batch
 *   2. send      at the same time
 *   3. settle    store all outcomes, release the lease, and read when the next delivery is due: one batch
 *   4. continue  send the message of the next round, delayed until then
 *
 * The lease lets each webhook hold one invocation at a time. A second message finds the lease and is acked. No event is
 * stranded by that, because a delivery is inserted before its message is sent, and D1 runs batches one after another:
 *
 *   inserted before the settle batch   that batch sees the delivery, and step 4 sends a message
 *   inserted after it                  the delivery's own message finds no lease, and claims the webhook
 *
 * A pause or a rest that outlives the lease also acks messages, so step 4 sends a message for its end even if nothing is
 * due yet. Everything else is left to the recovery job, which reads only the rows: waits of more than 15 minutes, lost
 * messages, and consumers that died.
 *
 *   died before step 2                 the lease expires, the deliveries are still due
 *   died between steps 2 and 3         the same; events are sent again with the same `webhook-id`
 *   died between steps 3 and 4         nothing is leased, what is left is due
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/** Longer than a round takes: an attempt has 15 s, and D1's retries a few more. A late round may send an event twice. */
export const LEASE_MILLISECONDS = 30 * SECOND;
/** An invocation has six connections. */
export const MAX_IN_FLIGHT = 5;
/** A message may arrive early by this much, because clocks differ. */
const CLOCK_SKEW_MILLISECONDS = 2 * SECOND;
/** The recovery job sends messages for later times. It comes every 5 minutes, which such waits can bear. */
const MAX_MESSAGE_DELAY_MILLISECONDS = 15 * MINUTE;
/** A webhook rests after a round that takes longer than this. */
const FAST_ROUND_MILLISECONDS = SECOND;
/** The rest is 15 times as long as the round exceeded that: an endpoint that takes 15 s holds a fifteenth of an invocation. */
const REST_FACTOR = 15;

type Lease = WebhookKey & { leaseId: string };
type Claim = Lease & { leaseEndsAt: number; latest: number };

/** Repeating it after a lost response changes nothing. */
const claimWebhook = preparedQuery((db, param: Param<Claim>) => {
  const isFree = and(
    eq(webhooks.status, "enabled"),
    lte(webhooks.leaseEndsAt, param("latest")),
    lte(sql`coalesce(${webhooks.resumeAt}, 0)`, param("latest")),
    sql`exists (select 1 from deliveries where webhook_id = ${param("id")} and due_at <= ${param("latest")})`,
  );
  return db
    .update(webhooks)
    .set(given(param, "leaseId", "leaseEndsAt"))
    .where(and(isWebhook(param), or(isFree, eq(webhooks.leaseId, param("leaseId")))));
});

/** The oldest due deliveries and their events, if the lease is ours. Each column needs its own name in a batch. */
const claimedDeliveries = preparedQuery((db, param: Param<Claim>) =>
  db
    .select({
      ...getTableColumns(deliveries),
      eventCreatedAt: sql<number | null>`${events.createdAt}`.as("event_created_at"),
      actor: events.actor,
      subjectId: events.subjectId,
      subjectVersion: events.subjectVersion,
      data: events.data,
    })
    .from(webhooks)
    .innerJoin(deliveries, and(eq(deliveries.webhookId, webhooks.id), lte(deliveries.dueAt, param("latest"))))
    .leftJoin(events, and(eq(events.teamId, webhooks.teamId), eq(events.seq, deliveries.seq)))
    .where(and(isWebhook(param), eq(webhooks.leaseId, param("leaseId"))))
    .orderBy(deliveries.dueAt, deliveries.seq)
    .limit(MAX_IN_FLIGHT),
);

/**
 * One statement for all, because D1 runs statements one by one. A success is stored in any case. A failure is dropped if the
 * delivery has changed since it was read.
 */
const storeOutcomes = preparedQuery((db, param: Param<WebhookKey & { outcomes: string }>) => {
  const read = (name: keyof Outcome) => sql`(json_each.value ->> ${name})`;
  const isUnchanged = sql`${deliveries.status} = 'pending' and ${deliveries.tries} = ${read("before")}`;
  return db
    .update(deliveries)
    .set({
      status: read("status"),
      attempts: read("attempts"),
      tries: read("tries"),
      dueAt: read("dueAt"),
    })
    .from(sql`json_each(${param("outcomes")})`)
    .where(
      sql`${deliveries.webhookId} = ${param("id")} and ${deliveries.teamId} = ${param("teamId")}
        and ${deliveries.seq} in (select value ->> 'seq' from json_each(${param("outcomes")}))
        and ${deliveries.seq} = ${read("seq")}
        and iif(${read("status")} = 'succeeded', ${deliveries.status} <> 'succeeded', ${isUnchanged})`,
    );
});

type Release = Lease & Omit<Health, "disabledReason"> & { version: number; leaseEndsAt: number; failureBodies: string };
/** The health is stored only if the team has not changed the webhook since it was read: the new URL starts without failures. */
const releaseWebhook = preparedQuery((db, param: Param<Release>) => {
  const ifUnchanged = (name: "failures" | "failingSince" | "resumeAt") =>
    sql`iif(${webhooks.version} = ${param("version")}, ${param(name)}, ${webhooks[name]})`;
  return db
    .update(webhooks)
    .set({
      leaseId: null,
      ...given(param, "leaseEndsAt", "failureBodies"),
      failures: ifUnchanged("failures"),
      failingSince: ifUnchanged("failingSince"),
      resumeAt: ifUnchanged("resumeAt"),
    })
    .where(and(isWebhook(param), eq(webhooks.leaseId, param("leaseId"))));
});

type Disabling = Lease & { version: number; disabledReason: string; updatedAt: number };
const disableWebhook = preparedQuery((db, param: Param<Disabling>) =>
  db
    .update(webhooks)
    .set({
      status: "disabled",
      ...given(param, "disabledReason", "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(
      and(
        isWebhook(param),
        eq(webhooks.leaseId, param("leaseId")),
        eq(webhooks.version, param("version")),
        eq(webhooks.status, "enabled"),
      ),
    ),
);

const nextDue = preparedQuery((db, param: Param<WebhookKey>) =>
  db
    .select({ dueAt: sql<number | null>`min(${deliveries.dueAt})` })
    .from(deliveries)
    .where(and(eq(deliveries.webhookId, param("id")), isNotNull(deliveries.dueAt))),
);

/** Runs one round of a webhook. A message that arrives twice, early, or late finds nothing to claim. */
export async function sendDueDeliveries(deps: Deps, job: WebhookJob): Promise<JobOutcome> {
  const now = deps.system.now();
  const key: WebhookKey = { teamId: job.teamId, id: job.webhookId };
  const lease: Lease = { ...key, leaseId: newId(deps.system) };
  const claim = { ...lease, leaseEndsAt: now + LEASE_MILLISECONDS, latest: now + CLOCK_SKEW_MILLISECONDS };
  const queries = [claimWebhook(claim), webhookByKey(key), claimedDeliveries(claim)] as const;
  const [, [webhook], rows] = await write(deps, queries, { isIdempotent: true });
  if (webhook?.status !== "enabled") return endUnsent(deps, job, webhook);
  if (webhook.leaseId !== lease.leaseId) {
    if (webhook.leaseEndsAt > claim.latest) return webhook.leaseId === null ? "webhook_resting" : "webhook_leased";
    return (webhook.resumeAt ?? 0) > claim.latest ? "webhook_paused" : "nothing_due";
  }
  const round = rows.slice(0, webhook.failures < MAX_FAILURES ? MAX_IN_FLIGHT : 1);
  const sent = await Promise.all(round.map((row) => sendOne(deps, webhook, row)));
  const roundMilliseconds = deps.system.now() - now;
  return settle(deps, lease, webhook, sent, roundMilliseconds);
}

interface Sent {
  delivery: DeliveryRow;
  result: PostResult;
  isPurged: boolean;
}

type ClaimedDelivery = RowsOf<[ReturnType<typeof claimedDeliveries>]>[0][number];

async function sendOne(deps: Deps, webhook: WebhookRow, delivery: ClaimedDelivery): Promise<Sent> {
  const { teamId, seq, type, eventCreatedAt: createdAt, actor, subjectId, subjectVersion, data } = delivery;
  if (createdAt === null || actor === null || subjectId === null || data === null) {
    const attempt = unsent(deps.system.now(), "event_purged");
    return { delivery, result: { attempt, isSuccess: false, retryAfterMilliseconds: 0 }, isPurged: true };
  }
  const event = renderEvent({ teamId, seq, type, createdAt, actor, subjectId, subjectVersion, data });
  return { delivery, result: await postEvent(deps, webhook, event), isPurged: false };
}

async function settle(
  deps: Deps,
  lease: Lease,
  webhook: WebhookRow,
  sent: Sent[],
  roundMilliseconds: number,
): Promise<JobOutcome> {
  const now = deps.system.now();
  const { teamId, id, version } = webhook;
  const posted = sent.flatMap(({ result, isPurged }) => (isPurged ? [] : [result]));
  const { disabledReason: reason, ...health } =
    posted.length > 0 ? healthAfter(webhook, posted, now) : { ...webhook, disabledReason: null };
  const outcomes = sent.map(({ delivery, result, isPurged }) =>
    outcomeOf(deps.system, delivery, result, isPurged || reason !== null),
  );
  const slowness = Math.max(0, roundMilliseconds - FAST_ROUND_MILLISECONDS);
  const rest = Math.min(slowness * REST_FACTOR, MAX_MESSAGE_DELAY_MILLISECONDS);
  const bodies = sent.map(({ delivery, result: { isSuccess, attempt } }) => ({
    seq: delivery.seq,
    body: isSuccess ? "" : attempt.responseBody,
  }));
  const release: Release = {
    ...lease,
    version,
    failures: health.failures,
    failingSince: health.failingSince,
    resumeAt: health.resumeAt,
    leaseEndsAt: now + rest,
    failureBodies: addFailureBodies(webhook.failureBodies, bodies),
  };
  const store = storeOutcomes({ teamId, id, outcomes: JSON.stringify(outcomes) });
  const last = [releaseWebhook(release), webhookByKey(lease), nextDue(lease)] as const;
  if (reason === null) {
    const [, , [after], [next]] = await write(deps, [store, ...last], { isIdempotent: true });
    await continueLater(deps, after, next?.dueAt ?? null, rest > 0);
    return posted.some(({ isSuccess }) => isSuccess) ? "succeeded" : "failed";
  }
  const disable = disableWebhook({ ...lease, version, disabledReason: reason, updatedAt: now });
  const event = newEvent(deps, "webhook.disabled", SYSTEM, { teamId, id, version: version + 1 }, { reason });
  const queries = [disable, store, endPending(webhook, now), ...last] as const;
  const [, , , , [after], [next]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  await continueLater(deps, after, next?.dueAt ?? null, rest > 0);
  return `webhook_disabled_${reason}`;
}

/** Sends the message of the next round. If another round has the lease, that one sends it. */
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

/** Ends deliveries of a webhook that is disabled or deleted, a bounded number for each message. */
async function endUnsent(deps: Deps, job: WebhookJob, webhook: WebhookRow | undefined): Promise<JobOutcome> {
  const key: WebhookKey = { teamId: job.teamId, id: job.webhookId };
  const query = webhook ? endPending(key, deps.system.now()) : deletePending(key);
  const [ended] = await write(deps, [query], { isIdempotent: true });
  if (ended.length === ENDED_ROWS) await enqueueWebhooks(deps, [job]);
  return webhook ? "webhook_disabled" : "webhook_deleted";
}
