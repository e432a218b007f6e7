import type { RangeSource, Reading } from "./range-source.ts";
import { byte, latin1, MAX_WALK_BYTES, MIN_WINDOW_BYTES, UnreadableAudio, uint, uintLE } from "./range-source.ts";
import { findTrailingTags } from "./tags.ts";

/*
 * Formats of frames or blocks, followed by an APEv2 or an ID3v1 tag: MPEG audio (ISO/IEC 11172-3 and 13818-3), AAC in
 * ADTS, AC-3 and E-AC-3 (ETSI TS 102 366), WavPack, Monkey's Audio, and Musepack.
 */

/** `family` is the same in all frames of a stream. */
type Frame = NonNullable<ReturnType<typeof frameAt>>;

/** Indexed by layer, then by code. */
const MPEG_1_KBPS = [
  [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
];
const MPEG_2_LAYER_1_KBPS = [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256];
const MPEG_2_KBPS = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const MPEG_RATES_HZ = [44100, 48000, 32000];
export const AAC_RATES_HZ = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];
/** The channels of each channel configuration; 0 if they are stated elsewhere. */
export const AAC_CHANNELS = [0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8];
const AC3_KBPS = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];
const AC3_RATES_HZ = [48000, 44100, 32000];
/** Indexed by "acmod", without the channel for low frequencies. */
export const AC3_CHANNELS = [2, 1, 2, 3, 3, 4, 4, 5];
const FRAME_HEADER_BYTES = 7;
/** The length of an ADTS frame has 13 bits. Other frames are smaller. */
export const MAX_FRAME_BYTES = 8191;
/** How far behind the tag the first frame may be: players skip some padding and junk. Without a tag, it is in the head. */
const MAX_JUNK_BYTES = 256 * 1024;
/** Frames, and bytes that look like the start of one: seven hours of MP3, and under a second of CPU time. */
const MAX_FRAMES = 1_000_000;
/** Work units to skip to the next byte that may start a frame, to parse a frame, and to check that others follow it. */
export const SKIP_WORK = 30;
export const FRAME_WORK = 150;
export const CHAIN_WORK = 600;
export const CHAIN_FRAMES = 3;

/** Parses the frame header at `at`: MPEG audio (layers 1 to 3), ADTS, AC-3, or E-AC-3. Returns null if there is none. */
export function frameAt(bytes: Uint8Array, at: number) {
  if (at + FRAME_HEADER_BYTES > bytes.length) return null;
  if (byte(bytes, at) === 0x0b) return ac3FrameAt(bytes, at);
  if (byte(bytes, at) !== 0xff) return null;
  const [b1, b2, b3] = [byte(bytes, at + 1), byte(bytes, at + 2), byte(bytes, at + 3)];
  const layer = 4 - ((b1 >> 1) & 3);
  if (b1 < 0xe0) return null;
  if (layer === 4) {
    const rate = AAC_RATES_HZ[(b2 >> 2) & 15];
    const length = ((b3 & 3) << 11) | (byte(bytes, at + 4) << 3) | (byte(bytes, at + 5) >> 5);
    if (b1 < 0xf0 || rate === undefined || length < FRAME_HEADER_BYTES) return null;
    const seconds = (1024 * ((byte(bytes, at + 6) & 3) + 1)) / rate;
    const channels = AAC_CHANNELS[((b2 & 1) << 2) | (b3 >> 6)] ?? 0;
    const container = `ADTS/MPEG-${(b1 & 8) === 0 ? 4 : 2}`;
    const facts = { container, codec: "AAC", channels, sampleRate: rate, seconds };
    return { ...facts, mediaType: "audio/aac", bytes: length, family: rate };
  }
  const version = ["2.5", "", "2", "1"][(b1 >> 3) & 3] ?? "";
  const kbps = version === "1" ? MPEG_1_KBPS[layer - 1] : layer === 1 ? MPEG_2_LAYER_1_KBPS : MPEG_2_KBPS;
  const bitsPerSecond = (kbps?.[(b2 >> 4) - 1] ?? 0) * 1000;
  const sampleRate = (MPEG_RATES_HZ[(b2 >> 2) & 3] ?? 0) / (version === "1" ? 1 : version === "2" ? 2 : 4);
  if (version === "" || bitsPerSecond === 0 || sampleRate === 0) return null;
  const samples = layer === 1 ? 384 : layer === 3 && version !== "1" ? 576 : 1152;
  const slotBytes = layer === 1 ? 4 : 1;
  const slots = Math.floor(((samples / 8 / slotBytes) * bitsPerSecond) / sampleRate) + ((b2 >> 1) & 1);
  const [channels, seconds] = [b3 >> 6 === 3 ? 1 : 2, samples / sampleRate];
  const facts = { container: "MPEG", codec: `MPEG ${version} Layer ${layer}`, channels, sampleRate, seconds };
  return { ...facts, mediaType: "audio/mpeg", bytes: slots * slotBytes, family: sampleRate * 8 + layer };
}

/** Parses the header of an AC-3 frame (ETSI TS 102 366, 4.3), or of an E-AC-3 frame (annex E.1.2). */
function ac3FrameAt(bytes: Uint8Array, at: number) {
  const [b2, b3, b4, b6] = [2, 3, 4, 6].map((offset) => byte(bytes, at + offset)) as [number, number, number, number];
  const [version, code] = [byte(bytes, at + 5) >> 3, b4 >> 6];
  if (byte(bytes, at + 1) !== 0x77 || version > 16) return null;
  if (version > 10) {
    const sampleRate = code < 3 ? (AC3_RATES_HZ[code] ?? 0) : (AC3_RATES_HZ[(b4 >> 4) & 3] ?? 0) / 2;
    const blocks = code < 3 ? ([1, 2, 3, 6][(b4 >> 4) & 3] ?? 6) : 6;
    if (sampleRate === 0) return null;
    // Further streams play at the same time as the first one.
    const isFurther = b2 >> 6 === 1 || ((b2 >> 3) & 7) > 0;
    const seconds = isFurther ? 0 : (blocks * 256) / sampleRate;
    const facts = { container: "E-AC-3", codec: "E-AC-3", sampleRate, seconds, mediaType: "audio/eac3" };
    const channels = (AC3_CHANNELS[(b4 >> 1) & 7] ?? 0) + (b4 & 1);
    return { ...facts, channels, bytes: 2 * ((((b2 & 7) << 8) | b3) + 1), family: sampleRate * 8 + 6 };
  }
  const [kbps, rate] = [AC3_KBPS[(b4 & 63) >> 1] ?? 0, AC3_RATES_HZ[code] ?? 0];
  if (kbps === 0 || rate === 0) return null;
  const words = Math.floor((kbps * 1000 * 96) / rate) + (rate === 44100 ? b4 & 1 : 0);
  const mode = b6 >> 5;
  // Two bits each precede the flag: for the center, for the surround channels, or for a mode of stereo.
  const skipped = ((mode & 1) === 1 && mode !== 1 ? 2 : 0) + ((mode & 4) === 4 ? 2 : 0) + (mode === 2 ? 2 : 0);
  const channels = (AC3_CHANNELS[mode] ?? 0) + ((b6 >> (4 - skipped)) & 1);
  const sampleRate = rate / 2 ** Math.max(0, version - 8);
  const facts = { container: "AC-3", codec: "AC-3", channels, sampleRate, seconds: 1536 / sampleRate };
  return { ...facts, mediaType: "audio/ac3", bytes: 2 * words, family: sampleRate * 8 + 5 };
}

/** Returns where the next frame may start, from `from` on; -1 if nowhere. @param sync the first byte of a frame, if known */
function nextSync(bytes: Uint8Array, from: number, sync?: number): number {
  if (sync !== undefined) return bytes.indexOf(sync, from);
  for (let at = from; at < bytes.length; at++) if (bytes[at] === 0xff || bytes[at] === 0x0b) return at;
  return -1;
}

/** Whether `links` frames of one family start at `at`, or fewer that fill the bytes exactly. */
export function isChain(bytes: Uint8Array, at: number, family: number, links: number): boolean {
  if (links === 0 || at === bytes.length) return true;
  const frame = frameAt(bytes, at);
  return frame?.family === family && isChain(bytes, at + frame.bytes, family, links - 1);
}

/** Returns the media type of the frames in a file that begins with `head`, behind any bytes; null if there are none. */
export function mediaTypeOfFrames(head: Uint8Array): string | null {
  for (let at = nextSync(head, 0); at >= 0; at = nextSync(head, at + 1)) {
    const frame = frameAt(head, at);
    if (frame === null) continue;
    // One frame at the end may be chance. Several in a row can't be, nor one that is the whole file.
    const isLast = at + frame.bytes >= head.length;
    const isComplete = at === 0 && frame.bytes === head.length;
    if (isComplete || (!isLast && isChain(head, at, frame.family, CHAIN_FRAMES))) return frame.mediaType;
  }
  return null;
}

/**
 * Measures how long the frames in [start, end) play. A Xing header counts if exactly the bytes that it
 * states exist. Otherwise every frame is counted. Beyond the limits of a walk (128 MiB, a million frames) the rest is
 * estimated at the average bit rate so far, which is exact for a constant bit rate.
 */
export async function walkFrames(source: RangeSource, start: number, end: number) {
  let seconds = 0;
  let first: { at: number; frame: Frame } | undefined;
  let sync: number | undefined;
  let isInSync = false;
  let tries = 0;
  let position = start;
  while (position + FRAME_HEADER_BYTES <= end && position - start < MAX_WALK_BYTES && tries < MAX_FRAMES) {
    const left = end - position;
    const bytes = await source.read(position, first ? left : Math.min(left, MIN_WINDOW_BYTES));
    // The next window contains the frames at the end of this one completely.
    const stop = bytes.length === left ? left - FRAME_HEADER_BYTES + 1 : bytes.length - 4 * MAX_FRAME_BYTES;
    if (stop <= 0) break;
    let at = 0;
    while (at < stop && tries++ < MAX_FRAMES) {
      const frame = frameAt(bytes, at);
      const fits = frame && (first === undefined || first.frame.family === frame.family);
      source.budget.charge(!fits ? (frame ? FRAME_WORK : SKIP_WORK) : isInSync ? FRAME_WORK : CHAIN_WORK);
      if (source.budget.isPauseDue) await source.budget.pause();
      if (!fits || !(isInSync || isChain(bytes, at, frame.family, CHAIN_FRAMES))) {
        isInSync = false;
        const next = nextSync(bytes, at + 1, sync);
        at = next < 0 ? stop : next;
        continue;
      }
      if (first === undefined) {
        first = { at: position + at, frame };
        sync = bytes[at];
        const header = bytes.subarray(at, at + frame.bytes);
        const stated = statedSeconds(header, frame, end - first.at);
        if (stated !== null) return { ...first, seconds: stated };
        // Players skip the frame that holds this header.
        if (/Xing|Info|VBRI/.test(latin1(header, 0, 48))) seconds -= frame.seconds + paddingSeconds(header, frame);
      }
      isInSync = true;
      // A truncated last frame cannot be played.
      if (at + frame.bytes <= bytes.length) seconds += frame.seconds;
      at += frame.bytes;
    }
    position += at;
    if (first === undefined && position - start > MAX_JUNK_BYTES) break;
  }
  if (first === undefined) throw new UnreadableAudio("The file has no audio frames.");
  if (isInSync && position + FRAME_HEADER_BYTES <= end) seconds *= (end - first.at) / (position - first.at);
  return { ...first, seconds };
}

/** Returns the seconds that a Xing or Info header in the first frame states, if it describes these `soundBytes`. */
function statedSeconds(header: Uint8Array, frame: Frame, soundBytes: number): number | null {
  const at = latin1(header, 0, 48).search(/Xing|Info/);
  if (at <= 0 || (byte(header, at + 7) & 3) !== 3) return null;
  const [frames, bytes] = [uint(header, at + 8, 4), uint(header, at + 12, 4)];
  const seconds = frames * frame.seconds;
  const kbps = (bytes * 8) / seconds / 1000;
  // Lyrics and unknown tags may follow the sound. Anything longer is more sound.
  const isComplete = soundBytes > bytes - bytes / frames && soundBytes < bytes + MAX_FRAME_BYTES;
  return isComplete && kbps > 7 && kbps < 460 ? Math.max(0, seconds - paddingSeconds(header, frame)) : null;
}

/** The samples that a decoder adds in front. */
const DECODER_DELAY_SAMPLES = 529;

/** Returns the seconds that the encoder added at both ends, which players drop: as LAME's tag states behind a Xing header. */
function paddingSeconds(header: Uint8Array, frame: Frame): number {
  const at = latin1(header, 0, 48).search(/Xing|Info/);
  const flags = byte(header, at + 7);
  const fieldsBytes = [4, 4, 100, 4].reduce((sum, bytes, field) => sum + ((flags >> field) & 1 ? bytes : 0), 0);
  const tagAt = at + 8 + fieldsBytes;
  if (at <= 0 || !/^(LAME|Lav[cf])/.test(latin1(header, tagAt, 4))) return 0;
  const [delay, padding] = [uint(header, tagAt + 21, 2) >> 4, uint(header, tagAt + 22, 2) & 0xfff];
  return (delay + Math.max(padding, DECODER_DELAY_SAMPLES)) / frame.sampleRate;
}

/** Reads MPEG audio, AAC in ADTS, AC-3, and E-AC-3. */
export async function readFrames(source: RangeSource): Promise<Reading> {
  const { end, tags } = await findTrailingTags(source);
  const { at, frame, seconds } = await walkFrames(source, 0, end);
  return { ...frame, lossless: false, seconds, soundBytes: end - at, ...tags };
}

/** The bytes of a frame by its type (RFC 4867, 5.3): the sound of 20 ms, or its absence. 0 if there is no such type. */
const AMR_BYTES = [13, 14, 16, 18, 20, 21, 27, 32, 6, 0, 0, 0, 0, 0, 0, 1];
const AMR_WB_BYTES = [18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 0, 0, 0, 0, 1, 1];
const AMR_FRAME_SECONDS = 0.02;

/** Reads AMR of one channel. Beyond the limits of a walk, the rest is assumed to be like the beginning. */
export async function readAmr(source: RangeSource): Promise<Reading> {
  const magic = latin1(await source.read(0, 9));
  const isWide = magic === "#!AMR-WB\n";
  const [start, sizes] = isWide ? [9, AMR_WB_BYTES] : [6, AMR_BYTES];
  const facts = { container: "AMR", codec: isWide ? "AMR-WB" : "AMR", lossless: false };
  const soundBytes = source.size - start;
  const reading = { ...facts, soundBytes, channels: 1, sampleRate: isWide ? 16_000 : 8_000 };
  const readTags = async () => new Uint8Array();
  // Several channels have another signature, and a description.
  if (!isWide && !magic.startsWith("#!AMR\n")) return { ...reading, seconds: null, channels: 0, readTags };
  let position = start;
  let frames = 0;
  let tries = 0;
  while (position < source.size && position - start < MAX_WALK_BYTES && tries < MAX_FRAMES) {
    const bytes = await source.read(position, source.size - position);
    if (bytes.length === 0) break;
    let at = 0;
    while (at < bytes.length && tries++ < MAX_FRAMES) {
      source.budget.charge(SKIP_WORK);
      const header = byte(bytes, at);
      // Padding bits are 0.
      const length = (header & 0x83) === 0 ? (sizes[(header >> 3) & 15] ?? 0) : 0;
      if (length > 0 && position + at + length <= source.size) frames += 1;
      at += length || 1;
    }
    position += at;
    if (source.budget.isPauseDue) await source.budget.pause();
  }
  const share = Math.min(1, (position - start) / soundBytes);
  return { ...reading, seconds: (frames * AMR_FRAME_SECONDS) / share, readTags };
}

const WAVPACK_RATES_HZ = [6, 8, 9.6, 11.025, 12, 16, 22.05, 24, 32, 44.1, 48, 64, 88.2, 96, 192].map((k) => k * 1000);

/** Reads WavPack. Each block states its samples, so the last complete one gives the length (WavPack5FileFormat). */
export async function readWavpack(source: RangeSource): Promise<Reading> {
  const { end, tags } = await findTrailingTags(source);
  const head = await source.read(0, 32);
  const isBlock = latin1(head, 0, 4) === "wvpk" && byte(head, 9) === 4;
  if (!isBlock) throw new UnreadableAudio("The file has no WavPack blocks.");
  const flags = uintLE(head, 24, 4);
  const firstEnd = 8 + uintLE(head, 4, 4);
  let sampleRate = WAVPACK_RATES_HZ[Math.floor(flags / 2 ** 23) & 15] ?? 0;
  let channels = (flags & 4) === 0 ? 2 : 1;
  const subBlocks = source.segments(32, firstEnd, 4, (header) => {
    const isLong = byte(header, 0) >= 0x80;
    const bodyBytes = 2 * uintLE(header, 1, isLong ? 3 : 1);
    return { name: (byte(header, 0) & 0x3f).toString(16), headerBytes: isLong ? 4 : 2, bodyBytes };
  });
  for await (const { name, data } of subBlocks) {
    const value = await source.read(data, 3);
    if (name === "27") sampleRate = uintLE(value, 0, 3);
    if (name === "d") channels = byte(value, 0);
    if (name === "e") sampleRate *= 8 * 2 ** byte(value, 0); // DSD
  }
  const isDsd = flags >= 2 ** 31;
  const sampleAt = (block: Uint8Array) => byte(block, 10) * 2 ** 32 + uintLE(block, 16, 4);
  const samples = await source.findLast("wvpk", 0, async (mark) => {
    const block = await source.read(mark, 32);
    const blockSamples = uintLE(block, 20, 4);
    const isComplete = mark + 8 + uintLE(block, 4, 4) <= source.size && byte(block, 9) === 4;
    return isComplete && blockSamples > 0 ? (sampleAt(block) + blockSamples - sampleAt(head)) * (isDsd ? 8 : 1) : null;
  });
  const [codec, lossless] = [isDsd ? "DSD" : "PCM", (flags & 8) === 0];
  const isCut = firstEnd > source.size;
  const seconds = samples === null && !isCut ? null : (samples ?? 0) / sampleRate;
  return { container: "WavPack", codec, sampleRate, channels, lossless, seconds, soundBytes: end, ...tags };
}

/** Reads Monkey's Audio. Its frames do not state their position. Versions before 3.98 do not state their size either. */
export async function readMonkeysAudio(source: RangeSource): Promise<Reading> {
  const { end, tags } = await findTrailingTags(source);
  const head = await source.read(0, 52);
  const [version, headerAt] = [uintLE(head, 4, 2), uintLE(head, 8, 4)];
  const isOld = version < 3980;
  const isLongFramed = version >= 3900 || (version >= 3800 && uintLE(head, 6, 2) === 4000);
  const oldFrameBlocks = version >= 3950 ? 294_912 : isLongFramed ? 73_728 : 9_216;
  const header = isOld ? head : await source.read(headerAt, 24);
  const le = (oldAt: number, at: number, bytes = 4) => uintLE(header, isOld ? oldAt : at, bytes);
  const [frames, lastBlocks, frameBlocks] = [le(24, 12), le(28, 8), isOld ? oldFrameBlocks : uintLE(header, 4, 4)];
  const [channels, sampleRate] = [le(10, 18, 2), le(12, 20)];
  const samples = frames === 0 ? 0 : frameBlocks * (frames - 1) + lastBlocks;
  // The sound follows the header, a table of frames, and the header of the WAV.
  const headerBytes = uintLE(head, 12, 4) + uintLE(head, 16, 4) + uintLE(head, 20, 4);
  const statedBytes = isOld ? 0 : uintLE(head, 24, 8);
  const soundBytes = isOld ? end : Math.max(0, Math.min(statedBytes, end - headerAt - headerBytes));
  const facts = { container: "Monkey's Audio", codec: "Monkey's Audio", sampleRate, channels, lossless: true };
  return { ...facts, seconds: samples / sampleRate, soundBytes, statedBytes, ...tags };
}

const MUSEPACK_RATES_HZ = [44100, 48000, 37800, 32000];

/** Reads Musepack, stream versions 7 and 8. Trusts the stated length: only a walk through all frames could check it. */
export async function readMusepack(source: RangeSource): Promise<Reading> {
  const { end, tags } = await findTrailingTags(source);
  const head = await source.read(0, 64);
  const isOld = latin1(head, 0, 3) === "MP+";
  if (!isOld && latin1(head, 4, 2) !== "SH") throw new UnreadableAudio("The file has no stream header.");
  let samples = 1152 * uintLE(head, 4, 4);
  let [rate, channels] = [byte(head, 10) & 3, 2];
  if (!isOld) {
    // Behind a length, a checksum, and a version: the samples, and those of the leading silence, in groups of seven bits.
    let at = 12;
    for (samples = byte(head, at) & 127; byte(head, at) >= 128; ) samples = samples * 128 + (byte(head, ++at) & 127);
    do at++;
    while (byte(head, at) >= 128);
    [rate, channels] = [byte(head, at + 1) >> 5, (byte(head, at + 2) >> 4) + 1];
  }
  const sampleRate = MUSEPACK_RATES_HZ[rate] ?? 0;
  const facts = { container: `Musepack, SV${isOld ? 7 : 8}`, codec: "Musepack", sampleRate, channels, lossless: false };
  return { ...facts, seconds: samples / sampleRate, soundBytes: end, ...tags };
}
