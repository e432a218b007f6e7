import { AppError } from "../errors.ts";
import type { System } from "./system.ts";

const MAX_TRIES = 3;
const MAX_PAUSE_MILLISECONDS = 2_000;

/**
 * The errors after which Cloudflare says to try again: of D1 (its page on retrying queries, and an overloaded or
 * unresolved database), and of R2 (internal error, service unavailable, too many requests, in its list of error codes).
 */
const TRANSIENT =
  /network connection lost|caused object to be reset|reset because its code was updated|transient issue|overloaded|\((?:10001|10043|10058)\)/i;

/** What the binding itself said: the innermost cause. */
function reason(error: unknown): string {
  let innermost = error;
  while (innermost instanceof Error && innermost.cause instanceof Error) innermost = innermost.cause;
  return innermost instanceof Error ? innermost.message : String(innermost);
}

/** Whether a unique index refused the write. */
export function isUniqueViolation(error: unknown): boolean {
  return reason(error).includes("UNIQUE constraint failed");
}

/**
 * Runs work on a binding that may not be repeated. A transient error of the binding becomes `unavailable`; a permanent
 * one (a table that is not there, a bug) comes through as it is, and is answered as `internal`.
 */
export async function once<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof AppError || !TRANSIENT.test(reason(error))) throw error;
    throw new AppError("unavailable", { retryAfterSeconds: 2, cause: error });
  }
}

/**
 * The same for reads and idempotent writes: three tries on a transient error, with full jitter between them (D1 itself
 * retries reads only).
 */
export async function retrying<T>(system: System, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await once(work);
    } catch (error) {
      const isTransient = error instanceof AppError && error.code === "unavailable";
      if (!isTransient || attempt === MAX_TRIES) throw error;
      const [random = 0] = system.randomBytes(1);
      await system.sleep((random / 255) * Math.min(100 * 4 ** attempt, MAX_PAUSE_MILLISECONDS));
    }
  }
}
