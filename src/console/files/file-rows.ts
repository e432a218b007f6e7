import type { FileEvent, FileFilters, StoredFile } from "../../client/index.ts";
import type { InUrl } from "../parts/curl.tsx";
import { splitName } from "../parts/file-name.tsx";
import { formatBytes, formatHours } from "../parts/format.ts";

/* The rows of the list of files, and the URL that selects them. Pure, so that they are tested without a browser. */

/** The fields of a file that events contain. Names, folders, and tags may be personal, so events omit them. */
type FileState = Pick<
  StoredFile,
  "_id" | "fileType" | "status" | "createdAt" | "__v" | "size" | "mimeType" | "durationSeconds"
>;

/** The fields that the list shows. */
export type FileRow = FileState & Pick<StoredFile, "name" | "folder" | "tags" | "title" | "artist" | "peaks">;

/** Whether the event removes the file from lists. */
export const isRemoval = ({ type }: Pick<FileEvent, "type">) => type === "file.deleted" || type === "file.trashed";

/** The files after events. Other fields, and files that are new to the list, come with its next load. */
export function applyEvents<Row extends FileRow>(files: Row[], events: FileEvent[]): Row[] {
  const latest = new Map(events.map((event) => [event.subject.id, event]));
  return files.flatMap((file) => {
    const event = latest.get(file._id);
    // A file that was restored has a later version than its way to the trash.
    if (!event || event.data.__v < file.__v) return file;
    if (isRemoval(event)) return [];
    const { fileType, status, __v, size, mimeType, durationSeconds } = event.data;
    return { ...file, fileType, status, __v, size, mimeType, durationSeconds };
  });
}

/** Midnight of a day in the reader's time zone, `daysLater`; undefined if the text is not a date. */
export function startOfDay(day: string | null, daysLater = 0): number | undefined {
  if (!day) return undefined;
  const date = new Date(`${day}T00:00`);
  date.setDate(date.getDate() + daysLater);
  const time = date.getTime();
  return time > 0 ? time : undefined;
}

const iso = (time: number | undefined) => time && new Date(time).toISOString();

/** The orders of a list, as the URL names them and as the API does. */
export const SORTS = {
  date: "-createdAt",
  oldest: "createdAt",
  name: "name",
  "-name": "-name",
} as const;

export interface FileView {
  /** The open folder; empty outside all folders. */
  folder: string;
  /** Whether filters select files of the folder and all folders below it. Otherwise the list is the folder's content. */
  isFiltered: boolean;
  search: string;
  sort: keyof typeof SORTS;
  filters: InUrl<FileFilters>;
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
    uploadedBy: query.get("user"),
    createdAfter: from && iso(from - 1),
    createdBefore: iso(startOfDay(query.get("until"), 1)),
  };
  const filters = Object.fromEntries(Object.entries(given).filter(([, value]) => value)) as InUrl<FileFilters>;
  const isFiltered = Object.keys(filters).length > 0;
  const chosen = query.get("sort");
  // The files of a folder often belong together, such as the episodes of a season. A search by name examines ten times as
  // many files in a request as one by date.
  const isByName = isFiltered ? filters.search : folder;
  const known = chosen !== null && Object.hasOwn(SORTS, chosen) ? (chosen as keyof typeof SORTS) : undefined;
  const sort = known ?? (isByName ? "name" : "date");
  const place = isFiltered ? folder && { under: folder } : { folder };
  const all = { ...filters, ...place, sort: SORTS[sort] } as InUrl<FileFilters>;
  return { folder, isFiltered, search: filters.search ?? "", sort, filters: all };
}

const AUDIO_NAME = /\.(aac|aiff?|alac|amr|ape|flac|m4[abr]|mka|mp[123]|oga|ogg|opus|ra|wav|wma|wv)$/i;

/** Whether a file is not the audio that its name says. */
export const lacksAudio = ({
  name,
  fileType = "audio file",
  status,
}: Pick<StoredFile, "name" | "status"> & Partial<Pick<StoredFile, "fileType">>): boolean =>
  status === "completed" && AUDIO_NAME.test(name) && !/^(audio|video)/.test(fileType);

/** The title and artist of a file. A title that repeats the name is left out. */
export function recordingOf({ name, title, artist }: Pick<FileRow, "name" | "title" | "artist">): string {
  const isTitleShown = title !== name && title !== splitName(name)[0];
  return [isTitleShown && title, artist].filter(Boolean).join(" – ");
}

/** The folders above a folder and itself, from the top: `a/b` gives `a` and `a/b`. */
export function pathOf(folder: string): { name: string; path: string }[] {
  const names = folder === "" ? [] : folder.split("/");
  return names.map((name, place) => ({ name, path: names.slice(0, place + 1).join("/") }));
}

/** A file with its numbers that add up. */
export type Sized = Pick<StoredFile, "_id" | "size" | "durationSeconds">;

/** The count of files, as the caller words it, with their duration and size in one line. */
export function describeFiles(files: Omit<Sized, "_id">[], count: string): string {
  const seconds = files.reduce((sum, { durationSeconds }) => sum + (durationSeconds ?? 0), 0);
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return [count, seconds > 0 && formatHours(seconds), formatBytes(bytes)].filter(Boolean).join(" · ");
}
