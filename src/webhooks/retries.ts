import { DAY, HOUR, MINUTE, SECOND, type System } from "../platform/system.ts";
import { addAttempt } from "./attempts.ts";
import type { DeliveryRow, WebhookRow } from "./deliveries.ts";
import type { PostResult } from "./posting.ts";

/* Decides what follows from a round of attempts, for its deliveries and for their webhook. Pure functions, without I/O. */

/** Waits between attempts, as Standard Webhooks suggests: 75 hours in total. */
const WAITS_MILLISECONDS = [
  5 * SECOND,
  5 * MINUTE,
  30 * MINUTE,
  ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR),
];
export const MAX_DELIVERY_ATTEMPTS = WAITS_MILLISECONDS.length + 1;
const JITTER = 0.2;
/** After this many consecutive failures, a webhook is sent one delivery at a time, with growing pauses. */
export const MAX_FAILURES = 10;
const FIRST_PAUSE_MILLISECONDS = 5 * MINUTE;
const MAX_PAUSE_MILLISECONDS = HOUR;
const MAX_FAILING_MILLISECONDS = 5 * DAY;
/** A webhook is failing after this many consecutive failures: the second retry follows after minutes. */
export const FAILING_ATTEMPTS = 3;
/** The hours of which attempts are counted, including the present one. */
const COUNTED_HOURS = 24;

/** The new values of a delivery. Unless the attempt succeeded, they are stored only if the row still has `before` attempts. */
export interface Outcome extends Pick<DeliveryRow, "seq" | "status" | "attemptLog" | "attemptCount" | "dueAt"> {
  before: number;
}

/** The new values of a webhook. */
export interface Health extends Pick<WebhookRow, "failures" | "failingSince" | "resumeAt"> {
  /** Why the webhook must be disabled. Null if it stays enabled. */
  disabledReason: "gone" | "failing" | null;
}

/** A number from 0 to 1. */
export function random(system: System): number {
  const [high = 0, low = 0] = system.randomBytes(2);
  return (high * 256 + low) / 65_535;
}

/** @param isLast ends the delivery even if its schedule allows more attempts */
export function outcomeOf(system: System, delivery: DeliveryRow, result: PostResult, isLast: boolean): Outcome {
  const { seq, attemptLog, attemptCount } = delivery;
  const { attempt, isSuccess, retryAfterMilliseconds } = result;
  const wait = WAITS_MILLISECONDS[attemptCount];
  const isEnded = isSuccess || isLast || wait === undefined;
  const jittered = (wait ?? 0) * (1 - JITTER + 2 * JITTER * random(system));
  const delay = Math.ceil(Math.max(jittered, retryAfterMilliseconds));
  return {
    seq,
    before: attemptCount,
    attemptCount: attemptCount + 1,
    status: isSuccess ? "succeeded" : isEnded ? "failed" : "pending",
    attemptLog: addAttempt(attemptLog, attempt),
    dueAt: isEnded ? null : system.now() + delay,
  };
}

/** The state of a webhook as its team sees it. One or two failures before a successful retry don't count as failing. */
export function healthOf({ status, failures, failingSince }: WebhookRow) {
  if (status === "disabled") return { health: "disabled", failingSince } as const;
  if (failures < FAILING_ATTEMPTS) return { health: "healthy", failingSince: null } as const;
  return { health: "failing", failingSince } as const;
}

/** The attempts of one hour. */
type HourCounts = [startsAt: number, succeeded: number, failed: number];

/** The attempts of the last day by hour, oldest first. Hours without an attempt are left out. */
export function attemptsOfDay({ attemptCounts }: Pick<WebhookRow, "attemptCounts">, now: number): HourCounts[] {
  return (JSON.parse(attemptCounts) as HourCounts[]).filter(([startsAt]) => startsAt > now - COUNTED_HOURS * HOUR);
}

/** @returns the webhook's `attemptCounts` after a round */
export function countAttempts(webhook: WebhookRow, results: PostResult[], now: number): string {
  const startsAt = now - (now % HOUR);
  const counts = attemptsOfDay(webhook, now);
  const [, succeeded, failed] = counts.find(([start]) => start === startsAt) ?? [startsAt, 0, 0];
  const successes = results.filter(({ isSuccess }) => isSuccess).length;
  const present: HourCounts = [startsAt, succeeded + successes, failed + results.length - successes];
  return JSON.stringify([...counts.filter(([start]) => start !== startsAt), present]);
}

/** @returns the health of the webhook after a round that sent something */
export function healthAfter(webhook: WebhookRow, results: PostResult[], now: number): Health {
  const isGone = results.some(({ attempt }) => attempt.httpStatus === 410);
  const requested = Math.max(0, ...results.map(({ retryAfterMilliseconds }) => retryAfterMilliseconds));
  const hasSucceeded = results.some(({ isSuccess }) => isSuccess);
  const failures = hasSucceeded ? 0 : webhook.failures + results.length;
  const failingSince = hasSucceeded ? null : (webhook.failingSince ?? now);
  // A webhook that receives few events may have failed only once, days ago.
  const isFailing =
    webhook.failures >= MAX_FAILURES && failingSince !== null && now - failingSince >= MAX_FAILING_MILLISECONDS;
  const backoff = Math.min(
    FIRST_PAUSE_MILLISECONDS * 2 ** Math.min(failures - MAX_FAILURES, 10),
    MAX_PAUSE_MILLISECONDS,
  );
  const pause = Math.max(requested, failures < MAX_FAILURES ? 0 : backoff);
  return {
    failures,
    failingSince,
    resumeAt: pause === 0 ? null : now + pause,
    disabledReason: isGone ? "gone" : isFailing ? "failing" : null,
  };
}
