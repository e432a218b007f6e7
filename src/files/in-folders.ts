import { and, type SQL, sql } from "drizzle-orm";
import { type FilesOf, filesOf } from "../access/own-files.ts";
import { files, isInFolder, isOwnedInFolder } from "./files.schema.ts";

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
