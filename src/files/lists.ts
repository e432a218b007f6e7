import { and, eq, gt, is, lt, or, SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { type Credential, readAs } from "../access/authorization.ts";
import { type FilesOf, filesOf, filesOfTeamParam } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { invalidField } from "../errors.ts";
import { foldedWords } from "../folding.ts";
import { type Param, preparedQuery, type Query, qualified } from "../platform/db.ts";
import {
  ABOVE_ALL_IDS,
  AFTER_ALL_NAMES,
  cutScan,
  type KeysetValues,
  keysetValues,
  listName,
  type MayBeEnd,
  orderById,
  type Page,
  type PageClauses,
  type PageRequest,
  pageById,
  pageByName,
  scan,
} from "../platform/paging.ts";
import { idBound } from "../platform/system.ts";
import {
  files,
  fileTags,
  hasReference,
  isFailed,
  isInFolder,
  isNotAudio,
  isOwned,
  isOwnedInFolder,
  isTranscribed,
  isUnprocessed,
  teamOfFile,
} from "./files.schema.ts";
import {
  type FILE_STATES,
  type FileMetadata,
  LISTED_COLUMNS,
  type ListedRow,
  METADATA_COLUMNS,
  type MetadataRow,
  type StoredFile,
  toMetadata,
  toStoredFile,
} from "./files.ts";
import { folderKey, nameKey } from "./names.ts";

/*
 * A list reads one index in its order. If that index serves every filter, a page reads its own rows, and a numbered page
 * also the rows before it. Otherwise a page examines a bounded number of index rows and keeps those that match the other
 * filters.
 */

/** Filters on a list of files, combined with AND. Instants are milliseconds since the epoch and exclusive. */
export interface FileFilters {
  status?: (typeof FILE_STATES)[number] | undefined;
  fileType?: string | undefined;
  /** A prefix of the name, folded. */
  name?: string | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
  /** Empty for the files outside all folders. */
  folder?: string | undefined;
  /** A folder, for the files in it and in the folders below it. Empty for all files. */
  under?: string | undefined;
  tag?: string | undefined;
  reference?: string | undefined;
  /** Words, each of which is a part of the name, title, artist, reference, folder, or a tag, folded. */
  search?: string | undefined;
  /** The owner, see own-files.ts. */
  uploadedBy?: string | undefined;
  /** False only together with another filter: no index serves it. */
  hasTranscript?: boolean | undefined;
}

/** By default, lists with `name` or `search` are ordered by name, and all others newest first. */
export const FILE_ORDERS = ["-createdAt", "createdAt", "name", "-name"] as const;
type FileQuery = FileFilters & {
  sort?: (typeof FILE_ORDERS)[number] | undefined;
  /** The fields of each file in addition to those of every list. */
  include?: "metadata" | undefined;
};
/** An order is that of an index, from either end. */
type IndexOrder = "createdAt" | "name";

/**
 * Files that a list examines for filters that no index serves. It may read each twice: with a page, less than 1,000 rows, and one
 * more for each waveform of the page.
 */
const EXAMINED_FILES = 440;
/** Fewer with the metadata of a page, which is two more rows for each file. */
const EXAMINED_WITH_METADATA = 340;
/** Names that a search examines in an index. It may read each twice: with the files of a page, less than 5,000 rows. */
export const SEARCHED_NAMES = 2440;

/** Each word of a search is compared with each name that it examines. */
export const MAX_SEARCHED_WORDS = 10;

/** Sorts after the ids of this instant. */
const afterInstant = (instant: number) => idBound(Math.floor(instant) + 1);

type Conditions = { [F in keyof FileFilters]-?: (value: NonNullable<FileFilters[F]>) => SQL | undefined };
/** The condition of each filter on a file. */
const CONDITIONS: Conditions = {
  status: (status) => eq(files.status, status),
  fileType: (fileType) => eq(files.fileType, fileType),
  createdAfter: (instant) => gt(files.id, afterInstant(instant)),
  createdBefore: (instant) => lt(files.id, idBound(instant)),
  name: (prefix) => sql`${files.nameKey} between ${nameKey(prefix)} and ${nameKey(prefix) + AFTER_ALL_NAMES}`,
  folder: (folder) => eq(files.folder, folder),
  under: (folder) =>
    or(eq(files.folder, folder), sql`substr(${files.folder}, 1, length(${folder}) + 1) = ${`${folder}/`}`),
  reference: (reference) => eq(files.reference, reference),
  uploadedBy: (owner) => eq(files.userId, owner),
  hasTranscript: (isThere) => eq(files.hasTranscript, isThere),
  search: (text) => {
    const keys = foldedWords(text).map((word) => nameKey(word));
    return and(...keys.map((key) => sql`instr(${files.nameKey}, ${key}) + instr(${files.searchText}, ${key}) > 0`));
  },
  tag: (tag) => {
    // The text of this tag also stands between two tags, if the first one ends with a comma: ["x,","y"].
    if (tag === ",") return sql`exists (select 1 from json_each(${files.tags}) where value = ${tag})`;
    // The opening quote follows a bracket or a comma only at the start of a tag: within one, it is escaped. `json_each` would
    // read a row for each tag.
    const text = JSON.stringify(tag);
    return sql`instr(${files.tags}, ${`[${text}`}) + instr(${files.tags}, ${`,${text}`}) > 0`;
  },
};
const FILTERS = Object.keys(CONDITIONS) as (keyof FileFilters)[];

/** The condition of some filters on a file. Undefined if none is given. */
export function conditionOf(filters: FileFilters): SQL | undefined {
  const given = FILTERS.filter((name) => filters[name] !== undefined);
  return and(...given.map((name) => CONDITIONS[name](filters[name] as never)));
}

/** An index that a list reads in the index's order. */
interface Index {
  from: SQL;
  order: IndexOrder;
  /** The filters that it serves without a scan. The clauses of the page serve `name`. */
  serves: (keyof FileFilters)[];
  where: (filters: FileFilters) => SQL | undefined;
  id: SQLiteColumn;
}

/** Indexes are named because SQLite's planner prefers the primary key to a partial index. */
const from = (index: SQL) => sql`${files} indexed by ${index}`;
type Where = Index["where"];

const byId = (
  source: SQL,
  serves: Index["serves"] = [],
  where: Where = () => undefined,
  id: SQLiteColumn = files.id,
): Index => ({ from: source, order: "createdAt", serves: [...serves, "createdAfter", "createdBefore"], where, id });

const byName = (source: SQL, serves: Index["serves"] = [], where: Where = () => undefined): Index => ({
  from: source,
  order: "name",
  serves: ["name", ...serves],
  where,
  id: files.id,
});

const inFolder: Where = ({ folder = "" }) => and(isInFolder, eq(files.folderKey, folderKey(folder)));
const ofOwner: Where = ({ uploadedBy = "" }) => and(isOwned, eq(files.userId, uploadedBy));
const ofOwnerInFolder: Where = ({ uploadedBy = "", folder = "" }) =>
  and(isOwnedInFolder, eq(files.userId, uploadedBy), eq(files.folderKey, folderKey(folder)));
const ofType: Where = ({ fileType = "" }) => and(isNotAudio, eq(files.fileType, fileType));
const ofReference: Where = ({ reference = "" }) => and(hasReference, eq(files.reference, reference));
const filesOfTag = sql`${fileTags} cross join ${files}
  on ${teamOfFile} = ${fileTags.teamId} and ${files.id} = ${fileTags.fileId}`;

const INDEXES = {
  listed: byId(sql`${files}`),
  failed: byId(from(sql`files_failed`), ["status"], () => isFailed),
  // Pending and processing files, so that a claim changes no index.
  unprocessed: byId(from(sql`files_unprocessed`), [], () => isUnprocessed),
  fileType: byId(from(sql`files_type`), ["fileType"], ofType),
  transcribed: byId(from(sql`files_transcribed`), ["hasTranscript"], () => isTranscribed),
  reference: byId(from(sql`files_reference`), ["reference"], ofReference),
  tag: byId(
    filesOfTag,
    ["tag"],
    ({ tag = "" }) => and(eq(fileTags.tagKey, nameKey(tag)), eq(fileTags.tag, tag)),
    fileTags.fileId,
  ),
  folder: byId(from(sql`files_folder`), ["folder"], inFolder),
  name: byName(from(sql`files_name`)),
  folderName: byName(from(sql`files_folder_name`), ["folder"], inFolder),
  owner: byId(from(sql`files_owner`), ["uploadedBy"], ofOwner),
  ownerFolder: byId(from(sql`files_owner_folder`), ["uploadedBy", "folder"], ofOwnerInFolder),
  ownerName: byName(from(sql`files_owner_name`), ["uploadedBy"], ofOwner),
};

/** Most files are completed audio files, so only the index of all files serves those. */
function indexFor(filters: FileFilters, order: IndexOrder): Index {
  const { uploadedBy, folder, tag, reference, status, fileType, hasTranscript } = filters;
  // A list of an owner examines no file of another: its cursor would name it.
  if (uploadedBy !== undefined) {
    if (order === "name") return INDEXES.ownerName;
    return folder ? INDEXES.ownerFolder : INDEXES.owner;
  }
  if (order === "name") return folder ? INDEXES.folderName : INDEXES.name;
  if (reference !== undefined) return INDEXES.reference;
  if (tag !== undefined) return INDEXES.tag;
  if (folder) return INDEXES.folder;
  if (status === "failed") return INDEXES.failed;
  if (status !== undefined && status !== "completed") return INDEXES.unprocessed;
  if (fileType !== undefined && fileType !== "audio file") return INDEXES.fileType;
  return hasTranscript ? INDEXES.transcribed : INDEXES.listed;
}

/** How a list is read. */
interface Plan {
  /** The filters that the query has. */
  filters: FileFilters;
  index: Index;
  isDescending: boolean;
  /** The filters for which rows are examined. */
  unserved: (keyof FileFilters)[];
  /** Examines only names in the index. */
  isSearch: boolean;
  /** The fields of each file. */
  columns: typeof columns;
}

function planOf({ sort, include, ...query }: FileQuery): Plan {
  // All files are under "".
  const given = FILTERS.filter((name) => query[name] !== undefined && !(name === "under" && query.under === ""));
  const filters: FileFilters = Object.fromEntries(given.map((name) => [name, query[name]]));
  const order = sort ?? (filters.name === undefined && filters.search === undefined ? "-createdAt" : "name");
  const index = indexFor(filters, order.replace("-", "") as IndexOrder);
  const unserved = given.filter((name) => !index.serves.includes(name));
  const isSearch = index.order === "name" && unserved.join() === "search";
  const selected = include === "metadata" ? metadataColumns : columns;
  return { filters, index, isDescending: order.startsWith("-"), unserved, isSearch, columns: selected };
}

/** Whether a page examines files one by one. A search of only names has a separate limit. A contributor lists only the own files. */
export function examinesFiles(query: FileQuery, isContributor: boolean): boolean {
  const { unserved, isSearch } = planOf(isContributor ? { ...query, uploadedBy: query.uploadedBy ?? "" } : query);
  return unserved.length > 0 && !isSearch;
}

const createdAfter = ({ index: { id }, filters }: Plan) =>
  filters.createdAfter === undefined ? undefined : gt(id, afterInstant(filters.createdAfter));
const createdBefore = ({ index: { id }, filters }: Plan) =>
  filters.createdBefore === undefined ? undefined : lt(id, idBound(filters.createdBefore));

/** The clauses of a page in the order of its index. Of the filters by time, one is where the list starts. */
function pageOf(plan: Plan, list: string, request: PageRequest): PageClauses {
  const { index, filters, isDescending } = plan;
  if (index.order === "name") {
    return pageByName(list, { name: files.nameKey, id: files.id }, nameKey(filters.name ?? ""), request, {
      isDescending,
    });
  }
  if (isDescending) {
    const below = filters.createdBefore === undefined ? ABOVE_ALL_IDS : idBound(filters.createdBefore);
    const page = pageById(list, index.id, "newest first", request, below);
    return { ...page, where: sql`${and(page.where, createdAfter(plan))}` };
  }
  const above = filters.createdAfter === undefined ? "" : afterInstant(filters.createdAfter);
  const page = pageById(list, index.id, "oldest first", request, above);
  return { ...page, where: sql`${and(page.where, createdBefore(plan))}` };
}

/** Drizzle needs an alias for each column of a source that is SQL, and qualifies only columns within nested SQL. */
const aliased = <Row>(selected: Record<keyof Row & string, unknown>) =>
  Object.fromEntries(
    Object.entries(selected).map(([name, column]) => [
      name,
      sql`${is(column, SQL.Aliased) ? column.sql : sql`${column}`}`.as(name),
    ]),
  ) as unknown as { [Name in keyof Row]: SQL.Aliased<Row[Name]> };
export const columns = aliased<ListedRow>(LISTED_COLUMNS);
const metadataColumns = aliased<MetadataRow>(METADATA_COLUMNS);

/** The most frequent list. */
const allFiles = preparedQuery((db, param: Param<{ teamId: string } & KeysetValues>) => {
  const { where, orderBy } = orderById(files.id, "newest first", param("bound"));
  return db
    .select(columns)
    .from(INDEXES.listed.from)
    .where(and(filesOfTeamParam(param), where))
    .orderBy(...orderBy)
    .limit(param("limit"))
    .offset(param("offset"));
});

const isInIndex = ({ filters, index }: Plan, { teamId, ownerId }: FilesOf, page: SQL | undefined) =>
  and(
    // No list of an owner reads the index of tags.
    index === INDEXES.tag ? eq(fileTags.teamId, teamId) : filesOf({ teamId, ownerId }),
    index.where(filters),
    page,
  );

/** Whether a file of the index matches the other filters. */
function isMatch({ filters, unserved }: Plan): SQL {
  const conditions = unserved.map((filter) => CONDITIONS[filter](filters[filter] as never));
  // In a CASE, SQLite evaluates no condition after the first that fails. Tags come last, because they may be long.
  const fails = conditions.map((one) => sql`when (${one}) is not true then 0`);
  return fails.length === 0 ? sql`1` : sql`case ${sql.join(fails, sql` `)} else 1 end`;
}

/** The files of a page, if the index serves every filter. */
const servedFiles = ({ db }: Deps, plan: Plan, whose: FilesOf, page: PageClauses) =>
  db
    .select(plan.columns)
    .from(plan.index.from)
    .where(isInIndex(plan, whose, page.where))
    .orderBy(...page.orderBy)
    .limit(page.limit)
    .offset(page.offset);

/** Examines rows, and then reads only the files that match and the last examined one. A search reads nothing but the index. */
function examinedFiles({ db }: Deps, plan: Plan, whose: FilesOf, page: PageClauses) {
  const { index, isSearch } = plan;
  const rows = db
    .select({
      fileId: qualified(files.id).as("fileId"),
      team: qualified(teamOfFile).as("team"),
      isMatch: isMatch(plan).as("isMatch"),
    })
    .from(index.from)
    .where(isInIndex(plan, whose, page.where))
    .orderBy(...page.orderBy)
    .$dynamic();
  // Each row of a tag is two rows: that of the tag and that of the file.
  const rowsOfEntry = index === INDEXES.tag ? 2 : 1;
  const maxFiles = plan.columns === columns ? EXAMINED_FILES : EXAMINED_WITH_METADATA;
  const maxRows = isSearch ? SEARCHED_NAMES : Math.floor(maxFiles / rowsOfEntry);
  const found = sql`(${scan(db, rows, (examined) => sql`${examined.isMatch}`, page, maxRows)}) found`;
  return db
    .select({ ...plan.columns, isEnd: sql<0 | 1>`found.isEnd`.as("isEnd") })
    .from(sql`${found} cross join ${files} on ${teamOfFile} = found.team and ${files.id} = found.fileId`);
}

const isWithMetadata = (row: ListedRow): row is MetadataRow => "audio" in row;

/** A file in a list. Whoever asks for the metadata gets all of it. */
export type ListedFile = StoredFile | FileMetadata;

/**
 * Lists files. With a combination of filters that no index serves (`examinesFiles`), a page can be short or empty and still
 * have a next page.
 * @throws `invalid_input` for a cursor of another list, a page number beyond what the list examines, or only the files without a transcript
 */
export async function listFiles(
  deps: Deps,
  credential: Credential<"files:read">,
  query: FileQuery,
  request: PageRequest,
): Promise<Page<ListedFile>> {
  const { filters, index } = planOf(query);
  if (filters.hasTranscript === false && Object.keys(filters).length === 1) {
    throw invalidField("hasTranscript", "Can be `false` only together with another filter.");
  }
  const list = listName("files", { ...filters, sort: query.sort });
  const nameOf = index.order === "name" ? (row: ListedRow) => row.nameKey : undefined;
  const { rows } = await readAs(deps, credential, (viewer): Query<(ListedRow & MayBeEnd)[]> => {
    const { teamId, ownerId } = viewer;
    const isDefault = query.include === undefined && index === INDEXES.listed && Object.keys(filters).length === 0;
    if (ownerId === null && isDefault && (query.sort ?? "-createdAt") === "-createdAt") {
      return allFiles({ teamId, ...keysetValues(list, "newest first", request) });
    }
    const plan = planOf(ownerId === null ? query : { ...query, uploadedBy: query.uploadedBy ?? ownerId });
    const page = pageOf(plan, list, request);
    return plan.unserved.length === 0 ? servedFiles(deps, plan, viewer, page) : examinedFiles(deps, plan, viewer, page);
  });
  const { items, next } = cutScan(list, request, rows, nameOf);
  return { items: items.map((row) => (isWithMetadata(row) ? toMetadata(deps, row) : toStoredFile(deps, row))), next };
}
