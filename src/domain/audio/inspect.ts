import type { IAudioMetadata } from "music-metadata";
import { HEAD_BYTES } from "../../platform/byte-store.ts";
import { detectMediaType, type Format, formatOf, type MediaType } from "./media-type.ts";
import { join, RangeSource, type Reading, type ReadRange, UnreadableAudio } from "./range-source.ts";
import { id3Length, type ReadText, readId3Text, readTexts, TextBudget } from "./tags.ts";

/** What is known of a recording. `bitrate` is in bits a second, `sampleRate` in Hz; null is "not told". */
export interface Audio {
  container: string | null;
  codec: string | null;
  /** What is there to be heard, whatever a header claims. */
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
  /** The sound's bytes over the duration: an average. */
  bitrate: number | null;
  lossless: boolean | null;
  /** At most 15 entries, under 16 KiB of JSON together, well-formed Unicode without control characters. */
  tags: Record<string, string | number>;
}

export interface Inspection extends MediaType {
  /** Null in a file that is no audio, or a video: a container with a picture track is one, whatever it calls itself. */
  audio: Audio | null;
}

const NO_FACTS = { container: null, codec: null, sampleRate: null, channels: null, lossless: null };
const NOTHING_KNOWN: Audio = { ...NO_FACTS, durationSeconds: null, bitrate: null, tags: {} };
/** Besides the tags of several parts. */
const TAGS = ["title", "artist", "album", "albumartist", "composer", "genre", "year", "date", "bpm", "isrc"] as const;
const MAX_TAG_CHARACTERS = 256;
/** Silence takes more in every format; a length at less comes from a header that lies. */
const MIN_BITS_PER_SECOND = 50;
/** Far above any recording: what claims more is damaged. */
const MAX_BITS_PER_SECOND = 10e9;
const MAX_SAMPLE_RATE_HERTZ = 100e6;
/** Some programs put a second ID3v2 tag behind the first. */
const MAX_LEADING_TAGS = 4;

/**
 * What a stored file is, from its bytes alone, by a bounded number of reads: past a bound, tags or the duration are left
 * out. Throws `UnreadableAudio` where the bytes call themselves audio and none can be read; and whatever `read` throws,
 * unchanged.
 */
export async function inspectFile(read: ReadRange, sizeBytes: number): Promise<Inspection> {
  const source = new RangeSource(read, sizeBytes);
  const detected = await detectMediaType(await source.upTo(0, HEAD_BYTES));
  try {
    return await inspect(source, detected);
  } catch (error) {
    if (source.failure) throw source.failure.error;
    if (detected.fileType === "video file") return { ...detected, audio: null };
    if (error instanceof UnreadableAudio) throw error;
    throw new UnreadableAudio("The file is damaged or incomplete.", { cause: error });
  }
}

async function inspect(source: RangeSource, detected: MediaType): Promise<Inspection> {
  const budget = new TextBudget();
  const leading: ReadText[] = [];
  let format = formatOf(detected.mediaType);
  let start = 0;
  for (let n = 0; n < MAX_LEADING_TAGS && format.fileType === "audio file"; n++) {
    const tagAt = start;
    const length = id3Length(await source.upTo(tagAt, 10));
    if (length === 0) break;
    leading.push(() => readId3Text(source, tagAt, budget));
    start += length;
    // A tag longer than the head hid what follows it.
    const inner = await detectMediaType(await source.upTo(start, HEAD_BYTES));
    if (inner.fileType === "audio file") format = formatOf(inner.mediaType);
  }
  const { mediaType, fileType } = format;
  if (!format.read) return { mediaType, fileType, audio: fileType === "audio file" ? NOTHING_KNOWN : null };
  const reading = await format.read(source, start, budget);
  if ((reading === null) !== (fileType === "video file")) format = formatOf(format.sibling ?? mediaType);
  const audio = reading && (await describe(reading, format, leading));
  return { mediaType: format.mediaType, fileType: format.fileType, audio };
}

async function describe(reading: Reading, format: Format, leading: ReadText[]): Promise<Audio> {
  const { container, soundBytes, statedBytes, lossless } = reading;
  const sampleRate = positive(reading.sampleRate);
  if (sampleRate === null || sampleRate > MAX_SAMPLE_RATE_HERTZ)
    throw new UnreadableAudio("The file has no readable audio stream.");
  const part = statedBytes ? Math.min(1, soundBytes / statedBytes) : 1;
  const seconds = positive((reading.seconds ?? 0) * part);
  const isSilent = seconds === null && reading.seconds !== null;
  if (isSilent && !format.mayLackDuration) throw new UnreadableAudio("The file has no audio in it.");
  const bitrate = seconds === null ? 0 : (soundBytes * 8) / seconds;
  const isPossible = bitrate >= MIN_BITS_PER_SECOND && bitrate <= MAX_BITS_PER_SECOND;
  return {
    container: cleanText(container),
    codec: cleanText(reading.codec),
    durationSeconds: isPossible ? seconds : null,
    sampleRate,
    channels: positive(reading.channels),
    bitrate: isPossible ? Math.round(bitrate) : null,
    lossless,
    tags: await parseTags(join(await readTexts(leading), await reading.readTags()), format.parser),
  };
}

/** Texts on which the parser fails are left out, since no fact hangs on them. */
async function parseTags(file: Uint8Array, mimeType = ""): Promise<Audio["tags"]> {
  if (file.length === 0) return {};
  const { parseBuffer } = await import("music-metadata");
  const options = { skipCovers: true, duration: false };
  const parsed = await parseBuffer(file, { mimeType }, options).catch(() => null);
  return parsed ? pickTags(parsed.common) : {};
}

function pickTags(common: IAudioMetadata["common"]): Audio["tags"] {
  const { track, disk, copyright } = common;
  const comment = common.comment?.map(({ text }) => text ?? "");
  const others = { track: track?.no, tracks: track?.of, disk: disk?.no, comment, copyright };
  const wanted = [...TAGS.map((name) => [name, common[name]] as const), ...Object.entries(others)];
  const tags: Record<string, string | number> = {};
  for (const [name, value] of wanted) {
    const clean = typeof value === "number" ? (Number.isFinite(value) ? value : null) : cleanText(value);
    if (clean !== null) tags[name] = clean;
  }
  return tags;
}

/** Text fit to be stored: one line, well-formed, bounded. A parser's "string" may be anything. */
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

function positive(value: number | null | undefined): number | null {
  return value && Number.isFinite(value) && value > 0 ? value : null;
}
