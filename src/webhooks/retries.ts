import { DAY, HOUR, MINUTE, SECOND, type System } from "../platform/system.ts";
import type { Delivery, OutboxState, Outcome } from "./outbox-store.ts";
import type { HourCounts } from "./outboxes.ts";
import type { PostResult } from "./posting.ts";

/* Decides what follows from an attempt, for its delivery and for its webhook. Pure functions, without I/O. */

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

/** A number from 0 to 1. */
function random(system: System): number {
  const [high = 0, low = 0] = system.randomBytes(2);
  return (high * 256 + low) / 65_535;
}

/** @returns the status of the delivery after an attempt, and when the next one is due */
export function outcomeOf(
  system: System,
  { attemptCount: before, nextAttemptAt }: Delivery,
  { isSuccess, retryAfterMilliseconds }: PostResult,
  isDisabled: boolean,
): Outcome {
  const now = system.now();
  const attemptCount = before + 1;
  if (isSuccess) return { status: "succeeded", attemptCount, dueAt: null };
  // A requested resend, in addition to the schedule of its delivery, or after its end.
  if (nextAttemptAt !== null && nextAttemptAt > now && !isDisabled) {
    return { status: "pending", attemptCount: before, dueAt: nextAttemptAt };
  }
  const wait = nextAttemptAt === null ? undefined : WAITS_MILLISECONDS[before];
  if (wait === undefined || isDisabled) return { status: "failed", attemptCount, dueAt: null };
  const jittered = wait * (1 - JITTER + 2 * JITTER * random(system));
  return { status: "pending", attemptCount, dueAt: now + Math.ceil(Math.max(jittered, retryAfterMilliseconds)) };
}

/** The state of a webhook as its team sees it. One or two failures before a successful retry don't count as failing. */
export const isFailing = ({ failures }: Pick<OutboxState, "failures">): boolean => failures >= FAILING_ATTEMPTS;

export const attemptsOfDay = (hours: HourCounts[], now: number): HourCounts[] =>
  hours.filter(([startsAt]) => startsAt > now - COUNTED_HOURS * HOUR);

function countAttempt(hours: HourCounts[], isSuccess: boolean, now: number): HourCounts[] {
  const startsAt = now - (now % HOUR);
  const ofDay = attemptsOfDay(hours, now);
  const [, succeeded, failed] = ofDay.find(([start]) => start === startsAt) ?? [startsAt, 0, 0];
  const present: HourCounts = [startsAt, succeeded + Number(isSuccess), failed + Number(!isSuccess)];
  return [...ofDay.filter(([start]) => start !== startsAt), present];
}

/** @returns why the webhook must be disabled after an attempt, if it must */
export function disabledReasonOf(
  { failures, failingSince }: OutboxState,
  { attempt, isSuccess }: PostResult,
  now: number,
): "gone" | "failing" | null {
  if (attempt.httpStatus === 410) return "gone";
  // A webhook that receives few events may have failed only once, days ago.
  const hasFailedForDays = failures >= MAX_FAILURES && now - (failingSince ?? now) >= MAX_FAILING_MILLISECONDS;
  return hasFailedForDays && !isSuccess ? "failing" : null;
}

/** @returns the changes of a webhook's state after an attempt. One that somebody asked for neither begins nor moves a pause */
export function stateAfter(
  state: OutboxState,
  { attempt, isSuccess, retryAfterMilliseconds }: PostResult,
  now: number,
  isRequested: boolean,
): Partial<OutboxState> {
  const latest = {
    hours: countAttempt(state.hours, isSuccess, now),
    lastResult: isSuccess ? { ...attempt, responseBody: "" } : attempt,
  };
  if (isRequested) return isSuccess ? { ...latest, failures: 0, failingSince: null } : latest;
  const resumeAt = state.resumeAt ?? 0;
  // An attempt that ends during a pause was sent before it. It neither shortens the pause nor makes the next one longer.
  const failures = isSuccess ? 0 : state.failures + Number(resumeAt <= now);
  const backoff = FIRST_PAUSE_MILLISECONDS * 2 ** Math.min(failures - MAX_FAILURES, 10);
  const pause = Math.max(
    retryAfterMilliseconds,
    failures < MAX_FAILURES || resumeAt > now ? 0 : Math.min(backoff, MAX_PAUSE_MILLISECONDS),
  );
  return {
    failures,
    failingSince: isSuccess ? null : (state.failingSince ?? now),
    resumeAt: Math.max(resumeAt, pause === 0 ? 0 : now + pause) || null,
    ...latest,
  };
}
