import { and, eq, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { type Credential, readAs, stillAllowed, type TeamActor, teamExists } from "../access/authorization.ts";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import type { FilesOf } from "../access/own-files.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { files } from "../files/files.schema.ts";
import { filesInFolders } from "../files/in-folders.ts";
import { folderKey, SEPARATOR } from "../files/names.ts";
import { grouped } from "../numbers.ts";
import { hasRow, insertWhere, write } from "../platform/db.ts";
import { decodeCursor, encodeCursor, listName, NO_ID, type Page, type PageRequest } from "../platform/paging.ts";
import { folders, isOfContributor } from "./folders.schema.ts";

/*
 * A folder exists while files are in it or below it, or once it was created. In the key of a folder, `SEPARATOR` takes the
 * place of "/". No path contains this character, and it sorts before all others, so a folder and the folders below it are one
 * range of the index.
 */

export const tooManyFolders = errorCode(
  "too_many_folders",
  409,
  "The team has too many folders. Delete one and retry.",
);

/** Sorts after the separator, and before every character of a path. */
export const AFTER_SEPARATOR = "\u0002";
/** A path has fewer of these, the greatest character, than 512 bytes can hold. */
const AFTER_ALL_FOLDERS = "\u{10ffff}".repeat(129);
/** Created folders of a team: a row each. */
export const MAX_FOLDERS = 10_000;
/** A tenth of the team's, so that one contributor can't use them up. */
const MAX_CONTRIBUTOR_FOLDERS = 1000;

interface FolderRange {
  prefix: string;
  start: string;
  end: string;
  limit: number;
  /** Whether it has the folders of all levels. */
  isDeep: boolean;
}

/**
 * The first `limit` folders below a prefix: one search of the index for each (a skip scan), however many files are in it.
 * Those of all levels lack the ones that only have folders in them.
 */
function foldersBelow({ db }: Deps, whose: FilesOf, { prefix, start, end, limit, isDeep }: FolderRange) {
  const { from, where } = filesInFolders(whose);
  const between = (column: SQLiteColumn, bound: SQL) => sql`${column} >= ${bound} and ${column} < ${end}
    order by ${column} limit 1`;
  const ofFiles = (bound: SQL) => sql`(select ${files.folderKey} from ${from}
    where ${where} and ${between(files.folderKey, bound)})`;
  const created = (bound: SQL) => sql`(select ${folders.folderKey} from ${folders}
    where ${foldersOf(whose)} and ${between(folders.folderKey, bound)})`;
  const orLast = (one: SQL) => sql`ifnull(${one}, ${AFTER_ALL_FOLDERS})`;
  const firstFrom = (bound: SQL) =>
    sql`nullif(min(${orLast(ofFiles(bound))}, ${orLast(created(bound))}), ${AFTER_ALL_FOLDERS})`;
  const rest = sql`substr(found, length(${prefix}) + 1) || char(1)`;
  const child = isDeep ? sql`found` : sql`substr(found, 1, length(${prefix}) + instr(${rest}, char(1)) - 1)`;
  const after = isDeep ? SEPARATOR : AFTER_SEPARATOR;
  return db.select({ folder: sql<string>`folder` }).from(sql`(
    with recursive child (found) as (
      select ${firstFrom(sql`${start}`)}
      union all
      select ${firstFrom(sql`${child} || ${after}`)} from child where found is not null limit ${limit}
    )
    select replace(${child}, char(1), '/') as folder from child where found is not null)`);
}

/** The created folders that a caller sees: all of its team, or those that the contributor has created. */
export const foldersOf = ({ teamId, ownerId }: FilesOf) =>
  and(eq(folders.teamId, teamId), ownerId === null ? undefined : and(isOfContributor, eq(folders.ownerId, ownerId)));

/** Creates a folder, unless it exists. @throws `too_many_folders` */
export async function createFolder(deps: Deps, actor: TeamActor, folder: string): Promise<void> {
  const { teamId, ownerId } = actor;
  const row = { teamId, ownerId: ownerId ?? "", folderKey: folderKey(folder), createdAt: deps.system.now() };
  const ofCreator = and(eq(users.id, row.ownerId), eq(users.teamId, teamId));
  const hasRoom = and(
    teamExists(teamId, sql`${teams.folders} < ${MAX_FOLDERS}`),
    ownerId === null ? undefined : hasRow(users, and(ofCreator, sql`${users.folders} < ${MAX_CONTRIBUTOR_FOLDERS}`)),
  );
  const stored = deps.db
    .select({ createdAt: folders.createdAt })
    .from(folders)
    .where(and(foldersOf(actor), eq(folders.folderKey, row.folderKey), eq(folders.ownerId, row.ownerId)));
  const batch = { insert: insertWhere(deps.db, folders, row, hasRoom), stored };
  const {
    stored: [found],
  } = await write(deps, batch, { isIdempotent: true, caller: stillAllowed(deps, actor) });
  if (found) return;
  if (ownerId === null) throw new AppError(tooManyFolders);
  throw new AppError(tooManyFolders, {
    message: `A contributor can create at most ${grouped(MAX_CONTRIBUTOR_FOLDERS)} folders, and a team ${grouped(MAX_FOLDERS)}. Delete one and retry.`,
  });
}

/** Adds the folders above each, unless they are above the one before. They sort there. */
function* withParents(folders: string[], before: string): Generator<string> {
  let last = before;
  for (const folder of folders) {
    const names = folder.split("/");
    for (const place of names.keys()) {
      const one = names.slice(0, place + 1).join("/");
      if (!`${last}/`.startsWith(`${one}/`)) yield one;
    }
    last = folder;
  }
}

/** Lists the folders directly below a folder, or of all levels, in the order of their names. @throws `invalid_input` for a cursor of another list */
export async function listFolders(
  deps: Deps,
  credential: Credential<"files:read">,
  { under, isDeep }: { under: string; isDeep: boolean },
  { limit, cursor }: Omit<PageRequest, "page">,
): Promise<Page<string>> {
  const list = listName("folders", { ...(under !== "" && { under }), ...(isDeep && { deep: "true" }) });
  const key = folderKey(under);
  const prefix = under === "" ? "" : key + SEPARATOR;
  const before = cursor === undefined ? under : decodeCursor(list, cursor, under).name;
  const start = cursor === undefined ? prefix : folderKey(before) + (isDeep ? SEPARATOR : AFTER_SEPARATOR);
  const end = under === "" ? AFTER_ALL_FOLDERS : key + AFTER_SEPARATOR;
  const range = { prefix, start, end, limit: limit + 1, isDeep };
  const { rows } = await readAs(deps, credential, (viewer) => foldersBelow(deps, viewer, range));
  const found = rows.map(({ folder }) => folder);
  const all = isDeep ? [...withParents(found, before)] : found;
  const items = all.slice(0, limit);
  const last = all.length > limit ? items.at(-1) : undefined;
  return { items, next: last === undefined ? null : encodeCursor(list, NO_ID, last) };
}

/** The folders of deleted teams. */
export const foldersOfDeleted = rowsOfDeleted(folders, { key: [folders.teamId, folders.folderKey, folders.ownerId] });
