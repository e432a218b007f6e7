import { boxes, fieldBehindTimes } from "../mp4.ts";
import {
  join,
  latin1,
  MAX_WINDOW_BYTES,
  type RangeSource,
  type Segment,
  UnreadableAudio,
  uint,
} from "../range-source.ts";
import { MAX_INPUT_BYTES } from "./decoders.ts";

/* The packets of Opus in MP4 (ISO/IEC 14496-12, and the mapping of Opus by Xiph). */

/** Two million samples: eleven hours of Opus in its usual packets. */
const MAX_TABLE_BYTES = 8 * 1024 * 1024;
/** The bytes of a sample description in front of its first entry, and of an entry in front of its boxes. */
const DESCRIPTION_BYTES = 8;
const ENTRY_BYTES = 36;
/** More than the header of eight channels. */
const MAX_HEAD_BYTES = 32;

const damaged = () => new UnreadableAudio("The file is damaged.");

/** The first audio track. */
interface Track {
  id: number;
  head: Uint8Array;
  /** The bytes of a sample in fragments that state none. */
  sampleBytes: number;
  sizes: Uint8Array;
  chunks: Uint8Array;
  offsets: Uint8Array;
  /** The bytes of an offset. */
  offsetBytes: number;
  /** Where the first fragment begins. */
  end: number;
}

async function readTable(source: RangeSource, { data, end }: Segment): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  const stop = Math.min(end, source.size, data + MAX_TABLE_BYTES);
  for (let at = data; at < stop; at += MAX_WINDOW_BYTES) {
    parts.push(await source.read(at, Math.min(stop - at, MAX_WINDOW_BYTES)));
  }
  return join(...parts);
}

/** Makes the header of Opus in Ogg, whose numbers have the other order of bytes. */
async function readHead(source: RangeSource, description: Segment): Promise<Uint8Array> {
  const inner = description.data + DESCRIPTION_BYTES + ENTRY_BYTES;
  for await (const { name, data, end } of boxes(source, inner, description.end, false)) {
    if (name !== "dOps") continue;
    const body = await source.read(data, Math.min(end - data, MAX_HEAD_BYTES));
    const reversed = (at: number, bytes: number) => body.slice(at, at + bytes).reverse();
    return join("OpusHead\x01", body.subarray(1, 2), reversed(2, 2), reversed(4, 4), reversed(8, 2), body.subarray(10));
  }
  throw damaged();
}

async function readTrack(source: RangeSource): Promise<Track> {
  const none: Uint8Array = new Uint8Array();
  const track = {
    id: 0,
    head: none,
    sampleBytes: 0,
    sizes: none,
    chunks: none,
    offsets: none,
    offsetBytes: 4,
    end: source.size,
  };
  let [id, isOfTrack, isFound] = [0, false, false];
  for await (const box of boxes(source, 0, source.size, true, Number.POSITIVE_INFINITY)) {
    const { name, start, data } = box;
    if (name === "moof") {
      track.end = start;
      break;
    }
    if (name === "trak") isOfTrack = false;
    if (name === "tkhd") id = fieldBehindTimes(await source.read(data, 32));
    // It is in front of the tables. QuickTime has another one behind them, for the data.
    if (name === "hdlr" && !isFound && latin1(await source.read(data, 12), 8) === "soun") {
      [isOfTrack, isFound, track.id] = [true, true, id];
    }
    if (name === "trex") {
      const body = await source.read(data, 24);
      if (uint(body, 4, 4) === track.id) track.sampleBytes = uint(body, 16, 4);
    }
    if (!isOfTrack) continue;
    if (name === "stsd") track.head = await readHead(source, box);
    if (name === "stsz") track.sizes = await readTable(source, box);
    if (name === "stsc") track.chunks = await readTable(source, box);
    if (name === "stco" || name === "co64") {
      [track.offsets, track.offsetBytes] = [await readTable(source, box), name === "stco" ? 4 : 8];
    }
  }
  return track;
}

/** Where a packet is. */
type Place = [at: number, bytes: number];

/** Yields the packets in the tables of the movie: samples, which follow each other in chunks. */
function* moviePackets({ sizes, chunks, offsets, offsetBytes }: Track): Generator<Place> {
  const [sameBytes, count] = [uint(sizes, 4, 4), uint(sizes, 8, 4)];
  let [sample, row] = [0, 0];
  for (let chunk = 1; chunk <= uint(offsets, 4, 4) && sample < count; chunk++) {
    const nextRow = 8 + 12 * (row + 1);
    if (nextRow < chunks.length && uint(chunks, nextRow, 4) === chunk) row += 1;
    let at = uint(offsets, 8 + offsetBytes * (chunk - 1), offsetBytes);
    for (let left = uint(chunks, 8 + 12 * row + 4, 4); left > 0 && sample < count; left--, sample++) {
      const bytes = sameBytes || uint(sizes, 12 + 4 * sample, 4);
      yield [at, bytes];
      at += bytes;
    }
  }
}

/** Yields the packets in the fragments: runs of samples, with or without a table. */
async function* fragmentPackets(source: RangeSource, track: Track): AsyncGenerator<Place> {
  let [start, at, sampleBytes, isOfTrack] = [0, 0, 0, false];
  for await (const { name, start: boxAt, data, end } of boxes(
    source,
    track.end,
    source.size,
    true,
    Number.POSITIVE_INFINITY,
  )) {
    if (name === "moof") start = boxAt;
    if (name !== "tfhd" && name !== "trun") continue;
    const body = await source.read(data, end - data);
    const flags = uint(body, 1, 3);
    if (name === "tfhd") {
      isOfTrack = uint(body, 4, 4) === track.id;
      at = flags & 1 ? uint(body, 8, 8) : start;
      const before = [1, 1, 2, 8].filter((flag) => flags & flag).length;
      // An offset of eight bytes, an index, and the duration of a sample, if they are there.
      sampleBytes = flags & 0x10 ? uint(body, 8 + 4 * before, 4) : track.sampleBytes;
      start = at;
    }
    if (name !== "trun" || !isOfTrack) continue;
    if (flags & 1) at = start + (uint(body, 8, 4) | 0);
    const rowBytes = 4 * [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
    const table = body.subarray(8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0));
    for (let row = 0; row < uint(body, 4, 4); row++) {
      const bytes = flags & 0x200 ? uint(table, row * rowBytes + (flags & 0x100 ? 4 : 0), 4) : sampleBytes;
      yield [at, bytes];
      at += bytes;
    }
  }
}

/** Yields the header of the first audio track, then its packets, which have at most the bytes of the file. */
export async function* mp4Packets(source: RangeSource): AsyncGenerator<Uint8Array> {
  const track = await readTrack(source);
  yield track.head;
  let bytesLeft = source.size;
  for (const places of [moviePackets(track), fragmentPackets(source, track)]) {
    for await (const [at, bytes] of places) {
      bytesLeft -= Math.max(1, bytes);
      const packet = await source.read(at, Math.min(bytes, MAX_INPUT_BYTES.opus));
      if (bytesLeft < 0 || packet.length < bytes) return;
      yield packet;
    }
  }
}
