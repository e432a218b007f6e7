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

/* WebM (RFC 9559) as Chrome records it: clusters of blocks, without duration and cues. */

const EBML = 0x1a45dfa3;
const SEGMENT = 0x18538067;
const SEEK_HEAD = 0x114d9b74;
const INFO = 0x1549a966;
const TRACKS = 0x1654ae6b;
const CUES = 0x1c53bb6b;
const CLUSTER = 0x1f43b675;
const [VOID, CRC] = [0xec, 0xbf];
const [TIMESTAMP, SIMPLE_BLOCK, BLOCK_GROUP, BLOCK] = [0xe7, 0xa3, 0xa0, 0xa1];
const [TIMESTAMP_SCALE, DURATION] = [0x2ad7b1, 0x4489];
const [TRACK_ENTRY, TRACK_NUMBER] = [0xae, 0xd7];
const [SEEK, SEEK_ID, SEEK_POSITION] = [0x4dbb, 0x53ab, 0x53ac];
const [CUE_POINT, CUE_TIME, CUE_TRACK_POSITIONS, CUE_TRACK, CUE_CLUSTER_POSITION] = [0xbb, 0xb3, 0xb7, 0xf7, 0xf1];

/** The longest header of an element, of a block inside, and the block's track and time. */
const BLOCK_BYTES = 12 + 12 + 3;
/** The length of the sizes of segments and clusters. */
const SIZE_BYTES = 8;
const DEFAULT_SCALE = 1_000_000;
/** Positions up to a terabyte, and times of 34 years. */
const CUE_BYTES = 5;

/** The id, size and length of a header; null if bytes are missing. The size is undefined if it is unknown. */
function headerOf(bytes: Uint8Array) {
  const idBytes = Math.clz32(bytes[0] ?? 0) - 23;
  const sizeBytes = Math.clz32(bytes[idBytes] ?? 0) - 23;
  if (bytes.length === 0) return null;
  if (idBytes > 4) throw new Unexpected();
  if (bytes.length <= idBytes) return null;
  if (sizeBytes > 8) throw new Unexpected();
  const length = idBytes + sizeBytes;
  if (bytes.length < length) return null;
  const size = copyOf(bytes.subarray(idBytes, length));
  const isUnknown = size.every((byte, at) => byte === (at === 0 ? (0x1ff >> sizeBytes) & 0xff : 0xff));
  size[0] = (size[0] ?? 0) & (0xff >> sizeBytes);
  return {
    id: uint(bytes, 0, idBytes),
    size: isUnknown ? undefined : uint(size, 0, sizeBytes),
    idBytes,
    sizeBytes,
    length,
  };
}

/** Yields the elements in the data of another one. */
function* elementsIn(data: Uint8Array) {
  for (let at = 0; at < data.length; ) {
    const header = headerOf(data.subarray(at));
    if (header?.size === undefined || at + header.length + header.size > data.length) throw new Unexpected();
    const end = at + header.length + header.size;
    yield { id: header.id, data: data.subarray(at + header.length, end), element: data.subarray(at, end) };
    at = end;
  }
}

/** Returns the data of the first element with this id. */
function find(elements: Uint8Array, id: number): Uint8Array | undefined {
  for (const element of elementsIn(elements)) if (element.id === id) return element.data;
  return undefined;
}

/** Reads the element at `index.at`, whose first bytes these are. @returns false if more of them are needed */
export function readElement(index: StreamIndex, bytes: Uint8Array): boolean {
  const header = headerOf(bytes);
  if (!header) return false;
  const { id, size, idBytes, sizeBytes, length } = header;
  if (id === SEGMENT && index.head.length === 1) {
    index.at += length;
    return true;
  }
  if (id === CLUSTER) {
    if (index.isEnded) throw new Unexpected();
    if (index.soundStart < 0) beginSound(index);
    // It would belong to the one before.
    if (index.group?.isListed === false) index.isUnsized = false;
    const end = size === undefined ? Number.POSITIVE_INFINITY : index.at + length + size;
    index.group = {
      start: index.at,
      ticks: -1,
      isListed: false,
      size: { at: index.at + idBytes, bytes: sizeBytes, end },
    };
    index.at += length;
    return true;
  }
  if (size === undefined) throw new Unexpected();
  const end = length + size;
  const { group } = index;
  if (!group) {
    // The header of the file, and then what belongs to the segment.
    if ((id === EBML) !== (index.head.length === 0)) throw new Unexpected();
    const isKept = id !== SEEK_HEAD && id !== CUES && id !== VOID && id !== CRC;
    if (isKept && !keepInHead(index, bytes, end)) return false;
  } else if (id === TIMESTAMP) {
    if (size > 8) throw new Unexpected();
    if (bytes.length < end) return false;
    group.ticks = uint(bytes, length, size);
  } else if (id === SIMPLE_BLOCK || id === BLOCK_GROUP) {
    if (bytes.length < Math.min(end, BLOCK_BYTES)) return false;
    index.next = { ticks: group.ticks + relativeTicks(bytes.subarray(length, end), id) };
    if (group.ticks < 0) throw new Unexpected();
  } else if (id === EBML || id === SEGMENT) {
    throw new Unexpected();
  } else if (id === CUES || id === SEEK_HEAD) {
    index.isEnded = true;
  } else {
    // Such as tags, which follow the clusters.
    if (idBytes === 4) index.isUnsized = false;
    if (group.isListed) index.next = {};
  }
  index.at += end;
  return true;
}

/** Returns the time of a block since the beginning of its cluster. */
function relativeTicks(data: Uint8Array, id: number): number {
  if (id === BLOCK_GROUP) {
    const inner = headerOf(data);
    if (inner?.id !== BLOCK) throw new Unexpected();
    return relativeTicks(data.subarray(inner.length), BLOCK);
  }
  // The number of the track takes one byte, unless there are more than 126.
  const ticks = uint(data, 1, 2);
  if (((data[0] ?? 0) & 0x80) === 0) throw new Unexpected();
  return ticks >= 0x8000 ? ticks - 0x10000 : ticks;
}

/** Reads what the cues need from the elements before the first cluster. */
function beginSound(index: StreamIndex): void {
  const [, ...elements] = index.head;
  const head = join(...elements);
  const info = find(head, INFO);
  const track = find(find(head, TRACKS) ?? new Uint8Array(), TRACK_ENTRY);
  const number = track && find(track, TRACK_NUMBER);
  if (!info || !number) throw new Unexpected();
  const scale = find(info, TIMESTAMP_SCALE);
  index.ticksPerSecond = 1e9 / (scale ? uint(scale, 0, scale.length) : DEFAULT_SCALE);
  index.trackId = uint(number, 0, number.length);
  index.soundStart = index.at;
}

/** The element before `index.at` is complete. */
export function endElement(index: StreamIndex, { ticks }: NonNullable<StreamIndex["next"]>): void {
  const { group, lastTicks } = index;
  if (ticks !== undefined && group) {
    if (!group.isListed) {
      const isUnsized = group.size?.bytes === SIZE_BYTES && group.size.end === Number.POSITIVE_INFINITY;
      index.isUnsized = listCue(index, group.start, group.ticks) && isUnsized && index.isUnsized;
      group.isListed = true;
    }
    if (lastTicks >= 0 && ticks > lastTicks) index.blockTicks = Math.min(index.blockTicks, ticks - lastTicks);
    index.lastTicks = Math.max(lastTicks, ticks);
  }
  index.soundEnd = index.at;
}

/** The file begins with a duration and cues. The last block is assumed to be as long as the others. */
export function compose(index: StreamIndex): Piece[] | undefined {
  const { soundStart, soundEnd, cuePlaces, cueTicks, lastTicks, blockTicks, group } = index;
  const [ebml = new Uint8Array(), ...kept] = index.head;
  if (blockTicks === Number.POSITIVE_INFINITY) return undefined;
  const duration = new DataView(new ArrayBuffer(8));
  duration.setFloat64(0, lastTicks + blockTicks);
  const elements = kept.map((bytes) => {
    const header = headerOf(bytes);
    if (header?.id !== INFO) return { id: header?.id ?? 0, bytes };
    const others = [...elementsIn(bytes.subarray(header.length))].filter(({ id }) => id !== DURATION && id !== CRC);
    const info = [...others.map(({ element }) => element), make(DURATION, new Uint8Array(duration.buffer))];
    return { id: INFO, bytes: make(INFO, ...info) };
  });
  // The first two passes only measure. Positions count from the data of the segment, and take as many bytes in each.
  const cues = (start: number) =>
    make(CUES, ...cuePlaces.map((place, at) => makeCue(cueTicks[at] ?? 0, index.trackId, start + place - soundStart)));
  const elementBytes = elements.reduce((sum, { bytes }) => sum + bytes.length, 0);
  const listed = elements.filter(({ id }) => id === INFO || id === TRACKS);
  const seekHead = (start: number) => {
    let position = start;
    const positions = new Map<number, number>();
    for (const { id, bytes } of elements) {
      positions.set(id, position);
      position += bytes.length;
    }
    positions.set(CUES, position);
    const entries = [...listed.map(({ id }) => id), CUES].map((id) =>
      make(SEEK, make(SEEK_ID, bytesOf(id, 4)), make(SEEK_POSITION, bytesOf(positions.get(id) ?? 0, CUE_BYTES))),
    );
    return make(SEEK_HEAD, ...entries);
  };
  const seekBytes = seekHead(0).length;
  const headBytes = seekBytes + elementBytes + cues(0).length;
  const head = join(seekHead(seekBytes), ...elements.map(({ bytes }) => bytes), cues(headBytes));
  const segmentBytes = head.length + soundEnd - soundStart;
  // A cluster that has no size gets one, because not every player reads it otherwise, and a torn one gets a shorter size.
  const last = group && soundEnd > group.start ? group.size : undefined;
  const torn = last && last.end > soundEnd && last.end < Number.POSITIVE_INFINITY ? [last] : [];
  const sizes = index.isUnsized ? cuePlaces.map((place) => ({ at: place + 4, bytes: SIZE_BYTES })) : torn;
  const pieces: Piece[] = [join(ebml, bytesOf(SEGMENT, 4), sizeOf(segmentBytes, SIZE_BYTES), head)];
  let start = soundStart;
  for (const [at, size] of sizes.entries()) {
    const data = size.at + size.bytes;
    const next = sizes[at + 1];
    pieces.push([start, size.at], sizeOf((next ? next.at - 4 : soundEnd) - data, size.bytes));
    start = data;
  }
  return [...pieces, [start, soundEnd]];
}

function makeCue(ticks: number, track: number, position: number): Bytes {
  const positions = make(
    CUE_TRACK_POSITIONS,
    make(CUE_TRACK, Uint8Array.of(track)),
    make(CUE_CLUSTER_POSITION, bytesOf(position, CUE_BYTES)),
  );
  return make(CUE_POINT, make(CUE_TIME, bytesOf(ticks, CUE_BYTES)), positions);
}

/** Makes an element with as short a size as possible. */
function make(id: number, ...parts: Uint8Array[]): Bytes {
  const size = parts.reduce((sum, { length }) => sum + length, 0);
  const idBytes = Math.ceil((32 - Math.clz32(id)) / 8);
  return join(bytesOf(id, idBytes), sizeOf(size, size < 0x7f ? 1 : 4), ...parts);
}

/** Encodes a size: the first set bit says in how many bytes. */
function sizeOf(size: number, length: number): Bytes {
  const bytes = bytesOf(size, length);
  bytes[0] = (bytes[0] ?? 0) | (0x100 >> length);
  return bytes;
}
