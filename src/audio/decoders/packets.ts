import { CLUSTER, elements, TRACK } from "../matroska.ts";
import { byte, join, MAX_WINDOW_BYTES, type Pcm, type RangeSource, UnreadableAudio, uint } from "../range-source.ts";
import { FLAC_HEADER_WORK, openFlacFile, pageAt, streamOf } from "../xiph.ts";
import { MAX_INPUT_BYTES } from "./decoders.ts";

/* The input of decoders, in the order of a file: the packets of a stream, or samples that are already numbers. */

const damaged = () => new UnreadableAudio("The file is damaged.");

/** Yields all bytes. The MP3 decoder finds its frames itself. */
export async function* mp3Bytes(source: RangeSource): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < source.size; at += MAX_WINDOW_BYTES) {
    const bytes = await source.read(at, MAX_WINDOW_BYTES);
    for (let from = 0; from < bytes.length; from += MAX_INPUT_BYTES.mp3) {
      if (source.budget.isPauseDue) await source.budget.pause();
      yield bytes.subarray(from, from + MAX_INPUT_BYTES.mp3);
    }
  }
}

/** Yields the frames. A frame ends where the one with the next number begins, because it doesn't state its length. */
export async function* flacFrames(source: RangeSource): AsyncGenerator<Uint8Array> {
  const { frames } = await openFlacFile(source);
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
      }
      if (source.budget.isPauseDue) await source.budget.pause();
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

/** Yields the packets of the first audio stream of an Ogg. */
export async function* oggPackets(source: RangeSource): AsyncGenerator<Uint8Array> {
  let serial: string | null = null;
  let hasSound = false;
  let begun: Uint8Array[] = [];
  for (let at = 0; at < source.size; ) {
    const page = await pageAt(source, at);
    if (!page) throw damaged();
    at = page.end;
    if (at > source.size) return;
    // The decoder of one stream can't continue with another one.
    if (page.isFirst && hasSound) throw new UnreadableAudio("The file is a chain of streams.");
    hasSound ||= !page.isFirst;
    if (serial === null && page.isFirst && (await streamOf(source, page))) serial = page.serial;
    if (page.serial !== serial) continue;
    if (!page.isContinued) begun = [];
    // The rest of a packet whose start is missing.
    let isSkipped = page.isContinued && begun.length === 0;
    const body = await source.read(page.body, page.end - page.body);
    let [start, end] = [0, 0];
    for (const length of page.lacing) {
      end += length;
      if (length === 255) continue;
      if (!isSkipped) yield join(...begun, body.subarray(start, end));
      [start, begun, isSkipped] = [end, [], false];
    }
    if (end > start && !isSkipped) begun.push(body.subarray(start, end));
    if (begun.length * 65_025 > MAX_WINDOW_BYTES) throw damaged();
  }
}

/** Yields the private data of the first track of a WebM or Matroska, then its packets. */
export async function* matroskaPackets(source: RangeSource): AsyncGenerator<Uint8Array> {
  let [number, isKnown] = [0, false];
  for await (const { name, data, end } of elements(source, 0, source.size, Number.POSITIVE_INFINITY)) {
    const length = end - data;
    const isFirst = !isKnown && (name === TRACK.number || name === TRACK.codecPrivate);
    const isBlock = name === CLUSTER.simpleBlock || name === CLUSTER.block;
    if (!(isFirst || isBlock) || length > MAX_INPUT_BYTES.opus) continue;
    const bytes = await source.read(data, length);
    if (name === TRACK.number) number = uint(bytes);
    if (name === TRACK.codecPrivate) isKnown = true;
    // A number of one byte, two bytes of time, and flags.
    const isOther = isBlock && byte(bytes, 0) !== (number | 0x80);
    if (isBlock && (byte(bytes, 3) & 6) !== 0)
      throw new UnreadableAudio("The blocks of the file have several packets.");
    if (name !== TRACK.number && !isOther) yield isBlock ? bytes.subarray(4) : bytes;
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
