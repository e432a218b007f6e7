import { readAiff, readAsf, readCaf, readDsf, readWav } from "./chunks.ts";
import { readAvi, readFlashVideo, readProgramStream, readRealMedia, readTransportStream } from "./containers.ts";
import { mediaTypeOfFrames, readAmr, readFrames, readMonkeysAudio, readMusepack, readWavpack } from "./frames.ts";
import { readMatroska } from "./matroska.ts";
import { readMp4 } from "./mp4.ts";
import { latin1, type RangeSource, type Reading, uint } from "./range-source.ts";
import { leadingTagsLength } from "./tags.ts";
import { readFlac, readOgg } from "./xiph.ts";

/** The media type of a file is detected from this many first bytes. MPEG audio may begin anywhere in them. */
export const HEAD_BYTES = 64 * 1024;
/** The signatures of other formats, and enough text to recognize it as text. */
const SIGNATURE_BYTES = 4096;

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
  /** Reads what a container without a reader contains. */
  readContents?: (source: RangeSource) => Promise<{ hasSound: boolean; hasPictures: boolean }>;
  /** Whether browsers play, show, or save it, and never run it as a page of ours. */
  isServed: boolean;
}

const mpeg = { read: readFrames, tagFormat: "audio/mpeg" };
const ogg = { read: readOgg, tagFormat: "audio/flac" };
const mp4 = { read: readMp4, tagFormat: "audio/mp4", mayLackDuration: true };
const matroska = { read: readMatroska, tagFormat: "audio/matroska", mayLackDuration: true };
const asf = { read: readAsf, tagFormat: "audio/ms-wma" };

/** Types after the bar are served as opaque bytes. "*" ends a family. A format without a reader is only detected. */
const TABLE: [fileType: FileType, mediaTypes: string, reader?: Reader | Pick<Format, "readContents">][] = [
  ["audio file", "audio/mpeg audio/aac | audio/ac3 audio/eac3", mpeg],
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
  ["audio file", "audio/x-caf", { read: readCaf, tagFormat: "audio/mpeg", mayLackDuration: true }],
  ["audio file", "audio/amr", { read: readAmr, tagFormat: "audio/mpeg" }],
  ["audio file", "audio/midi"],
  ["video file", "video/mp4 video/quicktime video/3gpp | video/3gpp2", { ...mp4, sibling: "audio/mp4" }],
  ["video file", "video/webm", { ...matroska, sibling: "audio/webm" }],
  ["video file", "video/x-matroska", { ...matroska, sibling: "audio/x-matroska" }],
  ["video file", "| video/x-ms-asf", { ...asf, sibling: "audio/x-ms-wma" }],
  ["video file", "video/ogg", { ...ogg, sibling: "audio/ogg" }],
  ["video file", "video/mpeg | video/MP1S video/MP2P", { readContents: readProgramStream }],
  ["video file", "video/x-msvideo", { readContents: readAvi }],
  ["video file", "| video/mp2t", { readContents: readTransportStream }],
  ["video file", "| video/x-flv", { readContents: readFlashVideo }],
  ["video file", "| video/vnd.rn-realmedia", { readContents: readRealMedia }],
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

/** Formats of sound that are not listed: TTA, AU, TAK, OptimFROG, Shorten, La, W64, big-endian RIFF, and DTS. */
const OTHER_SOUND = ["TTA1", "TTA2", ".snd", "tBaK", "OFR ", "ajkg", "LA03", "LA04", "riff", "RIFX"];
const DTS = [0x7ffe8001, 0xfe7f0180, 0x1fffe800, 0xff1f00e8];
/** A page of an Ogg that begins a stream, with one short packet. The names also occur in texts. */
const OGG_SOUND = /OggS.{24}(.vorbis|OpusHead|Speex {3}|.FLAC)/s;
const OGG_PICTURES = /OggS.{24}(.theora|.video|.daala|BBCD)/s;
/** Boxes in front of the movie of QuickTime. */
const MAX_FIRST_BOXES = 16;

const FORMATS = TABLE.flatMap(([fileType, mediaTypes, reader]) =>
  mediaTypes.split("|").flatMap((names, column): Format[] => {
    const all = names.match(/\S+/g) ?? [];
    return all.map((mediaType) => ({ mediaType, fileType, isServed: column === 0, ...reader }));
  }),
);

const TEXT: MediaType = { mediaType: "text/plain", fileType: "text file" };
const TAGGED: MediaType = { mediaType: "audio/mpeg", fileType: "audio file" };
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
  const { fileType, sibling, readContents } = formatOf(mediaType);
  if (readContents) return [fileType, "audio file"];
  return sibling ? [fileType, formatOf(sibling).fileType] : [fileType];
}

/**
 * Detects the media type from the first `HEAD_BYTES` of a file and ignores the client's claim. All text, including HTML
 * and SVG, is `text/plain`. Only `inspectFile`, which reads more, can distinguish audio from video in every container.
 * @param content the first `HEAD_BYTES` behind the tags in front of the sound
 */
export async function detectMediaType(head: Uint8Array, content?: Uint8Array): Promise<MediaType> {
  const tagBytes = leadingTagsLength(head);
  const start = content ?? head.subarray(tagBytes);
  const found = await detectContent(start);
  const isKnown = found.fileType !== UNKNOWN.fileType && found !== TEXT;
  // A tag says nothing about the format behind it. But if that is unknown, or too far behind, the tag precedes sound.
  const isOther = OTHER_SOUND.includes(latin1(start, 0, 4)) || DTS.includes(uint(start, 0, 4));
  return tagBytes === 0 || isKnown || isOther ? found : TAGGED;
}

async function signatureOf(head: Uint8Array): Promise<string | undefined> {
  const { fileTypeFromBuffer } = await import("file-type");
  return (await fileTypeFromBuffer(head))?.mime.split(";")[0];
}

async function detectContent(head: Uint8Array): Promise<MediaType> {
  const start = head.subarray(0, SIGNATURE_BYTES);
  const signature = (await signatureOf(start)) ?? (await detectOthers(start));
  const format = formatOf(signature);
  // Text may begin with another format's signature ("solid", "BM"). Only documents written as text take precedence.
  if (format.fileType !== "document file" && isText(start)) return TEXT;
  if (format.mediaType === "application/xml" || format.mediaType.startsWith("text/")) return TEXT;
  if (format.read === readFrames || signature === UNKNOWN.mediaType) {
    // The two bytes that begin AC-3 occur by chance, and behind others, the frames decide.
    const otherwise = format.mediaType === "audio/ac3" ? UNKNOWN.mediaType : format.mediaType;
    const { mediaType, fileType } = formatOf(mediaTypeOfFrames(head) ?? otherwise);
    return { mediaType, fileType };
  }
  const text = latin1(start);
  // An Ogg may begin with a Skeleton stream. Then file-type does not detect the streams behind it.
  const isOgg = signature === "application/ogg" && (OGG_SOUND.test(text) || OGG_PICTURES.test(text));
  const ogg = OGG_PICTURES.test(text) ? "video/ogg" : "audio/ogg";
  const isAudio = /A_(OPUS|VORBIS|AAC|MPEG|FLAC|PCM|AC3|EAC3|DTS|ALAC)/.test(text) && !/V_[A-Z]/.test(text);
  const sibling = format.read === readMatroska && format.fileType === "video file" && isAudio ? format.sibling : null;
  const { mediaType, fileType } = formatOf(isOgg ? ogg : (sibling ?? signature));
  return { mediaType, fileType };
}

/** Returns the Content-Type to store and serve for a media type: a harmless one, or opaque bytes. */
export function servedContentType(mediaType: string): string {
  // A stated charset keeps browsers from guessing one in which the text means something else.
  if (mediaType === TEXT.mediaType) return "text/plain; charset=utf-8";
  return formatOf(mediaType).isServed ? mediaType : UNKNOWN.mediaType;
}

/** Detects formats that file-type does not know. */
async function detectOthers(head: Uint8Array): Promise<string> {
  if (/^(RF64|BW64)....WAVE/s.test(latin1(head, 0, 12))) return "audio/wav";
  // QuickTime may begin with a preview or free space. The brand precedes the movie, if there is one.
  for (let at = 0, n = 0; n < MAX_FIRST_BOXES && /^(pnot|PICT|skip|free|wide)$/.test(latin1(head, at + 4, 4)); n++) {
    at += Math.max(8, uint(head, at, 4));
    const brand = latin1(head, at + 4, 4) === "ftyp" && (await signatureOf(head.subarray(at)));
    if (brand) return brand;
    if (at >= head.length || /^(moov|mdat)$/.test(latin1(head, at + 4, 4))) return "video/quicktime";
  }
  return UNKNOWN.mediaType;
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
