import {
  be32,
  byte,
  join,
  latin1,
  le32,
  MAX_SEGMENTS,
  MAX_VALUE_BYTES,
  RangeSource,
  type Segment,
  uint,
  uintLE,
} from "./range-source.ts";

/*
 * Tags reduced to their texts. The time and memory that music-metadata needs grow with everything that a tag contains, in
 * places quadratically. So it gets copies with bounded text, and without pictures and other bulk.
 */

const MAX_APE_KEY_BYTES = 256;
const MAX_VENDOR_BYTES = 256;
/** Work units to copy one byte of an unsynchronized tag. */
const UNSYNCHRONIZED_BYTE_WORK = 10;

/** Reads texts when they are needed. */
export type ReadText = () => Promise<Uint8Array>;

export async function readTexts(texts: ReadText[]): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  for (const read of texts) all.push(await read());
  return join(...all);
}

/** Copies the segments that are texts, within the budget. */
export async function copyTexts(
  source: RangeSource,
  segments: AsyncIterable<Segment>,
  isText: (segment: Segment) => boolean,
): Promise<Uint8Array[]> {
  const texts: Uint8Array[] = [];
  for await (const segment of segments) {
    if (!isText(segment) || !source.budget.chargeText(segment.end - segment.start)) continue;
    const text = await source.read(segment.start, segment.end - segment.start);
    // The padding behind the last segment may be missing.
    if (text.length === segment.end - segment.start) texts.push(join(text, new Uint8Array(segment.next - segment.end)));
  }
  return texts;
}

/** Returns the length of the ID3v2 tag at the start of `head`, including its header; 0 if there is none. */
export function id3Length(head: Uint8Array): number {
  const size = head.subarray(6, 10);
  if (latin1(head, 0, 3) !== "ID3" || size.length < 4 || size.some((b) => b > 127)) return 0;
  const hasFooter = (byte(head, 5) & 0x10) !== 0;
  return 10 + synchsafe(size) + (hasFooter ? 10 : 0);
}

function synchsafe(bytes: Uint8Array): number {
  return bytes.reduce((sum, b) => sum * 128 + b, 0);
}

/** Encodes a number below 2^28 in four bytes of seven bits. */
function toSynchsafe(value: number): Uint8Array {
  return Uint8Array.of(value >> 21, (value >> 14) & 127, (value >> 7) & 127, value & 127);
}

/** Removes the zero that unsynchronization puts behind every 0xFF. */
function removeUnsynchronization(bytes: Uint8Array): Uint8Array {
  const plain = new Uint8Array(bytes.length);
  let length = 0;
  let previous = 0;
  for (const b of bytes) {
    if (b !== 0 || previous !== 0xff) plain[length++] = b;
    previous = b;
  }
  return plain.subarray(0, length);
}

/**
 * Returns the text and comment frames of the ID3v2 tag at `start`, as a tag of the same version (2 to 4, see id3.org);
 * empty if there are none. Only the first MiB of an unsynchronized tag of version 2 or 3 is read.
 */
export async function readId3Text(source: RangeSource, start: number): Promise<Uint8Array> {
  const tag = await source.read(start, 20);
  const [version, flags, length] = [byte(tag, 3), byte(tag, 5), id3Length(tag)];
  if (length === 0 || version < 2 || version > 4 || !source.budget.chargeId3Tag()) return new Uint8Array();
  let [file, tagAt] = [source, start];
  if (version < 4 && (flags & 0x80) !== 0) {
    const stuffed = await source.read(start, length);
    source.budget.charge(stuffed.length * UNSYNCHRONIZED_BYTE_WORK);
    const plain = removeUnsynchronization(stuffed);
    [file, tagAt] = [new RangeSource(async (at, bytes) => plain.slice(at, at + bytes), plain.length, source.budget), 0];
  }
  // In version 3, the length of the extended header excludes its own four bytes.
  const extended = version === 3 ? 4 + uint(tag, 10, 4) : synchsafe(tag.subarray(10, 14));
  const framesAt = tagAt + 10 + (version > 2 && (flags & 0x40) !== 0 ? extended : 0);
  const [nameBytes, headerBytes] = version === 2 ? [3, 6] : [4, 10];
  const frames = file.segments(framesAt, tagAt + length - headerBytes, headerBytes, (header) => {
    const name = latin1(header, 0, nameBytes);
    const size = header.subarray(nameBytes, 2 * nameBytes);
    // Some programs write version 4 with the lengths of version 3.
    const bodyBytes = version === 4 && size.every((b) => b < 128) ? synchsafe(size) : uint(size);
    const isCompressedOrEncrypted = version > 2 && (byte(header, 9) & (version === 3 ? 0xc0 : 0x0c)) !== 0;
    if (!/^[A-Z0-9]{3,4}$/.test(name)) return null;
    return { name: isCompressedOrEncrypted ? "" : name, headerBytes, bodyBytes };
  });
  const isText = ({ name, data, end }: Segment) => /^(T|COM)/.test(name) && end > data && end <= tagAt + length;
  const texts = await copyTexts(file, frames, isText);
  if (texts.length === 0) return new Uint8Array();
  if (version === 4) for (const frame of texts) frame.set(toSynchsafe(frame.length - headerBytes), nameBytes);
  const body = join(...texts);
  return join("ID3", Uint8Array.of(version, 0, 0), toSynchsafe(body.length), body);
}

/**
 * Finds the tags behind the sound of MP3, AAC, Monkey's Audio, WavPack, and Musepack: APEv2, ID3v1, both, or neither.
 * `end` is the end of the sound. `readText` returns both tags with only their text items.
 */
export async function findTrailingTags(source: RangeSource) {
  let id3v1 = await source.read(source.size - 128, 128);
  if (latin1(id3v1, 0, 3) !== "TAG") id3v1 = new Uint8Array();
  const end = source.size - id3v1.length;
  const footer = await source.read(end - 32, 32);
  const size = uintLE(footer, 12, 4); // with the footer, without the header
  const isTag = latin1(footer, 0, 8) === "APETAGEX" && size >= 32 && size <= end;
  if (!isTag) return { end, readText: async () => id3v1 };
  const headerBytes = byte(footer, 23) >= 128 ? 32 : 0;
  const readText = async () => join(await readApeText(source, end - size, end - 32), id3v1);
  return { end: Math.max(0, end - size - headerBytes), readText };
}

/** Returns the text items between `start` and `end` as an APEv2 tag; empty if there are none. */
async function readApeText(source: RangeSource, start: number, end: number) {
  const items = source.segments(start, end, 8 + MAX_APE_KEY_BYTES, (header) => {
    const keyBytes = header.subarray(8).indexOf(0) + 1;
    const name = ((byte(header, 4) >> 1) & 3) === 0 ? "text" : "";
    return keyBytes === 0 ? null : { name, headerBytes: 8 + keyBytes, bodyBytes: uintLE(header, 0, 4) };
  });
  const texts = await copyTexts(source, items, ({ name, end: itemEnd }) => name === "text" && itemEnd <= end);
  if (texts.length === 0) return new Uint8Array();
  const body = join(...texts);
  const frame = (flags: number) =>
    join("APETAGEX", le32(2000), le32(body.length + 32), le32(texts.length), le32(flags), new Uint8Array(8));
  return join(frame(0xa0000000), body, frame(0x80000000));
}

/** Returns the next bytes of a block, wherever they are stored; fewer at the end of the block. */
type TakeBytes = (length: number) => Promise<Uint8Array>;

/**
 * Returns the Vorbis comments that `take` reads, as a FLAC that contains nothing else. It takes skipped comments too.
 * `take` need not return the bytes of a comment longer than `MAX_VALUE_BYTES`.
 */
export async function readVorbisComments(source: RangeSource, take: TakeBytes): Promise<Uint8Array> {
  const vendor = (await take(uintLE(await take(4), 0, 4))).slice(0, MAX_VENDOR_BYTES);
  const count = uintLE(await take(4), 0, 4);
  const comments: Uint8Array[] = [];
  for (let n = 0; n < Math.min(count, MAX_SEGMENTS); n++) {
    const head = await take(4);
    const length = uintLE(head, 0, 4);
    const text = await take(length);
    if (head.length < 4 || (text.length < length && length <= MAX_VALUE_BYTES)) break;
    const isPicture = /^(METADATA_BLOCK_PICTURE|COVERART)=/i.test(latin1(text, 0, 30));
    if (!isPicture && text.includes(0x3d) && source.budget.chargeText(length)) comments.push(join(le32(length), text));
  }
  const block = join(le32(vendor.length), vendor, le32(comments.length), ...comments);
  return join("fLaC", Uint8Array.of(0x84), be32(block.length).subarray(1), block);
}
