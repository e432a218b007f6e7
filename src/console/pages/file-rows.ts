import type { FileEvent, FileFilters, FileMetadata, StoredFile } from "../../client/stowage.ts";

/** What a list shows of a file. The size is known only of files that an event told of. */
export type FileRow = Pick<StoredFile, "_id" | "originalName" | "fileType" | "status" | "createdAt" | "__v"> &
  Partial<Pick<FileMetadata, "size">>;

/** A type that is new in the API does not compile until it is here. */
const KNOWN_TYPES: Record<StoredFile["fileType"], 0> = {
  "audio file": 0,
  "video file": 0,
  "image file": 0,
  "document file": 0,
  "text file": 0,
  "archive file": 0,
  "other file": 0,
};
export const FILE_TYPES = Object.keys(KNOWN_TYPES);

/** What became of files since the list was loaded; null of a deleted one. */
export type News = Map<string, FileRow | null>;

export function note(news: News, { type, subject, data }: FileEvent): void {
  news.set(subject.id, type === "file.deleted" ? null : data);
}

/** The first instant of a day in the reader's zone, so many days later; undefined where it is none. */
function startOfDay(day: string | null, later = 0): number | undefined {
  if (!day) return undefined;
  const date = new Date(`${day}T00:00`);
  date.setDate(date.getDate() + later);
  const time = date.getTime();
  return time > 0 ? time : undefined;
}

const iso = (time: number | undefined) => time && new Date(time).toISOString();

/** The filters that an address asks for: of `from` and `until` both days are part. */
export function filtersOf(query: URLSearchParams): FileFilters {
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

function isWanted(file: FileRow, { status, fileType, name, createdAfter, createdBefore }: FileFilters): boolean {
  const created = Date.parse(file.createdAt);
  return (
    (!status || file.status === status) &&
    (!fileType || file.fileType === fileType) &&
    (!name || file.originalName.startsWith(name)) &&
    (!createdAfter || created > Date.parse(createdAfter)) &&
    (!createdBefore || created < Date.parse(createdBefore))
  );
}

/**
 * A list as it is by now: what was loaded, and what became of it since. A file that is new is part of it where it lies
 * before the last one that was loaded, or where all of them were.
 */
export function rowsOf(loaded: FileRow[], news: News, filters: FileFilters, isWhole: boolean): FileRow[] {
  const byName = filters.name !== undefined;
  const isBefore = (one: FileRow, other: FileRow) => {
    if (!byName) return one._id > other._id;
    return one.originalName === other.originalName ? one._id < other._id : one.originalName < other.originalName;
  };
  const known = new Set(loaded.map(({ _id }) => _id));
  const rows = loaded.flatMap((file) => {
    const now = news.get(file._id);
    if (now === null) return [];
    return now && now.__v >= file.__v ? { ...file, ...now } : file;
  });
  const last = loaded.at(-1);
  const added = [...news.values()].filter(
    (file): file is FileRow =>
      !!file && !known.has(file._id) && (isWhole || (last !== undefined && isBefore(file, last))),
  );
  const wanted = [...rows, ...added].filter((file) => isWanted(file, filters));
  return added.length > 0 ? wanted.sort((one, other) => (isBefore(one, other) ? -1 : 1)) : wanted;
}
