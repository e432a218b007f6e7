import { and, type SQL, sql } from "drizzle-orm";
import { hasNone, ofDeletedTeams } from "../access/deleted-teams.ts";
import type { Deps } from "../deps.ts";
import { write } from "../platform/db.ts";
import { isCommitted, isReceiving, uploads } from "../uploads/uploads.schema.ts";
import { fileObjects } from "./beside.schema.ts";
import { erase, leaveMany, MAX_DELETED_FILES, removedKey } from "./deletion.ts";
import { cancelUploads } from "./ending.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { isTrashed, removed, teamOfRemoved } from "./removed.schema.ts";

/* The files and uploads of deleted teams, see upkeep/team-deletion.ts. */

/** An upload that must be canceled, or a receipt. */
const isOpen = sql`(${isReceiving} or ${isCommitted} and ${uploads.dueAt} > 0)`;

/** Removes files of deleted teams, also from the trash, and cancels their uploads. @returns how many */
export async function removeFilesOfDeleted(deps: Deps): Promise<number> {
  const nextFiles = (columns: SQL) => sql`(${ofDeletedTeams(columns, files, teamOfFile)} limit ${MAX_DELETED_FILES})`;
  const trashed = ofDeletedTeams(sql`${teamOfRemoved}, ${removed.id}`, removed, teamOfRemoved, isTrashed);
  const isNext = sql`${removedKey} in (${trashed} limit ${MAX_DELETED_FILES})`;
  const nextUploads = ofDeletedTeams(sql`${uploads.teamId}, ${uploads.fileId}`, uploads, uploads.teamId, isOpen);
  const isNextUpload = sql`(team_id, file_id) in (${nextUploads} limit ${MAX_DELETED_FILES})`;
  const batch = {
    files: leaveMany(deps, nextFiles),
    trashed: erase(deps, isNext, deps.system.now()),
    uploads: cancelUploads(deps, isNextUpload),
    receipts: deps.db.update(uploads).set({ dueAt: 0 }).where(and(isCommitted, isNextUpload)),
  };
  const done = await write(deps, batch, { isIdempotent: true, caller: null });
  const changes = [done.files.leave, done.trashed, done.uploads, done.receipts];
  return changes.reduce((sum, { meta }) => sum + meta.changes, 0);
}

/** Whether the team of a row of `teams` has none of them left. The rows of parts and links go with those of their uploads and files. */
export const HAS_NO_FILES = and(
  hasNone(files, teamOfFile),
  hasNone(removed, teamOfRemoved),
  hasNone(fileObjects, fileObjects.teamId),
  hasNone(uploads, uploads.teamId),
);
