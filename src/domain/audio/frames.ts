import {
  byte,
  join,
  latin1,
  le32,
  MAX_WALK_BYTES,
  MAX_WINDOW_BYTES,
  MIN_WINDOW_BYTES,
  type RangeSource,
  type Reading,
  UnreadableAudio,
  uint,
  uintLE,
} from "./range-source.ts";
import { findTrailingTags, type TextBudget } from "./tags.ts";

/*
 * Formats that are a run of frames or blocks with tags around it: MPEG audio and AAC in ADTS, WavPack, Monkey's Audio
 * and Musepack.
 */

export interface Frame {
  bytes: number;
  seconds: number;
  channels: number;
  codec: string;
  /** Equal in all frames of one stream. */
  family: number;
}

const V2_LAYER_23_KBPS = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
/** By layer. */
const V1_KBPS = [
  [],
  [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
];
const V2_KBPS = [
  [],
  [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
  V2_LAYER_23_KBPS,
  V2_LAYER_23_KBPS,
];
const MPEG_RATES_HZ = [44100, 48000, 32000];
/** Also the table of MPEG-4's AudioSpecificConfig. */
export const AAC_RATES_HZ = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];
/** Also MPEG-4's: the channels of each channel configuration; 0 is "told elsewhere". */
export const AAC_CHANNELS = [0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8];
const FRAME_HEADER_BYTES = 7;
/** An ADTS frame's length has 13 bits; MPEG's frames are smaller. */
const MAX_FRAME_BYTES = 8191;
/** How far behind the tag the first frame may be: players skip padding and junk, but not for ever. */
const MAX_JUNK_BYTES = 256 * 1024;
/** Frames, and places that look like one: seven hours of MP3, and under a second of CPU. */
const MAX_FRAMES = 1_000_000;
/** Enough for the few frames at which the parser looks. */
const EXCERPT_BYTES = 32 * 1024;

/** The frame whose header is at `at`, MPEG audio (layers 1 to 3) or ADTS; null where there is none. */
export function frameAt(bytes: Uint8Array, at: number): Frame | null {
  if (byte(bytes, at) !== 0xff || at + FRAME_HEADER_BYTES > bytes.length) return null;
  const b1 = byte(bytes, at + 1);
  const b2 = byte(bytes, at + 2);
  const b3 = byte(bytes, at + 3);
  if (b1 < 0xe0) return null;
  const version = (b1 >> 3) & 3;
  const layer = 4 - ((b1 >> 1) & 3);
  if (layer === 4) {
    const rate = AAC_RATES_HZ[(b2 >> 2) & 15];
    const length = ((b3 & 3) << 11) | (byte(bytes, at + 4) << 3) | (byte(bytes, at + 5) >> 5);
    if ((b1 & 0xf6) !== 0xf0 || rate === undefined || length < FRAME_HEADER_BYTES) return null;
    const seconds = (1024 * ((byte(bytes, at + 6) & 3) + 1)) / rate;
    return {
      bytes: length,
      seconds,
      channels: AAC_CHANNELS[((b2 & 1) << 2) | (b3 >> 6)] ?? 0,
      codec: "AAC",
      family: rate,
    };
  }
  const bitsPerSecond = ((version === 3 ? V1_KBPS : V2_KBPS)[layer]?.[(b2 >> 4) - 1] ?? 0) * 1000;
  const rate = (MPEG_RATES_HZ[(b2 >> 2) & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4);
  if (version === 1 || bitsPerSecond === 0 || rate === 0) return null;
  const samples = layer === 1 ? 384 : layer === 3 && version !== 3 ? 576 : 1152;
  const slotBytes = layer === 1 ? 4 : 1;
  const slots = Math.floor(((samples / 8 / slotBytes) * bitsPerSecond) / rate) + ((b2 >> 1) & 1);
  const channels = b3 >> 6 === 3 ? 1 : 2;
  const codec = `MPEG ${version === 3 ? "1" : version === 2 ? "2" : "2.5"} Layer ${layer}`;
  return { bytes: slots * slotBytes, seconds: samples / rate, channels, codec, family: rate * 8 + layer };
}

/** Whether `links` frames of one family follow one another from `at`, or fewer that fill the bytes to their end. */
function isChain(bytes: Uint8Array, at: number, family: number, links: number): boolean {
  if (links === 0 || at === bytes.length) return true;
  const frame = frameAt(bytes, at);
  return frame?.family === family && isChain(bytes, at + frame.bytes, family, links - 1);
}

/**
 * How long the MPEG or ADTS frames in [start, end) play: from the Xing header where the bytes that it counts are there,
 * neither more nor fewer, else by walking every frame. Of a recording beyond the bounds of a walk (128 MiB, a million
 * frames) the rest is estimated at the average bit rate of what was walked, which is exact for a constant one.
 */
export async function walkFrames(source: RangeSource, start: number, end: number) {
  let seconds = 0;
  let first: { at: number; frame: Frame } | undefined;
  let inStep = false;
  let tries = 0;
  let position = start;
  while (position + FRAME_HEADER_BYTES <= end && position - start < MAX_WALK_BYTES && tries < MAX_FRAMES) {
    const window = await source.upTo(position, first ? MAX_WINDOW_BYTES : MIN_WINDOW_BYTES);
    if (window.length === 0) break;
    const bytes = window.subarray(0, end - position);
    const isLast = position + bytes.length === end;
    const stop = isLast ? bytes.length - FRAME_HEADER_BYTES + 1 : bytes.length - 4 * MAX_FRAME_BYTES;
    if (stop <= 0) break;
    let at = 0;
    while (at < stop && tries++ < MAX_FRAMES) {
      const frame = frameAt(bytes, at);
      const fits = frame && (first === undefined || first.frame.family === frame.family);
      if (!fits || !(inStep || isChain(bytes, at, frame.family, 3))) {
        inStep = false;
        const next = bytes.indexOf(0xff, at + 1);
        at = next < 0 ? stop : next;
        continue;
      }
      if (first === undefined) {
        first = { at: position + at, frame };
        const header = bytes.subarray(at, at + frame.bytes);
        const stated = statedSeconds(header, frame, end - first.at);
        if (stated !== null) return { ...first, seconds: stated };
        // The header's own frame is silent and not played.
        if (/Xing|Info|VBRI/.test(latin1(header.subarray(0, 48)))) seconds -= frame.seconds;
      }
      inStep = true;
      // A last frame that is cut short can't be played.
      if (at + frame.bytes <= bytes.length) seconds += frame.seconds;
      at += frame.bytes;
    }
    position += at;
    if (first === undefined && position - start > MAX_JUNK_BYTES) break;
  }
  if (first === undefined) throw new UnreadableAudio("The file has no audio frames.");
  if (inStep && position + FRAME_HEADER_BYTES <= end) seconds *= (end - first.at) / (position - first.at);
  return { ...first, seconds };
}

/** What a Xing or Info header in the first frame states, where it speaks of the `soundBytes` that are there; or null. */
function statedSeconds(header: Uint8Array, frame: Frame, soundBytes: number): number | null {
  const at = latin1(header.subarray(0, 48)).search(/Xing|Info/);
  if (at <= 0 || (byte(header, at + 7) & 3) !== 3) return null;
  const frames = uint(header, at + 8, 4);
  const bytes = uint(header, at + 12, 4);
  const seconds = frames * frame.seconds;
  const bitsPerSecond = (bytes * 8) / seconds;
  // Lyrics and foreign tags may follow the sound; more than that is more sound.
  const isAllThere = soundBytes > bytes - bytes / frames && soundBytes < bytes + MAX_FRAME_BYTES;
  return isAllThere && bitsPerSecond > 7_000 && bitsPerSecond < 460_000 ? seconds : null;
}

/** MPEG audio and AAC in ADTS, from `start` on. */
export async function readFrames(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const { at, frame, seconds } = await walkFrames(source, start, end);
  const sound = await source.copy(at, Math.min(EXCERPT_BYTES, end - at));
  return {
    seconds,
    soundBytes: end - at,
    channels: frame.channels || null,
    excerpt: async (withText) => join(sound, withText ? await readText() : ""),
  };
}

const WAVPACK_RATES_HZ = [6, 8, 9.6, 11.025, 12, 16, 22.05, 24, 32, 44.1, 48, 64, 88.2, 96, 192].map((k) => k * 1000);

/** WavPack: each block says which samples it holds, so that the last whole one tells the length (WavPack5FileFormat). */
export async function readWavpack(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const head = await source.copy(start, MIN_WINDOW_BYTES);
  if (latin1(head.subarray(0, 4)) !== "wvpk") throw new UnreadableAudio("The file has no WavPack blocks.");
  const flags = uintLE(head, 24, 4);
  const blockEnd = Math.min(8 + uintLE(head, 4, 4), head.length);
  let sampleRate = WAVPACK_RATES_HZ[Math.floor(flags / 2 ** 23) & 15] ?? null;
  let channels = (flags & 4) === 0 ? 2 : 1;
  for (let at = 32; at + 2 <= blockEnd; ) {
    const id = byte(head, at);
    const isLong = id >= 0x80;
    const length = 2 * uintLE(head, at + 1, isLong ? 3 : 1);
    at += isLong ? 4 : 2;
    if ((id & 0x3f) === 0x27) sampleRate = uintLE(head, at, 3);
    if ((id & 0x3f) === 0x0d) channels = byte(head, at);
    if ((id & 0x3f) === 0x0e && sampleRate !== null) sampleRate *= 8 * 2 ** byte(head, at); // DSD
    at += length;
  }
  const isDsd = flags >= 2 ** 31;
  const sampleAt = (block: Uint8Array) => byte(block, 10) * 2 ** 32 + uintLE(block, 16, 4);
  let samples: number | null = null;
  for await (const mark of source.lastMarks("wvpk", start)) {
    const block = await source.upTo(mark, 32);
    const blockSamples = uintLE(block, 20, 4);
    const isWhole = mark + 8 + uintLE(block, 4, 4) <= source.size && byte(block, 9) === 4;
    if (!isWhole || blockSamples === 0) continue;
    samples = (sampleAt(block) + blockSamples - sampleAt(head)) * (isDsd ? 8 : 1);
    break;
  }
  // A first block without its contents, from sample 0.
  const first = join(head.slice(0, 4), le32(24), head.slice(8, 16), le32(0), head.slice(20, 32));
  return {
    seconds: samples !== null && sampleRate !== null ? samples / sampleRate : null,
    soundBytes: end - start,
    sampleRate,
    channels,
    excerpt: async (withText) => join(first, withText ? await readText() : ""),
  };
}

/**
 * Monkey's Audio from version 3.98 on. Its frames don't say where they belong: the length is the stated one, in
 * proportion to the part of the stated bytes of sound that is there.
 */
export async function readMonkeysAudio(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const descriptor = await source.copy(start, 52);
  if (latin1(descriptor.subarray(0, 4)) !== "MAC " || uintLE(descriptor, 4, 2) < 3980)
    throw new UnreadableAudio("The file is of an unknown version of Monkey's Audio.");
  const headerAt = start + uintLE(descriptor, 8, 4);
  const header = await source.copy(headerAt, 24);
  const frames = uintLE(header, 12, 4);
  const samples = frames === 0 ? 0 : uintLE(header, 4, 4) * (frames - 1) + uintLE(header, 8, 4);
  const soundAt = headerAt + uintLE(descriptor, 12, 4) + uintLE(descriptor, 16, 4) + uintLE(descriptor, 20, 4);
  const statedBytes = uintLE(descriptor, 24, 8);
  const soundBytes = Math.max(0, Math.min(statedBytes, end - soundAt));
  const stated = samples / uintLE(header, 20, 4);
  const lead = join(descriptor.subarray(0, 8), le32(52), le32(24), new Uint8Array(36), header);
  return {
    seconds: (stated * soundBytes) / statedBytes,
    soundBytes,
    excerpt: async (withText) => join(lead, withText ? await readText() : ""),
  };
}

const MUSEPACK_RATES_HZ = [44100, 48000, 37800, 32000];

/**
 * Musepack, stream versions 7 and 8. Its frames aren't aligned to bytes (7) or don't say where they belong (8), and only
 * a walk through all of them would tell what is there: the length is the stated one, unless it is beyond what so many
 * bytes can hold at 3 kbit/s, a quarter of the least that the encoder makes.
 */
export async function readMusepack(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const head = await source.copy(start, 256);
  let samples: number;
  let sampleRate: number;
  let channels: number;
  let lead: Uint8Array;
  if (latin1(head.subarray(0, 3)) === "MP+") {
    samples = 1152 * uintLE(head, 4, 4);
    sampleRate = MUSEPACK_RATES_HZ[byte(head, 10) & 3] ?? 44100;
    channels = 2;
    // Without frames, so that the parser walks none.
    lead = join(head.slice(0, 4), le32(0), head.slice(8, 32));
  } else {
    // The stream header comes first: "SH", its length, a checksum, the version, the samples in groups of seven bits.
    const length = byte(head, 6);
    let at = 12;
    for (samples = 0; byte(head, at) >= 128 && at < 20; at++) samples = samples * 128 + (byte(head, at) & 127);
    samples = samples * 128 + byte(head, at);
    let silence = at + 1;
    while (byte(head, silence) >= 128 && silence < 30) silence++;
    sampleRate = MUSEPACK_RATES_HZ[byte(head, silence + 1) >> 5] ?? 0;
    channels = (byte(head, silence + 2) >> 4) + 1;
    if (latin1(head.subarray(4, 6)) !== "SH" || length > 60) throw new UnreadableAudio("The file has no header.");
    lead = join(head.slice(0, 4 + length), "SE\x03");
  }
  const seconds = samples / sampleRate;
  const isPossible = seconds > 0 && ((end - start) * 8) / seconds > 3000;
  return {
    seconds: isPossible ? seconds : null,
    soundBytes: end - start,
    sampleRate,
    channels,
    codec: "Musepack",
    lossless: false,
    excerpt: async (withText) => join(lead, withText ? await readText() : ""),
  };
}
