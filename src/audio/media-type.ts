import { readAiff, readAsf, readDsf, readWav } from "./chunks.ts";
import { readFrames, readMonkeysAudio, readMusepack, readWavpack } from "./frames.ts";
import { readMatroska } from "./matroska.ts";
import { readMp4 } from "./mp4.ts";
import { latin1, type RangeSource, type Reading } from "./range-source.ts";
import { id3Length } from "./tags.ts";
import { readFlac, readOgg } from "./xiph.ts";

/** The media type of a file is detected from this many first bytes. */
export const HEAD_BYTES = 4096;

export const FILE_TYPES = [
  "audio file",
  "video file",
  "image file",
  "document file",
  "text file",
  "archive file",
  "other file",
] as const;
export type FileType = (typeof FILE_TYPES)[number];

export interface MediaType {
  /** Without parameters. */
  mediaType: string;
  fileType: FileType;
}

/** Describes how to read a format. */
interface Reader {
  /** Reads the audio. Returns null if there is a picture track. */
  read: (source: RangeSource) => Promise<Reading | null>;
  /** The format in which music-metadata reads the tags that `readTags` returns. */
  tagFormat: string;
  /** The same container without a picture track, or with one. */
  sibling?: string;
  /** Whether valid recordings may state a length of 0, or lose the part that states it. */
  mayLackDuration?: boolean;
}

export interface Format extends MediaType, Partial<Reader> {
  /** Whether browsers play, show, or save it, and never run it as a page of ours. */
  isServed: boolean;
}

const mpeg = { read: readFrames, tagFormat: "audio/mpeg" };
const ogg = { read: readOgg, tagFormat: "audio/flac" };
const mp4 = { read: readMp4, tagFormat: "audio/mp4", mayLackDuration: true };
const matroska = { read: readMatroska, tagFormat: "audio/matroska", mayLackDuration: true };
const asf = { read: readAsf, tagFormat: "audio/ms-wma" };

/** Types after the bar are served as opaque bytes. "*" ends a family. A format without a reader is only detected. */
const TABLE: [fileType: FileType, mediaTypes: string, reader?: Reader][] = [
  ["audio file", "audio/mpeg audio/aac", mpeg],
  ["audio file", "audio/wav", { read: readWav, tagFormat: "audio/wav" }],
  ["audio file", "audio/aiff", { read: readAiff, tagFormat: "audio/aiff" }],
  ["audio file", "audio/flac", { read: readFlac, tagFormat: "audio/flac", mayLackDuration: true }],
  ["audio file", "audio/ogg", { ...ogg, sibling: "video/ogg" }],
  ["audio file", "audio/mp4", { ...mp4, sibling: "video/mp4" }],
  ["audio file", "audio/webm", { ...matroska, sibling: "video/webm" }],
  ["audio file", "audio/x-matroska", { ...matroska, sibling: "video/x-matroska" }],
  ["audio file", "audio/x-ms-wma", { ...asf, sibling: "video/x-ms-asf" }],
  ["audio file", "audio/ape", { read: readMonkeysAudio, tagFormat: "audio/mpeg" }],
  ["audio file", "audio/wavpack", { read: readWavpack, tagFormat: "audio/mpeg" }],
  ["audio file", "audio/x-musepack", { read: readMusepack, tagFormat: "audio/mpeg" }],
  ["audio file", "| audio/x-dsf", { read: readDsf, tagFormat: "audio/mpeg" }],
  ["audio file", "audio/amr audio/midi audio/x-caf"],
  ["video file", "video/mp4 video/quicktime video/3gpp | video/3gpp2", { ...mp4, sibling: "audio/mp4" }],
  ["video file", "video/webm", { ...matroska, sibling: "audio/webm" }],
  ["video file", "video/x-matroska", { ...matroska, sibling: "audio/x-matroska" }],
  ["video file", "| video/x-ms-asf", { ...asf, sibling: "audio/x-ms-wma" }],
  ["video file", "video/ogg", { ...ogg, sibling: "audio/ogg" }],
  ["video file", "video/mpeg video/x-msvideo"],
  ["image file", "image/png image/jpeg image/gif image/webp image/avif image/tiff image/bmp image/heic"],
  [
    "document file",
    `application/pdf application/rtf application/epub+zip |
    application/vnd.openxmlformats-officedocument.* application/vnd.oasis.opendocument.* application/vnd.ms-excel.*
    application/vnd.ms-word.* application/vnd.ms-powerpoint.* application/vnd.ms-outlook application/vnd.ms-htmlhelp
    application/vnd.visio application/vnd.apple.* application/x-cfb application/postscript application/eps
    application/x-mobipocket-ebook application/x-indesign`,
  ],
  [
    "archive file",
    `application/zip application/gzip application/x-7z-compressed application/vnd.rar application/x-tar
    application/x-bzip2 application/x-xz application/zstd | application/x-compress application/lzip
    application/vnd.ms-cab-compressed application/x-lzh-compressed application/x-arj application/x-cpio
    application/x-ace-compressed application/x-lz4 application/x-unix-archive application/x-deb application/x-rpm
    application/x-apple-diskimage application/x-iso9660-image application/java-archive
    application/vnd.android.package-archive`,
  ],
];

/** The formats for which file-type uses other names. */
const ALIASES: Record<string, string> = {
  "audio/x-m4a": "audio/mp4",
  "audio/x-ms-asf": "audio/x-ms-wma",
  "audio/vnd.dolby.dd-raw": "audio/ac3",
  "video/x-m4v": "video/mp4",
  "video/matroska": "video/x-matroska",
  "video/vnd.avi": "video/x-msvideo",
  "application/vnd.ms-asf": "video/x-ms-asf",
  "application/mxf": "video/mxf",
  "application/vnd.rn-realmedia": "video/vnd.rn-realmedia",
  "application/x-rar-compressed": "application/vnd.rar",
};

const FORMATS = TABLE.flatMap(([fileType, mediaTypes, reader]) =>
  mediaTypes.split("|").flatMap((names, column): Format[] => {
    const all = names.match(/\S+/g) ?? [];
    return all.map((mediaType) => ({ mediaType, fileType, isServed: column === 0, ...reader }));
  }),
);

const TEXT: MediaType = { mediaType: "text/plain", fileType: "text file" };
const UNKNOWN: MediaType = { mediaType: "application/octet-stream", fileType: "other file" };

function fileTypeOf(mediaType: string): FileType {
  const fileType = `${mediaType.split("/")[0]} file`;
  return FILE_TYPES.find((known) => known === fileType) ?? UNKNOWN.fileType;
}

/** Returns the format of a media type, by any of its names. A type that is not in the table is served as opaque bytes. */
export function formatOf(mediaType: string): Format {
  const name = ALIASES[mediaType] ?? mediaType;
  const matches = ({ mediaType: pattern }: Format) =>
    pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name;
  const known = FORMATS.find(matches) ?? { fileType: fileTypeOf(name), isServed: false };
  return { ...known, mediaType: name };
}

/** The file types that processing may find if the first bytes have this media type. */
export function possibleFileTypes(mediaType: string): FileType[] {
  const { fileType, sibling } = formatOf(mediaType);
  return sibling ? [fileType, formatOf(sibling).fileType] : [fileType];
}

/**
 * Detects the media type from the first `HEAD_BYTES` of a file and ignores the client's claim. All text, including HTML
 * and SVG, is `text/plain`. Only `inspectFile`, which reads more, can distinguish audio from video in every container.
 */
export async function detectMediaType(head: Uint8Array): Promise<MediaType> {
  const start = head.subarray(0, HEAD_BYTES);
  const { fileTypeFromBuffer } = await import("file-type");
  const found = (await fileTypeFromBuffer(start))?.mime.split(";")[0] ?? detectOthers(start);
  const format = formatOf(found);
  // Text may begin with another format's signature ("solid", "BM"). Only documents written as text take precedence.
  if (format.fileType !== "document file" && isText(start)) return TEXT;
  if (format.mediaType === "application/xml" || format.mediaType.startsWith("text/")) return TEXT;
  const text = latin1(start);
  // An Ogg may begin with a Skeleton stream. Then file-type does not detect the streams behind it.
  const isOgg = found === "application/ogg" && /vorbis|OpusHead|Speex {3}|FLAC/.test(text) && !/theora|BBCD/.test(text);
  const isAudio = /A_(OPUS|VORBIS|AAC|MPEG|FLAC|PCM|AC3|EAC3|DTS|ALAC)/.test(text) && !/V_[A-Z]/.test(text);
  const sibling = format.read === readMatroska && format.fileType === "video file" && isAudio ? format.sibling : null;
  const { mediaType, fileType } = formatOf(isOgg ? "audio/ogg" : (sibling ?? found));
  return { mediaType, fileType };
}

/** Returns the Content-Type to store and serve for a media type: a harmless one, or opaque bytes. */
export function servedContentType(mediaType: string): string {
  // A stated charset keeps browsers from guessing one in which the text means something else.
  if (mediaType === TEXT.mediaType) return "text/plain; charset=utf-8";
  return formatOf(mediaType).isServed ? mediaType : UNKNOWN.mediaType;
}

/** Detects formats that file-type does not know. */
function detectOthers(head: Uint8Array): string {
  // Padding behind an ID3 tag hides the frames. The tag is enough to identify the file as audio.
  if (id3Length(head) > 0) return "audio/mpeg";
  return /^(RF64|BW64)....WAVE/s.test(latin1(head, 0, 12)) ? "audio/wav" : UNKNOWN.mediaType;
}

function isText(head: Uint8Array): boolean {
  if (head.length === 0) return false;
  if (head.some((b) => b === 0x7f || (b < 0x20 && b !== 0x09 && b !== 0x0a && b !== 0x0c && b !== 0x0d))) return false;
  try {
    // Decode as a stream, because the last character may be truncated.
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}
