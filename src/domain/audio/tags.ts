import { byte, join, latin1, le32, MAX_WINDOW_BYTES, type RangeSource, uint, uintLE } from "./range-source.ts";

/*
 * Tags reduced to their text. The parser's time and memory grow with all that a tag holds, in places with the square of
 * it, so it is given copies of the tags in which pictures and other bulk are left out and the text is bounded.
 */

/** All texts of a file together: 200 times what honest tags hold. */
const MAX_TEXT_BYTES = 64 * 1024;
/** One text; what is longer is a picture, a cue sheet or a log, and 256 characters of it would be kept. */
const MAX_VALUE_BYTES = 16 * 1024;
const MAX_TEXTS = 1000;
/** Frames, items and comments that are looked at, whether they are text or not. */
export const MAX_ITEMS = 2000;

/** Reads texts when they are wanted. */
export type ReadText = () => Promise<Uint8Array>;

export async function readTexts(texts: ReadText[]): Promise<Uint8Array[]> {
  const all: Uint8Array[] = [];
  for (const read of texts) all.push(await read());
  return all.filter(({ length }) => length > 0);
}

/** Counts the texts of one file against the bounds. */
export class TextBudget {
  #bytesLeft = MAX_TEXT_BYTES;
  #textsLeft = MAX_TEXTS;

  /** Whether one more text of so many bytes is within the bounds; it is counted when it is. */
  admits(bytes: number): boolean {
    if (bytes > MAX_VALUE_BYTES || bytes > this.#bytesLeft || this.#textsLeft <= 0) return false;
    this.#bytesLeft -= bytes;
    this.#textsLeft -= 1;
    return true;
  }
}

/** The length of the ID3v2 tag that the bytes begin with, its header included; 0 without one. */
export function id3Length(head: Uint8Array): number {
  const size = head.subarray(6, 10);
  if (latin1(head.subarray(0, 3)) !== "ID3" || size.length < 4 || size.some((b) => b > 127)) return 0;
  const hasFooter = (byte(head, 5) & 0x10) !== 0;
  return 10 + synchsafe(size) + (hasFooter ? 10 : 0);
}

function synchsafe(bytes: Uint8Array): number {
  return bytes.reduce((sum, b) => sum * 128 + b, 0);
}

/** A number below 2^28 in four bytes of seven bits. */
function toSynchsafe(value: number): Uint8Array {
  return Uint8Array.of(value >> 21, (value >> 14) & 127, (value >> 7) & 127, value & 127);
}

/**
 * The text and comment frames of the ID3v2 tag at `start`, as a tag of the same version (2 to 4, see id3.org); empty
 * without any. Of a tag of version 2 or 3 that is unsynchronised as a whole, the first MiB is looked at.
 */
export async function readId3Text(source: RangeSource, start: number, budget: TextBudget): Promise<Uint8Array> {
  const head = await source.copy(start, 20);
  const version = byte(head, 3);
  const length = id3Length(head);
  if (length === 0 || version < 2 || version > 4) return new Uint8Array();
  let read = (at: number, bytes: number) => source.copy(start + at, Math.min(bytes, length - at));
  if (version < 4 && (byte(head, 5) & 0x80) !== 0) {
    const plain = withoutStuffing(await source.upTo(start, Math.min(length, MAX_WINDOW_BYTES)));
    read = async (at, bytes) => plain.slice(at, at + bytes);
  }
  const headerBytes = version === 2 ? 6 : 10;
  const frames: Uint8Array[] = [];
  let at = 10;
  if (version > 2 && (byte(head, 5) & 0x40) !== 0) {
    // The extended header: in version 3 its length leaves out its own four bytes.
    at += version === 3 ? 4 + uint(head, 10, 4) : synchsafe(head.subarray(10, 14));
  }
  for (let items = 0; items < MAX_ITEMS && at + headerBytes < length; items++) {
    const header = await read(at, headerBytes);
    const name = latin1(header.subarray(0, version === 2 ? 3 : 4));
    if (!/^[A-Z0-9]{3,4}$/.test(name)) break;
    const sizeBytes = header.subarray(name.length, 2 * name.length);
    // Some programs write version 4 with the lengths of version 3.
    const size = version === 4 && sizeBytes.every((b) => b < 128) ? synchsafe(sizeBytes) : uint(sizeBytes);
    // Compressed or encrypted.
    const isOpaque = version > 2 && (byte(header, 9) & (version === 3 ? 0xc0 : 0x0c)) !== 0;
    if (/^(T|COM)/.test(name) && size > 0 && !isOpaque && budget.admits(size)) {
      const body = await read(at + headerBytes, size);
      if (body.length < size) break;
      if (version === 4) header.set(toSynchsafe(size), 4);
      frames.push(header, body);
    }
    at += headerBytes + size;
  }
  if (frames.length === 0) return new Uint8Array();
  const body = join(...frames);
  return join("ID3", Uint8Array.of(version, 0, 0), toSynchsafe(body.length), body);
}

/** Unsynchronisation puts a zero behind every 0xFF. */
function withoutStuffing(bytes: Uint8Array): Uint8Array {
  return bytes.filter((b, at) => !(b === 0 && bytes[at - 1] === 0xff));
}

/** Gives the bytes of a block one after the other, wherever they lie; fewer at the block's end. */
type TakeBytes = (length: number) => Promise<Uint8Array>;

/**
 * The Vorbis comments that `take` comes upon, as a block of their own that ends behind the last comment. `take` is also
 * asked for comments that are left out, which need not be held: of more than `MAX_VALUE_BYTES` only the length counts.
 */
export async function readVorbisComments(take: TakeBytes, budget: TextBudget): Promise<Uint8Array> {
  const vendor = await take(uintLE(await take(4), 0, 4));
  const count = uintLE(await take(4), 0, 4);
  const comments: Uint8Array[] = [];
  for (let n = 0; n < Math.min(count, MAX_ITEMS); n++) {
    const head = await take(4);
    const length = uintLE(head, 0, 4);
    const text = await take(length);
    if (head.length < 4 || (text.length < length && length <= MAX_VALUE_BYTES)) break;
    const isPicture = /^(METADATA_BLOCK_PICTURE|COVERART)=/i.test(latin1(text.subarray(0, 30)));
    if (!isPicture && text.includes(0x3d) && budget.admits(length)) comments.push(le32(length), text.slice());
  }
  const name = vendor.slice(0, 256);
  return join(le32(name.length), name, le32(comments.length / 2), ...comments);
}
