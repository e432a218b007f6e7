import { StowageError } from "./errors.ts";

const FIRST_DELAY_MILLISECONDS = 250;
const MAX_DELAY_MILLISECONDS = 8000;
/** The service's rate limits are of a minute; who asks for more is not waited for. */
const MAX_RETRY_AFTER_SECONDS = 120;

/** Nothing was done, or may have been done and can be done again. */
const PASSING_STATUSES = [408, 423, 429, 502, 503, 504];
/** The same for errors whose status alone does not say so. */
const PASSING_CODES = ["connection_failed", "idempotency_in_progress"];

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

/**
 * Waits until the request that failed so may be sent once more, by `Retry-After` where there is one.
 * @param isRepeatable whether a second time does no harm where the first may have been carried out
 * @throws `error` where it is not to be sent again
 */
export async function waitToRetry(
  error: unknown,
  { attempt, retries, isRepeatable }: { attempt: number; retries: number; isRepeatable: boolean },
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  if (!(error instanceof StowageError) || attempt >= retries) throw error;
  const isPassing = PASSING_CODES.includes(error.code) || PASSING_STATUSES.includes(error.status);
  // Only a request that was refused by the rate limit is known not to have been carried out.
  if (!isPassing || !(isRepeatable || error.status === 429)) throw error;
  if ((error.retryAfterSeconds ?? 0) > MAX_RETRY_AFTER_SECONDS) throw error;
  const ceiling = Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** attempt);
  const jitter = ceiling * (0.5 + Math.random() / 2);
  await sleep(error.retryAfterSeconds === undefined ? jitter : error.retryAfterSeconds * 1000 + jitter / 4, signal);
}
