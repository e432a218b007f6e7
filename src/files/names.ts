import { and, eq, type SQL, sql } from "drizzle-orm";
import { type FilesOf, filesOf, removedOf, uploadsOf } from "../access/own-files.ts";
import { fold } from "../folding.ts";
import { PART_BYTES } from "../platform/byte-store.ts";
import { uploads } from "../uploads/uploads.schema.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { removed } from "./removed.schema.ts";

/** Names are at most 200 bytes of UTF-8: with two ids before them, far below R2's 1,024 for a key. */
const MAX_NAME_BYTES = 200;
/** A folder is part of an index entry, and of the paths that the command line creates. */
export const MAX_FOLDER_BYTES = 512;

/** Control characters, and those that change the direction of text and can disguise it. */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

export const isSafeText = (text: string): boolean => text.isWellFormed() && text.search(UNSAFE) === -1;

/** The base name without control and text-direction characters, truncated to 200 bytes. The extension is kept. */
export function cleanName(name: string): string {
  const base = name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1);
  const clean = base.replace(UNSAFE, "").trim();
  const kept = Buffer.byteLength(clean) <= MAX_NAME_BYTES ? clean : shorten(clean);
  return kept === "" || /^\.+$/.test(kept) ? "unnamed" : kept;
}

/** Truncates a name between user-perceived characters. */
function shorten(name: string): string {
  const dot = name.lastIndexOf(".");
  const extension = dot > 0 && Buffer.byteLength(name.slice(dot)) <= 32 ? name.slice(dot) : "";
  let leftBytes = MAX_NAME_BYTES - Buffer.byteLength(extension);
  let stem = "";
  for (const { segment } of new Intl.Segmenter().segment(name.slice(0, name.length - extension.length))) {
    leftBytes -= Buffer.byteLength(segment);
    if (leftBytes < 0) break;
    stem += segment;
  }
  // A letter can have any number of marks. If the first one alone is too long, keep it without its marks.
  if (stem === "") stem = [...name][0] ?? "";
  return stem + extension;
}

/**
 * A name as it is filtered, sorted and searched. It is in the row and in two indexes, so it is truncated to as many bytes as a
 * name has: folding can make a name 11 times as long.
 */
export function nameKey(name: string, maxBytes = MAX_NAME_BYTES): string {
  const key = fold(name);
  if (Buffer.byteLength(key) <= maxBytes) return key;
  // As a stream, the decoder drops an incomplete character at the end.
  return new TextDecoder().decode(Buffer.from(key).subarray(0, maxBytes), { stream: true });
}

/** The properties that a search finds besides the name. Null or empty if the file doesn't have them. */
interface Searched {
  title?: string | null | undefined;
  artist?: string | null | undefined;
  reference?: string | null | undefined;
  folder?: string | undefined;
  tags?: string[] | undefined;
}

/** JSON: the key of each tag, in their order. A JavaScript object would begin with tags that are numbers. */
export const tagKeys = (tags: string[]): string =>
  `{${tags.map((tag) => `${JSON.stringify(tag)}:${JSON.stringify(nameKey(tag))}`).join()}}`;

/**
 * A merge patch of `search_keys`, folded like names. Of each text, its first 200 bytes are searched, of a folder all 512. The
 * keys of tags are there twice: one of each tag, and as one text, which a search reads.
 * @returns undefined if there is nothing to change
 */
export function searchPatch({ folder, tags, ...texts }: Searched): string | undefined {
  const keyOf = (text: string | null, maxBytes?: number) => JSON.stringify(text ? nameKey(text, maxBytes) : null);
  const fields = Object.entries(texts).flatMap(([name, text]) => (text === undefined ? [] : [[name, keyOf(text)]]));
  if (folder !== undefined) fields.push(["folder", keyOf(folder, MAX_FOLDER_BYTES)]);
  if (tags) {
    const text = tags.map((tag) => nameKey(tag)).join(SEPARATOR);
    fields.push(["tags", tagKeys(tags)], ["tagText", JSON.stringify(text)]);
  }
  return fields.length > 0 ? `{${fields.map(([name, json]) => `"${name}":${json}`).join()}}` : undefined;
}

export interface FileKey {
  id: string;
  teamId: string;
}

/** A file that is found only if it is one of these files. */
export type FileOf = FileKey & Pick<FilesOf, "ownerId">;

/** The row of the file. */
export const isFile = (file: FileOf) => and(filesOf(file), eq(files.id, file.id));
/** The row of the file once it has left. */
export const isRemoved = (file: FileOf) => and(removedOf(file), eq(removed.id, file.id));
/** The row of its upload. */
export const isUpload = (file: FileOf) => and(uploadsOf(file), eq(uploads.fileId, file.id));
/** The row of the file that an upload has become. */
export const isFileOfUpload = and(eq(teamOfFile, uploads.teamId), eq(files.id, uploads.fileId));
export const keyColumns = sql`${teamOfFile}, ${files.id}`;
/** The key as one value, for a row-value IN. */
export const fileKey = sql`(${keyColumns})`;

/** Whether the columns of a team and an id are one of these keys, which are one parameter, because D1 allows 100. */
export const isOneOfKeys = (columns: SQL, keys: FileKey[]): SQL =>
  sql`${columns} in (select value ->> 'teamId', value ->> 'id'
    from json_each(${JSON.stringify(keys.map(({ teamId, id }) => ({ teamId, id })))}))`;
export const uploadKey = sql`(${uploads.teamId}, ${uploads.fileId})`;

/** The values from which the keys of a file's objects are built. */
export interface Named extends FileKey {
  originalName: string;
}

export const storedName = ({ id, originalName }: Omit<Named, "teamId">): string => `${id}-${originalName}`;

/** The key of a file's bytes in R2. It contains the id, so no two files share a key. */
export const objectKey = (file: Named): string => `${file.teamId}/${storedName(file)}`;

/** The prefix of all chunks, which hold bytes of an upload. No other key starts with it. */
export const chunkPrefix = ({ teamId, id }: FileKey): string => `${teamId}/${id}.`;

/**
 * The keys of all objects that a form upload can have stored: each part that exceeded the memory budget has its own object. The
 * chunks of a resumable upload have other keys, which also begin with `chunkPrefix`.
 */
export function uploadKeys(file: Named & { sizeBytes: number }): string[] {
  const parts = Math.ceil(file.sizeBytes / PART_BYTES);
  return [objectKey(file), ...Array.from({ length: parts }, (_, i) => `${chunkPrefix(file)}${i + 1}`)];
}

/** Between names: in the key of a folder, where it takes the place of "/" (folders/folders.ts), and between tags. */
export const SEPARATOR = "\u0001";
export const folderKey = (folder: string): string => folder.replaceAll("/", SEPARATOR);
