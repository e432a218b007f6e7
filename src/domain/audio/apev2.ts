import {
  byte,
  join,
  latin1,
  le32,
  MIN_WINDOW_BYTES,
  type RangeSource,
  type Reading,
  UnreadableAudio,
  uintLE,
} from "./range-source.ts";
import { MAX_ITEMS, type TextBudget } from "./tags.ts";

/* The APEv2 tag, and the formats that have it: WavPack, Monkey's Audio and Musepack. */

/**
 * What stands behind the sound in MP3, AAC, Monkey's Audio, WavPack and Musepack: an APEv2 tag, an ID3v1 tag, both or
 * neither. `end` is where the sound ends, `readText` gives both tags with the text items alone.
 */
export async function findTrailingTags(source: RangeSource, budget: TextBudget) {
  let id3v1 = await source.copy(source.size - 128, 128);
  if (latin1(id3v1.subarray(0, 3)) !== "TAG") id3v1 = new Uint8Array();
  const end = source.size - id3v1.length;
  const footer = await source.copy(end - 32, 32);
  const size = uintLE(footer, 12, 4); // with the footer, without the header
  const isTag = latin1(footer.subarray(0, 8)) === "APETAGEX" && size >= 32 && size <= end;
  if (!isTag) return { end, readText: async () => id3v1 };
  const headerBytes = byte(footer, 23) >= 128 ? 32 : 0;
  const readText = async () => join(await readApeText(source, end - size, end - 32, budget), id3v1);
  return { end: Math.max(0, end - size - headerBytes), readText };
}

/** The text items between `start` and `end`, as an APEv2 tag; empty without any. */
async function readApeText(source: RangeSource, start: number, end: number, budget: TextBudget) {
  const items: Uint8Array[] = [];
  for (let at = start, n = 0; n < MAX_ITEMS && at < end; n++) {
    const head = await source.upTo(at, 8 + 256);
    const keyBytes = head.subarray(8).indexOf(0) + 1;
    const length = 8 + keyBytes + uintLE(head, 0, 4);
    if (keyBytes === 0 || at + length > end) break;
    const isText = ((byte(head, 4) >> 1) & 3) === 0;
    if (isText && budget.admits(length)) items.push(await source.copy(at, length));
    at += length;
  }
  if (items.length === 0) return new Uint8Array();
  const body = join(...items);
  const frame = (flags: number) =>
    join("APETAGEX", le32(2000), le32(body.length + 32), le32(items.length), le32(flags), new Uint8Array(8));
  return join(frame(0xa0000000), body, frame(0x80000000));
}

const WAVPACK_RATES_HZ = [6, 8, 9.6, 11.025, 12, 16, 22.05, 24, 32, 44.1, 48, 64, 88.2, 96, 192].map((k) => k * 1000);

/** WavPack: each block says which samples it holds, so that the last whole one tells the length (WavPack5FileFormat). */
export async function readWavpack(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const head = await source.copy(start, MIN_WINDOW_BYTES);
  if (latin1(head.subarray(0, 4)) !== "wvpk" || byte(head, 9) !== 4)
    throw new UnreadableAudio("The file has no WavPack blocks.");
  const flags = uintLE(head, 24, 4);
  const firstBytes = 8 + uintLE(head, 4, 4);
  let sampleRate = WAVPACK_RATES_HZ[Math.floor(flags / 2 ** 23) & 15] ?? 0;
  let channels = (flags & 4) === 0 ? 2 : 1;
  for (let at = 32; at + 2 <= Math.min(firstBytes, head.length); ) {
    const id = byte(head, at);
    const isLong = id >= 0x80;
    const length = 2 * uintLE(head, at + 1, isLong ? 3 : 1);
    at += isLong ? 4 : 2;
    if ((id & 0x3f) === 0x27) sampleRate = uintLE(head, at, 3);
    if ((id & 0x3f) === 0x0d) channels = byte(head, at);
    if ((id & 0x3f) === 0x0e) sampleRate *= 8 * 2 ** byte(head, at); // DSD
    at += length;
  }
  const isDsd = flags >= 2 ** 31;
  const sampleAt = (block: Uint8Array) => byte(block, 10) * 2 ** 32 + uintLE(block, 16, 4);
  let samples = start + firstBytes <= source.size ? null : 0;
  for await (const mark of source.lastMarks("wvpk", start)) {
    const block = await source.upTo(mark, 32);
    const blockSamples = uintLE(block, 20, 4);
    const isWhole = mark + 8 + uintLE(block, 4, 4) <= source.size && byte(block, 9) === 4;
    if (!isWhole || blockSamples === 0) continue;
    samples = (sampleAt(block) + blockSamples - sampleAt(head)) * (isDsd ? 8 : 1);
    break;
  }
  return {
    container: "WavPack",
    codec: isDsd ? "DSD" : "PCM",
    sampleRate,
    channels,
    lossless: (flags & 8) === 0,
    seconds: samples === null ? null : samples / sampleRate,
    soundBytes: end - start,
    readTags: readText,
  };
}

/**
 * Monkey's Audio. Its frames don't say where they belong: the length is the stated one, from version 3.98 on in
 * proportion to the part of the stated bytes of sound that is there; older versions state no such bytes.
 */
export async function readMonkeysAudio(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const head = await source.copy(start, 52);
  const le = (at: number, bytes = 4) => uintLE(head, at, bytes);
  const version = le(4, 2);
  // Before version 3.98, the blocks of a frame follow from version and compression.
  const isLongFramed = version >= 3900 || (version >= 3800 && le(6, 2) === 4000);
  let [frameBlocks, lastBlocks, frames] = [version >= 3950 ? 294_912 : isLongFramed ? 73_728 : 9_216, le(28), le(24)];
  let [channels, sampleRate] = [le(10, 2), le(12)];
  let [soundBytes, statedBytes] = [end - start, end - start];
  if (version >= 3980) {
    const headerAt = start + le(8);
    const header = await source.copy(headerAt, 24);
    [frameBlocks, lastBlocks, frames] = [4, 8, 12].map((at) => uintLE(header, at, 4)) as [number, number, number];
    [channels, sampleRate] = [uintLE(header, 18, 2), uintLE(header, 20, 4)];
    statedBytes = le(24, 8);
    soundBytes = Math.max(0, Math.min(statedBytes, end - headerAt - le(12) - le(16) - le(20)));
  }
  const samples = frames === 0 ? 0 : frameBlocks * (frames - 1) + lastBlocks;
  return {
    container: "Monkey's Audio",
    codec: "Monkey's Audio",
    sampleRate,
    channels,
    lossless: true,
    seconds: ((samples / sampleRate) * soundBytes) / statedBytes,
    soundBytes,
    readTags: readText,
  };
}

const MUSEPACK_RATES_HZ = [44100, 48000, 37800, 32000];

/**
 * Musepack, stream versions 7 and 8. Its frames aren't aligned to bytes (7) or don't say where they belong (8), and only
 * a walk through all of them would tell what is there: the length is the stated one.
 */
export async function readMusepack(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const { end, readText } = await findTrailingTags(source, budget);
  const head = await source.copy(start, 64);
  const isOld = latin1(head.subarray(0, 3)) === "MP+";
  if (!isOld && latin1(head.subarray(4, 6)) !== "SH") throw new UnreadableAudio("The file has no stream header.");
  let samples = 1152 * uintLE(head, 4, 4);
  let [rate, channels] = [byte(head, 10) & 3, 2];
  if (!isOld) {
    // The samples and those of the silence before them, in groups of seven bits, behind a length, a sum and a version.
    let at = 12;
    for (samples = byte(head, at) & 127; byte(head, at) >= 128; ) samples = samples * 128 + (byte(head, ++at) & 127);
    do at++;
    while (byte(head, at) >= 128);
    [rate, channels] = [byte(head, at + 1) >> 5, (byte(head, at + 2) >> 4) + 1];
  }
  const sampleRate = MUSEPACK_RATES_HZ[rate] ?? 0;
  return {
    container: `Musepack, SV${isOld ? 7 : 8}`,
    codec: "Musepack",
    sampleRate,
    channels,
    lossless: false,
    seconds: samples / sampleRate,
    soundBytes: end - start,
    readTags: readText,
  };
}
