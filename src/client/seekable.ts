import { copyOf, join, type Piece, type StreamIndex, Unexpected, uint } from "./seekable-bytes.ts";
import * as mp4 from "./seekable-mp4.ts";
import * as webm from "./seekable-webm.ts";

export type { Piece, StreamIndex } from "./seekable-bytes.ts";

/*
 * Makes recordings seekable. A browser writes the head of a recording before it knows the duration and the places of the
 * sound, so players must load a file up to the place that they play. This module collects both while the browser records,
 * and composes a head for the file. An Ogg needs none: each of its pages states its time.
 */

/** The bytes of a long recording that are read at once after a crash. */
const SLICE_BYTES = 1024 * 1024;
/** The id of EBML, with which WebM begins. */
const WEBM = 0x1a45dfa3;
/** `ftyp`, the second half of the first box of an MP4. */
const MP4 = 0x66747970;

export const createIndex = (): StreamIndex => ({
  format: "unknown",
  readBytes: 0,
  at: 0,
  rest: new Uint8Array(),
  head: [],
  ticksPerSecond: 0,
  trackId: 0,
  soundStart: -1,
  soundEnd: -1,
  cuePlaces: [],
  cueTicks: [],
  minCueTicks: 0,
  lastTicks: -1,
  blockTicks: Number.POSITIVE_INFINITY,
  isUnsized: true,
  isEnded: false,
  group: undefined,
  next: undefined,
  endTicks: 0,
  sampleTicks: 0,
});

/** Reads the next bytes of the stream. The result does not depend on how it is split. */
export function addBytes(index: StreamIndex, bytes: Uint8Array): void {
  let start = index.readBytes - index.rest.length;
  let rest: Uint8Array = index.rest.length > 0 ? join(index.rest, bytes) : bytes;
  index.readBytes += bytes.length;
  index.rest = new Uint8Array();
  try {
    if (index.format === "unknown") {
      index.rest = copyOf(rest);
      if (rest.length < 8) return;
      index.rest = new Uint8Array();
      index.format = uint(rest, 0, 4) === WEBM ? "webm" : uint(rest, 4, 4) === MP4 ? "mp4" : "other";
    }
    if (index.format === "other") return;
    const format = index.format === "webm" ? webm : mp4;
    while (index.at <= index.readBytes) {
      const { next } = index;
      index.next = undefined;
      if (next) format.endElement(index, next);
      rest = rest.subarray(index.at - start);
      start = index.at;
      if (format.readElement(index, rest)) continue;
      index.rest = copyOf(rest);
      return;
    }
  } catch (error) {
    if (!(error instanceof Unexpected)) throw error;
    index.format = "other";
  }
}

/** Reads the bytes of the stream that are not yet in the index. */
export async function readRest(index: StreamIndex, stream: Blob): Promise<void> {
  while (index.readBytes < stream.size) {
    const slice = stream.slice(index.readBytes, index.readBytes + SLICE_BYTES);
    addBytes(index, new Uint8Array(await slice.arrayBuffer()));
  }
}

/** Composes the seekable file. @returns undefined if the stream stays as it is */
export function compose(index: StreamIndex): Piece[] | undefined {
  if (index.lastTicks < 0) return undefined;
  try {
    return index.format === "webm" ? webm.compose(index) : index.format === "mp4" ? mp4.compose(index) : undefined;
  } catch (error) {
    if (!(error instanceof Unexpected)) throw error;
    return undefined;
  }
}

/** Composes the file of a recording that has ended. @param index what is known of it; without one, all is read */
export async function composeParts(parts: Blob[], index = createIndex()): Promise<Piece[] | undefined> {
  try {
    await readRest(index, new Blob(parts));
    return compose(index);
  } catch {
    // The browser can't read a part. The file stays as it was recorded.
    return undefined;
  }
}
