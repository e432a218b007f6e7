import type { IAudioMetadata } from "music-metadata";
import { detectMediaType, type Format, formatOf, HEAD_BYTES, type MediaType } from "./media-type.ts";
import { join, RangeSource, type Reading, type ReadRange, UnreadableAudio } from "./range-source.ts";
import { type ReadText, readTexts, skipLeadingTags } from "./tags.ts";

/*
 * Only the tags come from music-metadata. We measured its version 12.1 with whole files, through a tokenizer over
 * `RangeSource`, which bounds requests and bytes:
 * - Of 84 ordinary recordings, all facts are correct for 35. It finds no duration in WebM, FLAC, and WMA from a pipe, a
 *   wrong one in MP3 without a header, no codec for Opus, FLAC, and E-AC-3 in MP4, wrong channels in mono AAC and 5.1
 *   WavPack, "non-PCM" in 24-bit WAV, and nothing in RF64 and in MOV with PCM. For a damaged file, it repeats the header.
 * - Some content escapes all bounds: an Ogg of 2.3 MB exhausts 128 MB of memory, a FLAC of 15 KB allocates 240 MB, and an
 *   MP3 of 0.8 MB takes 4 seconds without a pause.
 */

/** A parser of ours threw. The same file always fails in the same way, so a retry cannot help. */
export class InspectionFailed extends Error {
  override readonly name = "InspectionFailed";
}

/** The facts about a recording. `bitrate` is in bits per second, `sampleRate` in Hz; null means unknown. */
export interface Audio {
  container: string | null;
  codec: string | null;
  /** The length of the sound that exists, whatever a header claims. */
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
  /** The average: bytes of sound divided by the duration. */
  bitrate: number | null;
  lossless: boolean | null;
  /** At most 15 entries, under 16 KiB of JSON together, well-formed Unicode without control characters. */
  tags: Record<string, string | number>;
}

interface Inspection extends MediaType {
  /** Null unless the file is audio. A container with a picture track is a video, whatever it claims to be. */
  audio: Audio | null;
}

const NO_FACTS = { container: null, codec: null, sampleRate: null, channels: null, lossless: null };
const NOTHING_KNOWN: Audio = { ...NO_FACTS, durationSeconds: null, bitrate: null, tags: {} };
/** The tags that are copied as they are. */
const TAGS = ["title", "album", "composer", "genre", "year", "date", "isrc", "copyright"] as const;
/** In the order in which they are kept while there is room. */
const STORED_TAGS =
  "title artist album albumartist composer genre year date bpm isrc track tracks disk comment copyright".split(" ");
/**
 * The names of texts that music-metadata reads but does not know: those of Matroska without a level, of CAF, of
 * QuickTime, those that FFmpeg writes into all formats, and the copyright of WAV.
 */
const OTHER_NAMES: Record<string, string> = {
  TITLE: "title",
  ARTIST: "artist",
  TRACK: "track",
  "TRACK NUMBER": "track",
  COMMENTS: "comment",
  ALBUM: "album",
  ALBUM_ARTIST: "albumartist",
  COMPOSER: "composer",
  GENRE: "genre",
  ISRC: "isrc",
  TBPM: "bpm",
  DATE: "date",
  DATE_RELEASED: "date",
  DATE_RECORDED: "date",
  "RECORDED DATE": "date",
  YEAR: "date",
  DISC: "disk",
  BPM: "bpm",
  COMMENT: "comment",
  COPYRIGHT: "copyright",
  ICOP: "copyright",
  "ALBUM:COMPOSER": "composer",
  "ALBUM:GENRE": "genre",
  "ALBUM:COMMENT": "comment",
  "ALBUM:COPYRIGHT": "copyright",
  "ALBUM:DATE_RELEASED": "date",
  "ALBUM:DATE_RECORDED": "date",
};
const OTHER_NAME_PREFIX = /^(track|TXXX|----:com\.apple\.iTunes):/;
const MAX_TAG_CHARACTERS = 256;
/** All of them as JSON. Anybody with a public key can fill them, and the row of the file is read as a whole. */
const MAX_TAGS_BYTES = 2048;
/** Even silence needs more bits per second than this. A lower rate means that a header states a wrong length. */
const MIN_BITS_PER_SECOND = 50;
/** Far above any recording. A file that claims more is damaged. */
const MAX_BITS_PER_SECOND = 10e9;
const MAX_SAMPLE_RATE_HERTZ = 100e6;
/** Work units to search the head for frames. */
const DETECTION_WORK = 10e6;

/**
 * Determines from its bytes what a stored file is. Reads, memory, and CPU time are bounded: tags or the duration are
 * missing if they are beyond a limit.
 * @throws `UnreadableAudio` if the bytes identify as audio but contain none that is readable, or are too complex;
 *   `InspectionFailed` for a bug in a parser; whatever `read` throws, unchanged
 */
export async function inspectFile(read: ReadRange, sizeBytes: number): Promise<Inspection> {
  const source = new RangeSource(read, sizeBytes);
  let detected: MediaType | null = null;
  try {
    const head = await source.read(0, HEAD_BYTES);
    const leadingTags = await skipLeadingTags(source);
    source.budget.charge(DETECTION_WORK);
    detected = await detectMediaType(head, await source.read(0, HEAD_BYTES));
    return await inspect(source, detected, leadingTags);
  } catch (error) {
    if (source.failure) throw source.failure.error;
    if (!(error instanceof UnreadableAudio)) throw new InspectionFailed("A parser threw.", { cause: error });
    if (detected?.fileType === "video file") return { ...detected, audio: null };
    throw error;
  }
}

async function inspect(source: RangeSource, detected: MediaType, leadingTags: ReadText[]): Promise<Inspection> {
  let format = formatOf(detected.mediaType);
  const { mediaType, fileType } = format;
  const contents = await format.readContents?.(source);
  if (contents?.hasSound && !contents.hasPictures) return { mediaType, fileType: "audio file", audio: NOTHING_KNOWN };
  if (!format.read) return { mediaType, fileType, audio: fileType === "audio file" ? NOTHING_KNOWN : null };
  const reading = await format.read(source);
  if ((reading === null) !== (fileType === "video file")) format = formatOf(format.sibling ?? mediaType);
  const audio = reading && (await describe(reading, format, leadingTags));
  return { mediaType: reading?.mediaType ?? format.mediaType, fileType: format.fileType, audio };
}

async function describe(reading: Reading, format: Format, leadingTags: ReadText[]): Promise<Audio> {
  const { container, soundBytes, statedBytes, lossless } = reading;
  const sampleRate = positiveOrNull(reading.sampleRate);
  if (sampleRate === null || sampleRate > MAX_SAMPLE_RATE_HERTZ)
    throw new UnreadableAudio("The file has no readable audio stream.");
  const foundShare = statedBytes ? Math.min(1, soundBytes / statedBytes) : 1;
  const seconds = positiveOrNull((reading.seconds ?? 0) * foundShare);
  const isSilent = seconds === null && reading.seconds !== null;
  if (isSilent && !format.mayLackDuration) throw new UnreadableAudio("The file has no audio in it.");
  const bitrate = seconds === null ? 0 : (soundBytes * 8) / seconds;
  const isPossible = bitrate >= MIN_BITS_PER_SECOND && bitrate <= MAX_BITS_PER_SECOND;
  return {
    container: cleanText(container),
    codec: cleanText(reading.codec),
    durationSeconds: isPossible ? seconds : null,
    sampleRate,
    channels: positiveOrNull(reading.channels),
    bitrate: isPossible ? Math.round(bitrate) : null,
    lossless,
    tags: await readTags(reading, leadingTags, format.tagFormat),
  };
}

/** Returns no tags if they exhaust the budget or music-metadata fails. The facts do not depend on them. */
async function readTags(reading: Reading, leadingTags: ReadText[], mimeType = ""): Promise<Audio["tags"]> {
  const texts = await collectTexts(reading, leadingTags);
  if (texts.length === 0) return {};
  const { parseBuffer } = await import("music-metadata");
  const options = { skipCovers: true, duration: false };
  const parsed = await parseBuffer(texts, { mimeType }, options).catch(() => null);
  return parsed ? pickTags(parsed) : {};
}

async function collectTexts(reading: Reading, leadingTags: ReadText[]): Promise<Uint8Array> {
  try {
    return join(reading.earlyTags ?? "", await readTexts(leadingTags), await reading.readTags());
  } catch (error) {
    if (error instanceof UnreadableAudio) return new Uint8Array();
    throw error;
  }
}

function pickTags({ common, native }: Pick<IAudioMetadata, "common" | "native">): Audio["tags"] {
  const { artist, artists, albumartist, albumartists, track, disk } = common;
  const others = otherTexts(native);
  const first = (name: string) => others[name]?.[0];
  const [no, of] = (first("track") ?? "").split("/").map((part) => positiveOrNull(Number.parseInt(part, 10)));
  const known: Record<string, unknown> = {
    ...Object.fromEntries(TAGS.map((name) => [name, common[name]])),
    artist: everyone(artist, artists),
    albumartist: everyone(albumartist, albumartists),
    bpm: common.bpm || positiveOrNull(Number.parseFloat(first("bpm") ?? "")),
    track: track?.no ?? no ?? null,
    tracks: track?.of ?? of ?? null,
    disk: disk?.no ?? positiveOrNull(Number.parseInt(first("disk") ?? "", 10)),
    comment: common.comment?.map(({ text }) => text ?? ""),
  };
  known.year ??= positiveOrNull(Number.parseInt(/^\d{4}/.exec(first("date") ?? "")?.[0] ?? "", 10));
  const tags: Record<string, string | number> = {};
  for (const name of STORED_TAGS) {
    const value = known[name] ?? others[name];
    const clean = typeof value === "number" ? (Number.isFinite(value) ? value : null) : cleanText(value);
    const isSmall = Buffer.byteLength(JSON.stringify({ ...tags, [name]: clean })) <= MAX_TAGS_BYTES;
    if (clean !== null && isSmall) tags[name] = clean;
  }
  return tags;
}

/** music-metadata takes the first of several artists for the artist. A display name is not among them. */
function everyone(artist: string | undefined, artists: string[] | undefined): string | string[] | undefined {
  return artist !== undefined && artists?.includes(artist) ? artists : artist;
}

/** Returns the texts by the tags that `OTHER_NAMES` has for them. All of ID3v1 are known. */
function otherTexts(native: IAudioMetadata["native"]): Record<string, string[]> {
  const texts: Record<string, string[]> = {};
  for (const { id, value } of Object.entries(native).flatMap(([type, all]) => (type === "ID3v1" ? [] : all))) {
    const name = OTHER_NAMES[id.replace(OTHER_NAME_PREFIX, "").toUpperCase()];
    if (!name || typeof value !== "string") continue;
    texts[name] ??= [];
    texts[name].push(value);
  }
  return texts;
}

/** Returns text that can be stored: one line, well-formed, bounded. Codec names and tags may contain anything. */
function cleanText(value: unknown): string | null {
  const texts = (Array.isArray(value) ? value : [value]).filter((part) => typeof part === "string");
  const text = [...new Set(texts)].join("; ").slice(0, 4 * MAX_TAG_CHARACTERS);
  const line = text.toWellFormed().replace(/\p{Cc}/gu, " ");
  return (
    line
      .trim()
      .slice(0, MAX_TAG_CHARACTERS)
      .replace(/[\ud800-\udbff]$/, "") || null
  );
}

function positiveOrNull(value: number | null | undefined): number | null {
  return value && Number.isFinite(value) && value > 0 ? value : null;
}
