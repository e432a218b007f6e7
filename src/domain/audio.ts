import type { IAudioMetadata } from "music-metadata";
import { HEAD_BYTES } from "../platform/byte-store.ts";
import { checkFlac, checkOgg, countFrames, isOverfull, oggSeconds, readMatroska } from "./audio-lengths.ts";
import { id3Length, MAX_BLOCK_BYTES, RangeBlob, type ReadRange, Source, UnreadableAudio } from "./bytes.ts";
import { asAudio, asVideo, type Kind, sniff } from "./kind.ts";

/** What is known of a recording. `bitrate` is in bits a second, `sampleRate` in Hz; null is "not stated". */
export interface Audio {
  container: string | null;
  codec: string | null;
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
  bitrate: number | null;
  lossless: boolean | null;
  /** At most 15 entries, under 16 KiB of JSON together, well-formed Unicode without control characters. */
  tags: Record<string, string | number>;
}

const MAX_TAG_CHARACTERS = 256;

/** The types that the parser can read, and its own name for each. */
const PARSED_AS: Record<string, string> = {
  "audio/mpeg": "audio/mpeg",
  "audio/aac": "audio/aacp",
  "audio/wav": "audio/wav",
  "audio/flac": "audio/flac",
  "audio/ogg": "audio/ogg",
  "audio/mp4": "audio/mp4",
  "audio/aiff": "audio/aiff",
  "audio/webm": "audio/webm",
  "audio/x-matroska": "audio/matroska",
  "audio/x-ms-wma": "audio/ms-wma",
  "audio/ape": "audio/ape",
  "audio/wavpack": "audio/wavpack",
  "audio/x-musepack": "audio/musepack",
  "audio/x-dsf": "audio/dsf",
  "video/mp4": "video/mp4",
  "video/quicktime": "video/quicktime",
  "video/3gpp": "video/mp4",
  "video/3gpp2": "video/mp4",
  "video/webm": "video/webm",
  "video/x-matroska": "video/matroska",
};

/**
 * Reads what a recording says of itself, in constant memory and, where the format allows, a few range reads.
 *
 * `kind` is what `sniff` said; the answer's is refined where only the whole file can tell (a video container without
 * a picture track is audio, and the reverse). A video stays a video and has `audio: null`, readable or not. Audio in a
 * format that the parser doesn't know (MIDI, AMR, …) has an `Audio` of nulls.
 *
 * Throws `UnreadableAudio`, and whatever `read` throws, unchanged.
 */
export async function readAudio(
  read: ReadRange,
  sizeBytes: number,
  kind: Kind,
): Promise<{ kind: Kind; audio: Audio | null }> {
  const source = new Source(read, sizeBytes);
  try {
    return await describe(source, kind);
  } catch (error) {
    if (source.failure) throw source.failure.error;
    if (kind.fileType === "video file") return { kind, audio: null };
    if (error instanceof UnreadableAudio) throw error;
    throw new UnreadableAudio("The file is damaged or incomplete.", { cause: error });
  }
}

async function describe(source: Source, sniffed: Kind): Promise<{ kind: Kind; audio: Audio | null }> {
  let kind = sniffed;
  let from = 0;
  if (kind.fileType === "audio file") from = id3Length(await source.upTo(0, 10));
  if (from > 0) {
    // A tag longer than the head hid what follows it.
    const inner = await sniff(await source.upTo(from, HEAD_BYTES));
    if (inner.fileType === "audio file") kind = inner;
  }
  const parser = PARSED_AS[kind.mimeType];
  if (parser === undefined) return { kind, audio: kind.fileType === "audio file" ? NOTHING_KNOWN : null };

  const frames = /mpeg|aac/.test(kind.mimeType) ? await countFrames(source, from) : null;
  const matroska = /webm|matroska/.test(kind.mimeType) ? await readMatroska(source) : null;
  if (kind.mimeType === "audio/flac") await checkFlac(source, from);
  if (kind.mimeType === "audio/ogg") await checkOgg(source);
  const isTagHidden = from > MAX_BLOCK_BYTES || (from > 0 && (await isOverfull(source, from)));

  const view = new RangeBlob(source, isTagHidden ? from : 0, matroska?.firstCluster ?? source.size, parser);
  const { parseBlob } = await import("music-metadata");
  const { format, common } = await parseBlob(view, { skipCovers: true, duration: false });
  if (source.failure) throw source.failure.error; // the parser may have swallowed it

  if (kind.fileType === "video file" || matroska) {
    if (format.hasVideo || !format.hasAudio) {
      if (kind.fileType === "audio file" && !format.hasVideo) throw new UnreadableAudio("The file has no audio track.");
      return { kind: asVideo(kind), audio: null };
    }
    kind = asAudio(kind);
  }

  const sampleRate = positive(format.sampleRate);
  if (sampleRate === null) throw new UnreadableAudio("The file has no readable audio stream.");
  let seconds: number | null = frames?.seconds ?? format.duration ?? null;
  if (kind.mimeType === "audio/ogg") seconds = (await oggSeconds(source, format.codec, sampleRate)) ?? seconds;
  if (matroska) seconds ??= await matroska.lastSeconds();
  // A fragmented MP4 and a stream that was never finished may state none, or 0; other headers must come to something.
  const durationSeconds = positive(seconds);
  const mayLackDuration = /mp4|webm|matroska|flac/.test(kind.mimeType);
  if (durationSeconds === null && !mayLackDuration) throw new UnreadableAudio("The file has no audio in it.");

  const average = durationSeconds === null ? null : Math.round(((source.size - from) * 8) / durationSeconds);
  return {
    kind,
    audio: {
      container: cleanText(format.container),
      codec: cleanText(format.codec),
      durationSeconds,
      sampleRate,
      channels: positive(format.numberOfChannels),
      bitrate: frames ? average : (round(positive(format.bitrate)) ?? average),
      lossless: format.lossless ?? (/^(opus|vorbis)$/i.test(format.codec ?? "") ? false : null),
      tags: pickTags(common),
    },
  };
}

const NOTHING_KNOWN: Audio = {
  container: null,
  codec: null,
  durationSeconds: null,
  sampleRate: null,
  channels: null,
  bitrate: null,
  lossless: null,
  tags: {},
};

function pickTags(common: IAudioMetadata["common"]): Record<string, string | number> {
  const wanted = {
    title: common.title,
    artist: common.artist,
    album: common.album,
    albumartist: common.albumartist,
    composer: common.composer,
    genre: common.genre,
    year: common.year,
    date: common.date,
    track: common.track?.no,
    tracks: common.track?.of,
    disk: common.disk?.no,
    comment: common.comment?.map(({ text }) => text ?? ""),
    bpm: common.bpm,
    isrc: common.isrc,
    copyright: common.copyright,
  };
  const tags: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(wanted)) {
    const clean = typeof value === "number" ? (Number.isFinite(value) ? value : null) : cleanText(value);
    if (clean !== null) tags[name] = clean;
  }
  return tags;
}

/** Text fit to be stored: one line, well-formed, bounded. A parser's "string" may be anything. */
function cleanText(value: unknown): string | null {
  const text = (Array.isArray(value) ? value : [value]).filter((part) => typeof part === "string").join("; ");
  const kept = [...text.slice(0, 4 * MAX_TAG_CHARACTERS).toWellFormed()]
    .map((c) => (/\p{Cc}/u.test(c) ? " " : c))
    .join("");
  return (
    kept
      .trim()
      .slice(0, MAX_TAG_CHARACTERS)
      .replace(/[\ud800-\udbff]$/, "") || null
  );
}

function positive(value: number | null | undefined): number | null {
  return value !== undefined && value !== null && Number.isFinite(value) && value > 0 ? value : null;
}

function round(value: number | null): number | null {
  return value === null ? null : Math.round(value);
}
