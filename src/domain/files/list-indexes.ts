import { and, eq, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { Param } from "../../platform/db.ts";
import {
  files,
  fileTags,
  hasReference,
  isFailed,
  isInFolder,
  isListed,
  isNotAudio,
  isUnprocessed,
} from "../../platform/schema.ts";
import type { KeysetValues, NameKeysetValues, ScanValues } from "../paging.ts";
import type { LISTED_STATES } from "./files.ts";

/* The indexes that lists of files read. */

/** Filters on a list of files, combined with AND. Instants are milliseconds since the epoch and exclusive. */
export interface FileFilters {
  status?: (typeof LISTED_STATES)[number] | undefined;
  fileType?: string | undefined;
  /** A prefix of the name, in any case. */
  name?: string | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
  /** Empty for the files outside all folders. */
  folder?: string | undefined;
  /** A folder, for the files in it and in the folders below it. Empty for all files. */
  under?: string | undefined;
  tag?: string | undefined;
  reference?: string | undefined;
  /** A part of the name, in any case. */
  search?: string | undefined;
}

/** By default, lists with `name` or `search` are ordered by name, and all others newest first. */
export const FILE_ORDERS = ["-createdAt", "name"] as const;
export type FileOrder = (typeof FILE_ORDERS)[number];

type FilterValues = {
  status: string | null;
  fileType: string | null;
  /** Exclusive bounds on the id. */
  above: string;
  below: string;
  firstName: string;
  lastName: string;
  folder: string | null;
  folderKey: string;
  under: string | null;
  tag: string | null;
  reference: string | null;
  search: string;
};
export type ListValues = KeysetValues & NameKeysetValues & FilterValues & ScanValues;

export interface Index {
  from: SQL;
  order: FileOrder;
  /** The filters that it serves without a scan. */
  serves: (keyof FileFilters)[];
  where: (param: Param<ListValues>) => SQL | undefined;
  teamId: SQLiteColumn;
  id: SQLiteColumn;
}

/** Indexes are named because SQLite's planner prefers the primary key to a partial index. */
const from = (index: SQL) => sql`${files} indexed by ${index}`;
const newestFirst = (source: SQL, serves: Index["serves"], where: Index["where"]): Index => ({
  from: source,
  order: "-createdAt",
  serves: [...serves, "createdAfter", "createdBefore"],
  where: (param) => and(isListed, where(param)),
  teamId: files.teamId,
  id: files.id,
});
/** A search reads only the index, so the conditions don't include `isListed`. */
const byName = (source: SQL, serves: Index["serves"], where: Index["where"]): Index => ({
  ...newestFirst(source, [], where),
  order: "name",
  serves: ["name", ...serves],
  where,
});

const isInGivenFolder = (param: Param<ListValues>) => and(isInFolder, eq(files.folderKey, param("folderKey")));
const filesOfTag = sql`${fileTags} cross join ${files}
  on ${files.teamId} = ${fileTags.teamId} and ${files.id} = ${fileTags.fileId}`;

export const INDEXES = {
  key: newestFirst(sql`${files}`, [], () => undefined),
  failed: newestFirst(from(sql`files_failed`), ["status"], () => isFailed),
  // Pending and processing files, so that a claim changes no index.
  unprocessed: newestFirst(from(sql`files_unprocessed`), [], () => isUnprocessed),
  fileType: newestFirst(from(sql`files_type`), ["fileType"], (param) =>
    and(isNotAudio, eq(files.fileType, param("fileType"))),
  ),
  reference: newestFirst(from(sql`files_reference`), ["reference"], (param) =>
    and(hasReference, eq(files.reference, param("reference"))),
  ),
  tag: {
    ...newestFirst(filesOfTag, ["tag"], (param) => eq(fileTags.tag, param("tag"))),
    teamId: fileTags.teamId,
    id: fileTags.fileId,
  },
  folder: newestFirst(from(sql`files_folder`), ["folder"], isInGivenFolder),
  name: byName(from(sql`files_name`), [], () => undefined),
  folderName: byName(from(sql`files_folder_name`), ["folder"], isInGivenFolder),
};
export type IndexName = keyof typeof INDEXES;

/** Most files are completed audio files, so only the primary key serves those. */
export function indexFor({ folder, tag, reference, status, fileType }: FileFilters, order: FileOrder): IndexName {
  if (order === "name") return folder ? "folderName" : "name";
  if (reference !== undefined) return "reference";
  if (tag !== undefined) return "tag";
  if (folder) return "folder";
  if (status === "failed") return "failed";
  if (status !== undefined && status !== "completed") return "unprocessed";
  return fileType !== undefined && fileType !== "audio file" ? "fileType" : "key";
}
