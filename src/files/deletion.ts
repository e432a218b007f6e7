import { and, eq, isNull, not, type SQL, sql } from "drizzle-orm";
import { isVisitor } from "../access/actor.ts";
import { type TeamActor, withScope } from "../access/authorization.ts";
import { filesOf, removedOf, uploadsOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import { type Batch, hasRow, insertWhere, isOneOf, read, write } from "../platform/db.ts";
import { DAY, MINUTE } from "../platform/system.ts";
import { isCanceled, uploads } from "../uploads/uploads.schema.ts";
import { fileObjects } from "./beside.schema.ts";
import { allBeside, besideIn, storedKeys } from "./beside.ts";
import { deleteObjects } from "./beside-writes.ts";
import { cancelUploads, removeUpload } from "./ending.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFiles } from "./file-events.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { isReceiptOf, isUntouched, isUploadedBy, keptValues, trashedFiles } from "./files.ts";
import { fileHeld } from "./holds.ts";
import { type FileKey, fileKey, isOneOfKeys, isRemoved, keyColumns } from "./names.ts";
import { isTrashed, removed, teamOfRemoved } from "./removed.schema.ts";

/*
 * Deletion: one batch moves the row of a file from `files` to `removed`, then its bytes are deleted, then its row. If there is a
 * trash, the file stays in `removed` with all its data, until it is restored (restoring.ts) or erased. A held file is never
 * deleted. If the bytes went first, a file whose Worker dies in between would be listed without them.
 *
 * A visitor deletes only a file that its upload token has uploaded, and that nobody else has touched.
 */

export const notInTrash = errorCode("not_in_trash", 409, "The file is not in the trash.");

/**
 * The caller, if it may do what deletes files, now or later: without a trash, that erases them.
 * @throws `insufficient_scope`
 */
export function asDeleter({ settings }: Deps, actor: TeamActor): TeamActor {
  const deleter = withScope(actor, "files:delete");
  return settings.trashDays > 0 ? deleter : withScope(deleter, "files:erase");
}

/** Files that one statement deletes. Triggers delete up to 100 links and 20 tags with each, so it deletes up to 24,000 rows. */
export const MAX_DELETED_FILES = 200;
/** Teams whose files a batch of the recovery job deletes. Those of each take four queries. */
export const DELETED_TEAMS = 4;

/** How long a deletion can last before the recovery job continues it. */
export const MAX_DELETING_MILLISECONDS = MINUTE;

/** The key of a removed file, for a row-value IN. */
export const removedKey = sql`(${teamOfRemoved}, ${removed.id})`;

interface Leaving {
  /** When the recovery job erases the file. */
  dueAt: number;
  /** Moves files to the trash, as of now. */
  trash?: { now: number; days: number } | undefined;
}

/** Part of a batch: moves files from `files` to `removed`, except held ones. */
export function leave({ db }: Deps, isSelected: SQL | undefined, { dueAt, trash }: Leaving) {
  const row = {
    teamId: sql`${teamOfFile}`,
    id: sql`${files.id}`,
    userId: sql`${files.userId}`,
    originalName: sql`${files.originalName}`,
    sizeBytes: sql`${files.sizeBytes}`,
    reservedBytes: sql`${files.reservedBytes}`,
    dueAt: trash ? trash.now + trash.days * DAY : dueAt,
    trashedAt: trash ? trash.now : null,
    hold: null,
    file: trash ? keptValues(trash.now) : null,
  };
  const hasLeft = hasRow(removed, and(eq(teamOfRemoved, teamOfFile), eq(removed.id, files.id)));
  return {
    keep: insertWhere(db, removed, row, and(isSelected, isNull(files.hold)), sql`${files}`),
    leave: db.delete(files).where(and(isSelected, hasLeft)),
  };
}

/** Part of a batch: takes files out of the trash, except held ones. Their bytes are deleted when they are due. */
export const erase = ({ db }: Deps, isSelected: SQL | undefined, dueAt: number) =>
  db
    .update(removed)
    .set({ trashedAt: null, file: null, dueAt })
    .where(and(isSelected, isTrashed, isNull(removed.hold)));

/** Whether a deletion moves files to the trash, and the type of its event. */
function kindOf({ settings }: Deps, isPermanent: boolean) {
  const isTrashing = settings.trashDays > 0 && !isPermanent;
  return { isTrashing, type: isTrashing ? FILE_EVENTS.trashed : FILE_EVENTS.deleted };
}

/** A subquery that returns these columns of some files. */
type FileSelection = (columns: SQL) => SQL;

/** Part of a batch: moves at most `MAX_DELETED_FILES` files to `removed`. */
export function leaveMany(deps: Deps, selected: FileSelection, isTrashing = false) {
  const now = deps.system.now();
  const trash = isTrashing ? { now, days: deps.settings.trashDays } : undefined;
  return leave(deps, sql`${fileKey} in ${selected(keyColumns)}`, { dueAt: now, trash });
}

/** The deletion of many files of a team, each with its event. A held file stays, so it must not be selected. */
export function manyDeletions(deps: Deps, initiator: Initiator | SQL, teamId: string, selected: FileSelection) {
  const { isTrashing, type } = kindOf(deps, false);
  const where = sql`${fileKey} in ${selected(keyColumns)}`;
  return recordedFiles(deps, { type, initiator, teamId, where }, leaveMany(deps, selected, isTrashing));
}

/** A removed file as its erasure needs it. */
export const ERASABLE_COLUMNS = {
  id: removed.id,
  teamId: teamOfRemoved,
  originalName: removed.originalName,
  trashedAt: removed.trashedAt,
  beside: allBeside(teamOfRemoved, removed.id).as("beside"),
};

interface DeletionOptions {
  /** Keeps a file that is not in the trash. */
  onlyTrashed?: boolean;
  /** Erases the file, also if there is a trash. */
  isPermanent?: boolean;
}

/** Why a file was not deleted. A full database can't store its row in `removed`. */
type Refusal = "file_held" | "file_touched" | "not_in_trash" | "not_found" | "storage_full";

/** The files that a caller may delete, among those that it sees. A visitor doesn't see those of others. */
const isDeletable = (actor: TeamActor) =>
  and(isNull(files.hold), isVisitor(actor) ? and(isUploadedBy(actor), isUntouched) : undefined);

/** The unfinished uploads that a deletion cancels. A visitor cancels by the upload URL. */
const isCancelable = (actor: TeamActor, ids: string[]) =>
  isVisitor(actor) ? sql`false` : and(uploadsOf(actor), isOneOf(uploads.fileId, ids));

/** The files that a visitor has deleted. */
const isRemovedBy = ({ uploadToken }: TeamActor) =>
  uploadToken &&
  hasRow(uploads, and(eq(uploads.teamId, teamOfRemoved), eq(uploads.fileId, removed.id), isReceiptOf(uploadToken)));

/**
 * The changes of a deletion, each with its events: one moves files to `removed` and cancels uploads, and one takes files out of the
 * trash. From then on, the recovery job can finish the deletion.
 */
function deletionOf(
  deps: Deps,
  actor: TeamActor,
  ids: string[],
  { onlyTrashed = false, isPermanent = onlyTrashed }: DeletionOptions,
) {
  const { isTrashing, type } = kindOf(deps, isPermanent);
  const now = deps.system.now();
  const dueAt = now + MAX_DELETING_MILLISECONDS;
  const inFiles = and(filesOf(actor), isOneOf(files.id, ids), isDeletable(actor));
  const trash = isTrashing ? { now, days: deps.settings.trashDays } : undefined;
  const leaving = {
    files: recordedFiles(
      deps,
      { type, initiator: actor, teamId: actor.teamId, where: inFiles },
      leave(deps, inFiles, { dueAt, trash }),
    ),
    cancel: cancelUploads(deps, isCancelable(actor, ids)),
  };
  const inTrash = and(removedOf(actor), isOneOf(removed.id, ids), isTrashed, isNull(removed.hold));
  const source = trashedFiles(sql`${removed} where ${inTrash}`);
  const erasing = recordedFiles(
    deps,
    { type: FILE_EVENTS.deleted, initiator: actor, teamId: actor.teamId, source },
    erase(deps, inTrash, dueAt),
  );
  /** From the rows of a file in `files` and `removed` after the changes. Null if it was deleted. */
  const refusalOf = (
    kept: { isKept: 0 | 1 } | undefined,
    left: { trashedAt: number | null } | undefined,
  ): Refusal | null => {
    // This deletion, or the attempt that it repeats, moved the file.
    if (left && (left.trashedAt === null || (isTrashing && left.trashedAt === now))) return null;
    // A file in the trash is not found by a deletion that erases nothing.
    if (left) return isTrashing ? "not_found" : "file_held";
    if (!kept) return "not_found";
    if (onlyTrashed) return "not_in_trash";
    if (!kept.isKept) return "storage_full";
    return isVisitor(actor) ? "file_touched" : "file_held";
  };
  const changes: Batch = {
    leaving: onlyTrashed ? [] : leaving,
    erasing: isTrashing || isVisitor(actor) ? [] : erasing,
  };
  return { changes, refusalOf, isTrashing };
}

/** Where the files are: those that have not left, and those that have. */
export function placesOf({ db }: Deps, actor: TeamActor, ids: string[]) {
  const isOfVisitor = isVisitor(actor);
  // The version of a visitor's file also shows that it is held.
  const isKept = isOfVisitor ? sql<0 | 1>`not ${isUntouched}` : sql<0 | 1>`hold is not null`;
  return {
    kept: db
      .select({ id: files.id, isKept: isKept.as("isKept") })
      .from(files)
      .where(and(filesOf(actor), isOneOf(files.id, ids), isOfVisitor ? isUploadedBy(actor) : undefined)),
    left: db
      .select(ERASABLE_COLUMNS)
      .from(removed)
      .where(and(removedOf(actor), isOneOf(removed.id, ids), isOfVisitor ? isRemovedBy(actor) : undefined)),
  };
}

/**
 * Erases files that a full database can't move: first their bytes, then their rows. If it stops in between, the file is listed
 * without bytes until the deletion is repeated. Until then it can't be held, because the event of a hold needs space, too.
 */
async function eraseInPlace(deps: Deps, actor: TeamActor, ids: string[]): Promise<void> {
  const isErased = and(filesOf(actor), isOneOf(files.id, ids), isDeletable(actor));
  const beside = allBeside(teamOfFile, files.id).as("beside");
  const named = { id: files.id, teamId: teamOfFile, originalName: files.originalName, beside };
  const rows = await read(deps, deps.db.select(named).from(files).where(isErased));
  await deps.bytes.remove(rows.flatMap(storedKeys));
  const batch = { files: deps.db.delete(files).where(isErased), beside: deleteBeside(deps, rows) };
  await write(deps, batch, { isIdempotent: true, caller: null });
}

/**
 * Deletes files in one transaction, and then the bytes of those that the trash does not keep. It can be repeated.
 * @returns why each was not deleted, or null if it was, and whether it is in the trash, in the order of the ids
 * @throws `insufficient_scope` if it erases and the caller may not; `unavailable` if the bytes could not be deleted yet; `storage_full` if the database
 *   is too full to move a file to the trash; `forbidden` if a visitor's file was touched
 */
export async function deleteFiles(
  deps: Deps,
  caller: TeamActor,
  ids: string[],
  options: DeletionOptions = {},
): Promise<{ refusal: Exclude<Refusal, "file_touched" | "storage_full"> | null; isTrashed: boolean }[]> {
  const isErasure = options.isPermanent || options.onlyTrashed;
  const actor = isErasure ? withScope(caller, "files:erase") : asDeleter(deps, caller);
  const { changes, refusalOf, isTrashing } = deletionOf(deps, actor, ids, options);
  const canceled = deps.db
    .select()
    .from(uploads)
    .where(and(isCancelable(actor, ids), isCanceled));
  const batch = { changes, ...placesOf(deps, actor, ids), canceled };
  const { kept, left, canceled: ended } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  const waiting = left.filter((row) => row.trashedAt === null);
  await deps.bytes.remove(waiting.flatMap(storedKeys));
  // The recovery job erases the uploads of many files. A form upload that is still sending the bytes cleans up itself.
  for (const upload of ids.length === 1 ? ended : []) if (upload.secretHash !== null) await removeUpload(deps, upload);
  // Nobody need wait: the files have left, and their bytes are deleted.
  const ending = removeRows(deps, waiting);
  deps.after(ending.catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: waiting[0]?.id ?? "", cause })));
  const inFiles = new Map(kept.map((row) => [row.id, row]));
  const inRemoved = new Map(left.map((row) => [row.id, row]));
  const endedIds = new Set(options.onlyTrashed ? [] : ended.map(({ fileId }) => fileId));
  const refusals = ids.map((id) => (endedIds.has(id) ? null : refusalOf(inFiles.get(id), inRemoved.get(id))));
  if (refusals.includes("file_touched")) {
    throw new AppError("forbidden", { message: "The team has used the file. Only the team can delete it." });
  }
  const unmoved = ids.filter((_, i) => refusals[i] === "storage_full");
  if (unmoved.length > 0 && isTrashing) throw new AppError("storage_full");
  if (unmoved.length > 0) await eraseInPlace(deps, actor, unmoved);
  return refusals.map((refusal, i) => {
    const isTrashed = refusal === null && (inRemoved.get(ids[i] ?? "")?.trashedAt ?? null) !== null;
    return { refusal: refusal === "storage_full" || refusal === "file_touched" ? null : refusal, isTrashed };
  });
}

/** @throws the reason of `deleteFiles`, and what it throws */
export async function deleteFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  options: DeletionOptions = {},
): Promise<void> {
  const [result] = await deleteFiles(deps, actor, [id], options);
  if (!result) throw new Error("A deletion has one result for each id.");
  const errors = { file_held: fileHeld, not_in_trash: notInTrash, not_found: "not_found" } as const;
  if (result.refusal !== null) throw new AppError(errors[result.refusal]);
}

/** A file with the objects beside it, as `allBeside` has them. */
type WithBeside = FileKey & { beside: string };

/** Whether R2 may still store an object beside the file. */
export const isWritten = ({ beside }: WithBeside): boolean => besideIn(beside).some(({ state }) => state === "writing");

/** The query that deletes the rows of objects, once these are deleted. What R2 may still store, the recovery job deletes later. */
const deleteBeside = (deps: Deps, rows: WithBeside[]) =>
  deleteObjects(
    deps,
    rows.flatMap(({ teamId, id, beside }) =>
      besideIn(beside).flatMap(({ version, state }) => (state === "writing" ? [] : { teamId, fileId: id, version })),
    ),
  );

/** The query that ends deletions, once the bytes are deleted. A file stays until the last row of an object beside it is deleted. */
export function deleteRemoved({ db }: Deps, keys: FileKey[]) {
  const [key] = keys;
  const isSelected = key && keys.length === 1 ? isRemoved({ ...key, ownerId: null }) : isOneOfKeys(removedKey, keys);
  const hasObjects = hasRow(
    fileObjects,
    and(eq(fileObjects.teamId, teamOfRemoved), eq(fileObjects.fileId, removed.id)),
  );
  return db.delete(removed).where(and(isSelected, isNull(removed.trashedAt), not(hasObjects)));
}

export async function removeRows(deps: Deps, rows: WithBeside[]): Promise<void> {
  if (rows.length === 0) return;
  const beside = rows.some((one) => besideIn(one.beside).length > 0) ? [deleteBeside(deps, rows)] : [];
  await write(deps, { beside, files: deleteRemoved(deps, rows) }, { isIdempotent: true, caller: null });
}
