import { and, eq, gt, is, lt, SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import type { Db, Param } from "../../platform/db.ts";
import { files, isFailed, isListed, isNotAudio, isUnprocessed } from "../../platform/schema.ts";
import { idBound } from "../../platform/system.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import {
  ABOVE_ALL_IDS,
  cutPage,
  encodeCursor,
  invalidPage,
  type KeysetValues,
  keyset,
  keysetValues,
  listName,
  type NameKeysetValues,
  nameKeyset,
  nameKeysetValues,
  type Page,
  type PageRequest,
  type ScanValues,
  scan,
  splitScan,
} from "../paging.ts";
import { LISTED_COLUMNS, type LISTED_STATES, type ListedRow, type StoredFile, toStoredFile } from "./files.ts";

/*
 * A list reads one index in its order. If that index serves every filter, a page reads its own rows, and a numbered page
 * also the rows before it. Otherwise a page examines a bounded number of index rows and keeps those that match the other
 * filters.
 */

/** Filters on a list of files, combined with AND. Instants are milliseconds since the epoch and exclusive. */
export interface FileFilters {
  status?: (typeof LISTED_STATES)[number] | undefined;
  fileType?: string | undefined;
  /** A prefix of the name. */
  name?: string | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
}

type FilterValues = {
  status: string | null;
  fileType: string | null;
  /** Exclusive bounds on the id. */
  above: string;
  below: string;
};
type ListValues = KeysetValues & NameKeysetValues & FilterValues & ScanValues;

type Index = "key" | "failed" | "unprocessed" | "fileType" | "name";

const DATES = ["createdAfter", "createdBefore"] as const;
/** The filters that each index serves without a scan. */
const SERVED: Record<Index, readonly (keyof FileFilters)[]> = {
  key: DATES,
  failed: ["status", ...DATES],
  unprocessed: DATES,
  fileType: ["fileType", ...DATES],
  name: ["name"],
};

/** Most files are completed audio files, so only the primary key serves those. */
function indexFor({ name, status, fileType }: FileFilters): Index {
  if (name !== undefined) return "name";
  if (status === "failed") return "failed";
  if (status !== undefined && status !== "completed") return "unprocessed";
  return fileType !== undefined && fileType !== "audio file" ? "fileType" : "key";
}

/** Indexes are named because SQLite's planner prefers the primary key to a partial index. */
const SOURCES: Record<Index, { from: SQL; where: SQL | undefined }> = {
  key: { from: sql`${files}`, where: isListed },
  failed: { from: sql`${files} indexed by files_failed`, where: isFailed },
  unprocessed: { from: sql`${files} indexed by files_unprocessed`, where: isUnprocessed },
  fileType: { from: sql`${files} indexed by files_type`, where: and(isListed, isNotAudio) },
  name: { from: sql`${files} indexed by files_name`, where: isListed },
};

/** Drizzle needs an alias for each column of a source that is SQL. */
const columns = Object.fromEntries(
  Object.entries(LISTED_COLUMNS).map(([name, column]) => [
    name,
    sql`${is(column, SQL.Aliased) ? column.sql : column}`.as(name),
  ]),
) as unknown as { [Name in keyof ListedRow]: SQL.Aliased<ListedRow[Name]> };

/** The team's rows in index order. */
const rowsBy = (index: Index) => (db: Db, param: Param<ListValues>) => {
  const { where, by } =
    index === "name" ? nameKeyset(files.originalName, files.id, param) : keyset(files.id, "newest first", param);
  const isOfType = index === "fileType" ? eq(files.fileType, param("fileType")) : undefined;
  const isAfterStart = index === "name" ? undefined : gt(files.id, param("above"));
  const query = db
    .select(columns)
    .from(SOURCES[index].from)
    .orderBy(...by)
    .$dynamic();
  return { query, where: and(SOURCES[index].where, isOfType, where, isAfterStart) };
};

type RowsQuery = ReturnType<ReturnType<typeof rowsBy>>["query"];

const page = (rows: RowsQuery, _: Db, param: Param<ListValues>) => rows.limit(param("limit")).offset(param("offset"));

const isMatch = (examined: ReturnType<RowsQuery["as"]>, param: Param<ListValues>) =>
  and(
    sql`${examined.status} = coalesce(${param("status")}, ${examined.status})`,
    sql`${examined.fileType} is coalesce(${param("fileType")}, ${examined.fileType})`,
    gt(examined.id, param("above")),
    lt(examined.id, param("below")),
  );
const scanned = (rows: RowsQuery, db: Db, param: Param<ListValues>) =>
  scan(rows, db, param, (examined) => isMatch(examined, param));

const readsBy = (index: Index) => ({
  page: teamRead(files.teamId, rowsBy(index), page),
  scan: teamRead(files.teamId, rowsBy(index), scanned),
});
const READS = {
  key: readsBy("key"),
  failed: readsBy("failed"),
  unprocessed: readsBy("unprocessed"),
  fileType: readsBy("fileType"),
  name: readsBy("name"),
};

/**
 * Lists files newest first, or by name if `name` is given. With a combination of filters that no index serves, a page can
 * be short or empty and still have a next page.
 * @throws `invalid_input` for a cursor of another list, or a page number beyond what the list examines
 */
export async function listFiles(
  deps: Deps,
  credential: Credential<"files:read">,
  { name, status, fileType, createdAfter, createdBefore }: FileFilters,
  request: PageRequest,
): Promise<Page<StoredFile>> {
  const filters = { name, status, fileType, createdAfter, createdBefore };
  const list = listName("files", filters);
  const index = indexFor(filters);
  const below = createdBefore === undefined ? ABOVE_ALL_IDS : idBound(createdBefore);
  const position =
    name === undefined ? keysetValues(list, "newest first", request, below) : nameKeysetValues(list, name, request);
  const values = {
    ...position,
    status: status ?? null,
    fileType: fileType ?? null,
    above: createdAfter === undefined ? "" : idBound(Math.floor(createdAfter) + 1),
    below,
  } as ListValues;
  const nameOf = name === undefined ? undefined : (row: ListedRow) => row.originalName;
  const show = (row: ListedRow) => toStoredFile(deps, row);

  const isServed = Object.entries(filters).every(
    ([filter, value]) => value === undefined || SERVED[index].includes(filter as keyof FileFilters),
  );
  if (isServed) {
    const rows = await authorizeRead(deps, credential, READS[index].page(values));
    return cutPage(list, request, rows, show, nameOf);
  }
  const rows = await authorizeRead(deps, credential, READS[index].scan(values));
  const { matching, end } = splitScan(rows);
  if (end && matching.length === 0 && request.page > 1) {
    throw invalidPage(
      "With these filters, this page can't be requested by number. Follow the Link header from an earlier page.",
    );
  }
  const { items, next } = cutPage(list, request, matching, show, nameOf);
  return { items, next: next ?? (end ? encodeCursor(list, end.id, nameOf?.(end)) : null) };
}
