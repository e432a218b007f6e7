import { and, gt, is, lt, or, SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import type { Db, Param } from "../../platform/db.ts";
import { files, isListed } from "../../platform/schema.ts";
import { idBound } from "../../platform/system.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import {
  ABOVE_ALL_IDS,
  AFTER_ALL_NAMES,
  cutPage,
  encodeCursor,
  invalidPage,
  keyset,
  keysetValues,
  listName,
  nameKeyset,
  nameKeysetValues,
  type Page,
  type PageRequest,
  SCANNED_ROWS,
  scan,
  splitScan,
} from "../paging.ts";
import { LISTED_COLUMNS, LISTED_STATES, type ListedRow, type StoredFile, toStoredFile } from "./files.ts";
import { folderKey } from "./folders.ts";
import {
  type FileFilters,
  type FileOrder,
  INDEXES,
  type Index,
  type IndexName,
  indexFor,
  type ListValues,
} from "./list-indexes.ts";
import { nameKey } from "./names.ts";

/*
 * A list reads one index in its order. If that index serves every filter, a page reads its own rows, and a numbered page
 * also the rows before it. Otherwise a page examines a bounded number of index rows and keeps those that match the other
 * filters.
 */

/** Fewer than in other lists, because D1 reads two rows for each one skipped: that of an index or tag, and the file's. */
export const MAX_FILTERED_NUMBERED_ROWS = 1000;
const NARROWLY_NUMBERED = ["folder", "under", "tag", "reference", "search"] as const;

/** Names that a search examines in a request. It may read each twice: with the files of a page, less than 5,000 rows. */
export const SEARCHED_NAMES = 2440;

/** Drizzle needs an alias for each column of a source that is SQL, and qualifies only columns within nested SQL. */
const columns = Object.fromEntries(
  Object.entries(LISTED_COLUMNS).map(([name, column]) => [
    name,
    sql`${is(column, SQL.Aliased) ? column.sql : sql`${column}`}`.as(name),
  ]),
) as unknown as { [Name in keyof ListedRow]: SQL.Aliased<ListedRow[Name]> };

function clausesOf({ order, id, where }: Index, param: Param<ListValues>) {
  if (order === "name") {
    const { where: isAfterBound, by } = nameKeyset(files.nameKey, id, param);
    return { by, where: and(where(param), isAfterBound) };
  }
  const { where: isAfterBound, by } = keyset(id, "newest first", param);
  return { by, where: and(where(param), isAfterBound, gt(id, param("above"))) };
}

/** The team's rows in index order. */
const rowsBy = (index: Index) => (db: Db, param: Param<ListValues>) => {
  const { where, by } = clausesOf(index, param);
  const query = db
    .select(columns)
    .from(index.from)
    .orderBy(...by)
    .$dynamic();
  return { query, where: and(where, isListed) };
};

type RowsQuery = ReturnType<ReturnType<typeof rowsBy>>["query"];

const page = (rows: RowsQuery, _: Db, param: Param<ListValues>) => rows.limit(param("limit")).offset(param("offset"));

const isMatch = (examined: ReturnType<RowsQuery["as"]>, param: Param<ListValues>) =>
  and(
    sql`${examined.status} = coalesce(${param("status")}, ${examined.status})`,
    sql`${examined.fileType} is coalesce(${param("fileType")}, ${examined.fileType})`,
    gt(examined.id, param("above")),
    lt(examined.id, param("below")),
    sql`${examined.nameKey} between ${param("firstName")} and ${param("lastName")}`,
    sql`${examined.folder} = coalesce(${param("folder")}, ${examined.folder})`,
    or(
      sql`${examined.folder} = coalesce(${param("under")}, ${examined.folder})`,
      sql`substr(${examined.folder}, 1, length(${param("under")}) + 1) = ${param("under")} || '/'`,
    ),
    sql`(${param("tag")} is null or ${param("tag")} in (select value from json_each(${examined.tags})))`,
    sql`${examined.reference} is coalesce(${param("reference")}, ${examined.reference})`,
    sql`instr(${examined.nameKey}, ${param("search")}) > 0`,
  );

function readsBy(index: Index) {
  const { teamId } = index;
  // Each row of a tag is two rows: that of the tag and that of the file.
  const examinedRows = teamId === files.teamId ? SCANNED_ROWS : Math.floor(SCANNED_ROWS / 2);
  const scanned = (rows: RowsQuery, db: Db, param: Param<ListValues>) =>
    scan(rows, db, param, (examined) => isMatch(examined, param), examinedRows);
  return { page: teamRead(teamId, rowsBy(index), page), scan: teamRead(teamId, rowsBy(index), scanned) };
}
const READS = Object.fromEntries(
  Object.entries(INDEXES).map(([name, index]) => [name, readsBy(index)]),
) as unknown as Record<IndexName, ReturnType<typeof readsBy>>;

/** Examines names in an index alone, and reads only the files that match and the last examined one. */
const searchBy = (index: Index) =>
  teamRead(
    files.teamId,
    (db, param: Param<ListValues>) => {
      const { where, by } = clausesOf(index, param);
      const query = db
        .select({
          fileId: sql`${files.id}`.as("fileId"),
          team: sql`${files.teamId}`.as("team"),
          key: sql`${files.nameKey}`.as("key"),
        })
        .from(index.from)
        .orderBy(...by);
      return { query: query.$dynamic(), where };
    },
    (rows, db, param) => {
      const isFound = ({ key }: ReturnType<typeof rows.as>) => sql`instr(${key}, ${param("search")}) > 0`;
      const found = sql`(${scan(rows, db, param, isFound, SEARCHED_NAMES)}) found`;
      return db
        .select({ ...columns, isEnd: sql<0 | 1>`found.isEnd`.as("isEnd") })
        .from(sql`${found} cross join ${files} on ${files.teamId} = found.team and ${files.id} = found.fileId`);
    },
  );
const SEARCHES: Partial<Record<IndexName, ReturnType<typeof searchBy>>> = {
  name: searchBy(INDEXES.name),
  folderName: searchBy(INDEXES.folderName),
};

/**
 * Lists files. With a combination of filters that no index serves, a page can be short or empty and still have a next page.
 * Before it examines files for other filters than `search`, which has a limit of its own, calls `countScan`.
 * @throws `invalid_input` for a cursor of another list, or a page number beyond what the list examines
 */
export async function listFiles(
  deps: Deps,
  credential: Credential<"files:read">,
  filters: FileFilters & { sort?: FileOrder | undefined },
  { limit, page, cursor }: PageRequest,
  countScan: () => Promise<void>,
): Promise<Page<StoredFile>> {
  const { sort, name, status, fileType, createdAfter, createdBefore, folder, tag, reference, search } = filters;
  const under = filters.under || undefined;
  const isNarrow = NARROWLY_NUMBERED.some((filter) => filters[filter] !== undefined);
  const request = { limit, page, cursor, ...(isNarrow && { maxRows: MAX_FILTERED_NUMBERED_ROWS }) };
  const served = { name, status, fileType, createdAfter, createdBefore, folder, under, tag, reference, search };
  const order = sort ?? (name === undefined && search === undefined ? "-createdAt" : "name");
  const list = listName("files", { ...served, sort });
  const index = indexFor(served, order);
  const below = createdBefore === undefined ? ABOVE_ALL_IDS : idBound(createdBefore);
  const firstName = nameKey(name ?? "");
  const position =
    order === "name" ? nameKeysetValues(list, firstName, request) : keysetValues(list, "newest first", request, below);
  const values = {
    ...position,
    status: status ?? null,
    fileType: fileType ?? null,
    above: createdAfter === undefined ? "" : idBound(Math.floor(createdAfter) + 1),
    below,
    firstName,
    lastName: firstName + AFTER_ALL_NAMES,
    folder: folder ?? null,
    folderKey: folderKey(folder ?? ""),
    under: under ?? null,
    tag: tag ?? null,
    reference: reference ?? null,
    search: nameKey(search ?? ""),
  } as ListValues;
  const nameOf = order === "name" ? (row: ListedRow) => row.nameKey : undefined;
  /** `end` is the last examined row, if there are more. */
  const pageOf = (rows: ListedRow[], end?: ListedRow): Page<StoredFile> => {
    const { items, next } = cutPage(list, request, rows, nameOf);
    // A search also finds hidden files.
    const listed = items.filter(({ status }) => (LISTED_STATES as readonly string[]).includes(status));
    return {
      items: listed.map((row) => toStoredFile(deps, row)),
      next: next ?? (end ? encodeCursor(list, end.id, nameOf?.(end)) : null),
    };
  };

  const unserved = Object.entries(served).filter(
    ([filter, value]) => value !== undefined && !INDEXES[index].serves.includes(filter as keyof FileFilters),
  );
  if (unserved.length === 0) {
    return pageOf(await authorizeRead(deps, credential, READS[index].page(values)));
  }
  const isSearch = unserved.every(([filter]) => filter === "search");
  if (!isSearch) await countScan();
  const read = (isSearch && SEARCHES[index]) || READS[index].scan;
  const rows = await authorizeRead(deps, credential, read(values));
  const { matching, end } = splitScan(rows);
  if (end && matching.length === 0 && request.page > 1) {
    throw invalidPage(
      "With these filters, this page can't be requested by number. Follow the Link header from an earlier page.",
    );
  }
  return pageOf(matching, end);
}
