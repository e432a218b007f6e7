/* The common parts of the two formats of seekable.ts. */

export type Bytes = Uint8Array<ArrayBuffer>;

/** A part of a composed file: new bytes, or a range of the recorded stream. */
export type Piece = Bytes | [start: number, end: number];

/** The index of a stream so far. IndexedDB can store it, so it has no methods. */
export interface StreamIndex {
  /** A stream of another format, or with something unexpected, stays as it is. */
  format: "unknown" | "webm" | "mp4" | "other";
  readBytes: number;
  /** Where the next element begins, which may lie behind the bytes that were read. */
  at: number;
  /** The bytes from there on that were read. */
  rest: Bytes;
  /** The elements before the first sound that the composed file keeps. */
  head: Bytes[];
  ticksPerSecond: number;
  trackId: number;
  /** Where the first cluster or fragment begins; -1 before it is there. */
  soundStart: number;
  /** Where the last complete block or fragment ends. */
  soundEnd: number;
  /** The places that the composed file lists, with their times: of clusters or fragments. */
  cuePlaces: number[];
  cueTicks: number[];
  minCueTicks: number;
  /** When the last block begins; -1 before it is there. */
  lastTicks: number;
  /** The shortest time between two blocks. */
  blockTicks: number;
  /** Whether all clusters are listed, and each has an unknown size of eight bytes, which the composed file states. */
  isUnsized: boolean;
  /** Whether the sound is followed by an index of the recorder, which the composed file leaves out. */
  isEnded: boolean;
  /** The cluster or fragment that is being read. */
  group: Group | undefined;
  /** The index once the element before `at` is complete. */
  next: { ticks?: number; endTicks?: number } | undefined;
  /** When the last fragment ends. */
  endTicks: number;
  /** The duration of samples that don't state it. */
  sampleTicks: number;
}

/** A cluster, or a fragment with the boxes before it. */
export interface Group {
  start: number;
  /** When it begins; -1 before that was read. */
  ticks: number;
  endTicks?: number;
  isListed: boolean;
  /** The place and length of a cluster's size, and the end that it states; Infinity if it is unknown. */
  size?: { at: number; bytes: number; end: number };
}

/** The elements before the sound take 600 bytes. */
export const MAX_HEAD_BYTES = 16 * 1024;
/** A composed head lists at most this many places, in at most 21 bytes each. Of four hours, it lists at least half of them. */
export const MAX_CUES = 2048;
/** The places are at least this far apart. */
const CUE_SECONDS = 1;

/** The stream can't be made seekable. */
export class Unexpected extends Error {}

export function uint(bytes: Uint8Array, at: number, length: number): number {
  if (at + length > bytes.length) throw new Unexpected();
  let value = 0;
  for (const byte of bytes.subarray(at, at + length)) value = value * 256 + byte;
  return value;
}

/** Encodes a number in big-endian order. */
export function bytesOf(value: number, length: number): Bytes {
  const bytes = new Uint8Array(length);
  let rest = value;
  for (let at = length - 1; at >= 0; at--) {
    bytes[at] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  return bytes;
}

/** Copies bytes, which otherwise keep alive those around them. */
export const copyOf = (bytes: Uint8Array): Bytes => new Uint8Array(bytes);

export function join(...parts: Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Keeps an element of the head. @returns whether all its bytes are there */
export function keepInHead(index: StreamIndex, bytes: Uint8Array, size: number): boolean {
  if (index.head.reduce((sum, { length }) => sum + length, size) > MAX_HEAD_BYTES) throw new Unexpected();
  if (bytes.length < size) return false;
  index.head.push(copyOf(bytes.subarray(0, size)));
  return true;
}

/**
 * Lists a place, unless it is too close to the one before. If there are too many, every second one stays.
 * @returns whether it did so, and all others stayed
 */
export function listCue(index: StreamIndex, place: number, ticks: number): boolean {
  const { cuePlaces, cueTicks } = index;
  index.minCueTicks ||= CUE_SECONDS * index.ticksPerSecond;
  if (ticks < (cueTicks.at(-1) ?? Number.NEGATIVE_INFINITY) + index.minCueTicks) return false;
  if (cuePlaces.length === MAX_CUES) {
    // Twice the distance of the places so far, which may be longer than the shortest one.
    const [first = 0, last = 0] = [cueTicks[0], cueTicks.at(-1)];
    index.minCueTicks = Math.max(2 * index.minCueTicks, (2 * (last - first)) / MAX_CUES);
    const isKept = (_: number, at: number) => at % 2 === 0;
    index.cuePlaces = cuePlaces.filter(isKept);
    index.cueTicks = cueTicks.filter(isKept);
    listCue(index, place, ticks);
    return false;
  }
  cuePlaces.push(place);
  cueTicks.push(ticks);
  return true;
}
