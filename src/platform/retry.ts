import { AppError } from "../errors.ts";
import type { System } from "./system.ts";

const MAX_TRIES = 3;
const MAX_PAUSE_MILLISECONDS = 2_000;

/**
 * The errors after which Cloudflare says to try again: of D1 (its page on retrying queries, an internal error, and an
 * overloaded or unresolved database), and of R2 (internal error, service unavailable, too many requests, in its list of
 * error codes).
 */
const TRANSIENT =
  /network connection lost|caused object to be reset|reset because its code was updated|transient issue|overloaded|D1_ERROR: internal error|\((?:10001|10043|10058)\)/i;

/** D1 refuses a write that would exceed 10 GB. Nothing of its batch is stored. */
const FULL = /exceeded maximum DB size|database or disk is full|SQLITE_FULL/i;

/** The binding's own message, which is the innermost cause. */
function reason(error: unknown): string {
  let innermost = error;
  while (innermost instanceof Error && innermost.cause instanceof Error) innermost = innermost.cause;
  return innermost instanceof Error ? innermost.message : String(innermost);
}

/** Returns true if a unique index rejected the write. */
export function isUniqueViolation(error: unknown): boolean {
  return reason(error).includes("UNIQUE constraint failed");
}

/** Returns true if a full database refused the write. */
export const isStorageFull = (error: unknown): boolean => error instanceof AppError && error.code === "storage_full";

/**
 * Runs work on a binding that must not be repeated. A transient error of the binding becomes `unavailable`, and that of a
 * full database `storage_full`. Another permanent one (a missing table, a bug) passes through, and the caller gets
 * `internal`.
 */
export async function once<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof AppError) throw error;
    if (FULL.test(reason(error))) throw new AppError("storage_full", { cause: error });
    if (!TRANSIENT.test(reason(error))) throw error;
    throw new AppError("unavailable", { retryAfterSeconds: 2, cause: error });
  }
}

/**
 * Runs a read or an idempotent write, with up to three attempts on transient errors and full jitter between them. (D1
 * itself retries only reads.)
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
