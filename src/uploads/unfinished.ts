import { and, asc, eq, lt, lte, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { type Credential, mayStillUpload, readAs, type TeamActor } from "../access/authorization.ts";
import { uploadsOf } from "../access/own-files.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError } from "../errors.ts";
import { SYSTEM } from "../events/events.ts";
import {
  cancelUploads,
  deleteUploads,
  eraseParts,
  isClean,
  keysOfCanceled,
  MAX_LATE_WRITE_MILLISECONDS,
  removeUpload,
  type UploadRow,
} from "../files/ending.ts";
import { files } from "../files/files.schema.ts";
import { isFile, isOneOfKeys, isUpload, uploadKey } from "../files/names.ts";
import { type Guard, read, write } from "../platform/db.ts";
import type { FileJob } from "../platform/messages.ts";
import { cutPage, type Page, type PageRequest, pageById } from "../platform/paging.ts";
import { MINUTE } from "../platform/system.ts";
import { assembleAndCommit, isComplete, MAX_RESUMABLE_MILLISECONDS } from "./appending.ts";
import {
  hasWriters,
  isCanceled,
  isEnded,
  isIncomplete,
  isReceiving,
  isReserved,
  isResumable,
  isUnfinishedResumable,
  reservedUploads,
  unfinishedUploads,
  uploads,
} from "./uploads.schema.ts";

/* The unfinished uploads of a team, which hold its quota: their list and their cancellation, and what ends every upload in time. */

const LIST = "unfinished";

export interface UnfinishedUpload {
  id: string;
  name: string;
  sizeBytes: number;
  offsetBytes: number;
  keyId: string;
  isResumable: boolean;
  isCanceled: boolean;
  createdAt: number;
  expiresAt: number;
}

/** Newest first. @throws `invalid_input` for a cursor of another list */
export async function listUnfinished(
  deps: Deps,
  credential: Credential<"files:read">,
  request: PageRequest,
): Promise<Page<UnfinishedUpload>> {
  const page = pageById(LIST, uploads.fileId, "newest first", request);
  const { rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({
        id: sql<string>`file_id`.as("id"),
        name: sql<string>`original_name`.as("name"),
        sizeBytes: sql<number>`size_bytes`.as("sizeBytes"),
        offsetBytes: sql<number>`offset_bytes`.as("offsetBytes"),
        keyId: sql<string>`key_id`.as("keyId"),
        isResumable: sql<boolean>`${isResumable}`.mapWith(Boolean).as("isResumable"),
        isCanceled: sql<boolean>`${isCanceled}`.mapWith(Boolean).as("isCanceled"),
        createdAt: sql<number>`created_at`.as("createdAt"),
        expiresAt: sql<number>`due_at`.as("expiresAt"),
      })
      .from(reservedUploads)
      .where(and(uploadsOf(viewer), isReserved, page.where))
      .orderBy(...page.orderBy)
      .limit(page.limit)
      .offset(page.offset),
  );
  return cutPage(LIST, request, rows);
}

/**
 * Cancels the incomplete resumable uploads of the keys that `keyIds` selects, in the batch that deletes those keys. They hold their
 * quota until the recovery job has deleted the bytes and rows. Of one that has all of its bytes, only the commit is missing.
 * A form upload is one request, which looks whether its key exists, and ends by itself: to find those of a key, each upload would
 * write another row of an index.
 */
export function cancelUploadsOfKeys(deps: Deps, teamId: string, keyIds: SQL) {
  const isOfKeys = and(eq(uploads.teamId, teamId), isUnfinishedResumable, sql`${uploads.keyId} in ${keyIds}`);
  const isIncompleteOfKeys = and(isOfKeys, lt(uploads.offsetBytes, uploads.sizeBytes));
  const selected = sql`(select team_id, file_id from ${unfinishedUploads} where ${isIncompleteOfKeys})`;
  return cancelUploads(deps, sql`(team_id, file_id) in ${selected}`);
}

/** Whether a key of the team began a resumable upload that is still arriving. */
export const hasUnfinished = (teamId: string, keyId: SQLiteColumn) =>
  sql`exists (select 1 from ${unfinishedUploads}
    where ${and(eq(uploads.teamId, teamId), eq(uploads.keyId, keyId), isUnfinishedResumable, isReceiving)})`;

/**
 * Cancels an upload, and deletes what it stored. Can be repeated.
 * @param caller null if the service cancels it, because it can never complete
 * @throws `not_found`; `forbidden` once it is complete
 */
export async function cancelUpload(
  deps: Deps,
  actor: TeamActor,
  id: string,
  caller: Guard | null = mayStillUpload(deps, actor),
): Promise<void> {
  const isSelected = isUpload({ ...actor, id });
  const batch = {
    cancel: cancelUploads(deps, isSelected),
    upload: deps.db.select().from(uploads).where(isSelected),
    file: deps.db
      .select({ id: files.id })
      .from(files)
      .where(isFile({ ...actor, id })),
  };
  const {
    upload: [upload],
    file: [file],
  } = await write(deps, batch, { isIdempotent: true, caller });
  if (upload?.status === "canceled") {
    // A form upload that is still sending the bytes cleans up itself, once it looks.
    if (upload.secretHash !== null) await removeUpload(deps, upload);
    return;
  }
  if (!file) throw new AppError("not_found");
  throw new AppError("forbidden", { message: "The upload is complete. Delete the file instead." });
}

/**
 * For a message that found nothing to process: assembles the upload if all of its bytes are stored. What could not be
 * assembled for six days ends here, because R2 soon drops the parts.
 */
export async function assembleUpload(
  deps: Deps,
  { teamId, fileId: id }: FileJob,
): Promise<"assembled" | "not_claimed"> {
  const isGiven = and(isUpload({ teamId, id, ownerId: null }), isReceiving);
  const [upload] = await read(deps, deps.db.select().from(uploads).where(isGiven));
  if (!upload || upload.secretHash === null || !isComplete(upload)) return "not_claimed";
  if (upload.createdAt + MAX_RESUMABLE_MILLISECONDS > deps.system.now()) {
    await assembleAndCommit(deps, SYSTEM, upload);
    return "assembled";
  }
  deps.log("error", "upload_unassembled", { fileId: id, teamId });
  await write(deps, cancelUploads(deps, isGiven), { isIdempotent: true, caller: null });
  return "not_claimed";
}

/*
 * How the recovery job continues uploads, of which those that have been due longest come first:
 *
 *   committed                   the row was a receipt, and is deleted. R2 may hold chunks: deleted there first
 *   canceled                    what it stored is deleted, then the row
 *   complete, not assembled     a message asks a queue consumer to assemble it
 *   incomplete                  it expired, or its Worker died: it is canceled
 */

/** Uploads of a batch that are still arriving. */
const RECEIVING_ROWS = 500;
/** Uploads of a batch that have ended. Most are only deleted. */
const ENDED_ROWS = 1000;
/** Uploads whose parts and chunks one batch deletes in R2. */
const LEFTOVER_ROWS = 50;
/** A Worker keeps six connections open at once. */
const PARALLEL_UPLOADS = 6;
const RETRY_MILLISECONDS = 5 * MINUTE;

const DUE_COLUMNS = {
  id: sql<string>`${uploads.fileId}`.as("id"),
  teamId: uploads.teamId,
  status: uploads.status,
  originalName: uploads.originalName,
  sizeBytes: uploads.sizeBytes,
  secretHash: uploads.secretHash,
  multipartId: uploads.multipartId,
  isWriting: uploads.isWriting,
  hasLeftovers: uploads.hasLeftovers,
  isComplete: sql<0 | 1>`offset_bytes = size_bytes`.as("is_complete"),
};
type DueUpload = Pick<UploadRow, Exclude<keyof typeof DUE_COLUMNS, "id" | "isComplete">> & { id: string };

/** A request that is writing may be about to save bytes, which would prolong an incomplete upload. */
const isDue = (now: number) =>
  sql`due_at <= ${now} and due_at <= ${now} - iif(${hasWriters} and ${isIncomplete}, ${MAX_LATE_WRITE_MILLISECONDS}, 0)`;

/** Deletes what ended uploads have in R2. @returns those that have nothing there any more */
async function eraseEnded(deps: Deps, rows: DueUpload[]): Promise<DueUpload[]> {
  const failed = new Set<DueUpload>();
  const fail = (row: DueUpload, cause: unknown) => {
    deps.log("error", "recovery_step_failed", { outcome: "leftovers", fileId: row.id, cause });
    failed.add(row);
  };
  const waiting = rows.filter((row) => !isClean(row)).values();
  const eraseNext = async () => {
    for (const row of waiting) await eraseParts(deps, row, row.multipartId).catch((cause) => fail(row, cause));
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, eraseNext));
  const canceled = rows.filter((row) => row.status === "canceled" && !failed.has(row));
  await deps.bytes.remove(canceled.flatMap(keysOfCanceled)).catch((cause) => {
    for (const row of canceled) fail(row, cause);
  });
  return rows.filter((row) => !failed.has(row));
}

/** Continues uploads that are due. It deletes first, because a full database may have no room for anything else. */
async function continueUploads(deps: Deps) {
  const { db, system, jobs } = deps;
  const now = system.now();
  const due = (state: SQL, limit: number) =>
    db
      .select(DUE_COLUMNS)
      .from(uploads)
      .where(and(state, isDue(now)))
      .orderBy(asc(uploads.dueAt))
      .limit(limit);
  const { receiving, ended } = await read(deps, {
    receiving: due(isReceiving, RECEIVING_ROWS),
    ended: due(isEnded, ENDED_ROWS),
  });
  const postpone = (rows: DueUpload[]) =>
    db
      .update(uploads)
      .set({ dueAt: now + RETRY_MILLISECONDS })
      .where(and(isOneOfKeys(uploadKey, rows), lte(uploads.dueAt, now)))
      .returning({ teamId: uploads.teamId, fileId: uploads.fileId });

  const dirty = ended.filter((row) => !isClean(row));
  const next = [...ended.filter(isClean), ...dirty.slice(0, LEFTOVER_ROWS)];
  const gone = await eraseEnded(deps, next);
  if (gone.length > 0) await write(deps, deleteUploads(deps, gone), { isIdempotent: true, caller: null });
  const failed = next.filter((row) => !gone.includes(row));
  if (failed.length > 0) await write(deps, postpone(failed), { isIdempotent: true, caller: null });

  const complete = receiving.filter(({ isComplete }) => isComplete === 1);
  const sent = complete.length === 0 ? [] : await write(deps, postpone(complete), { isIdempotent: true, caller: null });
  if (sent.length > 0) await jobs.sendAll(sent);

  const expired = receiving.filter(({ isComplete }) => isComplete === 0);
  const isExpired = and(isIncomplete, isDue(now), isOneOfKeys(uploadKey, expired));
  const canceled =
    expired.length === 0
      ? 0
      : (await write(deps, cancelUploads(deps, isExpired), { isIdempotent: true, caller: null })).meta.changes;
  return { uploadsRemoved: gone.length, assemblies: sent.length, uploadsExpired: canceled };
}

export const dueUploads: RecoveryStep = {
  name: "uploads",
  counts: ["assemblies", "uploadsExpired", "uploadsRemoved"],
  runBatch: continueUploads,
  maxBatches: 20,
  queries: 7,
};
