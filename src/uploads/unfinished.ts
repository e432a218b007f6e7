import { and, asc, eq, inArray, lt, lte, type SQL, sql } from "drizzle-orm";
import { authorizeOwnRead, type Credential, type Viewer } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { SYSTEM } from "../events/events.ts";
import { deleteUploads, ended, eraseResumable, MAX_FENCED_MILLISECONDS } from "../files/ending.ts";
import { files } from "../files/files.schema.ts";
import { fileKey, isFileOfUpload, objectKey } from "../files/names.ts";
import { read, write } from "../platform/db.ts";
import type { FileJob } from "../platform/messages.ts";
import { cutPage, type Page, type PageRequest, pageById } from "../platform/paging.ts";
import { isStorageFull } from "../platform/retry.ts";
import { MINUTE } from "../platform/system.ts";
import { leave, removeRows } from "../trash/deletion.ts";
import { assembleAndCommit, isComplete, withFile } from "./appending.ts";
import {
  holdsQuota,
  isAwaitingAssembly,
  isFinishedAndClean,
  isFinishedWithLeftovers,
  isIncomplete,
  isUnfinished,
  uploads,
} from "./uploads.schema.ts";

/* The unfinished resumable uploads of a team: their list, their cancellation with their key, and what ends them in time. */

const LIST = "unfinished";

export interface UnfinishedUpload {
  id: string;
  name: string;
  sizeBytes: number;
  offsetBytes: number;
  keyId: string;
  createdAt: number;
  expiresAt: number;
}

const isOfTeam = ({ teamId }: Viewer) => eq(uploads.teamId, teamId);
const isReceivingUpload = and(holdsQuota, isUnfinished, eq(files.status, "receiving"));

/** Newest first. @throws `invalid_input` for a cursor of another list */
export async function listUnfinished(
  deps: Deps,
  credential: Credential<"files:read">,
  request: PageRequest,
): Promise<Page<UnfinishedUpload>> {
  const { fileId: id, sizeBytes, offsetBytes, keyId, createdAt, dueAt: expiresAt } = uploads;
  const page = pageById(LIST, id, "newest first", request);
  const { rows } = await authorizeOwnRead(deps, credential, (viewer) =>
    deps.db
      .select({ id, name: files.originalName, sizeBytes, offsetBytes, keyId, createdAt, expiresAt })
      .from(uploads)
      .innerJoin(files, isFileOfUpload)
      .where(and(isOfTeam(viewer), filesOf(viewer), isReceivingUpload, page.where))
      .orderBy(...page.orderBy)
      .limit(page.limit)
      .offset(page.offset),
  );
  return cutPage(LIST, request, rows);
}

/**
 * Ends incomplete uploads and removes their files. They hold their quota until the recovery job has deleted the bytes and
 * rows. `isSelected` must not hold for an upload that has all of its bytes: only its commit is missing.
 */
function cancelUploads(deps: Deps, now: number, isSelected: SQL | undefined) {
  const { db } = deps;
  const selected = db.select({ teamId: uploads.teamId, id: uploads.fileId }).from(uploads).where(isSelected);
  const leaving = leave(deps, and(sql`${fileKey} in ${selected}`, eq(files.status, "receiving")), { dueAt: now });
  return [...leaving, db.update(uploads).set(ended(now)).where(isSelected)] as const;
}

/** Cancels the incomplete uploads of the keys that `keyIds` selects, in the batch that deletes those keys. */
export function cancelUploadsOfKeys(deps: Deps, teamId: string, keyIds: SQL) {
  const isIncompleteUpload = and(isUnfinished, lt(uploads.offsetBytes, uploads.sizeBytes));
  const isOfKeys = and(eq(uploads.teamId, teamId), holdsQuota, sql`${uploads.keyId} in ${keyIds}`);
  return cancelUploads(deps, deps.system.now(), and(isOfKeys, isIncompleteUpload));
}

/*
 * How the recovery job finishes resumable uploads. Each row is in exactly one of four partial indexes by `due_at`,
 * so no kind of work waits behind another:
 *
 *   complete, not assembled     a message asks a queue consumer to assemble it
 *   incomplete and expired      its file leaves, and the upload becomes a finished one
 *   finished, nothing in R2     rows that only answer late clients: deleted by one statement
 *   finished, with leftovers    R2 may hold chunks: deleted there first
 *
 * A row that must not be lost gets a later `due_at` in the statement that selects it, so an interrupted run is repeated.
 */

/** Rows of a statement that returns them. */
const UPLOAD_ROWS = 500;
/** Rows of a statement that only deletes. */
const FINISHED_ROWS = 1000;
/** Uploads whose objects one batch deletes in R2. */
const LEFTOVER_ROWS = 50;
/** A Worker keeps six connections open at once. */
const PARALLEL_UPLOADS = 6;
const RETRY_MILLISECONDS = 5 * MINUTE;

/** The uploads in a state that have been due longest. */
const dueUploads = ({ db, system }: Deps, state: SQL, limit: number) =>
  db
    .select({ id: uploads.fileId })
    .from(uploads)
    .where(and(state, lte(uploads.dueAt, system.now())))
    .orderBy(asc(uploads.dueAt))
    .limit(limit);

/** Takes due uploads. They are due again if the run is interrupted. */
const take = (deps: Deps, state: SQL, limit: number) =>
  deps.db
    .update(uploads)
    .set({ dueAt: deps.system.now() + RETRY_MILLISECONDS })
    .where(inArray(uploads.fileId, dueUploads(deps, state, limit)));

/** Asks queue consumers to assemble uploads whose last request died. @returns how many */
async function enqueueAssemblies(deps: Deps): Promise<number> {
  const taken = take(deps, isAwaitingAssembly, UPLOAD_ROWS);
  const [rows] = await write(deps, [taken.returning({ teamId: uploads.teamId, fileId: uploads.fileId })], {
    isIdempotent: true,
  });
  await deps.jobs.sendAll(rows);
  return rows.length;
}

/**
 * For a message that found nothing to process: assembles the upload if all of its bytes are stored. What could not be
 * assembled for six days ends here, because by then its file has left, and R2 soon drops the parts.
 */
export async function assembleUpload(deps: Deps, { teamId, fileId }: FileJob): Promise<"assembled" | "not_claimed"> {
  const isUpload = and(eq(uploads.teamId, teamId), eq(uploads.fileId, fileId), isUnfinished);
  const [[upload], [found]] = await read(deps, [
    deps.db.select().from(uploads).where(isUpload),
    withFile(deps.db).where(isUpload),
  ]);
  if (!upload || !isComplete(upload)) return "not_claimed";
  if (found?.status === "receiving") {
    await assembleAndCommit(deps, SYSTEM, found);
    return "assembled";
  }
  deps.log("error", "upload_unassembled", { fileId, teamId });
  const end = deps.db.update(uploads).set(ended(deps.system.now())).where(isUpload);
  await write(deps, [end], { isIdempotent: true });
  return "not_claimed";
}

/** Cancels incomplete uploads that have expired. @returns how many */
async function expireUploads(deps: Deps): Promise<number> {
  const now = deps.system.now();
  // A request that is writing may be about to save bytes, which would prolong the upload.
  const latest = sql`${now} - iif(is_writing, ${MAX_FENCED_MILLISECONDS}, 0)`;
  const isExpired = sql`${isIncomplete} and ${uploads.dueAt} <= ${latest}`;
  const isSelected = inArray(uploads.fileId, dueUploads(deps, isExpired, UPLOAD_ROWS));
  const [, , canceled] = await write(deps, cancelUploads(deps, now, isSelected), { isIdempotent: true });
  return canceled.meta.changes;
}

/** Deletes the rows of finished uploads that have nothing in R2. @returns how many */
async function deleteFinishedUploads(deps: Deps): Promise<number> {
  const due = dueUploads(deps, isFinishedAndClean, FINISHED_ROWS);
  const [deleted] = await write(deps, [deps.db.delete(uploads).where(inArray(uploads.fileId, due))], {
    isIdempotent: true,
  });
  return deleted.meta.changes;
}

const nameOfFile = sql<string | null>`coalesce(
  (select original_name from files where team_id = uploads.team_id and id = file_id),
  (select original_name from removed where team_id = uploads.team_id and id = file_id))`;

const LEFTOVER_COLUMNS = {
  id: uploads.fileId,
  teamId: uploads.teamId,
  multipartId: uploads.multipartId,
  isCanceled: uploads.isCanceled,
  originalName: nameOfFile,
};

/** Reads uploads that a full database can't postpone. Their rows are deleted next, which frees space. */
function readLeftovers(deps: Deps, error: unknown) {
  if (!isStorageFull(error)) throw error;
  const due = dueUploads(deps, isFinishedWithLeftovers, LEFTOVER_ROWS);
  return read(deps, [deps.db.select(LEFTOVER_COLUMNS).from(uploads).where(inArray(uploads.fileId, due))]);
}

/** Deletes what finished uploads left in R2, and then their rows, with those of canceled files. @returns how many */
async function deleteLeftovers(deps: Deps): Promise<number> {
  const taken = take(deps, isFinishedWithLeftovers, LEFTOVER_ROWS).returning(LEFTOVER_COLUMNS);
  const [rows] = await write(deps, [taken], { isIdempotent: true }).catch((error) => readLeftovers(deps, error));
  const erased: typeof rows = [];
  const waiting = rows.values();
  const eraseNext = async () => {
    for (const row of waiting) {
      try {
        const { originalName } = row;
        // Without a file there is no name, and the object is gone with the file.
        await eraseResumable(
          deps,
          { ...row, originalName: originalName ?? "" },
          originalName === null ? { multipartId: null } : row,
        );
        erased.push(row);
      } catch (cause) {
        deps.log("error", "recovery_step_failed", { outcome: "leftovers", fileId: row.id, cause });
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, eraseNext));
  const canceled = erased.flatMap(({ isCanceled, originalName, ...row }) =>
    isCanceled && originalName !== null ? [{ ...row, originalName }] : [],
  );
  await deps.bytes.remove(canceled.map(objectKey));
  const ids = erased.map(({ id }) => id);
  if (canceled.length > 0) await removeRows(deps, canceled, ids);
  else if (ids.length > 0) await write(deps, deleteUploads(deps, ids), { isIdempotent: true });
  return ids.length;
}

/** Continues resumable uploads that are due. A full database may have no room for anything but deletions. */
export const continueUploads = async (deps: Deps) => ({
  uploadsRemoved: (await deleteFinishedUploads(deps)) + (await deleteLeftovers(deps)),
  assemblies: await enqueueAssemblies(deps),
  uploadsExpired: await expireUploads(deps),
});
