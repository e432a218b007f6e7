import { and, eq, inArray, not, type SQL, sql } from "drizzle-orm";
import { type FilesOf, removedOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { hasRow, isOneOf } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import { removed } from "../trash/trash.schema.ts";
import { isUnfinished, uploadParts, uploads } from "../uploads/uploads.schema.ts";
import { chunkPrefix, isFileOfUpload, isRemovedOfUpload, type Named, objectKey } from "./names.ts";

/* A resumable upload has more than its file: a row, rows of parts, and objects in R2. A deletion deletes them, too. */

export type ResumableRow = typeof uploads.$inferSelect;

/** At the lowest rate, a request takes 11 minutes for 5 MiB. After this time, one that was writing has noticed the end. */
export const MAX_FENCED_MILLISECONDS = 15 * MINUTE;

/** Whether the file has the row of a resumable upload. */
export const hasUpload = hasRow(uploads, isFileOfUpload);
/** Whether the removed file has the row of a resumable upload. */
export const isOfUpload = hasRow(uploads, isRemovedOfUpload);
/** Whether the file of an upload has left. */
export const hasRemovedFile = hasRow(removed, isRemovedOfUpload);

/**
 * Ends an upload. It holds its quota until its bytes are gone, so it still counts as one of the team's. If a request is
 * writing, the row stays until that request must have noticed it.
 */
export const ended = (now: number | SQL) => ({
  isFinished: true,
  isCanceled: sql`is_canceled or not is_finished`,
  metadata: "",
  chunks: null,
  dueAt: sql`${now} + iif(is_writing, ${MAX_FENCED_MILLISECONDS}, 0)`,
});

/** Part of the batch that deletes files: ends their uploads. */
export function endResumable({ db }: Deps, whose: FilesOf, ids: string[], now: number) {
  const isOwn = hasRow(removed, and(isRemovedOfUpload, removedOf(whose)));
  return db
    .update(uploads)
    .set(ended(now))
    .where(and(isOneOf(uploads.fileId, ids), eq(uploads.teamId, whose.teamId), isOwn));
}

/** Nothing of the upload is in R2 except the bytes of its file, so only its row has to be deleted. */
export const isClean = ({
  hasLeftovers,
  multipartId,
  isWriting,
}: Pick<ResumableRow, "hasLeftovers" | "multipartId" | "isWriting">): boolean =>
  !hasLeftovers && multipartId === null && !isWriting;

/** Deletes the parts and chunks of an upload. The rows and the object of the file are deleted separately. */
export async function eraseResumable(
  { bytes }: Deps,
  file: Named,
  { multipartId }: Pick<ResumableRow, "multipartId">,
): Promise<void> {
  if (multipartId !== null) await bytes.abort(objectKey(file), multipartId);
  await bytes.removeAll(chunkPrefix(file));
}

/** Deletes the rows of uploads that have ended, once their bytes are gone. */
export function deleteUploads({ db }: Deps, ids: string[]) {
  // D1 allows 100 parameters.
  const given = sql`(select value from json_each(${JSON.stringify(ids)}))`;
  const isOfUnfinished = hasRow(uploads, and(eq(uploads.fileId, uploadParts.fileId), isUnfinished));
  return [
    db.delete(uploads).where(and(inArray(uploads.fileId, given), eq(uploads.isFinished, true))),
    db.delete(uploadParts).where(and(inArray(uploadParts.fileId, given), not(isOfUnfinished))),
  ] as const;
}
