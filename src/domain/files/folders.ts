import { and, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { files, isInFolder, isListed, isOwnedInFolder } from "../../platform/schema.ts";
import { authorizeOwnRead, type Credential } from "../access/authorization.ts";
import { type FilesOf, filesOf } from "../access/own-files.ts";
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

/** The first `limit` folders below a prefix: one search of the index for each (a skip scan), however many files are in it. */
function childFolders(
  { db }: Deps,
  { teamId, ownerId }: FilesOf,
  { prefix, start, end, limit }: { prefix: string; start: string; end: string; limit: number },
) {
  const index = ownerId === null ? sql`files_folder` : sql`files_owner_folder`;
  const isInIndex = ownerId === null ? isInFolder : isOwnedInFolder;
  const firstFrom = (bound: SQL) => sql`(select ${files.folderKey} from ${files} indexed by ${index}
    where ${and(filesOf({ teamId: sql`(select id from team)`, ownerId }), isInIndex, isListed)}
      and ${files.folderKey} >= ${bound} and ${files.folderKey} < ${end}
    order by ${files.folderKey} limit 1)`;
  const rest = sql`substr(found, length(${prefix}) + 1) || char(1)`;
  const child = sql`substr(found, 1, length(${prefix}) + instr(${rest}, char(1)) - 1)`;
  return db.select({ folder: sql<string>`folder` }).from(sql`(
    with recursive team (id) as (select ${teamId}), child (found) as (
      select ${firstFrom(sql`${start}`)}
      union all
      select ${firstFrom(sql`${child} || char(2)`)} from child where found is not null limit ${limit}
    )
    select replace(${child}, char(1), '/') as folder from child where found is not null)`);
}

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
  const range = { prefix, start, end, limit: limit + 1 };
  const { rows } = await authorizeOwnRead(deps, credential, (viewer) => childFolders(deps, viewer, range));
  const items = rows.slice(0, limit).map(({ folder }) => folder);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items, next: last === undefined ? null : encodeCursor(list, NO_ID, last) };
}
