import { isServerError, StowageError } from "./errors.ts";

const FIRST_DELAY_MILLISECONDS = 250;
const MAX_DELAY_MILLISECONDS = 8000;
/** Twice the service's rate limit window. A longer `Retry-After` fails the call instead of blocking it. */
const MAX_RETRY_AFTER_SECONDS = 120;
/** A server error that survives these retries (4 s) is most likely caused by the request itself. */
const MAX_SERVER_ERROR_RETRIES = 4;

const TRANSIENT_STATUSES = [408, 423, 429, 502, 503, 504];

/** Transient errors whose status does not identify them. */
const TRANSIENT_CODES = ["connection_failed", "idempotency_in_progress"];

/** @throws the signal's reason */
export async function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
  });
  signal?.throwIfAborted();
}

export interface RetryPolicy {
  /** How often a failed request is retried. */
  retries: number;
  /** Called before each wait. */
  onRetry?: ((error: StowageError, attempt: number) => void) | undefined;
}

/**
 * Waits before the next attempt: as long as `Retry-After` says, otherwise with exponential backoff.
 * @param isIdempotent whether the request may run twice
 * @throws `error` if the request must not be retried
 */
export async function waitToRetry(
  error: unknown,
  { attempt, isIdempotent, retries, onRetry }: RetryPolicy & { attempt: number; isIdempotent: boolean },
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  if (!(error instanceof StowageError) || attempt >= retries) throw error;
  const isTransient = TRANSIENT_CODES.includes(error.code) || TRANSIENT_STATUSES.includes(error.status);
  if (!isTransient && !(isServerError(error) && attempt < MAX_SERVER_ERROR_RETRIES)) throw error;
  // After any other error than a rate limit, the service may have executed the request.
  if (!isIdempotent && error.status !== 429) throw error;
  if ((error.retryAfterSeconds ?? 0) > MAX_RETRY_AFTER_SECONDS) throw error;
  onRetry?.(error, attempt);
  const ceiling = Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** attempt);
  const jitter = ceiling * (0.5 + Math.random() / 2);
  await sleep(error.retryAfterSeconds === undefined ? jitter : error.retryAfterSeconds * 1000 + jitter / 4, signal);
}
