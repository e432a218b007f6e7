import { and, eq, gte, lt, lte, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { ObjectFacts } from "../../platform/byte-store.ts";
import { type BoundQuery, columnsFrom, type Param, preparedQuery, read, write } from "../../platform/db.ts";
import { type FileJob, retryDelaySeconds } from "../../platform/jobs.ts";
import { files } from "../../platform/schema.ts";
import { MINUTE } from "../../platform/system.ts";
import { InspectionFailed, inspectFile } from "../audio/inspect.ts";
import { servedContentType } from "../audio/media-type.ts";
import { UnreadableAudio } from "../audio/work-budget.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { changed, type FailureCode, type FileRow, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { uploadState } from "./idempotency.ts";
import { type FileKey, isFile, objectKey } from "./names.ts";

/** Longer than the slowest step that does not renew the lease: reading 128 MiB of an MP3. */
export const LEASE_MILLISECONDS = 5 * MINUTE;
/** The lease for a step of unknown length. No consumer runs longer (Cloudflare's limit). */
const INVOCATION_MILLISECONDS = 15 * MINUTE;
/** How often a long step renews its lease. */
const RENEWAL_MILLISECONDS = MINUTE;
/** A message is delivered at most 11 times, so this limit is reached only if consumers keep dying on the file. */
export const MAX_CLAIMS = 20;

export type Outcome = "completed" | "failed" | "not_claimed" | { retryAfterSeconds: number };

type Failure = { failureCode: FailureCode; failureMessage: string };

const EXHAUSTED: Failure = {
  failureCode: "retries_exhausted",
  failureMessage: "Processing failed on every attempt.",
};

const ALTERED: Failure = {
  failureCode: "bytes_altered",
  failureMessage: "The stored bytes differ from the uploaded bytes.",
};

const UNINSPECTED: Failure = {
  failureCode: "inspection_failed",
  failureMessage: "The service could not inspect the file because of an internal error.",
};

/** The results as columns. A failed file keeps the values that the upload set. */
interface Findings {
  /** Hex. */
  sha256: string;
  etag: string;
  mimeType: string;
  fileType: string;
  /** JSON. */
  audio: string | null;
}

/** `updatedAt` is the time of the job. */
type JobValues = FileKey & { updatedAt: number };
/** `claim` is the fencing token. */
type ClaimValues = JobValues & { claim: number };

/** The lease has expired. */
export const hasExpiredLease = (param: Param<{ updatedAt: number }>) => lte(files.leaseEndsAt, param("updatedAt"));
/** The file is pending, or its worker's lease has expired. */
const isClaimable = (param: Param<JobValues>) =>
  and(isFile(param), or(eq(files.status, "pending"), and(eq(files.status, "processing"), hasExpiredLease(param))));
const isHeld = (param: Param<ClaimValues>) =>
  and(isFile(param), eq(files.status, "processing"), eq(files.claim, param("claim")));

/** Sets the columns of a file whose processing has ended. */
const ended = (param: Param<JobValues>) => ({
  processedAt: sql`${param("updatedAt")}`,
  dueAt: null,
  leaseEndsAt: null,
  ...changed(param),
});
const failed = (param: Param<JobValues & Failure>) => ({
  status: "failed" as const,
  ...columnsFrom(param, "failureCode", "failureMessage"),
  ...ended(param),
});

const failExhausted = preparedQuery((db, param: Param<JobValues & Failure & { minAttempts: number }>) =>
  db
    .update(files)
    .set(failed(param))
    .where(and(isClaimable(param), gte(files.attempts, param("minAttempts"))))
    .returning({ id: files.id }),
);
const claimFile = preparedQuery((db, param: Param<JobValues & { leaseEndsAt: number }>) =>
  db
    .update(files)
    .set({
      status: "processing",
      attempts: sql`${files.attempts} + 1`,
      claim: sql`${files.claim} + 1`,
      ...columnsFrom(param, "leaseEndsAt"),
      ...changed(param),
    })
    .where(and(isClaimable(param), lt(files.attempts, MAX_CLAIMS)))
    .returning(),
);
/** Setting a column rewrites its index, so the file type is set only if it differs from the one that the upload set. */
const completeWith = (...columns: ("mimeType" | "fileType")[]) =>
  preparedQuery((db, param: Param<ClaimValues & Findings>) =>
    db
      .update(files)
      .set({ status: "completed", ...columnsFrom(param, "sha256", "etag", "audio", ...columns), ...ended(param) })
      .where(isHeld(param))
      .returning({ id: files.id }),
  );
const complete = completeWith("mimeType");
const completeAsOther = completeWith("mimeType", "fileType");
const fail = preparedQuery((db, param: Param<ClaimValues & Failure>) =>
  db.update(files).set(failed(param)).where(isHeld(param)).returning({ id: files.id }),
);
const putBack = preparedQuery((db, param: Param<ClaimValues & { dueAt: number }>) =>
  db
    .update(files)
    .set({ status: "pending", leaseEndsAt: null, ...columnsFrom(param, "dueAt"), ...changed(param) })
    .where(isHeld(param)),
);
const renew = preparedQuery((db, param: Param<ClaimValues & { leaseEndsAt: number }>) =>
  db.update(files).set(columnsFrom(param, "leaseEndsAt")).where(isHeld(param)).returning({ id: files.id }),
);
const storeHash = preparedQuery((db, param: Param<ClaimValues & { sha256: string; leaseEndsAt: number }>) =>
  db
    .update(files)
    .set(columnsFrom(param, "sha256", "leaseEndsAt"))
    .where(isHeld(param))
    .returning({ id: files.id }),
);

/**
 * Runs one job: takes a file from `pending` to `completed` or `failed`. Idempotent: a message that is a duplicate, late, or
 * out of order finds nothing to claim and changes nothing ("not_claimed"). Once the file is claimed, errors do not throw:
 * the file returns to `pending`, and the outcome says when to retry.
 *
 * Verification of the bytes: for a form upload stored by a single `put`, R2 checked the SHA-256 while it wrote, and must
 * still report the same SHA-256 and size. For all others, we compare size and etag: R2 derives the etag from the MD5 of
 * each part it wrote, and the row has the same value computed from each part as sent. The bytes of a resumable upload came
 * in several requests, so they are also read back and hashed, and compared with the client's hash if it stated one.
 */
export async function processFile(deps: Deps, { teamId, fileId }: FileJob): Promise<Outcome> {
  const now = deps.system.now();
  const job = { teamId, id: fileId, updatedAt: now };
  const exhaust = failExhausted({ ...job, ...EXHAUSTED, minAttempts: MAX_CLAIMS });
  const claim = claimFile({ ...job, leaseEndsAt: now + LEASE_MILLISECONDS });
  const [[exhausted], [file]] = await writeWithEvent(deps, failedEvent(deps, job), [exhaust, claim], {
    isIdempotent: false,
  });
  if (exhausted) return "failed";
  if (!file) return "not_claimed";
  try {
    return await recordOutcome(deps, file, await examine(deps, file));
  } catch (cause) {
    const retryAfterSeconds = retryDelaySeconds(file.attempts);
    deps.log("warn", "job_postponed", { fileId, teamId, attempts: file.attempts, cause });
    await release(deps, file, retryAfterSeconds);
    return { retryAfterSeconds };
  }
}

/**
 * Fails the file of a message whose retries are exhausted. A file that was not claimed since it became pending is left to
 * recovery: the message may be older than the reprocessing, or D1 was unreachable all the time.
 * @returns "not_claimed" if the file has changed in the meantime or another worker has claimed it
 */
export async function failExhaustedFile(deps: Deps, { teamId, fileId }: FileJob): Promise<Outcome> {
  const values = { teamId, id: fileId, updatedAt: deps.system.now(), ...EXHAUSTED, minAttempts: 1 };
  const [rows] = await writeWithEvent(deps, failedEvent(deps, values), [failExhausted(values)], {
    isIdempotent: false,
  });
  return rows.length > 0 ? "failed" : "not_claimed";
}

const failedEvent = (deps: Deps, file: FileKey) => fileEvent(deps, "file.failed", SYSTEM, file);

/** Throws only errors that a retry may resolve. */
async function examine(deps: Deps, file: FileRow): Promise<Findings | Failure> {
  const key = objectKey(file);
  const object = await deps.bytes.head(key);
  if (!object) return { failureCode: "bytes_missing", failureMessage: "The stored bytes are missing." };
  const isSame = object.sha256 === null ? object.etag === file.etag : object.sha256 === file.sha256;
  if (!isSame || object.sizeBytes !== file.sizeBytes) return ALTERED;
  const sha256 = file.sha256 ?? (await readBack(deps, file, object));
  if (sha256 === null) return { ...ALTERED, failureMessage: "The stored bytes do not match the stated sha256." };
  const readRange = async (offset: number, length: number) => {
    const bytes = await deps.bytes.read(key, offset, length);
    if (!bytes) throw new AppError("unavailable", { cause: new Error("The object disappeared while it was read.") });
    return bytes;
  };
  try {
    const { mediaType, fileType, audio } = await inspectFile(readRange, object.sizeBytes);
    const allowed: string[] | null = file.allowedTypes && JSON.parse(file.allowedTypes);
    if (allowed && !allowed.includes(fileType)) {
      const failureMessage = `The key that uploaded the file can't upload a file of type "${fileType}".`;
      return { failureCode: "type_not_allowed", failureMessage };
    }
    const etag = await serveAs(deps, file, { ...object, sha256 }, servedContentType(mediaType));
    return { etag, sha256, mimeType: mediaType, fileType, audio: audio && JSON.stringify(audio) };
  } catch (error) {
    if (error instanceof UnreadableAudio) return { failureCode: "audio_unreadable", failureMessage: error.message };
    if (!(error instanceof InspectionFailed)) throw error;
    deps.log("error", "inspection_failed", { fileId: file.id, teamId: file.teamId, cause: error.cause });
    return UNINSPECTED;
  }
}

/** Hashes the stored bytes and stores the SHA-256. Renews the lease. Returns null if the client stated another hash. */
async function readBack(deps: Deps, file: FileRow, object: ObjectFacts): Promise<string | null> {
  let renewedAt = deps.system.now();
  const sha256 = await deps.bytes.hash(objectKey(file), object, async () => {
    const now = deps.system.now();
    if (now - renewedAt < RENEWAL_MILLISECONDS) return;
    renewedAt = now;
    await hold(deps, renew({ ...heldBy(deps, file), leaseEndsAt: now + LEASE_MILLISECONDS }));
  });
  if (sha256 === null) throw new AppError("unavailable", { cause: new Error("The object changed while it was read.") });
  if ((file.statedSha256 ?? sha256) !== sha256) return null;
  // Stored at once: from now on it identifies the object, even if the object is stored again and this worker dies.
  const held = heldBy(deps, file);
  await hold(deps, storeHash({ ...held, sha256, leaseEndsAt: held.updatedAt + LEASE_MILLISECONDS }));
  return sha256;
}

const heldBy = (deps: Deps, { id, teamId, claim }: FileRow): ClaimValues => ({
  id,
  teamId,
  claim,
  updatedAt: deps.system.now(),
});

/** @throws `unavailable` if another worker has the claim */
async function hold(deps: Deps, change: BoundQuery<unknown[]>): Promise<void> {
  const [rows] = await write(deps, [change], { isIdempotent: true });
  if (rows.length === 0) throw new AppError("unavailable", { cause: new Error("Another worker has the file.") });
}

/**
 * Stores the object under the detected content type, which may differ from the one that the upload detected.
 * @returns the object's etag
 */
async function serveAs(
  deps: Deps,
  file: FileRow,
  object: ObjectFacts & { sha256: string },
  contentType: string,
): Promise<string> {
  if (object.contentType === contentType) return object.etag;
  const held = heldBy(deps, file);
  await hold(deps, renew({ ...held, leaseEndsAt: held.updatedAt + INVOCATION_MILLISECONDS }));
  const etag = await deps.bytes.setContentType(objectKey(file), object, contentType);
  if (etag === null) throw new AppError("unavailable", { cause: new Error("The object changed while it was stored.") });
  return etag;
}

/** Ends the job. Changes nothing if the claim is lost: the file was deleted, or the lease expired and another has it. */
async function recordOutcome(deps: Deps, file: FileRow, findings: Findings | Failure): Promise<Outcome> {
  const held = heldBy(deps, file);
  const outcome = "failureCode" in findings ? "failed" : "completed";
  const event = fileEvent(deps, `file.${outcome}`, SYSTEM, file);
  const query =
    "failureCode" in findings
      ? fail({ ...held, ...findings })
      : (findings.fileType === file.fileType ? complete : completeAsOther)({ ...held, ...findings });
  const [rows] = await writeWithEvent(deps, event, [query], { isIdempotent: false });
  if (rows.length > 0) return outcome;
  // The file may have been deleted while its bytes were rewritten. R2 has no conditional put that could prevent this.
  const [[row]] = await read(deps, [uploadState(file)]);
  if (!row || row.status === "deleting") await deps.bytes.remove([objectKey(file)]);
  return "not_claimed";
}

/** Returns the file to `pending`. If this fails, the lease expires and recovery sends the file again. */
async function release(deps: Deps, file: FileRow, retryAfterSeconds: number): Promise<void> {
  const held = heldBy(deps, file);
  // Recovery waits for the retry, and the usual time beyond it.
  const dueAt = held.updatedAt + retryAfterSeconds * 1000 + MAX_PENDING_MILLISECONDS;
  try {
    await write(deps, [putBack({ ...held, dueAt })], { isIdempotent: true });
  } catch (cause) {
    deps.log("warn", "job_release_failed", { fileId: file.id, cause });
  }
}
