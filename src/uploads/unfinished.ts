import { and, asc, eq, lt, lte, type SQL, sql } from "drizzle-orm";
import { authorizeOwnRead, type Credential, type Viewer } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { SYSTEM } from "../events/events.ts";
import {
  deleteUploads,
  ended,
  eraseResumable,
  isClean,
  MAX_FENCED_MILLISECONDS,
  type ResumableRow,
} from "../files/ending.ts";
import { files } from "../files/files.schema.ts";
import { fileKey, isFileOfUpload } from "../files/names.ts";
import { isOneOf, read, write } from "../platform/db.ts";
import type { FileJob } from "../platform/messages.ts";
import { cutPage, type Page, type PageRequest, pageById } from "../platform/paging.ts";
import { MINUTE } from "../platform/system.ts";
import { leave } from "../trash/deletion.ts";
import { assembleAndCommit, isComplete, withFile } from "./appending.ts";
import { holdsQuota, isFinished, isIncomplete, isUnfinished, uploads } from "./uploads.schema.ts";

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

/*
 * How the recovery job continues resumable uploads, of which those that have been due longest come first:
 *
 *   finished, nothing in R2     the row only answered late clients, and is deleted
 *   finished, with leftovers    R2 may hold chunks: deleted there first
 *   complete, not assembled     a message asks a queue consumer to assemble it
 *   incomplete and expired      its file leaves, and the upload becomes a finished one
 *
 * The step that erases removed files follows: it deletes a file whose upload ended early.
 */

/** Unfinished uploads of a batch. */
const UNFINISHED_ROWS = 500;
/** Finished uploads of a batch. Most are only deleted. */
const FINISHED_ROWS = 1000;
/** Uploads whose objects one batch deletes in R2. */
const LEFTOVER_ROWS = 50;
/** A Worker keeps six connections open at once. */
const PARALLEL_UPLOADS = 6;
const RETRY_MILLISECONDS = 5 * MINUTE;

/** The name of the file whose parts have to be deleted. Null if the file is gone, and with it the parts. */
const nameOfFile = sql<string | null>`iif(multipart_id is null, null, coalesce(
  (select original_name from files where team_id = uploads.team_id and id = file_id),
  (select original_name from removed where team_id = uploads.team_id and id = file_id)))`;

const DUE_COLUMNS = {
  id: uploads.fileId,
  teamId: uploads.teamId,
  multipartId: uploads.multipartId,
  isWriting: uploads.isWriting,
  hasLeftovers: uploads.hasLeftovers,
  isComplete: sql<0 | 1>`offset_bytes = size_bytes`.as("is_complete"),
  originalName: nameOfFile.as("original_name"),
};

/** A request that is writing may be about to save bytes, which would prolong an incomplete upload. */
const isDue = (now: number) =>
  sql`due_at <= ${now} and due_at <= ${now} - iif(is_writing and ${isIncomplete}, ${MAX_FENCED_MILLISECONDS}, 0)`;

type DueUpload = Pick<ResumableRow, "teamId" | "multipartId"> & { id: string; originalName: string | null };

/** Deletes what uploads left in R2. @returns those for which that failed */
async function eraseLeftovers(deps: Deps, rows: DueUpload[]): Promise<DueUpload[]> {
  const failed: DueUpload[] = [];
  const waiting = rows.values();
  const eraseNext = async () => {
    for (const { originalName, multipartId, ...key } of waiting) {
      const file = { ...key, originalName: originalName ?? "" };
      try {
        await eraseResumable(deps, file, { multipartId: originalName === null ? null : multipartId });
      } catch (cause) {
        deps.log("error", "recovery_step_failed", { outcome: "leftovers", fileId: key.id, cause });
        failed.push({ ...file, multipartId });
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, eraseNext));
  return failed;
}

/** Continues resumable uploads that are due. It deletes first, because a full database may have no room for anything else. */
export async function continueUploads(deps: Deps) {
  const { db, system, jobs } = deps;
  const now = system.now();
  const due = (state: SQL, limit: number) =>
    db
      .select(DUE_COLUMNS)
      .from(uploads)
      .where(and(state, isDue(now)))
      .orderBy(asc(uploads.dueAt))
      .limit(limit);
  const [unfinished, finished] = await read(deps, [due(isUnfinished, UNFINISHED_ROWS), due(isFinished, FINISHED_ROWS)]);
  const isGiven = (rows: { id: string }[]) =>
    isOneOf(
      uploads.fileId,
      rows.map(({ id }) => id),
    );
  const postpone = (rows: { id: string }[]) =>
    db
      .update(uploads)
      .set({ dueAt: now + RETRY_MILLISECONDS })
      .where(and(isGiven(rows), lte(uploads.dueAt, now)))
      .returning({ teamId: uploads.teamId, fileId: uploads.fileId });

  const leftovers = finished.filter((row) => !isClean(row)).slice(0, LEFTOVER_ROWS);
  const failed = await eraseLeftovers(deps, leftovers);
  const failedIds = new Set(failed.map(({ id }) => id));
  const gone = [...finished.filter(isClean), ...leftovers].filter(({ id }) => !failedIds.has(id));
  const ids = gone.map(({ id }) => id);
  if (gone.length > 0) await write(deps, deleteUploads(deps, ids), { isIdempotent: true });
  if (failed.length > 0) await write(deps, [postpone(failed)], { isIdempotent: true });

  const complete = unfinished.filter(({ isComplete }) => isComplete === 1);
  const sent = complete.length === 0 ? [] : (await write(deps, [postpone(complete)], { isIdempotent: true }))[0];
  if (sent.length > 0) await jobs.sendAll(sent);

  const expired = unfinished.filter(({ isComplete }) => isComplete === 0);
  const isExpired = and(isIncomplete, isDue(now), isGiven(expired));
  const canceled =
    expired.length === 0
      ? 0
      : (await write(deps, cancelUploads(deps, now, isExpired), { isIdempotent: true }))[2].meta.changes;
  return { uploadsRemoved: gone.length, assemblies: sent.length, uploadsExpired: canceled };
}
