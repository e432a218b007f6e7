import { CHAIN_FRAMES, CHAIN_WORK, FRAME_WORK, frameAt, isChain, MAX_FRAME_BYTES, SKIP_WORK } from "../frames.ts";
import { CLUSTER, elements, TRACK } from "../matroska.ts";
import {
  be32,
  byte,
  join,
  latin1,
  MAX_WINDOW_BYTES,
  MIN_WINDOW_BYTES,
  type Pcm,
  type RangeSource,
  UnreadableAudio,
  uint,
} from "../range-source.ts";
import { FLAC_HEADER_WORK, openFlacFile, pageAt, streamOf } from "../xiph.ts";
import { MAX_INPUT_BYTES } from "./decoders.ts";

/*
 * The input of decoders, in the order of a file: the packets of a stream, or samples that are already numbers. A loop that may
 * run for long without a packet pauses itself. If there is a packet, its decoder does.
 */

const damaged = () => new UnreadableAudio("The file is damaged.");

/**
 * Yields frames that follow each other, several at once: those that the length counts. The decoder could find frames itself, but
 * some headers make it search for long.
 */
export async function* mpegFrames(source: RangeSource): AsyncGenerator<Uint8Array> {
  let family: number | undefined;
  for (let at = 0; at < source.size; ) {
    const bytes = await source.read(at, MAX_WINDOW_BYTES);
    const isEnd = at + bytes.length >= source.size;
    // The next window has the frames at the end of this one completely.
    const stop = isEnd ? bytes.length : bytes.length - 4 * MAX_FRAME_BYTES;
    const frameIn = (from: number, isInSync: boolean) => {
      const frame = frameAt(bytes, from);
      source.budget.charge(frame ? (isInSync ? FRAME_WORK : CHAIN_WORK) : SKIP_WORK);
      if (frame?.container !== "MPEG" || frame.family !== (family ?? frame.family) || from + frame.bytes > bytes.length)
        return null;
      return isInSync || isChain(bytes, from, frame.family, CHAIN_FRAMES) ? frame : null;
    };
    let start = 0;
    while (start < stop) {
      let end = start;
      for (let frame = frameIn(start, false); frame; frame = end < stop ? frameIn(end, true) : null) {
        if (end + frame.bytes - start > MAX_INPUT_BYTES.mp3) break;
        family = frame.family;
        end += frame.bytes;
      }
      if (end > start) yield bytes.subarray(start, end);
      else if (source.budget.isPauseDue) await source.budget.pause();
      const next = end > start ? end : bytes.indexOf(0xff, start + 1);
      start = next < 0 ? stop : next;
    }
    at += start;
    if (bytes.length === 0) return;
  }
}

/** Yields the start of the file, then the frames. A frame ends where the one with the next number begins, because it doesn't state its length. */
export async function* flacFrames(source: RangeSource): AsyncGenerator<Uint8Array> {
  const { info, frames } = await openFlacFile(source);
  yield join("fLaC", be32(info.length), info);
  let { at } = frames;
  while (at < source.size) {
    const bytes = await source.read(at, MAX_WINDOW_BYTES);
    const isEnd = at + bytes.length >= source.size;
    const frameIn = (from: number) => {
      source.budget.charge(FLAC_HEADER_WORK);
      return frames.frameIn(bytes, from);
    };
    let start = 0;
    for (let frame = frameIn(0); frame; ) {
      const sync = byte(bytes, start + 1);
      let end = bytes.indexOf(0xff, start + 1);
      let next = null;
      for (; end >= 0; end = bytes.indexOf(0xff, end + 1)) {
        if (byte(bytes, end + 1) !== sync) continue;
        next = frameIn(end);
        if (next?.start === frame.end) break;
        if (source.budget.isPauseDue) await source.budget.pause();
      }
      if (end < 0 && !isEnd) break;
      yield bytes.subarray(start, end < 0 ? bytes.length : end);
      if (end < 0) return;
      start = end;
      frame = next;
    }
    // A frame that fills a window is none.
    if (start === 0) throw damaged();
    at += start;
  }
}

/** The work for a page, besides its bytes and packets. */
const PAGE_WORK = 3000;

/** @returns the place of the next Ogg page, behind bytes that belong to none; the end of the file if there is none */
async function nextPage(source: RangeSource, from: number): Promise<number> {
  for (let at = from; at < source.size; at += MIN_WINDOW_BYTES - 3) {
    const found = latin1(await source.read(at, MIN_WINDOW_BYTES)).indexOf("OggS");
    if (found >= 0) return at + found;
  }
  return source.size;
}

/**
 * Yields the packets of the first audio stream of an Ogg; empty if a packet has more bytes: such are comments with pictures,
 * which decoders don't need. Players ignore bytes between pages, and so does the length.
 */
export async function* oggPackets(source: RangeSource, maxBytes: number): AsyncGenerator<Uint8Array> {
  let serial: string | null = null;
  let hasSound = false;
  let begun: Uint8Array[] = [];
  let begunBytes = 0;
  for (let at = 0; at < source.size; ) {
    source.budget.charge(PAGE_WORK);
    const page = await pageAt(source, at);
    if (!page) {
      at = await nextPage(source, at + 1);
      continue;
    }
    at = page.end;
    if (at > source.size) return;
    // The decoder of one stream can't continue with another one.
    if (page.isFirst && hasSound) throw new UnreadableAudio("The file is a chain of streams.");
    hasSound ||= !page.isFirst;
    if (serial === null && page.isFirst && (await streamOf(source, page))) serial = page.serial;
    if (page.serial !== serial) continue;
    if (!page.isContinued) [begun, begunBytes] = [[], 0];
    // The rest of a packet whose start is missing.
    let isSkipped = page.isContinued && begunBytes === 0;
    const body = await source.read(page.body, page.end - page.body);
    let [start, end] = [0, 0];
    for (const [index, length] of page.lacing.entries()) {
      end += length;
      const isEnd = length < 255;
      if (!isEnd && index < page.lacing.length - 1) continue;
      begunBytes += end - start;
      if (begunBytes <= maxBytes) begun.push(body.subarray(start, end));
      else begun = [];
      start = end;
      if (!isEnd) continue;
      if (!isSkipped) yield join(...begun);
      [begun, begunBytes, isSkipped] = [[], 0, false];
    }
  }
}

/** Yields the packets of a block of Matroska (RFC 9559, 10), which follow the number of its track. */
function* packetsInBlock(block: Uint8Array): Generator<Uint8Array> {
  const lacing = (byte(block, 2) >> 1) & 3;
  if (lacing === LACING.none) return yield block.subarray(3);
  const count = byte(block, 3) + 1;
  let at = 4;
  /** A number of one to eight bytes, whose first bits state how many. */
  const next = () => {
    const bytes = Math.max(1, Math.min(8, Math.clz32(byte(block, at)) - 23));
    const value = uint(block, at, bytes) - 2 ** (7 * bytes);
    at += bytes;
    return { value, middle: 2 ** (7 * bytes - 1) - 1 };
  };
  const sizes: number[] = [];
  for (let index = 0; index < count - 1 && lacing !== LACING.fixed; index++) {
    let size = 0;
    if (lacing === LACING.xiph) {
      while (byte(block, at) === 255) size += byte(block, at++);
      size += byte(block, at++);
    } else {
      const { value, middle } = next();
      size = index === 0 ? value : (sizes.at(-1) ?? 0) + value - middle;
    }
    sizes.push(size);
  }
  if (lacing === LACING.fixed) sizes.push(...Array<number>(count - 1).fill((block.length - at) / count));
  for (const size of [...sizes, Number.POSITIVE_INFINITY]) {
    if (!(size >= 0) || at > block.length) throw damaged();
    yield block.subarray(at, at + size);
    at += size;
  }
}

const LACING = { none: 0, xiph: 1, fixed: 2 };
const AUDIO_TRACK = 2;
const MAX_TRACKS = 64;

/** Yields the private data of the first audio track of a WebM or Matroska, then its packets. */
export async function* matroskaPackets(source: RangeSource): AsyncGenerator<Uint8Array> {
  const tracks: { number: number; type: number; head: Uint8Array }[] = [];
  let track: (typeof tracks)[0] | undefined;
  for await (const { name, data, end } of elements(source, 0, source.size, Number.POSITIVE_INFINITY)) {
    const isBlock = name === CLUSTER.simpleBlock || name === CLUSTER.block;
    const isOfTrack = name === TRACK.number || name === TRACK.type || name === TRACK.codecPrivate;
    if (name === TRACK.entry && tracks.length < MAX_TRACKS) tracks.push({ number: 0, type: 0, head: new Uint8Array() });
    if (!(isBlock || isOfTrack) || end - data > MAX_INPUT_BYTES.opus) continue;
    const bytes = await source.read(data, end - data);
    const last = tracks.at(-1);
    if (name === TRACK.number && last) last.number = uint(bytes);
    if (name === TRACK.type && last) last.type = uint(bytes);
    if (name === TRACK.codecPrivate && last) last.head = bytes;
    if (!isBlock) continue;
    if (!track) {
      track = tracks.find(({ type }) => type === AUDIO_TRACK);
      if (!track) throw damaged();
      yield track.head;
    }
    // A track has a number of one byte, or of two from 127 on.
    const numberBytes = byte(bytes, 0) >= 0x80 ? 1 : 2;
    const number = uint(bytes, 0, numberBytes) - 2 ** (7 * numberBytes);
    if (number === track.number) yield* packetsInBlock(bytes.subarray(numberBytes));
  }
}

/** The value of a sample of G.711, from -1 to 1. */
function mulaw(code: number): number {
  const value = ~code & 255;
  const magnitude = ((((value & 15) << 3) + 132) << ((value >> 4) & 7)) - 132;
  return (value < 128 ? magnitude : -magnitude) / 32_768;
}

function alaw(code: number): number {
  const value = code ^ 0x55;
  const [exponent, mantissa] = [(value >> 4) & 7, (value & 15) * 16 + 8];
  const magnitude = exponent === 0 ? mantissa : (mantissa + 256) << (exponent - 1);
  return (value < 128 ? -magnitude : magnitude) / 32_768;
}

function sampleReader({ encoding, sampleBytes, isLittleEndian: le }: Pcm): (view: DataView, at: number) => number {
  if (encoding === "mulaw") return (view, at) => mulaw(view.getUint8(at));
  if (encoding === "alaw") return (view, at) => alaw(view.getUint8(at));
  if (encoding === "unsigned") return (view, at) => (view.getUint8(at) - 128) / 128;
  if (encoding === "float")
    return sampleBytes === 8 ? (view, at) => view.getFloat64(at, le) : (view, at) => view.getFloat32(at, le);
  if (sampleBytes === 1) return (view, at) => view.getInt8(at) / 128;
  if (sampleBytes === 2) return (view, at) => view.getInt16(at, le) / 32_768;
  if (sampleBytes === 4) return (view, at) => view.getInt32(at, le) / 2_147_483_648;
  if (le) return (view, at) => (view.getInt16(at + 1, true) * 256 + view.getUint8(at)) / 8_388_608;
  return (view, at) => (view.getInt16(at) * 256 + view.getUint8(at + 2)) / 8_388_608;
}

/** Yields the samples of each channel. */
export async function* pcmSound(source: RangeSource, pcm: Pcm, channels: number): AsyncGenerator<Float32Array[]> {
  const read = sampleReader(pcm);
  const blockBytes = pcm.sampleBytes * channels;
  const windowBytes = Math.floor(MAX_WINDOW_BYTES / 8 / blockBytes) * blockBytes;
  for (let at = pcm.start; at < pcm.end; at += windowBytes) {
    const bytes = await source.read(at, Math.min(windowBytes, pcm.end - at));
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const length = Math.floor(bytes.length / blockBytes);
    if (length === 0) return;
    yield Array.from({ length: channels }, (_, channel) => {
      const samples = new Float32Array(length);
      for (let i = 0; i < length; i++) samples[i] = read(view, i * blockBytes + channel * pcm.sampleBytes);
      return samples;
    });
  }
}
