import { AppError, isError } from "../errors.ts";
import { consoleLog } from "./log.ts";
import { Lru } from "./lru.ts";
import type { System } from "./system.ts";

/*
 * The errors of D1, R2 and the queues. The texts are those of Cloudflare's page on debugging D1 and of its list of R2's
 * error codes. Every error of a binding is the platform's, unless its code says that our call was wrong.
 */

const MAX_TRIES = 3;
const MAX_PAUSE_MILLISECONDS = 2_000;
const RETRY_AFTER_SECONDS = 2;

/** The database, or the storage of the account, is full. D1 refuses the write, and stores nothing of its batch. */
const FULL = /exceeded maximum DB size|account storage limit|database or disk is full|SQLITE_FULL/i;

/**
 * Our own bug: a statement that SQLite rejects (syntax, a missing table or column, a constraint, a limit), a value that D1
 * can't bind, or a call that R2 rejects (parts, names, lengths, digests and ranges that are not valid).
 */
const BUG =
  /SQLITE_(?:ERROR|CONSTRAINT|MISMATCH|MISUSE|RANGE|TOOBIG|AUTH)|D1_(?:EXEC|TYPE)_ERROR|D1_COLUMN_NOTFOUND|wrong number of parameter bindings|\((?:10005|10011|10012|10014|10020|10025|10033|10039|10048|100100)\)/i;

/** Cloudflare advises fewer requests: a repeated call would add to the load, or meet the same limit. */
const LASTING =
  /overloaded|exceeded timeout|exceeded its (?:CPU time|memory) limit|long-running export|daily row (?:read|write) limit|did not respond within|\((?:10002|10003|10006|10037|10042|10069)\)/i;

/** Cloudflare says to try again. */
const TRANSIENT =
  /network connection lost|caused object to be reset|reset because its code was updated|transient issue|client disconnected|D1_ERROR: internal error|\((?:10001|10013|10043|10054|10058)\)/i;

/** The binding's own message, which is the innermost cause. */
export function reasonOf(error: unknown): string {
  let innermost = error;
  while (innermost instanceof Error && innermost.cause instanceof Error) innermost = innermost.cause;
  return innermost instanceof Error ? innermost.message : String(innermost);
}

/** Returns true if a unique index rejected the write. */
export function isUniqueViolation(error: unknown): boolean {
  return reasonOf(error).includes("UNIQUE constraint failed");
}

/** Returns true if a trigger rejected the write with this text. */
export const isRaised = (error: unknown, text: string): boolean => reasonOf(error).includes(text);

/** Returns true if a full database refused the write. */
export const isStorageFull = (error: unknown): boolean => isError(error, "storage_full");

/** Returns true if R2 does not know the multipart upload: it was completed or aborted, or never existed. */
export const isUnknownUpload = (error: unknown): boolean => reasonOf(error).includes("(10024)");

/** An unknown text may have a reference that differs each time, so their number is bounded. */
const reported = new Lru<true>(100);

/** Logs the text of an error that is in no list, once per isolate: the lists need it. */
function reportUnknown(text: string, cause: unknown): void {
  if (reported.get(text)) return;
  reported.set(text, true);
  consoleLog("error", "binding_error_unknown", { cause });
}

/** Errors that JavaScript throws for a mistake in code. A few of the platform are TypeErrors too, whose texts are listed. */
const isMistake = (error: unknown): boolean =>
  error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError;

/** The caller's error for an error of a binding. A bug stays as it is, and becomes `internal`. */
function translate(error: unknown): unknown {
  const text = reasonOf(error);
  if (error instanceof AppError) return error;
  if (FULL.test(text)) return new AppError("storage_full", { cause: error });
  if (!LASTING.test(text) && !TRANSIENT.test(text)) {
    if (BUG.test(text) || isMistake(error)) return error;
    if (!isUnknownUpload(error)) reportUnknown(text, error);
  }
  return new AppError("unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS, cause: error });
}

const isTransient = (error: unknown): boolean =>
  isError(error, "unavailable") && !LASTING.test(reasonOf(error)) && TRANSIENT.test(reasonOf(error));

/**
 * Runs work on a binding that must not be repeated.
 * @throws `storage_full` if the database is full; `unavailable` for every other error of the platform; our own bugs as they are
 */
export async function once<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw translate(error);
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
      if (!isTransient(error) || attempt === MAX_TRIES) throw error;
      const [random = 0] = system.randomBytes(1);
      await system.sleep((random / 255) * Math.min(100 * 4 ** attempt, MAX_PAUSE_MILLISECONDS));
    }
  }
}
