import type { RangeSource, Reading } from "./range-source.ts";
import {
  byte,
  join,
  latin1,
  MAX_WALK_BYTES,
  MAX_WINDOW_BYTES,
  MIN_WINDOW_BYTES,
  UnreadableAudio,
  uint,
  uintLE,
} from "./range-source.ts";
import { readVorbisComments } from "./tags.ts";

/* Ogg (RFC 3533) with Vorbis, Opus, Speex, or FLAC, and plain FLAC (RFC 9639): formats with Vorbis comments. */

/** Blocks or pages in front of the sound. Files have a few dozen. */
const MAX_HEADERS = 2000;
/** Work units for a checksum, per byte. */
const CRC_BYTE_WORK = 20;
/** Work units to parse a FLAC frame header and check its CRC-8. */
export const FLAC_HEADER_WORK = 300;
/** Work units for each lacing value of an Ogg page. */
const LACING_WORK = 40;

/** Returns the header of the FLAC frame that `bytes` begin with, checked by its CRC-8; null if there is none. */
export function flacHeader(bytes: Uint8Array) {
  const [b1, b2, b3, b4] = [byte(bytes, 1), byte(bytes, 2), byte(bytes, 3), byte(bytes, 4)];
  const [sizeCode, rateCode] = [b2 >> 4, b2 & 15];
  if (byte(bytes, 0) !== 0xff || (b1 & 0xfe) !== 0xf8 || sizeCode === 0 || rateCode === 15) return null;
  if (b3 >> 4 > 10 || (b3 & 1) !== 0) return null;
  // The number is encoded like UTF-8, in up to seven bytes.
  const ones = Math.clz32(~(b4 << 24));
  let number = ones === 0 ? b4 : b4 & (0x7f >> ones);
  let at = 5;
  for (; at < 4 + ones; at++) number = number * 64 + (byte(bytes, at) & 63);
  let samples = sizeCode === 1 ? 192 : sizeCode < 6 ? 576 << (sizeCode - 2) : 256 << (sizeCode - 8);
  if (sizeCode === 6 || sizeCode === 7) {
    samples = uint(bytes, at, sizeCode - 5) + 1;
    at += sizeCode - 5;
  }
  let sampleRate = FLAC_RATES_HZ[rateCode] ?? 0;
  if (rateCode >= 12) {
    const length = rateCode === 12 ? 1 : 2;
    sampleRate = uint(bytes, at, length) * (rateCode === 12 ? 1000 : rateCode === 14 ? 10 : 1);
    at += length;
  }
  if (at >= bytes.length || crc(bytes.subarray(0, at + 1), 8, 7) !== 0) return null;
  const channels = b3 >> 4 < 8 ? (b3 >> 4) + 1 : 2;
  // A stream has one rate, one number of channels, and one size of samples.
  const family = `${rateCode} ${sampleRate} ${channels} ${b3 & 14}`;
  return { isVariable: (b1 & 1) === 1, number, samples, sampleRate, channels, family };
}

const FLAC_RATES_HZ = [0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000];
const MAX_FLAC_HEADER_BYTES = 16;
/** The known types of blocks of metadata, of up to 126. */
const MAX_FLAC_BLOCK_TYPE = 6;

/** The place of a FLAC frame in the sound, in samples. */
type Span = { start: number; end: number };

/** The frames of a FLAC, from the first one on. */
export interface FlacFrames {
  at: number;
  sampleRate: number;
  channels: number;
  /** Returns the frame that starts at `from`; null if there is none. */
  frameIn: (bytes: Uint8Array, from: number) => Span | null;
}

/**
 * Finds the first FLAC frame behind `start`. A frame states its number, or the number of its first sample. The flag and
 * STREAMINFO may be wrong about which, but two frames in a row can't be.
 */
async function findFlacFrames(source: RangeSource, start: number, info: Uint8Array): Promise<FlacFrames | null> {
  let head = await source.read(start, MIN_WINDOW_BYTES);
  const search = async (from: number, matches: (header: NonNullable<ReturnType<typeof flacHeader>>) => boolean) => {
    for (let at = head.indexOf(0xff, from); at >= 0; at = head.indexOf(0xff, at + 1)) {
      source.budget.charge(FLAC_HEADER_WORK);
      const header = flacHeader(head.subarray(at, at + MAX_FLAC_HEADER_BYTES));
      if (header && matches(header)) return { at, header };
      if (source.budget.isPauseDue) await source.budget.pause();
    }
    return null;
  };
  const found = await search(0, () => true);
  if (!found) return null;
  const { at, header: first } = found;
  const isNext = ({ family, number }: typeof first) =>
    family === first.family && (number === first.number + 1 || number === first.number + first.samples);
  let next = await search(at + 1, isNext);
  if (!next && start + head.length < source.size) {
    head = await source.read(start, MAX_WINDOW_BYTES);
    next = await search(at + 1, isNext);
  }
  const [least, most] = [uint(info, 0, 2), uint(info, 2, 2)];
  const isVariable = first.isVariable || least !== most;
  const countsSamples = next ? next.header.number - first.number === first.samples : isVariable;
  const blockSamples = countsSamples ? 1 : first.samples;
  const frameIn = (bytes: Uint8Array, from: number) => {
    const header = flacHeader(bytes.subarray(from, from + MAX_FLAC_HEADER_BYTES));
    if (header?.family !== first.family) return null;
    const position = header.number * blockSamples;
    return { start: position, end: position + header.samples };
  };
  return { at: start + at, sampleRate: first.sampleRate, channels: first.channels, frameIn };
}

/** Returns 0 if the bytes end with their own valid checksum. */
function crc(bytes: Uint8Array, width: 8 | 16, polynomial: number): number {
  const top = 1 << (width - 1);
  let sum = 0;
  for (const b of bytes) {
    sum ^= b << (width - 8);
    for (let bit = 0; bit < 8; bit++) sum = (sum & top) === 0 ? sum << 1 : ((sum << 1) ^ polynomial) & (2 * top - 1);
  }
  return sum;
}

/** Returns the end of a block of metadata. Comments or a picture that need more than their block states are believed. */
async function flacBlockEnd(source: RangeSource, at: number, header: Uint8Array): Promise<number> {
  const type = byte(header, 0) & 127;
  const end = at + 4 + uint(header, 1, 3);
  if (type !== 4 && type !== 6) return end;
  const next = await source.read(end, 4);
  const isFrame = byte(next, 0) === 0xff && (byte(next, 1) & 0xfe) === 0xf8;
  const isBlock = (byte(next, 0) & 127) <= MAX_FLAC_BLOCK_TYPE && end + 4 + uint(next, 1, 3) < source.size;
  if (byte(header, 0) >= 128 ? isFrame : isBlock) return end;
  const needed = type === 4 ? await commentsEnd(source, at + 4) : await pictureEnd(source, at + 4);
  return needed > end && needed < source.size ? needed : end;
}

async function commentsEnd(source: RangeSource, start: number): Promise<number> {
  let at = start + 4 + uintLE(await source.read(start, 4));
  const count = Math.min(MAX_HEADERS, uintLE(await source.read(at, 4)));
  at += 4;
  for (let n = 0; n < count && at < source.size; n++) at += 4 + uintLE(await source.read(at, 4));
  return at;
}

async function pictureEnd(source: RangeSource, start: number): Promise<number> {
  let at = start + 4;
  // The type of the picture, its description, and its bytes, behind four numbers.
  for (const numbers of [0, 0, 16]) at += numbers + 4 + uint(await source.read(at + numbers, 4));
  return at;
}

/** Finds the blocks of metadata and the frames of a FLAC. @throws `UnreadableAudio` if there are none */
export async function openFlacFile(source: RangeSource) {
  let info: Uint8Array = new Uint8Array();
  let comments = 0;
  let at = 4;
  for (let blocks = 0, isLast = false; !isLast && blocks < MAX_HEADERS; blocks++) {
    const header = await source.read(at, 4);
    const type = byte(header, 0) & 127;
    if (header.length < 4) throw new UnreadableAudio("The file has no FLAC header.");
    isLast = byte(header, 0) >= 128;
    if (type === 0 && info.length === 0) info = await source.read(at + 4, 34);
    if (type === 4 && comments === 0) comments = at + 4;
    at = await flacBlockEnd(source, at, header);
  }
  const frames = await findFlacFrames(source, at, info);
  if (!frames) throw new UnreadableAudio("The file has no FLAC frames.");
  return { info, comments, frames };
}

/**
 * Reads FLAC. Frames are numbered: the length runs from the first to the last one. The length in STREAMINFO counts only
 * if the tail has no frame, because a large unknown tag may follow the sound. Every frame states the rate, unless it is an
 * odd one, and the channels.
 */
export async function readFlac(source: RangeSource): Promise<Reading> {
  const { info, comments, frames } = await openFlacFile(source);
  const { at, channels } = frames;
  const stated = (byte(info, 13) & 15) * 2 ** 32 + uint(info, 14, 4);
  const head = await source.read(at, MAX_FLAC_HEADER_BYTES);
  const first = frames.frameIn(head, 0) as Span;
  const samples = await source.findLast(latin1(head, 0, 2), at, async (mark) => {
    const rest = await source.read(mark, source.size - mark);
    const last = frames.frameIn(rest, 0);
    if (last === null) return null;
    source.budget.charge(rest.length * CRC_BYTE_WORK);
    const isTruncated = last.end < stated && last.start > first.start && crc(rest, 16, 0x8005) !== 0;
    return (isTruncated ? last.start : last.end) - first.start;
  });
  let position = comments;
  const take = async (length: number) => {
    const bytes = await source.read(position, length);
    position += length;
    return bytes;
  };
  const readTags = async () => (comments > 0 ? readVorbisComments(source, take) : new Uint8Array());
  const sampleRate = frames.sampleRate || uint(info, 10, 3) >> 4;
  const facts = { container: "FLAC", codec: "FLAC", sampleRate, channels, lossless: true };
  return { ...facts, seconds: (samples ?? stated) / sampleRate, soundBytes: source.size - at, readTags };
}

type Page = NonNullable<Awaited<ReturnType<typeof pageAt>>>;

/** Reads the Ogg page at `start`. Returns null if there is none. */
export async function pageAt(source: RangeSource, start: number) {
  const head = await source.read(start, 27 + 255);
  if (latin1(head, 0, 4) !== "OggS" || head.length < 28) return null;
  /** The lengths of the segments, up to 255 bytes each. A shorter one ends a packet. */
  const lacing = head.subarray(27, 27 + byte(head, 26));
  source.budget.charge(lacing.length * LACING_WORK);
  const body = start + 27 + byte(head, 26);
  const end = body + lacing.reduce((sum, b) => sum + b, 0);
  const granule = uintLE(head, 6, 8);
  return {
    body,
    end,
    lacing,
    serial: latin1(head, 14, 4),
    isFirst: (byte(head, 5) & 2) !== 0,
    isContinued: (byte(head, 5) & 1) !== 0,
    /** In samples of the codec, at the end of the last packet that ends in this page; null if none does. */
    granule: Number.isSafeInteger(granule) ? granule : null,
  };
}

type Stream = NonNullable<Awaited<ReturnType<typeof streamOf>>>;

/** Reads the stream that begins with this page: null if it is not audio. A decoder drops the first `preSkip` samples. */
export async function streamOf(source: RangeSource, page: Page) {
  const id = await source.read(page.body, 80);
  const text = latin1(id);
  const le32At = (at: number) => uintLE(id, at, 4);
  const stream = (codec: string, channels: number, rate: number, packetSamples: PacketSamples, commentsAt: number) => {
    return { page, codec, channels, sampleRate: rate, granulesPerSecond: rate, packetSamples, preSkip: 0, commentsAt };
  };
  const longBlock = 2 ** (byte(id, 28) >> 4);
  if (text.startsWith("\x01vorbis")) return stream("Vorbis I", byte(id, 11), le32At(12), () => longBlock / 2, 7);
  if (text.startsWith("OpusHead")) {
    // Always at 48 kHz, whatever the original rate.
    const opus = stream("Opus", byte(id, 9), 48_000, opusSamples, 8);
    return { ...opus, sampleRate: le32At(12) || 48_000, preSkip: uintLE(id, 10, 2) };
  }
  if (text.startsWith("Speex   ")) {
    const codec = `Speex ${text.slice(8, 28).replace(/\0.*/s, "")}`;
    const packetSamples = le32At(56) * Math.max(1, le32At(64)) || Number.POSITIVE_INFINITY;
    return stream(codec, le32At(48), le32At(36), () => packetSamples, 0);
  }
  if (!text.startsWith("\x7fFLAC")) return null;
  const packetSamples = (packet: Uint8Array) => flacHeader(packet.subarray(0, MAX_FLAC_HEADER_BYTES))?.samples ?? 0;
  return stream("FLAC", ((byte(id, 29) >> 1) & 7) + 1, uint(id, 27, 3) >> 4, packetSamples, 4);
}

/** The most samples in a packet, by its first bytes. */
type PacketSamples = (packet: Uint8Array) => number;

/** Returns the samples at 48 kHz in an Opus packet from its first two bytes (RFC 6716, 3.1). */
function opusSamples(packet: Uint8Array): number {
  const config = byte(packet, 0) >> 3;
  const sizes = config < 12 ? [480, 960, 1920, 2880] : config < 16 ? [480, 960, 480, 960] : [120, 240, 480, 960];
  const code = byte(packet, 0) & 3;
  return (sizes[config & 3] ?? 0) * (code === 0 ? 1 : code < 3 ? 2 : byte(packet, 1) & 63);
}

/** The part that is walked page by page. The tail gives the rest. Half an hour of Vorbis, 20 reads. */
const MAX_HEAD_BYTES = 16 * 1024 * 1024;
const MAX_PAGES = 50_000;
/** Skeleton and other streams may begin before the audio stream. */
const MAX_STREAMS = 16;

/** Reads the first audio stream of an Ogg. */
export async function readOgg(source: RangeSource): Promise<Reading | null> {
  let stream: Stream | null = null;
  let at = 0;
  for (let n = 0; n < MAX_STREAMS; n++) {
    const page = await pageAt(source, at);
    if (!page?.isFirst) break;
    stream ??= await streamOf(source, page);
    if (/^(.theora|.video|.daala|BBCD)/.test(latin1(await source.read(page.body, 8)))) return null;
    at = page.end;
  }
  if (!stream) throw new UnreadableAudio("The file has no audio stream.");
  const { page, codec, sampleRate, channels, commentsAt } = stream;
  const readTags = async () => {
    const take = takeFromPages(source, page);
    await take(commentsAt);
    return readVorbisComments(source, take);
  };
  const facts = { container: "Ogg", codec, sampleRate, channels, lossless: codec === "FLAC" };
  return { ...facts, seconds: await oggSeconds(source, stream), soundBytes: source.size, readTags };
}

/** Reads the packet that follows the stream's first page, across its pages. */
function takeFromPages(source: RangeSource, first: Page) {
  let page = first;
  let at = first.end;
  let pages = 0;
  return async (length: number) => {
    const parts: Uint8Array[] = [];
    for (let left = length; left > 0; ) {
      if (at < page.end) {
        const there = Math.min(left, page.end - at);
        if (length <= MIN_WINDOW_BYTES) parts.push(await source.read(at, there));
        at += there;
        left -= there;
        continue;
      }
      const next = pages++ < MAX_HEADERS ? await pageAt(source, page.end) : null;
      if (!next) break;
      page = next;
      at = next.serial === first.serial ? next.body : next.end;
    }
    return join(...parts);
  };
}

/**
 * Sums the samples by which the granule position grows from page to page, at most what the packets of a page can contain,
 * in each link of a chain. Where the walk ends early, at a limit or at damage, the last page gives the rest if it belongs
 * to the same stream.
 */
async function oggSeconds(source: RangeSource, first: Stream): Promise<number | null> {
  const lastPage = await source.findLast("OggS", 0, async (mark) => {
    const page = await pageAt(source, mark);
    return page?.granule && page.end <= source.size ? page : null;
  });
  // The page of another stream says nothing.
  const lastGranule = lastPage?.serial === first.page.serial ? lastPage.granule : null;
  const maxBytes = lastGranule === null ? MAX_WALK_BYTES : MAX_HEAD_BYTES;
  let stream = first;
  let seconds = -stream.preSkip / stream.granulesPerSecond;
  let hasSound = false;
  let previous = 0;
  let packets = { ended: 0, begun: 0 };
  let at = first.page.end;
  for (let n = 0; at < source.size; n++) {
    const isWalked = n < MAX_PAGES && at < maxBytes;
    const page = isWalked ? await pageAt(source, at) : null;
    if (!page && !isWalked && lastGranule === null) return null;
    if (!page) {
      seconds += Math.max(0, (lastGranule ?? 0) - previous) / stream.granulesPerSecond;
      break;
    }
    at = page.end;
    if (page.isFirst && hasSound) {
      // The next link of the chain. Only the first of several streams that begin together counts.
      stream = (await streamOf(source, page)) ?? stream;
      seconds -= stream.preSkip / stream.granulesPerSecond;
      hasSound = false;
      previous = 0;
      packets = { ended: 0, begun: 0 };
    } else if (page.serial === stream.page.serial && page.end <= source.size) {
      packets = await addPackets(source, page, stream, packets);
      if (page.granule === null) continue;
      // A lower position belongs to another stream with the same serial number.
      const grown = page.granule < previous ? page.granule : page.granule - previous;
      seconds += Math.min(grown, packets.ended) / stream.granulesPerSecond;
      hasSound ||= grown > 0;
      previous = page.granule;
      packets.ended = 0;
    }
  }
  return Math.max(0, seconds);
}

/** The most samples of the packets that have ended since the last position, and of one that has begun. */
type PacketCount = { ended: number; begun: number };

/** Counts the samples of the packets in a page that can be decoded, by the first bytes of each. */
async function addPackets(source: RangeSource, page: Page, { packetSamples }: Stream, before: PacketCount) {
  const body = await source.read(page.body, page.end - page.body);
  const count = { ...before };
  let isInside = page.isContinued;
  let at = 0;
  for (const length of page.lacing) {
    if (!isInside) count.begun = packetSamples(body.subarray(at));
    isInside = length === 255;
    at += length;
    if (isInside) continue;
    count.ended += count.begun;
    count.begun = 0;
  }
  return count;
}
