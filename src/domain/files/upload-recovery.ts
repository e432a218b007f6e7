import { and, asc, eq, inArray, lte, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Db, type Param, preparedQuery, read, write } from "../../platform/db.ts";
import type { FileJob } from "../../platform/jobs.ts";
import { MINUTE } from "../../platform/system.ts";
import {
  isAwaitingAssembly,
  isFinishedAndClean,
  isFinishedWithLeftovers,
  isIncomplete,
  isUnfinished,
  uploadParts,
  uploads,
} from "../../platform/upload-schema.ts";
import { SYSTEM } from "../events/events.ts";
import { assembleAndCommit } from "./appending.ts";
import { chunkPrefix, type FileKey, objectKey } from "./names.ts";
import { endedUpload, isComplete, MAX_FENCED_MILLISECONDS, withFile } from "./resumable-rows.ts";
import { cancelUploads } from "./unfinished.ts";

/*
 * How the recovery job finishes resumable uploads. Each row is in exactly one of four partial indexes by `due_at`,
 * so no kind of work waits behind another:
 *
 *   complete, not assembled     a message asks a queue consumer to assemble it
 *   incomplete and expired      its file is hidden, and the upload becomes a finished one
 *   finished, nothing in R2     rows that only answer late clients: deleted by one statement
 *   finished, with leftovers    R2 may hold chunks: deleted there first
 *
 * A row that must not be lost gets a later `due_at` in the statement that selects it, so an interrupted run is repeated.
 */

/** Rows of a statement that returns them. */
export const UPLOAD_ROWS = 500;
/** Rows of a statement that only deletes. */
export const FINISHED_ROWS = 1000;
/** Uploads whose objects one batch deletes in R2. */
export const LEFTOVER_ROWS = 50;
/** An upload takes up to three calls: abort the multipart upload, list the chunks, delete them. */
export const CALLS_PER_LEFTOVER = 3;
/** A Worker keeps six connections open at once. */
const PARALLEL_UPLOADS = 6;
const RETRY_MILLISECONDS = 5 * MINUTE;

type DueValues = { now: number };

const dueUploads = (db: Db, param: Param<DueValues>, state: SQL, limit: number) =>
  db
    .select({ id: uploads.fileId })
    .from(uploads)
    .where(and(state, lte(uploads.dueAt, param("now"))))
    .orderBy(asc(uploads.dueAt))
    .limit(limit);

const takeUnassembled = preparedQuery((db, param: Param<DueValues>) =>
  db
    .update(uploads)
    .set({ dueAt: sql`${param("now")} + ${RETRY_MILLISECONDS}` })
    .where(inArray(uploads.fileId, dueUploads(db, param, isAwaitingAssembly, UPLOAD_ROWS)))
    .returning({ teamId: uploads.teamId, fileId: uploads.fileId }),
);

/** Asks queue consumers to assemble uploads whose last request died. @returns how many */
export async function enqueueAssemblies(deps: Deps): Promise<number> {
  const [rows] = await write(deps, [takeUnassembled({ now: deps.system.now() })], { isIdempotent: true });
  await deps.jobs.sendAll(rows);
  return rows.length;
}

const uploadOfFile = preparedQuery((db, param: Param<FileKey>) =>
  withFile(db).where(and(eq(uploads.teamId, param("teamId")), eq(uploads.fileId, param("id")), isUnfinished)),
);

/**
 * For a message that found nothing to process: assembles the upload if all of its bytes are stored. What could not be
 * assembled for six days ends here, because by then its file has been hidden, and R2 soon drops the parts.
 */
export async function assembleUpload(
  deps: Deps,
  { teamId, fileId: id }: FileJob,
): Promise<"assembled" | "not_claimed"> {
  const [[upload]] = await read(deps, [uploadOfFile({ id, teamId })]);
  if (!upload || !isComplete(upload)) return "not_claimed";
  if (upload.status === "receiving") {
    await assembleAndCommit(deps, SYSTEM, upload);
    return "assembled";
  }
  deps.log("error", "upload_unassembled", { fileId: id, teamId });
  await write(deps, [endOne({ id, teamId, now: deps.system.now() })], { isIdempotent: true });
  return "not_claimed";
}

const endOne = preparedQuery((db, param: Param<DueValues & FileKey>) =>
  db
    .update(uploads)
    .set(endedUpload(param))
    .where(and(eq(uploads.fileId, param("id")), eq(uploads.teamId, param("teamId")), isUnfinished)),
);

/** A request that is writing may be about to save bytes, which would prolong the upload. */
const cancelExpired = cancelUploads((db, param: Param<DueValues>) => {
  const latest = sql`${param("now")} - iif(is_writing, ${MAX_FENCED_MILLISECONDS}, 0)`;
  const isExpired = sql`${isIncomplete} and ${uploads.dueAt} <= ${latest}`;
  return inArray(uploads.fileId, dueUploads(db, param, isExpired, UPLOAD_ROWS));
});

/** Cancels incomplete uploads that have expired. @returns how many */
export async function expireUploads(deps: Deps): Promise<number> {
  const [, ended] = await write(deps, cancelExpired({ now: deps.system.now() }), { isIdempotent: true });
  return ended.meta.changes;
}

const deleteFinished = preparedQuery((db, param: Param<DueValues>) =>
  db.delete(uploads).where(inArray(uploads.fileId, dueUploads(db, param, isFinishedAndClean, FINISHED_ROWS))),
);

/** Deletes the rows of finished uploads that have nothing in R2. @returns how many */
export async function deleteFinishedUploads(deps: Deps): Promise<number> {
  const [deleted] = await write(deps, [deleteFinished({ now: deps.system.now() })], { isIdempotent: true });
  return deleted.meta.changes;
}

const takeLeftovers = preparedQuery((db, param: Param<DueValues>) =>
  db
    .update(uploads)
    .set({ dueAt: sql`${param("now")} + ${RETRY_MILLISECONDS}` })
    .where(inArray(uploads.fileId, dueUploads(db, param, isFinishedWithLeftovers, LEFTOVER_ROWS)))
    .returning({
      id: uploads.fileId,
      teamId: uploads.teamId,
      multipartId: uploads.multipartId,
      originalName: sql<
        string | null
      >`(select original_name from files where team_id = uploads.team_id and id = file_id)`,
    }),
);
/** The ids are one parameter, however many there are: D1 allows 100 parameters. */
const idsIn = (param: Param<{ ids: string }>) => sql`(select value from json_each(${param("ids")}))`;
export const deleteUploads = preparedQuery((db, param: Param<{ ids: string }>) =>
  db.delete(uploads).where(and(sql`${uploads.fileId} in ${idsIn(param)}`, eq(uploads.isFinished, true))),
);
const deletePartsOf = preparedQuery((db, param: Param<{ ids: string }>) =>
  db.delete(uploadParts).where(sql`${uploadParts.fileId} in ${idsIn(param)}`),
);

/** Deletes what finished uploads left in R2, and then their rows. @returns how many uploads were selected */
export async function deleteLeftovers(deps: Deps): Promise<number> {
  const [rows] = await write(deps, [takeLeftovers({ now: deps.system.now() })], { isIdempotent: true });
  const deleted: string[] = [];
  const waiting = rows.values();
  const deleteNext = async () => {
    for (const { multipartId, originalName, ...file } of waiting) {
      try {
        if (multipartId !== null && originalName !== null)
          await deps.bytes.abort(objectKey({ ...file, originalName }), multipartId);
        await deps.bytes.removeAll(chunkPrefix(file));
        deleted.push(file.id);
      } catch (cause) {
        deps.log("error", "recovery_step_failed", { outcome: "leftovers", fileId: file.id, cause });
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, deleteNext));
  const ids = JSON.stringify(deleted);
  if (deleted.length > 0) await write(deps, [deleteUploads({ ids }), deletePartsOf({ ids })], { isIdempotent: true });
  return rows.length;
}
