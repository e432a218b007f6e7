import { and, eq, getTableColumns, lte, ne, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type BoundQuery, given, type Param, preparedQuery, read, write } from "../../platform/db.ts";
import type { DeliveryJob, JobOutcome } from "../../platform/jobs.ts";
import { deliveries, events, webhooks } from "../../platform/schema.ts";
import {
  type Attempt,
  type DeliveryKey,
  type DeliveryRow,
  isDelivery,
  isUntried,
  isWebhook,
  unsent,
  type WebhookKey,
  type WebhookRow,
  webhookByKey,
} from "./deliveries.ts";
import { eventId, newEvent, renderEvent, SYSTEM, writeWithEvent } from "./events.ts";
import { post, type Try } from "./posting.ts";
import { enqueueDeliveries, takeNext, turn } from "./turns.ts";
import type { DisabledReason } from "./webhooks.ts";

/*
 * A delivery's way from `pending` to `succeeded` or `failed`: one read, one POST, one write for each try.
 *
 *   nothing read yet         the message comes again, or recovery sends another
 *   after the POST           the write never came: the event is sent again, under the same `webhook-id`
 *   after the write          a message that comes again finds the delivery ended, or not due
 *
 * So an event may arrive twice and is never lost. A try that is due within 15 minutes comes by its message's delay, a
 * later one by recovery, which goes by the rows alone and so also finds what was lost. While a webhook is paused its
 * deliveries stay due; when they are sent is decided in `turns.ts`. Neither a message nor its batch waits for a receiver
 * that takes its time: the try goes on without them.
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Between a try and the next, after the example of Standard Webhooks: 75 hours in all. */
const WAITS_MILLISECONDS = [
  5 * SECOND,
  ...[5, 30].map((minutes) => minutes * MINUTE),
  ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR),
];
export const MAX_TRIES = WAITS_MILLISECONDS.length + 1;
const JITTER = 0.2;
const MAX_MESSAGE_DELAY_MILLISECONDS = 15 * MINUTE;
/** Clocks differ: a message may come so much before its time. */
const EARLY_MILLISECONDS = 2 * SECOND;
/** From so many failures in a row on, a webhook is sent one delivery at a time, ever more seldom. */
const MAX_FAILURES = 10;
const FIRST_PAUSE_MILLISECONDS = 5 * MINUTE;
const MAX_PAUSE_MILLISECONDS = HOUR;
const MAX_FAILING_MILLISECONDS = 5 * DAY;
const KEPT_ATTEMPTS = MAX_TRIES;
/** A message waits so long for a receiver. Most answer within it. */
export const PATIENCE_MILLISECONDS = 500;
/** The webhook as it was read: what its team has changed since is not judged by how the old one did. */
type ReadWebhook = WebhookKey & Pick<WebhookRow, "version">;
type ReadDelivery = DeliveryRow & { share: number };

const deliveryOf = preparedQuery((db, param: Param<DeliveryKey>) =>
  db
    .select({ ...getTableColumns(deliveries), ...turn })
    .from(deliveries)
    .where(isDelivery(param)),
);
const eventOf = preparedQuery((db, param: Param<{ teamId: string; seq: number }>) =>
  db
    .select()
    .from(events)
    .where(and(eq(events.teamId, param("teamId")), eq(events.seq, param("seq")))),
);

type TriedValues = DeliveryKey & { status: string; attempts: string; tries: number; dueAt: number | null };
/** A success counts, whatever another worker wrote. */
const succeed = preparedQuery((db, param: Param<TriedValues>) =>
  db
    .update(deliveries)
    .set(given(param, "status", "attempts", "tries", "dueAt"))
    .where(and(isDelivery(param), ne(deliveries.status, "succeeded"))),
);
const fail = preparedQuery((db, param: Param<TriedValues & { before: number }>) =>
  db
    .update(deliveries)
    .set(given(param, "status", "attempts", "tries", "dueAt"))
    .where(isUntried(param)),
);
const removeDelivery = preparedQuery((db, param: Param<DeliveryKey>) => db.delete(deliveries).where(isDelivery(param)));

const isAsRead = (param: Param<ReadWebhook>) => and(isWebhook(param), eq(webhooks.version, param("version")));
/** The webhook is well; nothing is written where it was. A pause that was asked for meanwhile is kept. */
const heal = preparedQuery((db, param: Param<ReadWebhook & { knownPause: number }>) =>
  db
    .update(webhooks)
    .set({
      failures: 0,
      failingSince: null,
      resumeAt: sql`nullif(${webhooks.resumeAt}, ${param("knownPause")})`,
    })
    .where(and(isAsRead(param), sql`(${webhooks.failures} > 0 or ${webhooks.resumeAt} = ${param("knownPause")})`)),
);
/** Stands behind the delivery's update, and counts what that has changed. */
const countFailure = preparedQuery((db, param: Param<ReadWebhook & { now: number; resumeAt: number }>) =>
  db
    .update(webhooks)
    .set({
      failures: sql`${webhooks.failures} + 1`,
      failingSince: sql`coalesce(${webhooks.failingSince}, ${param("now")})`,
      resumeAt: sql`nullif(max(coalesce(${webhooks.resumeAt}, 0), ${param("resumeAt")}), 0)`,
    })
    .where(and(isAsRead(param), sql`changes() > 0`)),
);
type DisableValues = ReadWebhook & { disabledReason: DisabledReason; updatedAt: number; failingBefore: number | null };
/** Only where it has not become well meanwhile, unless it said itself that it is gone. */
const disable = preparedQuery((db, param: Param<DisableValues>) =>
  db
    .update(webhooks)
    .set({
      status: "disabled",
      ...given(param, "disabledReason", "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(
      and(
        isAsRead(param),
        eq(webhooks.status, "enabled"),
        sql`(${param("failingBefore")} is null or ${webhooks.failingSince} <= ${param("failingBefore")})`,
      ),
    ),
);
/** Of a webhook that fails again and again, one worker at a time wins the try. */
const claimTry = preparedQuery((db, param: Param<ReadWebhook & { now: number; resumeAt: number }>) =>
  db
    .update(webhooks)
    .set(given(param, "resumeAt"))
    .where(and(isAsRead(param), lte(sql`coalesce(${webhooks.resumeAt}, 0)`, param("now"))))
    .returning({ id: webhooks.id }),
);

/** A number from 0 to 1. */
function random({ system }: Deps): number {
  const [high = 0, low = 0] = system.randomBytes(2);
  return (high * 256 + low) / 65_535;
}

/** How long a webhook is left alone after so many failures in a row. */
const pauseMilliseconds = (failures: number) =>
  Math.min(FIRST_PAUSE_MILLISECONDS * 2 ** Math.min(failures - MAX_FAILURES, 10), MAX_PAUSE_MILLISECONDS);

/**
 * One delivery's job. A message that comes twice, late or early finds nothing that is due.
 * @returns what is to become of its message; `rest` where the receiver takes its time, for which no message waits
 */
export async function deliver(
  deps: Deps,
  { teamId, webhookId, seq }: DeliveryJob,
): Promise<JobOutcome | { rest: Promise<JobOutcome> }> {
  const now = deps.system.now();
  const queries = [
    webhookByKey({ teamId, id: webhookId }),
    deliveryOf({ webhookId, seq }),
    eventOf({ teamId, seq }),
  ] as const;
  const [[webhook], [delivery], [event]] = await read(deps, queries);
  if (!delivery || delivery.dueAt === null) return "not ours";
  if (delivery.dueAt > now + EARLY_MILLISECONDS) return "not due";
  if (delivery.ahead >= delivery.share) return "not its turn";
  if (!webhook) {
    await leave(deps, delivery, [removeDelivery(delivery)]);
    return "webhook gone";
  }
  if (webhook.status === "disabled" || !event) {
    const error = event ? "webhook_disabled" : "event_purged";
    await leave(deps, delivery, [fail(triedValues(delivery, unsent(now, error), "failed"))]);
    return "failed unsent";
  }
  const { resumeAt, knownPause } = await pauseOf(deps, webhook, now);
  if (resumeAt !== null) {
    const waitMilliseconds = (resumeAt - now) * (1 + JITTER * random(deps));
    return isByMessage(webhook.failures, waitMilliseconds)
      ? { retryAfterSeconds: seconds(waitMilliseconds) }
      : "paused";
  }
  const posted = post(deps, webhook, eventId(teamId, seq), renderEvent(event));
  const settled = posted.then(async (result): Promise<JobOutcome> => {
    if (!result.isSuccess) return settleFailure(deps, webhook, delivery, result);
    const success = succeed(triedValues(delivery, result.attempt, "succeeded"));
    const isRestart = webhook.failures >= MAX_FAILURES;
    await leave(deps, delivery, [success, heal({ ...webhook, knownPause })], { isRestart });
    return "succeeded";
  });
  const inTime = () => false;
  const patience = deps.system.sleep(PATIENCE_MILLISECONDS).then(() => true);
  const isSlow = await Promise.race([posted.then(inTime, inTime), patience]);
  return isSlow ? { rest: settled } : settled;
}

/** Writes what ends a delivery, or puts it off, and sends the message of the one that moves up. */
async function leave(
  deps: Deps,
  delivery: ReadDelivery,
  queries: BoundQuery<unknown>[],
  options?: { isRestart: boolean },
): Promise<void> {
  const all = [takeNext(deps, delivery, options), ...queries] as const;
  const [jobs] = await write(deps, all, { isIdempotent: true });
  await enqueueDeliveries(deps, jobs);
}

const seconds = (milliseconds: number) => Math.ceil(milliseconds / SECOND);
/** Whether a wait is left to the queue. Of a webhook that fails again and again, many may wait: recovery sends them. */
const isByMessage = (failures: number, waitMilliseconds: number) =>
  failures < MAX_FAILURES && waitMilliseconds <= MAX_MESSAGE_DELAY_MILLISECONDS;

/**
 * Until when nothing is sent to the webhook; null where this delivery is to be tried now. `knownPause` is the pause that
 * this try begins under, which its success ends; 0 where there is none.
 */
async function pauseOf(
  deps: Deps,
  webhook: WebhookRow,
  now: number,
): Promise<{ resumeAt: number | null; knownPause: number }> {
  const knownPause = webhook.resumeAt ?? 0;
  if (knownPause > now) return { resumeAt: knownPause, knownPause };
  if (webhook.failures < MAX_FAILURES) return { resumeAt: null, knownPause };
  const resumeAt = now + pauseMilliseconds(webhook.failures);
  const [claimed] = await write(deps, [claimTry({ ...webhook, now, resumeAt })], { isIdempotent: false });
  return claimed.length > 0 ? { resumeAt: null, knownPause: resumeAt } : { resumeAt, knownPause };
}

/** The columns of a delivery after a try, or after none, where it ends without. */
function triedValues(
  delivery: DeliveryRow,
  attempt: Attempt | null,
  status: DeliveryRow["status"],
  dueAt: number | null = null,
): TriedValues & { before: number } {
  const attempts: Attempt[] = attempt === null ? [] : [attempt];
  return {
    webhookId: delivery.webhookId,
    seq: delivery.seq,
    status,
    attempts: JSON.stringify([...JSON.parse(delivery.attempts), ...attempts].slice(-KEPT_ATTEMPTS)),
    before: delivery.tries,
    tries: delivery.tries + attempts.length,
    dueAt,
  };
}

async function settleFailure(
  deps: Deps,
  webhook: WebhookRow,
  delivery: ReadDelivery,
  { attempt, waitMilliseconds }: Try,
): Promise<JobOutcome> {
  const now = deps.system.now();
  const isGone = attempt.httpStatus === 410;
  // A webhook that hears of little may have failed once, days ago.
  const hasFailedOften = webhook.failures >= MAX_FAILURES;
  const isTooLong = hasFailedOften && now - (webhook.failingSince ?? now) >= MAX_FAILING_MILLISECONDS;
  const wait = WAITS_MILLISECONDS[delivery.tries];
  const isLast = isGone || isTooLong || wait === undefined;
  const jittered = (wait ?? 0) * (1 - JITTER + 2 * JITTER * random(deps));
  const delaySeconds = seconds(Math.max(jittered, waitMilliseconds));
  const tried = isLast
    ? triedValues(delivery, attempt, "failed")
    : triedValues(delivery, attempt, "pending", now + delaySeconds * SECOND);

  const failures = webhook.failures + 1;
  const pause = Math.max(waitMilliseconds, failures < MAX_FAILURES ? 0 : pauseMilliseconds(failures));
  const { teamId, id, version } = webhook;
  const asRead: ReadWebhook = { teamId, id, version };
  const counted = countFailure({ ...asRead, now, resumeAt: pause === 0 ? 0 : now + pause });
  const next = takeNext(deps, delivery);
  if (isGone || isTooLong) {
    const reason: DisabledReason = isGone ? "gone" : "failing";
    const event = newEvent(deps, "webhook.disabled", SYSTEM, { ...asRead, version: version + 1 }, { reason });
    const failingBefore = isGone ? null : now - MAX_FAILING_MILLISECONDS;
    const change = disable({ ...asRead, disabledReason: reason, updatedAt: now, failingBefore });
    const queries = [change, next, fail(tried), counted] as const;
    const [, jobs] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
    await enqueueDeliveries(deps, jobs);
    return `failed, webhook ${reason}`;
  }
  if (isByMessage(failures, pause)) {
    const [jobs] = await write(deps, [next, fail(tried), counted], { isIdempotent: true });
    await enqueueDeliveries(deps, jobs, seconds(pause));
  } else await write(deps, [fail(tried), counted], { isIdempotent: true });
  if (isLast) return "failed";
  return delaySeconds * SECOND <= MAX_MESSAGE_DELAY_MILLISECONDS
    ? { retryAfterSeconds: delaySeconds }
    : "tried, left to recovery";
}
