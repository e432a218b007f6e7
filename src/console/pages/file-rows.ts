import type { FileEvent, FileFilters, StoredFile } from "../../client/stowage.ts";

/* The rows of the list of files. Pure, so that they are tested without a browser. */

/** What the list shows of a file: fields that both the API's lists and its events contain. */
export type FileRow = Pick<
  StoredFile,
  "_id" | "originalName" | "fileType" | "status" | "createdAt" | "__v" | "size" | "mimeType" | "durationSeconds"
>;

export const SORTS = ["date", "name"] as const;
export type Sort = (typeof SORTS)[number];

/** The latest state of files since the list was loaded; null if deleted. */
export type Updates = Map<string, FileRow | null>;

export function applyEvent(updates: Updates, { type, subject, data }: FileEvent): void {
  updates.set(subject.id, type === "file.deleted" ? null : data);
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

/** The API's filters for the query of the URL. Both the first and the last day are included. */
export function filtersFrom(query: URLSearchParams): FileFilters {
  const from = startOfDay(query.get("from"));
  const given = {
    status: query.get("status"),
    fileType: query.get("type"),
    name: query.get("name"),
    createdAfter: from && iso(from - 1),
    createdBefore: iso(startOfDay(query.get("until"), 1)),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value)) as FileFilters;
}

function matches(file: FileRow, { status, fileType, name, createdAfter, createdBefore }: FileFilters): boolean {
  const created = Date.parse(file.createdAt);
  return (
    (!status || file.status === status) &&
    (!fileType || file.fileType === fileType) &&
    (!name || file.originalName.startsWith(name)) &&
    (!createdAfter || created > Date.parse(createdAfter)) &&
    (!createdBefore || created < Date.parse(createdBefore))
  );
}

const byDate = (one: FileRow, other: FileRow) => (one._id > other._id ? -1 : 1);
const byName = (one: FileRow, other: FileRow) => {
  if (one.originalName === other.originalName) return one._id < other._id ? -1 : 1;
  return one.originalName < other.originalName ? -1 : 1;
};
const { compare } = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

/**
 * The rows to show: the loaded files with their updates. A new file is included if it belongs before the last loaded one,
 * or if all files are loaded. @param sort the order if all files are loaded; otherwise that of the API
 */
export function mergeRows(
  loaded: FileRow[],
  updates: Updates,
  filters: FileFilters,
  isComplete: boolean,
  sort: Sort = "date",
): FileRow[] {
  const order = filters.name === undefined ? byDate : byName;
  const known = new Set(loaded.map(({ _id }) => _id));
  const rows = loaded.flatMap((file) => {
    const update = updates.get(file._id);
    if (update === null) return [];
    return update && update.__v >= file.__v ? update : file;
  });
  const last = loaded.at(-1);
  const added = [...updates.values()].filter(
    (file): file is FileRow =>
      !!file && !known.has(file._id) && (isComplete || (last !== undefined && order(file, last) < 0)),
  );
  const shown = [...rows, ...added].filter((file) => matches(file, filters));
  if (isComplete && sort === "name") return shown.sort((one, other) => compare(one.originalName, other.originalName));
  return added.length > 0 ? shown.sort(order) : shown;
}
