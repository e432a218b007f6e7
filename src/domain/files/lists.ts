import { and, eq, gt, is, lt, SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { Db, Param } from "../../platform/db.ts";
import { files, isFailed, isListed, isNoAudio, isOnTheWay } from "../../platform/schema.ts";
import { idBound } from "../../platform/system.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import {
  ABOVE_ALL_IDS,
  cutPage,
  encodeCursor,
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
  scanBounds,
  splitScan,
} from "../paging.ts";
import { SHOWN, type SHOWN_STATES, type ShownRow, type StoredFile, view } from "./files.ts";

/*
 * A list reads one index in its order. Where that index serves every filter, a page reads its own rows. Otherwise a page
 * looks at the next rows of the index, a bounded number of them, and keeps those that meet the other filters.
 */

/** Filters on a list of files; all of them must hold. Instants are milliseconds since the epoch; they are exclusive. */
export interface FileFilters {
  status?: (typeof SHOWN_STATES)[number] | undefined;
  fileType?: string | undefined;
  /** What the name begins with. */
  name?: string | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
}

type FilterValues = {
  status: string | null;
  fileType: string | null;
  /** All ids that are wanted lie between the two. */
  above: string;
  below: string;
};
type ListValues = KeysetValues & NameKeysetValues & FilterValues & ScanValues;

type Index = "key" | "failed" | "onTheWay" | "fileType" | "name";

const DATES = ["createdAfter", "createdBefore"] as const;
/** The filters that each index serves by itself. */
const SERVED: Record<Index, readonly (keyof FileFilters)[]> = {
  key: DATES,
  failed: ["status", ...DATES],
  onTheWay: DATES,
  fileType: ["fileType", ...DATES],
  name: ["name"],
};

/** Most files are completed, and audio: for those there is no index but the key. */
function indexFor({ name, status, fileType }: FileFilters): Index {
  if (name !== undefined) return "name";
  if (status === "failed") return "failed";
  if (status !== undefined && status !== "completed") return "onTheWay";
  return fileType !== undefined && fileType !== "audio file" ? "fileType" : "key";
}

/** SQLite would rather take the key than a partial index, so those are named. */
const SOURCES: Record<Index, { from: SQL; where: SQL | undefined }> = {
  key: { from: sql`${files}`, where: isListed },
  failed: { from: sql`${files} indexed by files_failed`, where: isFailed },
  onTheWay: { from: sql`${files} indexed by files_on_the_way`, where: isOnTheWay },
  fileType: { from: sql`${files} indexed by files_type`, where: and(isListed, isNoAudio) },
  name: { from: sql`${files} indexed by files_name`, where: isListed },
};

/** Drizzle needs an alias for each column of a source that is SQL. */
const columns = Object.fromEntries(
  Object.entries(SHOWN).map(([name, column]) => [name, sql`${is(column, SQL.Aliased) ? column.sql : column}`.as(name)]),
) as unknown as { [Name in keyof ShownRow]: SQL.Aliased<ShownRow[Name]> };

/** The team's rows in the order of an index. */
const rowsBy = (index: Index) => (db: Db, param: Param<ListValues>) => {
  const { where, by } =
    index === "name" ? nameKeyset(files.originalName, files.id, param) : keyset(files.id, "newest first", param);
  const isOfType = index === "fileType" ? eq(files.fileType, param("fileType")) : undefined;
  const isYoung = index === "name" ? undefined : gt(files.id, param("above"));
  const query = db
    .select(columns)
    .from(SOURCES[index].from)
    .orderBy(...by)
    .$dynamic();
  return { query, where: and(SOURCES[index].where, isOfType, where, isYoung) };
};

type RowsQuery = ReturnType<ReturnType<typeof rowsBy>>["query"];

const page = (rows: RowsQuery, _: Db, param: Param<ListValues>) => rows.limit(param("limit")).offset(param("offset"));

const isWanted = (looked: ReturnType<RowsQuery["as"]>, param: Param<ListValues>) =>
  and(
    sql`${looked.status} = coalesce(${param("status")}, ${looked.status})`,
    sql`${looked.fileType} is coalesce(${param("fileType")}, ${looked.fileType})`,
    gt(looked.id, param("above")),
    lt(looked.id, param("below")),
  );
const scanned = (rows: RowsQuery, db: Db, param: Param<ListValues>) =>
  scan(rows, db, param, (looked) => isWanted(looked, param));

const readsBy = (index: Index) => ({
  page: teamRead(files.teamId, rowsBy(index), page),
  scan: teamRead(files.teamId, rowsBy(index), scanned),
});
const READS = {
  key: readsBy("key"),
  failed: readsBy("failed"),
  onTheWay: readsBy("onTheWay"),
  fileType: readsBy("fileType"),
  name: readsBy("name"),
};

/**
 * Newest first; in the order of names where they are filtered. With filters that no index serves together a page may be
 * short, or empty, and another one follow all the same.
 * @throws `invalid_input` for a cursor of another list, and for a page number that lies behind what such a list looks at
 */
export async function listFiles(
  deps: Deps,
  credential: Credential<"team">,
  { name, status, fileType, createdAfter, createdBefore }: FileFilters,
  request: PageRequest,
): Promise<Page<StoredFile>> {
  const filters = { name, status, fileType, createdAfter, createdBefore };
  const list = listName("files", filters);
  const index = indexFor(filters);
  const below = createdBefore === undefined ? ABOVE_ALL_IDS : idBound(createdBefore);
  const place =
    name === undefined ? keysetValues(list, "newest first", request, below) : nameKeysetValues(list, name, request);
  const values = {
    ...place,
    status: status ?? null,
    fileType: fileType ?? null,
    above: createdAfter === undefined ? "" : idBound(Math.floor(createdAfter) + 1),
    below,
    ...scanBounds(request.page),
  } as ListValues;
  const nameOf = name === undefined ? undefined : (row: ShownRow) => row.originalName;
  const show = (row: ShownRow) => view(deps, row);

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
    const message = "With these filters no page so deep has a number: follow Link.";
    throw new AppError("invalid_input", { errors: [{ path: "page", message }] });
  }
  const { items, next } = cutPage(list, request, matching, show, nameOf);
  return { items, next: next ?? (end ? encodeCursor(list, end.id, nameOf?.(end)) : null) };
}
