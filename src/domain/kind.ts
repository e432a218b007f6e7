import { HEAD_BYTES } from "../platform/byte-store.ts";
import { id3Length, latin1 } from "./bytes.ts";

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

/** What the bytes are: a MIME type without parameters, and its class. */
export interface Kind {
  mimeType: string;
  fileType: FileType;
}

const COMMON_NAMES: Record<string, string> = {
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
const DOCUMENT =
  /pdf|rtf|epub|officedocument|opendocument|ms-(excel|word|powerpoint|outlook|htmlhelp)|x-cfb|postscript|eps$|mobipocket|visio|apple\.(keynote|numbers|pages)|indesign/;
const ARCHIVE =
  /zip|tar$|rar$|7z|x-xz|zstd|x-compress$|cab-|lzh|arj|cpio|ace-|lz4|unix-archive|x-deb|x-rpm|diskimage|iso9660|java-archive|android\.package/;

const UNKNOWN: Kind = { mimeType: "application/octet-stream", fileType: "other file" };
const TEXT: Kind = { mimeType: "text/plain", fileType: "text file" };

/** Types that a browser plays, shows or saves and never runs as a page of ours. */
const SERVED = new Set(
  `audio/mpeg audio/wav audio/flac audio/ogg audio/mp4 audio/aac audio/aiff audio/webm audio/x-matroska audio/x-ms-wma
  audio/amr audio/midi audio/x-caf audio/ape audio/wavpack video/mp4 video/webm video/ogg video/quicktime video/mpeg
  video/x-matroska video/x-msvideo video/3gpp image/png image/jpeg image/gif image/webp image/avif image/tiff image/bmp
  image/heic application/pdf application/rtf application/zip application/gzip application/epub+zip
  application/x-7z-compressed application/vnd.rar application/x-tar application/x-bzip2 application/x-xz
  application/zstd`.split(/\s+/),
);

/**
 * What the first bytes of a file say it is; no more than 4 KiB of them are looked at, and what the client said counts
 * for nothing. Text of every sort, HTML and SVG included, is `text/plain`.
 */
export async function sniff(head: Uint8Array): Promise<Kind> {
  const start = head.subarray(0, HEAD_BYTES);
  const { fileTypeFromBuffer } = await import("file-type");
  // Padding behind an ID3 tag hides the frames from file-type; the tag alone is a claim to be audio.
  const fallback = id3Length(start) > 0 ? "audio/mpeg" : UNKNOWN.mimeType;
  const found = (await fileTypeFromBuffer(start))?.mime.split(";")[0] ?? fallback;
  const kind = classify(COMMON_NAMES[found] ?? found);
  // Text may begin with another format's magic word ("solid", "BM"): only documents written as text come first.
  if (kind.fileType !== "document file" && isText(start)) return TEXT;
  if (kind.mimeType === "application/xml" || kind.mimeType.startsWith("text/")) return TEXT;
  return /^video\/(webm|x-matroska)$/.test(kind.mimeType) && hasOnlyAudioCodecs(start) ? asAudio(kind) : kind;
}

/** The Content-Type to store and serve for a sniffed type: one of a list of harmless ones, or opaque bytes. */
export function servedContentType(mimeType: string): string {
  // The charset is stated so that no browser guesses one in which the text means something else.
  if (mimeType === TEXT.mimeType) return "text/plain; charset=utf-8";
  return SERVED.has(mimeType) ? mimeType : UNKNOWN.mimeType;
}

function classify(mimeType: string): Kind {
  const top = /^(audio|video|image)\//.exec(mimeType)?.[1];
  if (top) return { mimeType, fileType: `${top} file` as FileType };
  if (DOCUMENT.test(mimeType)) return { mimeType, fileType: "document file" };
  if (ARCHIVE.test(mimeType)) return { mimeType, fileType: "archive file" };
  return { mimeType, fileType: "other file" };
}

function isText(head: Uint8Array): boolean {
  if (head.length === 0) return false;
  if (head.some((b) => b === 0x7f || (b < 0x20 && b !== 0x09 && b !== 0x0a && b !== 0x0c && b !== 0x0d))) return false;
  try {
    // As a stream: the last character may be cut.
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function hasOnlyAudioCodecs(head: Uint8Array): boolean {
  const text = latin1(head);
  return /A_(OPUS|VORBIS|AAC|MPEG|FLAC|PCM|AC3|EAC3|DTS|ALAC)/.test(text) && !/V_[A-Z]/.test(text);
}

export function asAudio({ mimeType }: Kind): Kind {
  const name = mimeType === "video/webm" || mimeType === "video/x-matroska" ? mimeType.slice(6) : "mp4";
  return { mimeType: mimeType.startsWith("video/") ? `audio/${name}` : mimeType, fileType: "audio file" };
}

export function asVideo({ mimeType }: Kind): Kind {
  return { mimeType: mimeType.replace(/^audio/, "video"), fileType: "video file" };
}
