/** `webhook_disabled` ends a delivery unsent. */
export const ATTEMPT_ERRORS = [
  "timeout",
  "connection_failed",
  "address_refused",
  "secret_unreadable",
  "webhook_disabled",
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
