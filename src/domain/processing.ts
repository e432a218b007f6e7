import { and, eq, gt, lt, lte, or, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { once, retrying } from "../platform/db.ts";
import { retryDelaySeconds } from "../platform/jobs.ts";
import { files } from "../platform/schema.ts";
import { inspectFile } from "./audio/inspect.ts";
import type { FileType } from "./audio/media-type.ts";
import { UnreadableAudio } from "./audio/range-source.ts";
import { type FailureCode, type FileRow, objectKey, PENDING_MILLISECONDS } from "./files.ts";

/** Longer than the slowest job, a full read of a 100 MB MP3 that states no duration. */
export const LEASE_MILLISECONDS = 5 * 60 * 1000;
/** More than one message is ever delivered (11), so that it ends a file only where worker after worker died over it. */
export const MAX_ATTEMPTS = 20;

export type Outcome = "completed" | "failed" | "not ours" | { retryAfterSeconds: number };

interface Failure {
  code: FailureCode;
  message: string;
}

const EXHAUSTED: Failure = {
  code: "retries_exhausted",
  message: "Processing failed again and again, and was given up.",
};

/** Pending, or left behind by a worker whose lease has run out. */
const claimable = (fileId: string, now: number) =>
  and(
    eq(files.id, fileId),
    or(eq(files.status, "pending"), and(eq(files.status, "processing"), lte(files.dueAt, now))),
  );

function failed(deps: Deps, failure: Failure) {
  const now = deps.system.now();
  return {
    status: "failed" as const,
    failureCode: failure.code,
    failureMessage: failure.message,
    processedAt: now,
    dueAt: null,
    updatedAt: now,
    version: sql`${files.version} + 1`,
  };
}

/**
 * One job: takes a file from `pending` to `completed` or `failed`. Idempotent: a message that comes twice, late or out
 * of order finds nothing to claim and changes nothing ("not ours"). Trouble that passes, once the file is claimed, does
 * not throw: the file goes back to `pending`, and the outcome says when to try again.
 *
 * What is proven of the bytes: of a file that one `put` stored, that R2 checked the SHA-256 of what came in while it
 * wrote, and still states the same SHA-256, size and etag; of a larger one that the object is the very one that R2 put
 * together from the parts of this upload (size and etag; R2 keeps no whole-object checksum of these).
 */
export async function processFile(deps: Deps, fileId: string): Promise<Outcome> {
  const claim = await claimFile(deps, fileId);
  if (!claim) return "not ours";
  if (claim.status === "failed") return "failed";
  try {
    const findings = await examine(deps, claim);
    return await finish(deps, claim, findings);
  } catch (cause) {
    const retryAfterSeconds = retryDelaySeconds(claim.attempts);
    deps.log("warn", "job put off", { fileId, teamId: claim.teamId, attempts: claim.attempts, cause });
    await putBack(deps, claim, retryAfterSeconds);
    return { retryAfterSeconds };
  }
}

/**
 * For a message that used up its tries. @returns "not ours" where the file has moved on, or another worker is at it.
 * One that was never claimed since it became pending is left to recovery: the message may be from before it was
 * reprocessed, or D1 was away all the time.
 */
export async function giveUpFile(deps: Deps, fileId: string): Promise<Outcome> {
  const given = await once(() =>
    deps.db
      .update(files)
      .set(failed(deps, EXHAUSTED))
      .where(and(claimable(fileId, deps.system.now()), gt(files.attempts, 0)))
      .returning({ id: files.id }),
  );
  return given.length > 0 ? "failed" : "not ours";
}

/** Wins the file for this worker, until the lease runs out; `version` is the fencing token of the claim. */
async function claimFile(deps: Deps, fileId: string): Promise<FileRow | undefined> {
  const { db, system } = deps;
  const now = system.now();
  const [[exhausted], [claimed]] = await once(() =>
    db.batch([
      db
        .update(files)
        .set(failed(deps, EXHAUSTED))
        .where(and(claimable(fileId, now), sql`${files.attempts} >= ${MAX_ATTEMPTS}`))
        .returning(),
      db
        .update(files)
        .set({
          status: "processing",
          attempts: sql`${files.attempts} + 1`,
          dueAt: now + LEASE_MILLISECONDS,
          updatedAt: now,
          version: sql`${files.version} + 1`,
        })
        .where(and(claimable(fileId, now), lt(files.attempts, MAX_ATTEMPTS)))
        .returning(),
    ]),
  );
  return exhausted ?? claimed;
}

type Findings = { mimeType: string; fileType: FileType; audio: string | null } | Failure;

/** Throws only for trouble that passes. */
async function examine(deps: Deps, file: FileRow): Promise<Findings> {
  const key = objectKey(file);
  const object = await deps.bytes.head(key);
  if (!object) return { code: "bytes_missing", message: "The stored bytes are not there." };
  const sameSum = object.sha256 === null || object.sha256 === file.sha256;
  if (object.sizeBytes !== file.sizeBytes || object.etag !== file.etag || !sameSum) {
    return { code: "bytes_altered", message: "The stored bytes are not those that were uploaded." };
  }
  const read = async (offset: number, length: number) => {
    const bytes = await deps.bytes.read(key, offset, length);
    if (!bytes) throw new AppError("unavailable", { cause: new Error("The object went away while it was read.") });
    return bytes;
  };
  try {
    const { mediaType, fileType, audio } = await inspectFile(read, object.sizeBytes);
    return { mimeType: mediaType, fileType, audio: audio && JSON.stringify(audio) };
  } catch (error) {
    if (error instanceof UnreadableAudio) return { code: "audio_unreadable", message: error.message };
    throw error;
  }
}

/** Nothing happens where the claim is no longer ours: the file was deleted, or the lease ran out and another has it. */
async function finish(deps: Deps, claim: FileRow, findings: Findings): Promise<Outcome> {
  const { db, system } = deps;
  const now = system.now();
  const ended =
    "code" in findings
      ? failed(deps, findings)
      : {
          status: "completed" as const,
          ...findings,
          processedAt: now,
          dueAt: null,
          updatedAt: now,
          version: sql`${files.version} + 1`,
        };
  const [row] = await once(() => db.update(files).set(ended).where(held(claim)).returning({ status: files.status }));
  if (!row) return "not ours";
  return row.status === "failed" ? "failed" : "completed";
}

const held = (claim: FileRow) =>
  and(eq(files.id, claim.id), eq(files.status, "processing"), eq(files.version, claim.version));

/** If even this fails, the lease runs out and recovery sends the file again. */
async function putBack(deps: Deps, claim: FileRow, retryAfterSeconds: number): Promise<void> {
  const { db, system } = deps;
  const now = system.now();
  try {
    await retrying(system, () =>
      db
        .update(files)
        .set({
          status: "pending",
          // Recovery is to wait for the retry, and the usual time beyond it.
          dueAt: now + retryAfterSeconds * 1000 + PENDING_MILLISECONDS,
          updatedAt: now,
          version: sql`${files.version} + 1`,
        })
        .where(held(claim)),
    );
  } catch (cause) {
    deps.log("warn", "job left to its lease", { fileId: claim.id, cause });
  }
}
