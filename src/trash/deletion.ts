import { and, eq, inArray, isNull, ne, not, or, type SQL, sql } from "drizzle-orm";
import type { TeamActor } from "../access/authorization.ts";
import { type FilesOf, filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import {
  deleteUploads,
  ended,
  endResumable,
  eraseResumable,
  hasUpload,
  MAX_FENCED_MILLISECONDS,
  type ResumableRow,
} from "../files/ending.ts";
import { fileEvent, fileEvents } from "../files/file-events.ts";
import { files, isHeld, isKept, isListed, isTrashed, teamOfFile } from "../files/files.schema.ts";
import { changed, type TrashedColumn, trashedValues } from "../files/files.ts";
import {
  type FileKey,
  type FileOf,
  fileKey,
  isFile,
  keyColumns,
  type Named,
  storedKeys,
  writingSince,
} from "../files/names.ts";
import { firstOf, write } from "../platform/db.ts";
import { DAY, MINUTE } from "../platform/system.ts";
import { uploads } from "../uploads/uploads.schema.ts";

/*
 * Deletion: one update hides a file, then its bytes are deleted, then its row. If there is a trash, the update only moves it
 * there, and a later one erases it (trash.ts). A held file is never deleted.
 */

/**
 * Whoever sees only its own files deletes them, but never erases what a trash could keep.
 * @throws `forbidden`
 */
export function checkErasure({ ownerId }: TeamActor): void {
  if (ownerId === null) return;
  throw new AppError("forbidden", { message: "A contributor can't erase files. Delete the file without `permanent`." });
}

/** Files that one statement deletes. Triggers delete up to 100 links and 20 tags with each, so it deletes up to 24,000 rows. */
export const MAX_DELETED_FILES = 200;

/** How long a deletion can last before the recovery job continues it. */
export const MAX_DELETING_MILLISECONDS = MINUTE;

/** The values that the trash keeps, as hiding clears them: no index of a list has a hidden file. */
const CLEARED = {
  status: "deleting" as const,
  fileType: null,
  name: null,
  nameKey: "",
  folder: "",
  reference: null,
  tags: "[]",
  metadata: "{}",
  searchKeys: "{}",
  audio: null,
} satisfies Record<TrashedColumn, unknown>;

/**
 * The columns of a file that is hidden permanently. When it is due, the recovery job deletes its bytes and its row. Until
 * then it counts against the quota.
 */
export const hidden = (dueAt: SQL | number) => ({
  ...CLEARED,
  idempotencyKey: null,
  deleteAfter: null,
  deleteAfterBy: null,
  trashedAt: null,
  trashedValues: null,
  leaseEndsAt: null,
  dueAt,
});

/** Whether a deletion moves files to the trash, and the type of its event. */
function kindOf({ settings }: Deps, isPermanent: boolean) {
  const isTrashing = settings.trashDays > 0 && !isPermanent;
  return { isTrashing, type: isTrashing ? ("file.trashed" as const) : ("file.deleted" as const) };
}

/** The columns that a deletion sets. An unfinished upload is erased, also if there is a trash. */
function deleted({ settings: { trashDays } }: Deps, isTrashing: boolean, now: number, dueAt: SQL) {
  const erased = { ...hidden(dueAt), ...changed(now) };
  const ifListed = (value: SQL, otherwise: SQL) => sql`case when ${isListed} then ${value} else ${otherwise} end`;
  const trashed = {
    trashedAt: ifListed(sql`${now}`, sql`null`),
    trashedValues: ifListed(trashedValues, sql`null`),
    dueAt: ifListed(sql`${now + trashDays * DAY}`, dueAt),
  };
  return isTrashing ? { ...erased, ...trashed } : erased;
}

/** The `due_at` of a deleted file. A form upload that is still sending the bytes keeps its own. */
const unlessSending = (dueAt: SQL | number) =>
  sql`case when ${files.sizeBytes} is null and not ${hasUpload} then ${files.dueAt} else ${dueAt} end`;

/** A subquery that returns these columns of some files. */
type FileSelection = (columns: SQL) => SQL;

/**
 * Part of a batch: ends the uploads of at most `MAX_DELETED_FILES` files, and hides the files. A file whose upload, waveform
 * or transcript is being written is due later.
 */
function hideMany(deps: Deps, selected: FileSelection, isTrashing: boolean) {
  const now = deps.system.now();
  // A finished upload would otherwise stay for a day. One that was ended while a request wrote is due soon.
  const isOpen = sql`(not ${uploads.isFinished} or ${uploads.dueAt} > ${now + MAX_FENCED_MILLISECONDS})`;
  const endUploads = deps.db
    .update(uploads)
    .set(ended(now))
    .where(and(sql`${uploads.fileId} in ${selected(sql`${files.id}`)}`, isOpen));
  const isWriting = sql`${writingSince} > ${deadWriteAt(deps)}`;
  const dueAt = unlessSending(sql`iif(${isWriting}, ${now + MAX_DELETING_MILLISECONDS}, ${now})`);
  const isHidable = isTrashing ? ne(files.status, "deleting") : or(ne(files.status, "deleting"), isTrashed);
  const hide = deps.db
    .update(files)
    .set(deleted(deps, isTrashing, now, dueAt))
    .where(and(sql`${fileKey} in ${selected(keyColumns)}`, isHidable, isNull(files.hold)));
  return [endUploads, hide] as const;
}

/** Part of a batch: erases files without events, also those in the trash, but not held ones. */
export const eraseMany = (deps: Deps, selected: FileSelection) => hideMany(deps, selected, false);

/** The deletion of many files of a team, each with its event. A held file stays, so it must not be selected. */
export function manyDeletions(
  deps: Deps,
  initiator: Initiator | SQL,
  teamId: string,
  selected: FileSelection,
  { isPermanent = false } = {},
) {
  const { isTrashing, type } = kindOf(deps, isPermanent);
  const event = fileEvents(deps, type, initiator, teamId, selected(keyColumns));
  return { event, queries: hideMany(deps, selected, isTrashing) };
}

/** A write of a waveform or a transcript that began by then is not running. It takes milliseconds; after a minute its Worker has died. */
const deadWriteAt = ({ system }: Deps): number => system.now() - MAX_DELETING_MILLISECONDS;

/** Whether a waveform or a transcript may still be being written. */
export const isWritingBeside = (deps: Deps, { writingSince }: { writingSince: number | null }): boolean =>
  (writingSince ?? 0) > deadWriteAt(deps);

/** A file as its deletion needs it. */
export const ERASABLE_COLUMNS = {
  id: files.id,
  teamId: teamOfFile,
  originalName: files.originalName,
  sizeBytes: files.sizeBytes,
  writingSince: writingSince.as("writingSince"),
};

interface DeletionOptions {
  /** Keeps a file whose upload is complete, even if it completes at the same time. */
  onlyUnfinished?: boolean;
  /** Keeps a file that is not in the trash. */
  onlyTrashed?: boolean;
  /** Erases the file, also if there is a trash. */
  isPermanent?: boolean;
  /** The time of a batch, which is the same for all of its files. */
  now?: number;
}

/** Why a file was not deleted. */
type Refusal = "file_held" | "forbidden" | "not_in_trash" | "not_found";

/**
 * The deletion of one file, with its event. One update hides it, or moves it to the trash, and the recovery job can finish
 * on its own. It can be repeated. While a form upload is still sending the bytes, the row and its `due_at` stay: the upload
 * finds it at the commit point, and cleans up.
 */
export function fileDeletion(
  deps: Deps,
  initiator: Initiator,
  file: FileOf,
  {
    onlyUnfinished = false,
    onlyTrashed = false,
    isPermanent = onlyTrashed,
    now = deps.system.now(),
  }: DeletionOptions = {},
) {
  const { isTrashing, type } = kindOf(deps, isPermanent);
  const isSelected = and(
    onlyUnfinished ? inArray(files.status, ["receiving", "deleting"]) : undefined,
    isTrashing || onlyUnfinished ? isNull(files.trashedAt) : undefined,
    // The erasure of a file in the trash can be repeated, too.
    onlyTrashed ? or(isTrashed, eq(files.status, "deleting")) : undefined,
  );
  const mark = deps.db
    .update(files)
    .set(deleted(deps, isTrashing, now, unlessSending(now + MAX_DELETING_MILLISECONDS)))
    .where(and(isFile(file), isNull(files.hold), isSelected))
    .returning(ERASABLE_COLUMNS);
  const refusal = firstOf<Refusal | "trashed">({
    // Then it is not refused: this deletion, or the attempt that it repeats, moved the file there.
    trashed: isTrashing ? sql`${files.trashedAt} = ${now}` : undefined,
    not_in_trash: onlyTrashed ? isNull(files.trashedAt) : undefined,
    forbidden: onlyUnfinished ? isNull(files.trashedAt) : undefined,
    // One in the trash is not found by a deletion that erases nothing.
    file_held: isTrashing || onlyUnfinished ? and(isHeld, isNull(files.trashedAt)) : isHeld,
    not_found: sql`true`,
  });
  const event = fileEvent(deps, type, initiator, file, { condition: isSelected });
  return { event, queries: [mark, endResumable(deps, file, now)] as const, refusal };
}

/** Those of the files that are listed or in the trash, with the value of `refusal` for each. */
export function keptFiles<R>({ db }: Deps, whose: FilesOf, ids: string[], refusal: SQL<R>) {
  const given = sql`(select value from json_each(${JSON.stringify(ids)}))`;
  const isOneOf = ids.length === 1 ? eq(files.id, ids[0] ?? "") : inArray(files.id, given);
  return db
    .select({ id: files.id, refusal: sql<R>`${refusal}`.as("refusal") })
    .from(files)
    .where(and(filesOf(whose), isKept, isOneOf));
}

/** Why a file was not deleted, from its row in `mark` and in `keptFiles`. Null if it was deleted, or is in the trash now. */
export function deletionRefusal(
  changed: object | undefined,
  kept: { refusal: Refusal | "trashed" | null } | undefined,
) {
  if (kept) return kept.refusal === "trashed" ? null : kept.refusal;
  return changed ? null : "not_found";
}

/**
 * @throws `not_found`, `file_held`; `forbidden` as `checkErasure` does, and with `onlyUnfinished` if the upload is complete;
 *   `not_in_trash` with `onlyTrashed`; `unavailable` if the bytes could not be deleted yet
 */
export async function deleteFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  options: DeletionOptions = {},
): Promise<void> {
  if (options.isPermanent || options.onlyTrashed) checkErasure(actor);
  const { event, queries, refusal: reason } = fileDeletion(deps, actor, { ...actor, id }, options);
  const batch = [...queries, keptFiles(deps, actor, [id], reason)] as const;
  const [[row], [upload], [kept]] = await writeWithEvent(deps, event, batch, { isIdempotent: true });
  const refusal = deletionRefusal(row, kept);
  if (refusal === "forbidden") {
    throw new AppError("forbidden", { message: "The upload is complete. Delete the file instead." });
  }
  if (refusal !== null) throw new AppError(refusal);
  // A file in the trash keeps its bytes.
  if (!row || kept) return;
  if (row.sizeBytes === null) {
    if (upload) await removeUpload(deps, row, upload);
    return;
  }
  if (upload) await eraseResumable(deps, row, upload);
  await deps.bytes.remove(storedKeys(row));
  // Bytes that are still being written may arrive after this. Then the recovery job removes them, with the rows.
  if (isWritingBeside(deps, row) || upload?.isWriting) return;
  // The caller need not wait for this: the file is hidden and its bytes are deleted.
  const removed = removeRows(deps, [row], upload ? [id] : []);
  deps.after(removed.catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: id, cause })));
}

/** Deletes what a canceled upload stored, and its rows. If a request is still writing, the recovery job deletes the rows. */
export async function removeUpload(deps: Deps, file: Named, upload: ResumableRow): Promise<void> {
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
        isNull(files.trashedAt),
        not(hasUpload),
      ),
    );
  await write(deps, [...(uploadIds.length > 0 ? deleteUploads(deps, uploadIds) : []), query], { isIdempotent: true });
}
