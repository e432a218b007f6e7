/*
 * The attempts of a delivery, as they are stored. A team with ten webhooks stores ten deliveries for each event. So an
 * attempt is an array of about 30 bytes, and the row of a webhook has the response bodies of its latest failures only.
 */

/** The last two end a delivery unsent: its webhook was disabled, or its event is no longer in the event log. */
export const ATTEMPT_ERRORS = [
  "timeout",
  "connection_failed",
  "address_refused",
  "secret_unreadable",
  "webhook_disabled",
  "event_purged",
] as const;

export interface Attempt {
  /** Milliseconds since the epoch. */
  at: number;
  /** Null if there was no response. */
  httpStatus: number | null;
  /** Why there was no complete response. Null if the status says it all. */
  error: (typeof ATTEMPT_ERRORS)[number] | null;
  durationMilliseconds: number;
  /** Up to 1 KiB. */
  responseBody: string;
}

export const unsent = (at: number, error: Attempt["error"]): Attempt => ({
  at,
  httpStatus: null,
  error,
  durationMilliseconds: 0,
  responseBody: "",
});

/** The delivery log keeps the attempts of a full schedule. */
export const KEPT_ATTEMPTS = 10;

type StoredAttempt = [at: number, httpStatus: Attempt["httpStatus"], error: Attempt["error"], duration: number];

export const storedAttempt = ({ at, httpStatus, error, durationMilliseconds }: Attempt): StoredAttempt => [
  at,
  httpStatus,
  error,
  durationMilliseconds,
];

/** @returns the JSON array with one more attempt, without those that are no longer kept */
export const addAttempt = (attempts: string, attempt: Attempt): string =>
  JSON.stringify([...JSON.parse(attempts), storedAttempt(attempt)].slice(-KEPT_ATTEMPTS));

/** @param failureBody the response body of the latest attempt, if it is kept */
export function parseAttempts(attempts: string, failureBody: string | null): Attempt[] {
  const stored: StoredAttempt[] = JSON.parse(attempts);
  return stored.map(([at, httpStatus, error, durationMilliseconds], i) => {
    const responseBody = i === stored.length - 1 ? (failureBody ?? "") : "";
    return { at, httpStatus, error, durationMilliseconds, responseBody };
  });
}

/** As many as one round can have. */
const KEPT_BODIES = 5;

/** The response body of the latest attempt of a failed delivery. */
export interface FailureBody {
  seq: number;
  /** Empty if it is not to be kept. */
  body: string;
}

/** @returns the JSON array with the bodies of a round, newest first; they replace earlier ones of the same events */
export function addFailureBodies(bodies: string, round: FailureBody[]): string {
  const earlier: FailureBody[] = JSON.parse(bodies);
  const others = earlier.filter(({ seq }) => round.every((one) => one.seq !== seq));
  return JSON.stringify([...round.filter(({ body }) => body !== ""), ...others].slice(0, KEPT_BODIES));
}
