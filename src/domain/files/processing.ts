import { and, eq, gte, lt, lte, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { ObjectFacts } from "../../platform/byte-store.ts";
import { type BoundQuery, given, type Param, preparedQuery, read, write } from "../../platform/db.ts";
import { type FileJob, retryDelaySeconds } from "../../platform/jobs.ts";
import { files, uploads } from "../../platform/schema.ts";
import { InspectionFailed, inspectFile } from "../audio/inspect.ts";
import { servedContentType } from "../audio/media-type.ts";
import { UnreadableAudio } from "../audio/work-budget.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { changed, type FailureCode, type FileRow, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { uploadState } from "./idempotency.ts";
import { type FileKey, isFile, objectKey } from "./names.ts";

/** Longer than the slowest step of a job that does not renew it, the reading of 128 MiB of an MP3. */
export const LEASE_MILLISECONDS = 5 * 60 * 1000;
/** No consumer lives longer (Cloudflare's limit): the lease of a step of unknown length. */
const INVOCATION_MILLISECONDS = 15 * 60 * 1000;
/** A job that goes on says so. */
const RENEWAL_MILLISECONDS = 60 * 1000;
/** More than one message is ever delivered (11), so that it ends a file only where worker after worker died over it. */
export const MAX_ATTEMPTS = 20;

export type Outcome = "completed" | "failed" | "not ours" | { retryAfterSeconds: number };

type Failure = { failureCode: FailureCode; failureMessage: string };

const EXHAUSTED: Failure = {
  failureCode: "retries_exhausted",
  failureMessage: "Processing failed again and again, and was given up.",
};

const ALTERED: Failure = {
  failureCode: "bytes_altered",
  failureMessage: "The stored bytes are not those that were uploaded.",
};

const UNINSPECTED: Failure = {
  failureCode: "inspection_failed",
  failureMessage: "The service could not inspect the file because of an internal error.",
};

/** What processing found, as the columns that hold it; those of a failed file keep what the upload found. */
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
/** `version` is the fencing token of a claim. */
type ClaimValues = JobValues & { version: number };

/** The lease of its worker has run out. (The release before kept its end in due_at.) */
export const isAbandoned = (param: Param<{ updatedAt: number }>) =>
  lte(sql`coalesce(${files.leaseEndsAt}, ${files.dueAt})`, param("updatedAt"));
/** Pending, or left behind by its worker. */
const isClaimable = (param: Param<JobValues>) =>
  and(isFile(param), or(eq(files.status, "pending"), and(eq(files.status, "processing"), isAbandoned(param))));
const isHeld = (param: Param<ClaimValues>) =>
  and(isFile(param), eq(files.status, "processing"), eq(files.version, param("version")));

/** The columns of a file whose processing has ended. */
const ended = (param: Param<JobValues>) => ({
  processedAt: sql`${param("updatedAt")}`,
  dueAt: null,
  leaseEndsAt: null,
  ...changed(param),
});
const failed = (param: Param<JobValues & Failure>) => ({
  status: "failed" as const,
  ...given(param, "failureCode", "failureMessage"),
  ...ended(param),
});

const giveUp = preparedQuery((db, param: Param<JobValues & Failure & { minAttempts: number }>) =>
  db
    .update(files)
    .set(failed(param))
    .where(and(isClaimable(param), gte(files.attempts, param("minAttempts"))))
    .returning({ id: files.id }),
);
const claim = preparedQuery((db, param: Param<JobValues & { leaseEndsAt: number }>) =>
  db
    .update(files)
    .set({
      status: "processing",
      attempts: sql`${files.attempts} + 1`,
      ...given(param, "leaseEndsAt"),
      ...changed(param),
    })
    .where(and(isClaimable(param), lt(files.attempts, MAX_ATTEMPTS)))
    .returning(),
);
/** Naming a column writes its index anew, so the type of the file is named only where it differs from the upload's. */
const completeWith = (...columns: ("mimeType" | "fileType")[]) =>
  preparedQuery((db, param: Param<ClaimValues & Findings>) =>
    db
      .update(files)
      .set({ status: "completed", ...given(param, "sha256", "etag", "audio", ...columns), ...ended(param) })
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
    .set({ status: "pending", leaseEndsAt: null, ...given(param, "dueAt"), ...changed(param) })
    .where(isHeld(param)),
);
const renew = preparedQuery((db, param: Param<ClaimValues & { leaseEndsAt: number }>) =>
  db.update(files).set(given(param, "leaseEndsAt")).where(isHeld(param)).returning({ id: files.id }),
);
const keepHash = preparedQuery((db, param: Param<ClaimValues & { sha256: string; leaseEndsAt: number }>) =>
  db
    .update(files)
    .set(given(param, "sha256", "leaseEndsAt"))
    .where(isHeld(param))
    .returning({ id: files.id }),
);
/** What the client of a resumable upload said its SHA-256 is. */
const promisedHash = preparedQuery((db, param: Param<{ id: string }>) =>
  db
    .select({ sha256: uploads.sha256 })
    .from(uploads)
    .where(eq(uploads.fileId, param("id"))),
);
/**
 * One job: takes a file from `pending` to `completed` or `failed`. Idempotent: a message that comes twice, late or out
 * of order finds nothing to claim and changes nothing ("not ours"). An error once the file is claimed does not throw:
 * the file goes back to `pending`, and the outcome says when to try again.
 *
 * What is verified of the bytes: of a form's file that one `put` stored, that R2 checked the SHA-256 of what came in
 * while it wrote, and still states the same SHA-256 and size. Of any other, size and etag: R2 makes the etag of the MD5 of
 * each part as it wrote it, and the row has the same made of each part as it was sent. A resumable upload, whose bytes
 * came in many requests, is also read back and hashed, and that is compared with what the client says, if it does.
 */
export async function processFile(deps: Deps, { teamId, fileId }: FileJob): Promise<Outcome> {
  const now = deps.system.now();
  const job = { teamId, id: fileId, updatedAt: now };
  const giveItUp = giveUp({ ...job, ...EXHAUSTED, minAttempts: MAX_ATTEMPTS });
  const claimIt = claim({ ...job, leaseEndsAt: now + LEASE_MILLISECONDS });
  const [[exhausted], [file]] = await writeWithEvent(deps, failedEvent(deps, job), [giveItUp, claimIt], {
    isIdempotent: false,
  });
  if (exhausted) return "failed";
  if (!file) return "not ours";
  try {
    return await finish(deps, file, await examine(deps, file));
  } catch (cause) {
    const retryAfterSeconds = retryDelaySeconds(file.attempts);
    deps.log("warn", "job put off", { fileId, teamId, attempts: file.attempts, cause });
    await release(deps, file, retryAfterSeconds);
    return { retryAfterSeconds };
  }
}

/**
 * For a message that used up its tries. @returns "not ours" where the file has moved on, or another worker is at it.
 * One that was never claimed since it became pending is left to recovery: the message may be from before it was
 * reprocessed, or D1 was away all the time.
 */
export async function giveUpFile(deps: Deps, { teamId, fileId }: FileJob): Promise<Outcome> {
  const values = { teamId, id: fileId, updatedAt: deps.system.now(), ...EXHAUSTED, minAttempts: 1 };
  const [rows] = await writeWithEvent(deps, failedEvent(deps, values), [giveUp(values)], { isIdempotent: false });
  return rows.length > 0 ? "failed" : "not ours";
}

const failedEvent = (deps: Deps, file: FileKey) => fileEvent(deps, "file.failed", SYSTEM, file);

/** Throws only what another try may mend. */
async function examine(deps: Deps, file: FileRow): Promise<Findings | Failure> {
  const key = objectKey(file);
  const object = await deps.bytes.head(key);
  if (!object) return { failureCode: "bytes_missing", failureMessage: "The stored bytes are not there." };
  const isSame = object.sha256 === null ? object.etag === file.etag : object.sha256 === file.sha256;
  if (!isSame || object.sizeBytes !== file.sizeBytes) return ALTERED;
  const sha256 = file.sha256 ?? (await readBack(deps, file, object));
  if (sha256 === null)
    return { ...ALTERED, failureMessage: "The stored bytes do not have the sha256 that was stated." };
  const readRange = async (offset: number, length: number) => {
    const bytes = await deps.bytes.read(key, offset, length);
    if (!bytes) throw new AppError("unavailable", { cause: new Error("The object went away while it was read.") });
    return bytes;
  };
  try {
    const { mediaType, fileType, audio } = await inspectFile(readRange, object.sizeBytes);
    const etag = await serveAs(deps, file, { ...object, sha256 }, servedContentType(mediaType));
    return { etag, sha256, mimeType: mediaType, fileType, audio: audio && JSON.stringify(audio) };
  } catch (error) {
    if (error instanceof UnreadableAudio) return { failureCode: "audio_unreadable", failureMessage: error.message };
    if (!(error instanceof InspectionFailed)) throw error;
    deps.log("error", "inspection_failed", { fileId: file.id, teamId: file.teamId, cause: error.cause });
    return UNINSPECTED;
  }
}

/** SHA-256 of the stored bytes, which the row keeps; null where the client said another. The lease is renewed meanwhile. */
async function readBack(deps: Deps, file: FileRow, object: ObjectFacts): Promise<string | null> {
  let renewedAt = deps.system.now();
  const sha256 = await deps.bytes.hash(objectKey(file), object, async () => {
    const now = deps.system.now();
    if (now - renewedAt < RENEWAL_MILLISECONDS) return;
    renewedAt = now;
    await hold(deps, renew({ ...heldBy(deps, file), leaseEndsAt: now + LEASE_MILLISECONDS }));
  });
  if (sha256 === null) throw new AppError("unavailable", { cause: new Error("The object changed while it was read.") });
  const [[promised]] = await read(deps, [promisedHash({ id: file.id })]);
  if ((promised?.sha256 ?? sha256) !== sha256) return null;
  // Kept at once: from now on the object is known by it, also where the object is stored again and this worker dies.
  const held = heldBy(deps, file);
  await hold(deps, keepHash({ ...held, sha256, leaseEndsAt: held.updatedAt + LEASE_MILLISECONDS }));
  return sha256;
}

const heldBy = (deps: Deps, { id, teamId, version }: FileRow): ClaimValues => ({
  id,
  teamId,
  version,
  updatedAt: deps.system.now(),
});

/** @throws `unavailable` where the claim is no longer ours */
async function hold(deps: Deps, change: BoundQuery<unknown[]>): Promise<void> {
  const [rows] = await write(deps, [change], { isIdempotent: true });
  if (rows.length === 0) throw new AppError("unavailable", { cause: new Error("Another worker has the file.") });
}

/**
 * Where only the whole file told its type, or another release tells it differently, the object is served as what the
 * metadata says from now on.
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

/** Nothing happens where the claim is no longer ours: the file was deleted, or the lease ran out and another has it. */
async function finish(deps: Deps, file: FileRow, findings: Findings | Failure): Promise<Outcome> {
  const held = heldBy(deps, file);
  const outcome = "failureCode" in findings ? "failed" : "completed";
  const event = fileEvent(deps, `file.${outcome}`, SYSTEM, file);
  const query =
    "failureCode" in findings
      ? fail({ ...held, ...findings })
      : (findings.fileType === file.fileType ? complete : completeAsOther)({ ...held, ...findings });
  const [rows] = await writeWithEvent(deps, event, [query], { isIdempotent: false });
  if (rows.length > 0) return outcome;
  // A deletion may have come between the two steps of storing the bytes again, which no condition of R2 spans.
  const [[row]] = await read(deps, [uploadState(file)]);
  if (!row || row.status === "deleting") await deps.bytes.remove([objectKey(file)]);
  return "not ours";
}

/** If even this fails, the lease runs out and recovery sends the file again. */
async function release(deps: Deps, file: FileRow, retryAfterSeconds: number): Promise<void> {
  const held = heldBy(deps, file);
  // Recovery is to wait for the retry, and the usual time beyond it.
  const dueAt = held.updatedAt + retryAfterSeconds * 1000 + MAX_PENDING_MILLISECONDS;
  try {
    await write(deps, [putBack({ ...held, dueAt })], { isIdempotent: true });
  } catch (cause) {
    deps.log("warn", "job left to its lease", { fileId: file.id, cause });
  }
}
