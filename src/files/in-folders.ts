import { and, type SQL, sql } from "drizzle-orm";
import { type FilesOf, filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import type { Initiator } from "../events/events.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFiles } from "./file-events.ts";
import { files, isInFolder, isOwnedInFolder } from "./files.schema.ts";
import { changed } from "./files.ts";
import { fileKey, keyColumns, MAX_FOLDER_BYTES, nameKey } from "./names.ts";

/**
 * The files that a caller sees and that are in a folder, in the order of the folders' keys. It names the index, because SQLite would
 * not choose it.
 */
export function filesInFolders(whose: FilesOf): { from: SQL; where: SQL | undefined } {
  const isOfTeam = whose.ownerId === null;
  return {
    from: sql`${files} indexed by ${isOfTeam ? sql`files_folder` : sql`files_owner_folder`}`,
    where: and(filesOf(whose), isOfTeam ? isInFolder : isOwnedInFolder),
  };
}

interface FolderMove {
  initiator: Initiator;
  teamId: string;
  folder: string;
  target: string;
}

/** Moves the selected files of a folder and of those below it, with their searchable text, and an event for each. */
export function folderMove(
  deps: Deps,
  { initiator, teamId, folder, target }: FolderMove,
  selected: (columns: SQL) => SQL,
) {
  const where = sql`${fileKey} in ${selected(keyColumns)}`;
  const renamed = (column: SQL, from: string, to: string) => sql`${to} || substr(${column}, length(${from}) + 1)`;
  const [searched, newSearched] = [nameKey(folder, MAX_FOLDER_BYTES), nameKey(target, MAX_FOLDER_BYTES)];
  const searchKey = renamed(sql`${files.searchKeys} ->> 'folder'`, searched, newSearched);
  const now = deps.system.now();
  const move = deps.db
    .update(files)
    .set({
      folder: renamed(sql`${files.folder}`, folder, target),
      searchKeys: sql`json_set(${files.searchKeys}, '$.folder', ${searchKey})`,
      folderSince: now,
      ...changed(now),
    })
    .where(where);
  return recordedFiles(deps, { type: FILE_EVENTS.updated, initiator, teamId, where }, move);
}
