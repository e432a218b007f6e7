import {
  type Bytes,
  bytesOf,
  copyOf,
  join,
  keepInHead,
  listCue,
  type Piece,
  type StreamIndex,
  Unexpected,
  uint,
} from "./seekable-bytes.ts";

/* Fragmented MP4 (ISO/IEC 14496-12) as Safari records it: fragments of samples, without a duration and an index. */

/** The tables of a fragment take 8 bytes for a sample. Ten seconds have 500. */
const MAX_FRAGMENT_BYTES = 64 * 1024;
/** The offsets of durations, by the version of the box: 4 bytes in version 0, and 8 in version 1. */
const DURATIONS: Record<string, [number, number]> = { mvhd: [16, 24], mdhd: [16, 24], tkhd: [20, 28] };
const CONTAINERS = ["moov", "trak", "mdia", "moof", "traf", "mvex", "edts"];
/** Every fragment begins with a sample that can be decoded alone. */
const STARTS_WITH_SAP = 0x90000000;

interface Box {
  name: string;
  data: Uint8Array;
  box: Uint8Array;
}

const nameOf = (bytes: Uint8Array) => String.fromCharCode(...bytes.subarray(4, 8));

/** The size of the box that begins with these bytes, and of its header; null if bytes are missing. */
function sizesOf(bytes: Uint8Array) {
  if (bytes.length < 8) return null;
  const stated = uint(bytes, 0, 4);
  if (stated !== 1) return { size: stated, headerBytes: 8 };
  return bytes.length < 16 ? null : { size: uint(bytes, 8, 8), headerBytes: 16 };
}

function* boxesIn(bytes: Uint8Array): Generator<Box> {
  for (let at = 0; at < bytes.length; ) {
    const sizes = sizesOf(bytes.subarray(at));
    if (!sizes || sizes.size < sizes.headerBytes || at + sizes.size > bytes.length) throw new Unexpected();
    const box = bytes.subarray(at, at + sizes.size);
    yield { name: nameOf(box), data: box.subarray(sizes.headerBytes), box };
    at += sizes.size;
  }
}

/** Yields these boxes and those inside them. */
function* allBoxes(bytes: Uint8Array): Generator<Box> {
  for (const box of boxesIn(bytes)) {
    yield box;
    if (CONTAINERS.includes(box.name)) yield* allBoxes(box.data);
  }
}

/** Reads the box at `index.at`, whose first bytes these are. @returns false if more of them are needed */
export function readElement(index: StreamIndex, bytes: Uint8Array): boolean {
  const sizes = sizesOf(bytes);
  if (!sizes) return false;
  const name = nameOf(bytes);
  const { size, headerBytes } = sizes;
  // A size of 0 reaches to the end of the file.
  if (size < headerBytes) throw new Unexpected();
  const isBegun = index.ticksPerSecond > 0;
  if (!isBegun) {
    if (name === "mdat" || name === "moof") throw new Unexpected();
    if (name !== "free" && name !== "skip" && !keepInHead(index, bytes, size)) return false;
    if (name === "moov") readMovie(index, bytes.subarray(0, size));
  } else if (name === "mfra") {
    index.isEnded = true;
  } else {
    if (index.isEnded || name === "moov") throw new Unexpected();
    if (index.soundStart < 0) index.soundStart = index.at;
    const group = index.group ?? { start: index.at, ticks: -1, isListed: false };
    if (name === "moof") {
      if (size > MAX_FRAGMENT_BYTES || group.ticks >= 0) throw new Unexpected();
      if (bytes.length < size) return false;
      Object.assign(group, readFragment(index, bytes.subarray(headerBytes, size)));
    }
    if (name === "mdat") {
      if (group.ticks < 0) throw new Unexpected();
      index.next = {};
    }
    index.group = group;
  }
  index.at += size;
  return true;
}

/** Reads what the index needs. A movie with several tracks is none that a microphone makes. */
function readMovie(index: StreamIndex, moov: Uint8Array): void {
  const boxes = [...allBoxes(moov)];
  const find = (name: string) => boxes.find((box) => box.name === name)?.data ?? new Uint8Array();
  const isWide = (data: Uint8Array) => data[0] === 1;
  if (boxes.filter(({ name }) => name === "trak").length !== 1) throw new Unexpected();
  const [tkhd, mdhd] = [find("tkhd"), find("mdhd")];
  index.trackId = uint(tkhd, isWide(tkhd) ? 20 : 12, 4);
  index.ticksPerSecond = uint(mdhd, isWide(mdhd) ? 20 : 12, 4);
  index.sampleTicks = uint(find("trex"), 12, 4);
  if (index.ticksPerSecond === 0) throw new Unexpected();
}

/** Returns when the samples of a fragment begin and end. */
function readFragment(index: StreamIndex, moof: Uint8Array) {
  let ticks = index.endTicks;
  let sum = 0;
  let { sampleTicks } = index;
  let isTrack = false;
  for (const { name, data } of allBoxes(moof)) {
    if (name === "traf") isTrack = false;
    if (name === "tfhd") {
      const flags = uint(data, 1, 3);
      isTrack = uint(data, 4, 4) === index.trackId;
      // The place of the samples in the file, which an index before them would change.
      if (flags & 1) throw new Unexpected();
      sampleTicks = flags & 8 ? uint(data, flags & 2 ? 12 : 8, 4) : index.sampleTicks;
    }
    if (!isTrack) continue;
    if (name === "tfdt") ticks = data[0] === 1 ? uint(data, 4, 8) : uint(data, 4, 4);
    if (name === "trun") sum += runTicks(data, sampleTicks);
  }
  return { ticks, endTicks: ticks + sum };
}

/** Returns how long the samples of a run are. */
function runTicks(run: Uint8Array, sampleTicks: number): number {
  const flags = uint(run, 1, 3);
  const count = uint(run, 4, 4);
  if (!(flags & 0x100)) return count * sampleTicks;
  const rowBytes = 4 * [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
  const start = 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0);
  let ticks = 0;
  for (let row = 0; row < count; row++) ticks += uint(run, start + row * rowBytes, 4);
  return ticks;
}

/** The samples of a fragment are complete. */
export function endElement(index: StreamIndex): void {
  const { group } = index;
  if (!group) return;
  listCue(index, group.start, group.ticks);
  index.lastTicks = group.ticks;
  index.endTicks = group.endTicks ?? group.ticks;
  index.soundEnd = index.at;
  index.group = undefined;
}

/** The file begins with its duration and an index of the fragments. */
export function compose(index: StreamIndex): Piece[] | undefined {
  const { cuePlaces, cueTicks, soundStart, soundEnd, endTicks, ticksPerSecond, trackId } = index;
  const [firstTicks = 0] = cueTicks;
  if (endTicks <= firstTicks) return undefined;
  const boxes = [...allBoxes(join(...index.head))];
  const mvhd = boxes.find(({ name }) => name === "mvhd")?.data ?? new Uint8Array();
  const movieScale = uint(mvhd, mvhd[0] === 1 ? 20 : 12, 4);
  const mediaTicks = endTicks - firstTicks;
  const movieTicks = Math.round(((mediaTicks - skippedTicks(boxes)) * movieScale) / ticksPerSecond);
  const rewrite = (bytes: Uint8Array): Bytes =>
    join(
      ...[...boxesIn(bytes)].map(({ name, data, box }) => {
        const offsets = DURATIONS[name];
        if (offsets) return withDuration(box, data, offsets, name === "mdhd" ? mediaTicks : movieTicks);
        if (name === "mvex") {
          const others = [...boxesIn(data)].filter((one) => one.name !== "mehd").map((one) => one.box);
          return make("mvex", make("mehd", bytesOf(1, 1), bytesOf(0, 3), bytesOf(movieTicks, 8)), ...others);
        }
        return CONTAINERS.includes(name) && name !== "edts" ? make(name, rewrite(data)) : box;
      }),
    );
  const rows = cuePlaces.flatMap((place, at) => [
    bytesOf((cuePlaces[at + 1] ?? soundEnd) - place, 4),
    bytesOf((cueTicks[at + 1] ?? endTicks) - (cueTicks[at] ?? 0), 4),
    bytesOf(STARTS_WITH_SAP, 4),
  ]);
  const sidx = make(
    "sidx",
    // Version 1, with the first fragment right behind it.
    join(bytesOf(1, 1), bytesOf(0, 3), bytesOf(trackId, 4), bytesOf(ticksPerSecond, 4)),
    join(bytesOf(firstTicks, 8), bytesOf(0, 8), bytesOf(cuePlaces.length, 4)),
    ...rows,
  );
  return [join(rewrite(join(...index.head)), sidx), [soundStart, soundEnd]];
}

/** Encoders begin with some silence, which an edit list skips. */
function skippedTicks(boxes: Box[]): number {
  const elst = boxes.find(({ name }) => name === "elst")?.data;
  if (!elst || uint(elst, 4, 4) !== 1) return 0;
  const ticks = elst[0] === 1 ? uint(elst, 16, 8) : uint(elst, 12, 4);
  // The time is signed; -1 is a pause.
  return ticks < 0x80000000 ? ticks : 0;
}

function withDuration(box: Uint8Array, data: Uint8Array, offsets: [number, number], ticks: number): Bytes {
  const copy = copyOf(box);
  const isWide = data[0] === 1;
  const at = box.length - data.length + offsets[isWide ? 1 : 0];
  copy.set(bytesOf(ticks, isWide ? 8 : 4), at);
  return copy;
}

function make(name: string, ...parts: Uint8Array[]): Bytes {
  const body = join(...parts);
  return join(
    bytesOf(body.length + 8, 4),
    Uint8Array.from(name, (letter) => letter.charCodeAt(0)),
    body,
  );
}
