import { sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import type { Param } from "../../platform/db.ts";
import { files, isInFolder, isListed } from "../../platform/schema.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import { decodeCursor, encodeCursor, listName, type Page, type PageRequest } from "../paging.ts";

/*
 * Folders exist as long as files are in them. In the key of a folder, `SEPARATOR` takes the place of "/". No path contains
 * this character, and it sorts before all others, so a folder and the folders below it are one range of the index.
 */

const SEPARATOR = "\u0001";
/** Sorts after the separator, and before every character of a path. */
const AFTER_SEPARATOR = "\u0002";
/** A path has fewer of these, the greatest character, than 512 bytes can hold. */
const AFTER_ALL_FOLDERS = "\u{10ffff}".repeat(129);
/** Folders have no id. */
const NO_ID = "0".repeat(24);

export const folderKey = (folder: string): string => folder.replaceAll("/", SEPARATOR);

type FolderValues = { prefix: string; start: string; end: string; limit: number };

/** One search of the index for each folder (a skip scan), however many files are in it. */
const childFolders = teamRead(
  files.teamId,
  (db) => ({ query: db.select({ teamId: files.teamId }).from(files).limit(1).$dynamic() }),
  (team, db, param: Param<FolderValues>) => {
    const firstFrom = (start: ReturnType<typeof sql>) => sql`(select ${files.folderKey}
      from ${files} indexed by files_folder where ${files.teamId} = (select team_id from team) and ${isInFolder}
      and ${files.folderKey} >= ${start} and ${files.folderKey} < ${param("end")} and ${isListed}
      order by ${files.folderKey} limit 1)`;
    const rest = sql`substr(found, length(${param("prefix")}) + 1) || char(1)`;
    const child = sql`substr(found, 1, length(${param("prefix")}) + instr(${rest}, char(1)) - 1)`;
    return db.select({ folder: sql<string>`folder` }).from(sql`(
      with recursive team as ${team}, child (found) as (
        select ${firstFrom(sql`${param("start")}`)}
        union all
        select ${firstFrom(sql`${child} || char(2)`)} from child where found is not null limit ${param("limit")}
      )
      select replace(${child}, char(1), '/') as folder from child where found is not null)`);
  },
);

/** Lists the folders directly below a folder, in the order of their names. @throws `invalid_input` for a cursor of another list */
export async function listFolders(
  deps: Deps,
  credential: Credential<"files:read">,
  under: string,
  { limit, cursor }: Omit<PageRequest, "page">,
): Promise<Page<string>> {
  const list = listName("folders", under === "" ? {} : { under });
  const key = folderKey(under);
  const prefix = under === "" ? "" : key + SEPARATOR;
  const start = cursor === undefined ? prefix : folderKey(decodeCursor(list, cursor, under).name) + AFTER_SEPARATOR;
  const end = under === "" ? AFTER_ALL_FOLDERS : key + AFTER_SEPARATOR;
  const rows = await authorizeRead(deps, credential, childFolders({ prefix, start, end, limit: limit + 1 }));
  const items = rows.slice(0, limit).map(({ folder }) => folder);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items, next: last === undefined ? null : encodeCursor(list, NO_ID, last) };
}
