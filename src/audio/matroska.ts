import type { RangeSource, Reading } from "./range-source.ts";
import { be32, byte, join, latin1, UnreadableAudio, uint } from "./range-source.ts";
import { copyTexts, type ReadText, readTexts } from "./tags.ts";

/* Matroska and WebM (RFC 9559): elements with an id, a length, and data. Some contain further elements. */

/* Element ids. */
const FILE = { ebml: "1a45dfa3", docType: "4282", segment: "18538067", info: "1549a966" };
const SEEK = { head: "114d9b74", entry: "4dbb", id: "53ab", position: "53ac" };
const TIME = { scale: "2ad7b1", duration: "4489" };
export const TRACK = { all: "1654ae6b", entry: "ae", number: "d7", type: "83", codecId: "86", codecPrivate: "63a2" };
const AUDIO = { all: "e1", samplingFrequency: "b5", outputSamplingFrequency: "78b5", channels: "9f" };
const TAGS = { all: "1254c367", tag: "7373" };
export const CLUSTER = { all: "1f43b675", timestamp: "e7", simpleBlock: "a3", blockGroup: "a0", block: "a1" };
/** The walk enters these elements and skips all others. */
const CONTAINERS = [
  ...[FILE.ebml, FILE.segment, FILE.info, SEEK.head, SEEK.entry, TRACK.all, TRACK.entry],
  ...[AUDIO.all, TAGS.all, CLUSTER.all, CLUSTER.blockGroup],
];

/** The first block must be within this many elements of the first cluster to count as the start. */
const MAX_FIRST_ELEMENTS = 16;
/** More than any recorder writes into a cluster. */
const MAX_CLUSTER_ELEMENTS = 50_000;
/** Codec ids (draft-ietf-cellar-codec). For other codecs, it is unknown whether they are lossless. */
const LOSSLESS = /^(FLAC|ALAC|PCM|TTA|WAVPACK)/;
const LOSSY = /^(OPUS|VORBIS|AAC|MPEG|E?AC3|DTS)/;
/** The longest value that is read. Codec ids are the longest ones. */
const MAX_VALUE_BYTES = 64;
/** A stated length is either correct or far off. */
const TOLERANCE_SECONDS = 0.25;
const [VIDEO_TRACK, AUDIO_TRACK] = [1, 2];

class Track {
  type = 0;
  codecId = "";
  /** These are the defaults of the format. */
  sampleRate = 8000;
  outputRate = 0;
  channels = 1;
}

/** Yields the elements from `start` on. A length of all ones means unknown: as a huge number, it ends the walk. */
export function elements(source: RangeSource, start: number, end = source.size, max?: number) {
  const parse = (header: Uint8Array) => {
    const idBytes = Math.clz32(byte(header, 0)) - 23;
    const sizeBytes = Math.clz32(byte(header, idBytes)) - 23;
    const headerBytes = idBytes + sizeBytes;
    if (idBytes > 4 || sizeBytes > 8 || headerBytes > header.length) return null;
    const name = uint(header, 0, idBytes).toString(16);
    const size = header.slice(idBytes, headerBytes);
    size[0] = byte(size, 0) & (0xff >> sizeBytes);
    return { name, headerBytes, bodyBytes: uint(size), isEntered: CONTAINERS.includes(name) };
  };
  return source.segments(start, end, 12, parse, max);
}

/**
 * Reads Matroska and WebM. The length runs from the first block to the last one, because browsers record files without a
 * stated length, and a truncated file states too much. The stated length counts if it is close, or if the tail has no
 * cluster.
 */
export async function readMatroska(source: RangeSource): Promise<Reading | null> {
  const tracks: Track[] = [];
  const texts: ReadText[] = [];
  let docType = "";
  let firstCluster = source.size;
  let segmentStart = 0;
  let secondsPerTick = 1e-3;
  let statedTicks = 0;
  let seekId = "";
  let tags = { start: 0, end: 0 };
  for await (const { name, start: at, data, end } of elements(source, 0)) {
    const value = await source.read(data, end - data <= MAX_VALUE_BYTES ? end - data : 0);
    const track = tracks.at(-1) ?? new Track();
    if (name === FILE.segment) segmentStart = data;
    if (name === FILE.docType) docType = latin1(value);
    if (name === FILE.info) {
      texts.push(async () => (source.budget.chargeText(end - at) ? source.read(at, end - at) : new Uint8Array()));
    }
    if (name === TRACK.entry) tracks.push(new Track());
    if (name === TRACK.type) track.type = uint(value);
    if (name === TRACK.codecId) track.codecId = latin1(value);
    if (name === AUDIO.samplingFrequency) track.sampleRate = float(value);
    if (name === AUDIO.outputSamplingFrequency) track.outputRate = float(value);
    if (name === AUDIO.channels) track.channels = uint(value);
    if (name === TIME.scale) secondsPerTick = uint(value) / 1e9;
    if (name === TIME.duration) statedTicks = float(value);
    if (name === SEEK.id) seekId = uint(value).toString(16);
    if (name === SEEK.position && seekId === TAGS.all) tags = { start: segmentStart + uint(value), end: source.size };
    if (name === TAGS.all) tags = { start: at, end };
    if (name === CLUSTER.all) {
      firstCluster = at;
      break;
    }
  }
  texts.push(async () => {
    const segments = elements(source, tags.start, tags.end);
    return makeElement(TAGS.all, ...(await copyTexts(source, segments, ({ name }) => name === TAGS.tag)));
  });
  if (tracks.some(({ type }) => type === VIDEO_TRACK)) return null;
  const track = tracks.find(({ type }) => type === AUDIO_TRACK);
  if (!track) throw new UnreadableAudio("The file has no audio track.");
  const codec = track.codecId.replace(/^A_/, "");
  return {
    container: `EBML/${docType}`,
    codec,
    sampleRate: track.outputRate || track.sampleRate,
    channels: track.channels,
    lossless: LOSSLESS.test(codec) || (LOSSY.test(codec) ? false : null),
    seconds: await measureSeconds(source, firstCluster, secondsPerTick, statedTicks * secondsPerTick),
    soundBytes: source.size - firstCluster,
    readTags: async () => makeElement(FILE.segment, await readTexts(texts)),
  };
}

/** Makes an element with a length of eight bytes, for music-metadata. */
function makeElement(id: string, ...contents: Uint8Array[]): Uint8Array {
  const body = join(...contents);
  return join(be32(Number.parseInt(id, 16)), be32(0x01000000), be32(body.length), body);
}

function float(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return bytes.length === 4 ? view.getFloat32(0) : bytes.length === 8 ? view.getFloat64(0) : 0;
}

/** Measures from the first block to the last one. Returns the stated length if it is close, or if there is no block. */
async function measureSeconds(source: RangeSource, firstCluster: number, secondsPerTick: number, stated: number) {
  const first = await blockTimes(source, firstCluster, MAX_FIRST_ELEMENTS);
  const readCluster = (mark: number) => blockTimes(source, mark, MAX_CLUSTER_ELEMENTS);
  const last = first && (await source.findLast("\x1f\x43\xb6\x75", firstCluster, readCluster));
  if (!first || !last) return stated > 0 ? stated : null;
  // The last block is assumed to be as long as the one before it. With lacing, it may be much shorter.
  const lastStart = (last.last - first.first) * secondsPerTick;
  const measured = lastStart + (last.last - last.beforeLast) * secondsPerTick;
  const isCorrect = stated > lastStart - TOLERANCE_SECONDS && stated < measured + TOLERANCE_SECONDS;
  return stated > 0 && isCorrect ? stated : measured;
}

/** Returns the times in ticks of a cluster's first and last two blocks, within `max` elements; null if it has none. */
async function blockTimes(source: RangeSource, cluster: number, max: number) {
  let clusterTicks: number | null = null;
  let first = Number.NaN;
  let beforeLast = Number.NEGATIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  for await (const { name, data, end } of elements(source, cluster, source.size, max)) {
    // An EBML integer has at most 8 bytes.
    if (name === CLUSTER.timestamp && end - data > 8) return null;
    if (name === CLUSTER.timestamp) clusterTicks = uint(await source.read(data, end - data));
    if ((name !== CLUSTER.block && name !== CLUSTER.simpleBlock) || clusterTicks === null) continue;
    if (end > source.size) break;
    // A track number (one byte below 127 tracks), then a signed 16-bit time relative to that of the cluster.
    const relative = uint(await source.read(data + 1, 2));
    const ticks = clusterTicks + (relative >= 0x8000 ? relative - 0x10000 : relative);
    if (Number.isNaN(first)) first = ticks;
    beforeLast = Math.max(beforeLast, Math.min(ticks, last));
    last = Math.max(last, ticks);
  }
  return Number.isNaN(first) ? null : { first, beforeLast: Math.max(beforeLast, first), last };
}
