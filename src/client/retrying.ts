import { isServerError, StowageError } from "./errors.ts";

const FIRST_DELAY_MILLISECONDS = 250;
const MAX_DELAY_MILLISECONDS = 8000;
/** Twice the service's rate limit window. A longer `Retry-After` fails the call instead of blocking it. */
const MAX_RETRY_AFTER_SECONDS = 120;
/** A server error that survives these retries (4 s) is most likely caused by the request itself. */
const MAX_SERVER_ERROR_RETRIES = 4;

/** Settles like `work`, or rejects with the reason of a signal that aborts before. */
export async function orAborted<T>(work: Promise<T>, shared?: AbortSignal): Promise<T> {
  // Many calls may share a signal, and Node 20 warns of the eleventh listener of one.
  const signal = AbortSignal.any(shared ? [shared] : []);
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** @throws the signal's reason */
export async function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const pause = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await orAborted(pause, signal).finally(() => clearTimeout(timer));
}

export interface RetryPolicy {
  /** How often a failed request is retried. */
  maxRetries: number;
  /** Called before each wait. */
  onRetry: ((error: StowageError, attempt: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** Decides after each failure of a call whether and when to retry it. */
export class Retries {
  readonly #policy: RetryPolicy;
  #attempt = 0;

  constructor(policy: RetryPolicy) {
    this.#policy = policy;
  }

  /** Starts counting again, because the call has made progress. */
  reset(): void {
    this.#attempt = 0;
  }

  /**
   * Waits before the next attempt: as long as `Retry-After` says, otherwise with exponential backoff.
   * @param isIdempotent whether the request may run twice
   * @throws `error` if the request must not be retried
   */
  async wait(error: unknown, isIdempotent = true): Promise<void> {
    const { maxRetries, onRetry, signal } = this.#policy;
    signal?.throwIfAborted();
    const attempt = this.#attempt++;
    if (!(error instanceof StowageError) || !error.isTransient || attempt >= maxRetries) throw error;
    if (isServerError(error) && attempt >= MAX_SERVER_ERROR_RETRIES) throw error;
    // Other uploads have to end first, which may take hours.
    if (error.code === "too_many_unfinished_uploads") throw error;
    // After any other error than a rate limit, the service may have executed the request.
    if (!isIdempotent && error.status !== 429) throw error;
    const { retryAfterSeconds } = error;
    if ((retryAfterSeconds ?? 0) > MAX_RETRY_AFTER_SECONDS) throw error;
    onRetry?.(error, attempt);
    const ceiling = Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** attempt);
    const jitter = ceiling * (0.5 + Math.random() / 2);
    await sleep(retryAfterSeconds === undefined ? jitter : retryAfterSeconds * 1000 + jitter / 4, signal);
  }
}
