import { byte, join, latin1, type RangeSource, type Reading, UnreadableAudio, uint } from "./range-source.ts";
import { MAX_ITEMS, type ReadText, readTexts, type TextBudget } from "./tags.ts";

/* Matroska and WebM (RFC 9559): elements of an id, a length and data, some of which hold further elements. */

/** What is gone into; other elements are passed by as a whole. */
const CONTAINER = {
  ebml: 0x1a45dfa3,
  segment: 0x18538067,
  seekHead: 0x114d9b74,
  seek: 0x4dbb,
  info: 0x1549a966,
  tracks: 0x1654ae6b,
  trackEntry: 0xae,
  audio: 0xe1,
  tags: 0x1254c367,
  cluster: 0x1f43b675,
  blockGroup: 0xa0,
};
const ID = {
  ...CONTAINER,
  docType: 0x4282,
  seekId: 0x53ab,
  seekPosition: 0x53ac,
  timestampScale: 0x2ad7b1,
  duration: 0x4489,
  trackType: 0x83,
  codecId: 0x86,
  samplingFrequency: 0xb5,
  outputSamplingFrequency: 0x78b5,
  channels: 0x9f,
  tag: 0x7373,
  timestamp: 0xe7,
  block: 0xa1,
  simpleBlock: 0xa3,
};
const CONTAINERS = new Set(Object.values(CONTAINER));
const MAX_INFO_BYTES = 16 * 1024;
/** A header of so many elements is none; a cluster of so many blocks is longer than any recorder's. */
const MAX_HEADER_ELEMENTS = 2000;
/** Where the first block must be, to be taken for the start. */
const MAX_FIRST_ELEMENTS = 16;
const MAX_CLUSTER_ELEMENTS = 50_000;
/** By codec ids (draft-ietf-cellar-codec); of the others it isn't known. */
const LOSSLESS = /^(FLAC|ALAC|PCM|TTA|WAVPACK)/;
const LOSSY = /^(OPUS|VORBIS|AAC|MPEG|E?AC3|DTS)/;
/** The longest value that is read. */
const MAX_VALUE_BYTES = 64;
/** A stated length is right or far off. */
const TOLERANCE_SECONDS = 0.25;
/** Track types. */
const [VIDEO, AUDIO] = [1, 2];

class Track {
  type = 0;
  codecId = "";
  /** The defaults of the format. */
  sampleRate = 8000;
  outputRate = 0;
  channels = 1;
}

/** The elements from `position` on, in order and flat: what is inside a container comes after it. */
async function* elements(source: RangeSource, position: number, limit: number) {
  for (let at = position, n = 0; at < source.size && n < limit; n++) {
    const head = await source.upTo(at, 12);
    const idBytes = Math.clz32(byte(head, 0)) - 23;
    const sizeBytes = Math.clz32(byte(head, idBytes)) - 23;
    if (idBytes > 4 || sizeBytes > 8 || idBytes + sizeBytes > head.length) return;
    const id = uint(head, 0, idBytes);
    const size = head.slice(idBytes, idBytes + sizeBytes);
    size[0] = byte(size, 0) & (0xff >> sizeBytes);
    const length = uint(size);
    const data = at + idBytes + sizeBytes;
    // A length of all ones is "unknown", which only a container may have; it is a huge number and ends the walk.
    yield { id, start: at, data, length };
    at = CONTAINERS.has(id) ? data : data + length;
  }
}

/**
 * Matroska and WebM. The length is from the first block to the last one, since what browsers record states none and
 * what is cut off states too much; the stated one counts where it is close to that, and where the tail has no cluster.
 */
export async function readMatroska(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const tracks: Track[] = [];
  let docType = "";
  const texts: ReadText[] = [];
  let firstCluster = source.size;
  let segmentStart = start;
  let secondsPerTick = 1e-3;
  let statedTicks = 0;
  let seekId = 0;
  let tagsAt = 0;
  for await (const { id, start: at, data, length } of elements(source, start, MAX_HEADER_ELEMENTS)) {
    const whole = data + length - at;
    const value = length <= MAX_VALUE_BYTES ? await source.copy(data, length) : none;
    if (id === ID.segment) segmentStart = data;
    if (id === ID.docType) docType = latin1(value);
    if (id === ID.info && whole <= MAX_INFO_BYTES) texts.push(() => source.copy(at, whole));
    if (id === ID.trackEntry) tracks.push(new Track());
    const track = tracks.at(-1) ?? new Track();
    if (id === ID.trackType) track.type = uint(value);
    if (id === ID.codecId) track.codecId = latin1(value);
    if (id === ID.samplingFrequency) track.sampleRate = float(value);
    if (id === ID.outputSamplingFrequency) track.outputRate = float(value);
    if (id === ID.channels) track.channels = uint(value);
    if (id === ID.timestampScale) secondsPerTick = uint(value) / 1e9;
    if (id === ID.duration) statedTicks = float(value);
    if (id === ID.seekId) seekId = uint(value);
    if (id === ID.seekPosition && seekId === ID.tags) tagsAt = segmentStart + uint(value);
    if (id === ID.tag && budget.admits(whole)) texts.push(async () => ebml(ID.tags, await source.copy(at, whole)));
    if (id === ID.cluster) {
      firstCluster = at;
      break;
    }
  }
  if (tagsAt > firstCluster) texts.push(() => readTags(source, tagsAt, budget));
  const hasVideo = tracks.some(({ type }) => type === VIDEO);
  const track = tracks.find(({ type }) => type === AUDIO);
  if (!track && !hasVideo) throw new UnreadableAudio("The file has no audio track.");
  const { codecId, sampleRate, outputRate, channels } = track ?? new Track();
  const codec = codecId.replace(/^A_/, "");
  const stated = statedTicks * secondsPerTick;
  const first = hasVideo ? null : await blockTimes(source, firstCluster, MAX_FIRST_ELEMENTS);
  let measured: number | null = null;
  let isStatedTrue = true;
  for await (const mark of source.lastMarks("\x1f\x43\xb6\x75", firstCluster)) {
    if (first === null) break;
    const times = await blockTimes(source, mark, MAX_CLUSTER_ELEMENTS);
    if (times === null) continue;
    // The last block is taken to be as long as the one before it; with lacing, it may be much shorter.
    const lastStart = (times.last - first.first) * secondsPerTick;
    measured = lastStart + (times.last - times.beforeLast) * secondsPerTick;
    isStatedTrue = stated > lastStart - TOLERANCE_SECONDS && stated < measured + TOLERANCE_SECONDS;
    break;
  }
  return {
    container: `EBML/${docType}`,
    codec,
    sampleRate: outputRate || sampleRate,
    channels,
    lossless: LOSSLESS.test(codec) || (LOSSY.test(codec) ? false : null),
    seconds: stated > 0 && isStatedTrue ? stated : measured,
    soundBytes: source.size - firstCluster,
    hasVideo,
    readTags: async () => ebml(ID.segment, ...(await readTexts(texts))),
  };
}

/** The tags in the element at `start`, where the index says that it is. */
async function readTags(source: RangeSource, start: number, budget: TextBudget): Promise<Uint8Array> {
  const tags: Uint8Array[] = [];
  for await (const { id, start: at, data, length } of elements(source, start, MAX_ITEMS)) {
    if (id !== ID.tags && id !== ID.tag) break;
    if (id === ID.tag && budget.admits(data + length - at)) tags.push(await source.copy(at, data + length - at));
  }
  return tags.length === 0 ? none : ebml(ID.tags, ...tags);
}

const none = new Uint8Array();

/** An element of four bytes of id, with a length of eight bytes. */
function ebml(id: number, ...parts: Uint8Array[]): Uint8Array {
  const body = join(...parts);
  const head = new DataView(new ArrayBuffer(12));
  head.setUint32(0, id);
  head.setUint32(4, 0x01000000);
  head.setUint32(8, body.length);
  return join(new Uint8Array(head.buffer), body);
}

function float(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return bytes.length === 4 ? view.getFloat32(0) : bytes.length === 8 ? view.getFloat64(0) : 0;
}

/** The times in ticks of a cluster's first block and of its last two, of the first `limit` elements; null without any. */
async function blockTimes(source: RangeSource, cluster: number, limit: number) {
  let clusterTicks: number | null = null;
  let first = Number.NaN;
  let beforeLast = Number.NEGATIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  for await (const { id, data, length } of elements(source, cluster, limit)) {
    // No integer of EBML is longer than 8 bytes.
    if (id === ID.timestamp && length > 8) return null;
    if (id === ID.timestamp) clusterTicks = uint(await source.upTo(data, length));
    if ((id !== ID.block && id !== ID.simpleBlock) || clusterTicks === null) continue;
    if (data + length > source.size) break;
    // Track number (one byte below 127 tracks), then a signed 16-bit time relative to the cluster's.
    const relative = uint(await source.upTo(data + 1, 2));
    const ticks = clusterTicks + (relative >= 0x8000 ? relative - 0x10000 : relative);
    if (Number.isNaN(first)) first = ticks;
    beforeLast = Math.max(beforeLast, Math.min(ticks, last));
    last = Math.max(last, ticks);
  }
  return Number.isNaN(first) ? null : { first, beforeLast: Math.max(beforeLast, first), last };
}
