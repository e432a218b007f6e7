import { and, eq, not, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Db, hasRow, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files } from "../../platform/schema.ts";
import { MINUTE } from "../../platform/system.ts";
import { uploads } from "../../platform/upload-schema.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { changed, type FileValues, listedStatus } from "./files.ts";
import { type Erasable, type FileKey, fileKey, isFile, isFileOfUpload, storedKeys } from "./names.ts";
import { endResumable, eraseResumable } from "./resumable-rows.ts";

/* Deletion: one update hides a file, then its bytes are deleted, then its row. */

/** How long a deletion can last before the recovery job continues it. */
export const MAX_DELETING_MILLISECONDS = MINUTE;

/** Hides a file for good. When it is due, the recovery job deletes its bytes and its row. */
export const hidden = (dueAt: SQL) => ({ status: "deleting" as const, idempotencyKey: null, dueAt });

/** True while a waveform write may still be running. A write takes milliseconds; after a minute its Worker has died. */
export const isWritingWaveform = ({ system }: Deps, { waveformWritingSince }: Erasable): boolean =>
  (waveformWritingSince ?? 0) > system.now() - MAX_DELETING_MILLISECONDS;

/** Whether the file has the row of a resumable upload. */
const hasUpload = hasRow(uploads, isFileOfUpload);

/** The columns of `Erasable`. */
export const ERASABLE_COLUMNS = {
  id: files.id,
  teamId: files.teamId,
  originalName: files.originalName,
  sizeBytes: files.sizeBytes,
  waveformWritingSince: files.waveformWritingSince,
};

/**
 * If a form upload is still sending the file, keeps `due_at`, so that the upload itself cleans up first. If a resumable
 * upload is, releases its quota now.
 */
const markDeleting = preparedQuery((db, param: Param<FileValues & { onlyUnfinished: number }>) => {
  const isUnstored = sql`${files.sizeBytes} is null`;
  return db
    .update(files)
    .set({
      ...hidden(sql`case when ${isUnstored} and not ${hasUpload} then ${files.dueAt} else ${param("dueAt")} end`),
      reservedBytes: sql`case when ${isUnstored} and ${hasUpload} then 0 else ${files.reservedBytes} end`,
      ...changed(param),
    })
    .where(and(isFile(param), sql`(${param("onlyUnfinished")} = 0 or ${files.status} in ('receiving', 'deleting'))`))
    .returning(ERASABLE_COLUMNS);
});

/**
 * One update hides the file. The recovery job can do everything after that too. An interrupted deletion can be repeated.
 * While a form upload is still sending the bytes, the row stays: the upload finds it at the commit point, and cleans up.
 */
export function fileDeletion(deps: Deps, actor: TeamActor, id: string, onlyUnfinished = false) {
  const { teamId } = actor;
  const now = deps.system.now();
  const dueAt = now + MAX_DELETING_MILLISECONDS;
  const mark = markDeleting({ id, teamId, updatedAt: now, dueAt, onlyUnfinished: Number(onlyUnfinished) });
  const queries = [mark, endResumable({ id, teamId, now })] as const;
  return { event: fileEvent(deps, "file.deleted", actor, { id, teamId }), queries };
}

/**
 * @param onlyUnfinished keeps a file whose upload is complete, even if it completes at the same time
 * @throws `not_found`; `forbidden` with `onlyUnfinished` if the upload is complete; `unavailable` if the bytes could not be
 *   deleted yet
 */
export async function deleteFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { onlyUnfinished = false } = {},
): Promise<void> {
  const { teamId } = actor;
  const { event, queries } = fileDeletion(deps, actor, id, onlyUnfinished);
  // An unfinished upload has no events.
  const [[row], [resumable], [listed]] = onlyUnfinished
    ? await write(deps, [...queries, listedStatus({ id, teamId })], { isIdempotent: true })
    : [...(await writeWithEvent(deps, event, queries, { isIdempotent: true })), []];
  if (listed) throw new AppError("forbidden", { message: "The upload is complete. Delete the file instead." });
  if (!row) throw new AppError("not_found");
  if (row.sizeBytes === null && !resumable) return;
  if (resumable) await eraseResumable(deps, row, resumable, { keepsRow: resumable.isWriting });
  await deps.bytes.remove(storedKeys(row));
  // A waveform that is still being written may arrive after this. Then recovery removes it, with the row.
  if (isWritingWaveform(deps, row)) return;
  // The caller need not wait for this: the file is hidden and its bytes are deleted.
  deps.after(removeRows(deps, [row]).catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: id, cause })));
}

/** The row of a resumable upload must be deleted first, because it names the other objects of the file. */
const deleteWhere = (db: Db, isGiven: SQL | undefined) =>
  db.delete(files).where(and(isGiven, eq(files.status, "deleting"), not(hasUpload)));
const deleteRow = preparedQuery((db, param: Param<FileKey>) => deleteWhere(db, isFile(param)));
/** The keys are one parameter, because D1 allows 100 parameters. */
const deleteManyRows = preparedQuery((db, param: Param<{ keys: string }>) => {
  const given = sql`(select value ->> 'teamId', value ->> 'id' from json_each(${param("keys")}))`;
  return deleteWhere(db, sql`${fileKey} in ${given}`);
});

/** Ends a deletion, once the bytes are deleted. */
export async function removeRows(deps: Deps, keys: FileKey[]): Promise<void> {
  const [key, ...others] = keys;
  if (!key) return;
  const query = others.length === 0 ? deleteRow(key) : deleteManyRows({ keys: JSON.stringify(keys) });
  await write(deps, [query], { isIdempotent: true });
}
