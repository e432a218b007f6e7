import { and, eq, inArray, ne, not, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { write } from "../../platform/db.ts";
import { files, teamOfFile } from "../../platform/schema.ts";
import { MINUTE } from "../../platform/system.ts";
import { uploads } from "../../platform/upload-schema.ts";
import type { TeamActor } from "../access/authorization.ts";
import { writeWithEvent } from "../events/events.ts";
import {
  deleteUploads,
  ended,
  endResumable,
  eraseResumable,
  hasUpload,
  MAX_FENCED_MILLISECONDS,
  type ResumableRow,
} from "./erasure.ts";
import { fileEvent } from "./file-events.ts";
import { changed, listedStatus } from "./files.ts";
import { type Erasable, type FileKey, fileKey, isFile, storedKeys } from "./names.ts";

/* Deletion: one update hides a file, then its bytes are deleted, then its row. */

/** How long a deletion can last before the recovery job continues it. */
export const MAX_DELETING_MILLISECONDS = MINUTE;

/**
 * Hides a file permanently. When it is due, the recovery job deletes its bytes and its row. Until then the row counts against
 * the quota, but it is small, and no index of a list has it.
 */
export const hidden = (dueAt: SQL) => ({
  status: "deleting" as const,
  idempotencyKey: null,
  name: null,
  nameKey: "",
  folder: "",
  reference: null,
  tags: "[]",
  metadata: "{}",
  searchKeys: "{}",
  audio: null,
  fileType: null,
  dueAt,
});

/**
 * Hides many files at once, which `keys` and `ids` select, and ends their uploads. Triggers
 * delete up to 100 links and 20 tags with each file. A file whose upload or waveform is being written is due later.
 */
export function hideMany({ db, system }: Pick<Deps, "db" | "system">, keys: SQL, ids: SQL) {
  const now = system.now();
  // A finished upload would otherwise stay for a day. One that was ended while a request wrote is due soon.
  const isOpen = sql`(not ${uploads.isFinished} or ${uploads.dueAt} > ${now + MAX_FENCED_MILLISECONDS})`;
  const endUploads = db
    .update(uploads)
    .set(ended(now))
    .where(and(sql`${uploads.fileId} in ${ids}`, isOpen));
  const isWriting = sql`${files.waveformWritingSince} > ${now - MAX_DELETING_MILLISECONDS}`;
  const dueAt = sql`case when ${files.sizeBytes} is null and not ${hasUpload} then ${files.dueAt}
    when ${isWriting} then ${now + MAX_DELETING_MILLISECONDS} else ${now} end`;
  const hide = db
    .update(files)
    .set(hidden(dueAt))
    .where(and(sql`${fileKey} in ${keys}`, ne(files.status, "deleting")));
  return [endUploads, hide] as const;
}

/** True while a waveform write may still be running. A write takes milliseconds; after a minute its Worker has died. */
export const isWritingWaveform = ({ system }: Deps, { waveformWritingSince }: Erasable): boolean =>
  (waveformWritingSince ?? 0) > system.now() - MAX_DELETING_MILLISECONDS;

/** The columns of `Erasable`. */
export const ERASABLE_COLUMNS = {
  id: files.id,
  teamId: teamOfFile,
  originalName: files.originalName,
  sizeBytes: files.sizeBytes,
  waveformWritingSince: files.waveformWritingSince,
};

/**
 * One update hides the file. From then on the recovery job can finish alone. An interrupted deletion can be repeated.
 * While a form upload is still sending the bytes, the row and its `due_at` stay: the upload finds it at the commit point,
 * and cleans up.
 */
export function fileDeletion(deps: Deps, actor: TeamActor, id: string, onlyUnfinished = false) {
  const file = { ...actor, id };
  const now = deps.system.now();
  const dueAt = now + MAX_DELETING_MILLISECONDS;
  const isUnstored = sql`${files.sizeBytes} is null`;
  const mark = deps.db
    .update(files)
    .set({
      ...hidden(sql`case when ${isUnstored} and not ${hasUpload} then ${files.dueAt} else ${dueAt} end`),
      ...changed(now),
    })
    .where(and(isFile(file), onlyUnfinished ? inArray(files.status, ["receiving", "deleting"]) : undefined))
    .returning(ERASABLE_COLUMNS);
  const queries = [mark, endResumable(deps, file, now)] as const;
  return { event: fileEvent(deps, "file.deleted", actor, file), queries };
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
  const { event, queries } = fileDeletion(deps, actor, id, onlyUnfinished);
  // An unfinished upload has no events.
  const [[row], [resumable], [listed]] = onlyUnfinished
    ? await write(deps, [...queries, listedStatus(deps, { ...actor, id })], { isIdempotent: true })
    : [...(await writeWithEvent(deps, event, queries, { isIdempotent: true })), []];
  if (listed) throw new AppError("forbidden", { message: "The upload is complete. Delete the file instead." });
  if (!row) throw new AppError("not_found");
  if (row.sizeBytes === null && !resumable) return;
  if (row.sizeBytes === null && resumable) return removeUpload(deps, row, resumable);
  if (resumable) await eraseResumable(deps, row, resumable);
  await deps.bytes.remove(storedKeys(row));
  // Bytes that are still being written may arrive after this. Then the recovery job removes them, with the rows.
  if (isWritingWaveform(deps, row) || resumable?.isWriting) return;
  // The caller need not wait for this: the file is hidden and its bytes are deleted.
  const removed = removeRows(deps, [row], resumable ? [id] : []);
  deps.after(removed.catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: id, cause })));
}

/** Deletes what a canceled upload stored, and its rows. If a request is still writing, the recovery job deletes the rows. */
export async function removeUpload(deps: Deps, file: Erasable, upload: ResumableRow): Promise<void> {
  await eraseResumable(deps, file, upload);
  await deps.bytes.remove(storedKeys(file));
  if (!upload.isWriting) await removeRows(deps, [file], [upload.fileId]);
}

/**
 * Ends deletions, once the bytes are deleted. `uploadIds` are the files whose uploads have nothing in R2 either: the row of a
 * resumable upload must be deleted first, because it names the other objects of the file.
 */
export async function removeRows(deps: Deps, keys: FileKey[], uploadIds: string[] = []): Promise<void> {
  const [key] = keys;
  if (!key) return;
  // The keys are one parameter, because D1 allows 100.
  const json = JSON.stringify(keys.map(({ teamId, id }) => ({ teamId, id })));
  const isGiven = sql`${fileKey} in (select value ->> 'teamId', value ->> 'id' from json_each(${json}))`;
  const query = deps.db
    .delete(files)
    .where(
      and(
        keys.length === 1 ? isFile({ ...key, ownerId: null }) : isGiven,
        eq(files.status, "deleting"),
        not(hasUpload),
      ),
    );
  await write(deps, [...(uploadIds.length > 0 ? deleteUploads(deps, uploadIds) : []), query], { isIdempotent: true });
}
