import type { FileEvent, FileFilters, StoredFile } from "../../client/stowage.ts";

/* The rows of the list of files, and the URL that selects them. Pure, so that they are tested without a browser. */

/** The fields of a file that events contain. Names, folders, and tags may be personal, so events omit them. */
type FileState = Pick<
  StoredFile,
  "_id" | "fileType" | "status" | "createdAt" | "__v" | "size" | "mimeType" | "durationSeconds"
>;

/** The fields that the list shows. */
export type FileRow = FileState & Pick<StoredFile, "name" | "folder" | "tags" | "title" | "artist">;

/** The files after events. Other fields, and files that are new to the list, come with its next load. */
export function applyEvents<Row extends FileRow>(files: Row[], events: FileEvent[]): Row[] {
  const latest = new Map<string, FileState | null>();
  for (const { type, subject, data } of events)
    latest.set(subject.id, type === "file.deleted" || type === "file.trashed" ? null : data);
  return files.flatMap((file) => {
    const update = latest.get(file._id);
    if (update === null) return [];
    if (!update || update.__v < file.__v) return file;
    const { fileType, status, __v, size, mimeType, durationSeconds } = update;
    return { ...file, fileType, status, __v, size, mimeType, durationSeconds };
  });
}

/** Midnight of a day in the reader's time zone, `daysLater`; undefined if the text is not a date. */
function startOfDay(day: string | null, daysLater = 0): number | undefined {
  if (!day) return undefined;
  const date = new Date(`${day}T00:00`);
  date.setDate(date.getDate() + daysLater);
  const time = date.getTime();
  return time > 0 ? time : undefined;
}

const iso = (time: number | undefined) => time && new Date(time).toISOString();

export const SORTS = { name: "name", date: "-createdAt" } as const;

export interface FileView {
  /** The open folder; empty outside all folders. */
  folder: string;
  /** Whether filters select files of the folder and all folders below it. Otherwise the list is the folder's content. */
  isFiltered: boolean;
  search: string;
  sort: keyof typeof SORTS;
  filters: FileFilters;
}

/** The list that the query of the URL selects. Both the first and the last day are included. */
export function viewFrom(query: URLSearchParams): FileView {
  const folder = query.get("folder") ?? "";
  const from = startOfDay(query.get("from"));
  const given = {
    search: query.get("search"),
    tag: query.get("tag"),
    status: query.get("status"),
    fileType: query.get("type"),
    createdAfter: from && iso(from - 1),
    createdBefore: iso(startOfDay(query.get("until"), 1)),
  };
  const filters = Object.fromEntries(Object.entries(given).filter(([, value]) => value)) as FileFilters;
  const isFiltered = Object.keys(filters).length > 0;
  const chosen = query.get("sort");
  // The files of a folder often belong together, such as the episodes of a season. A search by name examines ten times as
  // many files in a request as one by date.
  const isByName = isFiltered ? filters.search : folder;
  const sort = chosen === "name" || chosen === "date" ? chosen : isByName ? "name" : "date";
  const place = isFiltered ? folder && { under: folder } : { folder };
  const all = { ...filters, ...place, sort: SORTS[sort] } as FileFilters;
  return { folder, isFiltered, search: filters.search ?? "", sort, filters: all };
}

/** A name in two parts, the last of which stays visible if the name is too long: its extension. */
export function splitName(name: string): [string, string] {
  const dot = name.lastIndexOf(".");
  return dot > 0 && /^\.\w{1,5}$/.test(name.slice(dot)) ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
}

/** The folders above a folder and itself, from the top: `a/b` gives `a` and `a/b`. */
export function pathOf(folder: string): { name: string; path: string }[] {
  const names = folder === "" ? [] : folder.split("/");
  return names.map((name, place) => ({ name, path: names.slice(0, place + 1).join("/") }));
}
