import { and, eq, gte, inArray, lt, lte, or, sql } from "drizzle-orm";
import type { TeamActor } from "../access/authorization.ts";
import { type Audio, InspectionFailed, inspectFile } from "../audio/inspect.ts";
import { servedContentType } from "../audio/media-type.ts";
import { UnreadableAudio } from "../audio/range-source.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import type { ObjectFacts } from "../platform/byte-store.ts";
import { evaluate, read, write } from "../platform/db.ts";
import { retryDelaySeconds } from "../platform/jobs.ts";
import type { FileJob } from "../platform/messages.ts";
import { MINUTE } from "../platform/system.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFile } from "./file-events.ts";
import { files } from "./files.schema.ts";
import {
  changed,
  enqueue,
  type FailureCode,
  type FileRow,
  hasBacklog,
  MAX_PENDING_MILLISECONDS,
  ofKnownFile,
} from "./files.ts";
import { type FileOf, isFile, objectKey, searchPatch } from "./names.ts";

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

type ClaimedFile = FileRow & FileOf;

/** The lease has expired. */
const hasExpiredLease = (now: number) => lte(files.leaseEndsAt, now);
/** The file is pending, or its worker's lease has expired. */
const isClaimable = (file: FileOf, now: number) =>
  and(isFile(file), or(eq(files.status, "pending"), and(eq(files.status, "processing"), hasExpiredLease(now))));
/** This worker has the file: its `claim` is the fencing token. */
const hasClaim = (file: ClaimedFile) => and(isFile(file), eq(files.status, "processing"), eq(files.claim, file.claim));

/** Sets the columns of a file whose processing has ended. */
const ended = (now: number) => ({ processedAt: now, dueAt: null, leaseEndsAt: null, ...changed(now) });
const failed = (failure: Failure, now: number) => ({ status: "failed" as const, ...failure, ...ended(now) });

function failExhausted(deps: Deps, file: FileOf, minAttempts: number) {
  const now = deps.system.now();
  const fail = deps.db
    .update(files)
    .set(failed(EXHAUSTED, now))
    .where(and(isClaimable(file, now), gte(files.attempts, minAttempts)))
    .returning({ id: files.id });
  return recordedFile(deps, { type: FILE_EVENTS.failed, initiator: SYSTEM, file }, fail);
}

/** Makes a completed or failed file pending again. Does not change an unprocessed one. */
export function fileReprocessing(deps: Deps, actor: TeamActor, id: string) {
  const now = deps.system.now();
  const file = { ...actor, id };
  const markPending = deps.db
    .update(files)
    .set({
      status: "pending",
      audio: null,
      searchKeys: sql`json_remove(${files.searchKeys}, '$.title', '$.artist')`,
      failureCode: null,
      failureMessage: null,
      processedAt: null,
      attempts: 0,
      dueAt: now + MAX_PENDING_MILLISECONDS,
      ...changed(now),
    })
    .where(and(isFile(file), inArray(files.status, ["completed", "failed"])));
  return recordedFile(deps, { type: FILE_EVENTS.reprocessed, initiator: actor, file }, markPending);
}

/** @throws `not_found` */
export async function reprocessFile(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const file = { ...actor, id };
  const found = deps.db
    .select({ status: files.status, isBulk: hasBacklog(actor.teamId).as("isBulk") })
    .from(files)
    .where(isFile(file));
  const batch = { reprocess: fileReprocessing(deps, actor, id), found };
  const [row] = (await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor })).found;
  if (!row) throw new AppError("not_found");
  // If the file was pending already, its message may be lost.
  if (row.status === "pending") enqueue(deps, [file], row.isBulk === 1);
}

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
  const key = { teamId, id: fileId, ownerId: null };
  const claim = deps.db
    .update(files)
    .set({
      status: "processing",
      attempts: sql`${files.attempts} + 1`,
      claim: sql`${files.claim} + 1`,
      leaseEndsAt: now + LEASE_MILLISECONDS,
      ...changed(now),
    })
    .where(and(isClaimable(key, now), lt(files.attempts, MAX_CLAIMS)))
    .returning();
  const batch = { exhausted: failExhausted(deps, key, MAX_CLAIMS), claim };
  const {
    exhausted,
    claim: [row],
  } = await writeWithEvent(deps, batch, { isIdempotent: false, caller: null });
  if (exhausted.change.length > 0) return "failed";
  if (!row) return "not_claimed";
  const file = { ...row, ownerId: null };
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
  const file = { teamId, id: fileId, ownerId: null };
  const { change } = await writeWithEvent(deps, failExhausted(deps, file, 1), { isIdempotent: false, caller: null });
  return change.length > 0 ? "failed" : "not_claimed";
}

/** Throws only errors that a retry may resolve. */
async function examine(deps: Deps, file: ClaimedFile): Promise<Findings | Failure> {
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
async function readBack(deps: Deps, file: ClaimedFile, object: ObjectFacts): Promise<string | null> {
  let renewedAt = deps.system.now();
  const sha256 = await deps.bytes.hash(objectKey(file), object, async () => {
    const now = deps.system.now();
    if (now - renewedAt < RENEWAL_MILLISECONDS) return;
    renewedAt = now;
    await renewLease(deps, file, { leaseEndsAt: now + LEASE_MILLISECONDS });
  });
  if (sha256 === null) throw new AppError("unavailable", { cause: new Error("The object changed while it was read.") });
  if ((file.statedSha256 ?? sha256) !== sha256) return null;
  // Stored at once: from now on it identifies the object, even if the object is stored again and this worker dies.
  await renewLease(deps, file, { sha256, leaseEndsAt: deps.system.now() + LEASE_MILLISECONDS });
  return sha256;
}

/** Renews the lease, and sets further columns. @throws `unavailable` if another worker has the claim */
async function renewLease(
  deps: Deps,
  file: ClaimedFile,
  columns: { leaseEndsAt: number; sha256?: string },
): Promise<void> {
  const renew = deps.db.update(files).set(columns).where(hasClaim(file)).returning({ id: files.id });
  const rows = await write(deps, renew, { isIdempotent: true, caller: null });
  if (rows.length === 0) throw new AppError("unavailable", { cause: new Error("Another worker has the file.") });
}

/**
 * Stores the object under the detected content type, which may differ from the one that the upload detected.
 * @returns the object's etag
 */
async function serveAs(
  deps: Deps,
  file: ClaimedFile,
  object: ObjectFacts & { sha256: string },
  contentType: string,
): Promise<string> {
  if (object.contentType === contentType) return object.etag;
  await renewLease(deps, file, { leaseEndsAt: deps.system.now() + INVOCATION_MILLISECONDS });
  const etag = await deps.bytes.setContentType(objectKey(file), object, contentType);
  if (etag === null) throw new AppError("unavailable", { cause: new Error("The object changed while it was stored.") });
  return etag;
}

/**
 * Setting a column rewrites its index, so the file type is set only if it differs from the one that the upload set, and what
 * is searched only if the audio has a title or an artist.
 */
function completed(file: ClaimedFile, { fileType, ...findings }: Findings, now: number) {
  const type = fileType === file.fileType ? {} : { fileType };
  const { title, artist } = findings.audio === null ? {} : (JSON.parse(findings.audio) as Audio).tags;
  const patch = searchPatch({ title: title?.toString(), artist: artist?.toString() });
  const searched = patch && { searchKeys: sql`json_patch(${files.searchKeys}, ${patch})` };
  return { status: "completed" as const, ...findings, ...type, ...searched, ...ended(now) };
}

/** Ends the job. Changes nothing if the claim is lost: the file was deleted, or the lease expired and another has it. */
async function recordOutcome(deps: Deps, file: ClaimedFile, findings: Findings | Failure): Promise<Outcome> {
  const now = deps.system.now();
  const outcome = "failureCode" in findings ? "failed" : "completed";
  const columns = "failureCode" in findings ? failed(findings, now) : completed(file, findings, now);
  const end = deps.db.update(files).set(columns).where(hasClaim(file)).returning({ id: files.id });
  const audio = "failureCode" in findings || findings.audio === null ? null : (JSON.parse(findings.audio) as Audio);
  const afters =
    outcome === "failed"
      ? []
      : deps.service.fileCompleted.map((afterCompletion) => afterCompletion(deps, { file, audio }));
  const batch = {
    end: recordedFile(deps, { type: FILE_EVENTS[outcome], initiator: SYSTEM, file }, end),
    afters: afters.map(({ after }) => after),
  };
  const { end: ended, afters: done } = await writeWithEvent(deps, batch, { isIdempotent: false, caller: null });
  if (ended.change.length > 0) {
    for (const [i, { committed }] of afters.entries()) committed(done[i] ?? []);
    return outcome;
  }
  // The file may have been deleted while `serveAs` stored it again. R2 doesn't document when it checks the condition of a put.
  const [row] = await read(deps, evaluate(deps.db, { id: ofKnownFile<string>(file, "id") }));
  if (!row?.id) await deps.bytes.remove([objectKey(file)]);
  return "not_claimed";
}

/** Returns the file to `pending`. If this fails, the lease expires and recovery sends the file again. */
async function release(deps: Deps, file: ClaimedFile, retryAfterSeconds: number): Promise<void> {
  const now = deps.system.now();
  // Recovery waits for the retry, and the usual time beyond it.
  const dueAt = now + retryAfterSeconds * 1000 + MAX_PENDING_MILLISECONDS;
  const putBack = deps.db
    .update(files)
    .set({ status: "pending", leaseEndsAt: null, dueAt, ...changed(now) })
    .where(hasClaim(file));
  try {
    await write(deps, putBack, { isIdempotent: true, caller: null });
  } catch (cause) {
    deps.log("warn", "job_release_failed", { fileId: file.id, cause });
  }
}
