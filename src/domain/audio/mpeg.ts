import { findTrailingTags } from "./apev2.ts";
import {
  byte,
  latin1,
  MAX_WALK_BYTES,
  MAX_WINDOW_BYTES,
  MIN_WINDOW_BYTES,
  type RangeSource,
  type Reading,
  UnreadableAudio,
  uint,
} from "./range-source.ts";
import type { TextBudget } from "./tags.ts";

/* MPEG audio (ISO/IEC 11172-3 and 13818-3), AAC in ADTS, and the set-up of AAC in MP4 (ISO/IEC 14496-3). */

export interface Frame {
  bytes: number;
  seconds: number;
  channels: number;
  container: string;
  codec: string;
  sampleRate: number;
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
const AAC_RATES_HZ = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];
/** Of each channel configuration; 0 is "told elsewhere". */
const AAC_CHANNELS = [0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8];
const FRAME_HEADER_BYTES = 7;
/** An ADTS frame's length has 13 bits; MPEG's frames are smaller. */
const MAX_FRAME_BYTES = 8191;
/** How far behind the tag the first frame may be: players skip padding and junk, but not for ever. */
const MAX_JUNK_BYTES = 256 * 1024;
/** Frames, and places that look like one: seven hours of MP3, and under a second of CPU. */
const MAX_FRAMES = 1_000_000;

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
    const channels = AAC_CHANNELS[((b2 & 1) << 2) | (b3 >> 6)] ?? 0;
    const container = `ADTS/MPEG-${(b1 & 8) === 0 ? 4 : 2}`;
    return { bytes: length, seconds, channels, container, codec: "AAC", sampleRate: rate, family: rate };
  }
  const bitsPerSecond = ((version === 3 ? V1_KBPS : V2_KBPS)[layer]?.[(b2 >> 4) - 1] ?? 0) * 1000;
  const rate = (MPEG_RATES_HZ[(b2 >> 2) & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4);
  if (version === 1 || bitsPerSecond === 0 || rate === 0) return null;
  const samples = layer === 1 ? 384 : layer === 3 && version !== 3 ? 576 : 1152;
  const slotBytes = layer === 1 ? 4 : 1;
  const slots = Math.floor(((samples / 8 / slotBytes) * bitsPerSecond) / rate) + ((b2 >> 1) & 1);
  const channels = b3 >> 6 === 3 ? 1 : 2;
  const codec = `MPEG ${version === 3 ? "1" : version === 2 ? "2" : "2.5"} Layer ${layer}`;
  const facts = { container: "MPEG", codec, channels, sampleRate: rate };
  return { ...facts, bytes: slots * slotBytes, seconds: samples / rate, family: rate * 8 + layer };
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
  const { container, codec, sampleRate, channels } = frame;
  const facts = { container, codec, sampleRate, channels, lossless: false };
  return { ...facts, seconds, soundBytes: end - at, readTags: readText };
}

/** The object type and the decoder's own set-up out of an ES descriptor (ISO/IEC 14496-1, 7.2.6). */
export function readDecoderConfig(descriptor: Uint8Array): { objectType: number; specific: Uint8Array } {
  let objectType = 0;
  for (let at = 0; at < descriptor.length; ) {
    const tag = byte(descriptor, at++);
    while (byte(descriptor, at) >= 128) at++;
    const length = byte(descriptor, at++);
    if (tag === 5) return { objectType, specific: descriptor.subarray(at, at + length) };
    if (tag === 4) objectType = byte(descriptor, at);
    if (tag !== 3 && tag !== 4) break;
    const flags = byte(descriptor, at + 2);
    const url = flags & 0x40 ? 1 + byte(descriptor, at + 3) : 0;
    at += tag === 4 ? 13 : 3 + (flags & 0x80 ? 2 : 0) + url + (flags & 0x20 ? 2 : 0);
  }
  return { objectType, specific: new Uint8Array() };
}

/**
 * What comes out of an AAC decoder (ISO/IEC 14496-3, 1.6.2.1): with spectral band replication at another rate than the
 * one coded, with parametric stereo in two channels where one is coded. 0 is "not told here".
 */
export function readAudioSpecificConfig(bytes: Uint8Array): { channels: number; sampleRate: number } {
  let at = 0;
  const bits = (count: number) => {
    let value = 0;
    for (const stop = at + count; at < stop; at++) value = value * 2 + ((byte(bytes, at >> 3) >> (7 - (at & 7))) & 1);
    return value;
  };
  const objectType = () => {
    const type = bits(5);
    return type === 31 ? 32 + bits(6) : type;
  };
  const rate = () => {
    const index = bits(4);
    return index === 15 ? bits(24) : (AAC_RATES_HZ[index] ?? 0);
  };
  const type = objectType();
  let sampleRate = rate();
  let channels = AAC_CHANNELS[bits(4)] ?? 0;
  const isExplicit = type === 5 || type === 29;
  if (isExplicit) sampleRate = rate();
  let hasParametricStereo = type === 29;
  // Older decoders are told of a plain stream, and newer ones of the extensions behind it.
  for (at += isExplicit ? 5 : 3; !isExplicit && at + 16 <= bytes.length * 8; at -= 10) {
    if (bits(11) !== 0x2b7) continue;
    if (objectType() === 5 && bits(1) === 1) sampleRate = rate();
    hasParametricStereo = bits(11) === 0x548 && bits(1) === 1;
    break;
  }
  if (hasParametricStereo && channels === 1) channels = 2;
  return { channels, sampleRate };
}
