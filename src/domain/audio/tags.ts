import type { Part } from "./range-source.ts";
import { be32, byte, join, latin1, le32, MAX_PARTS, RangeSource, uint, uintLE } from "./range-source.ts";

/*
 * Tags reduced to their text. The parser's time and memory grow with all that a tag holds, in places with the square of
 * it, so it is given copies of the tags in which pictures and other bulk are left out and the text is bounded.
 */

/** All texts of a file together: 200 times what honest tags hold. */
const MAX_TEXT_BYTES = 64 * 1024;
/** One text; what is longer is a picture, a cue sheet or a log, and 256 characters of it would be kept. */
const MAX_VALUE_BYTES = 16 * 1024;
const MAX_TEXTS = 1000;
const MAX_APE_KEY_BYTES = 256;

/** Reads texts when they are wanted. */
export type ReadText = () => Promise<Uint8Array>;

export async function readTexts(texts: ReadText[]): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  for (const read of texts) all.push(await read());
  return join(...all);
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

/** Copies of the parts that are texts, as far as the bounds go. */
export async function copyTexts(
  source: RangeSource,
  parts: AsyncIterable<Part>,
  budget: TextBudget,
  isText: (part: Part) => boolean,
): Promise<Uint8Array[]> {
  const texts: Uint8Array[] = [];
  for await (const part of parts) {
    if (!isText(part) || !budget.admits(part.end - part.start)) continue;
    const text = await source.copy(part.start, part.end - part.start);
    // The padding behind the last one may be missing.
    if (text.length === part.end - part.start) texts.push(join(text, new Uint8Array(part.next - part.end)));
  }
  return texts;
}

/** The length of the ID3v2 tag that the bytes begin with, its header included; 0 without one. */
export function id3Length(head: Uint8Array): number {
  const size = head.subarray(6, 10);
  if (latin1(head, 0, 3) !== "ID3" || size.length < 4 || size.some((b) => b > 127)) return 0;
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
  const tag = await source.copy(start, 20);
  const [version, flags, length] = [byte(tag, 3), byte(tag, 5), id3Length(tag)];
  if (length === 0 || version < 2 || version > 4) return new Uint8Array();
  let [file, tagAt] = [source, start];
  if (version < 4 && (flags & 0x80) !== 0) {
    // Unsynchronisation puts a zero behind every 0xFF.
    const stuffed = await source.upTo(start, length);
    const plain = stuffed.filter((b, at) => !(b === 0 && stuffed[at - 1] === 0xff));
    [file, tagAt] = [new RangeSource(async (at, bytes) => plain.slice(at, at + bytes), plain.length), 0];
  }
  // Of the extended header's length, version 3 leaves out its own four bytes.
  const extended = version === 3 ? 4 + uint(tag, 10, 4) : synchsafe(tag.subarray(10, 14));
  const framesAt = tagAt + 10 + (version > 2 && (flags & 0x40) !== 0 ? extended : 0);
  const [nameBytes, headerBytes] = version === 2 ? [3, 6] : [4, 10];
  const frames = file.parts(framesAt, tagAt + length - headerBytes, headerBytes, (header) => {
    const name = latin1(header, 0, nameBytes);
    const size = header.subarray(nameBytes, 2 * nameBytes);
    // Some programs write version 4 with the lengths of version 3.
    const bodyBytes = version === 4 && size.every((b) => b < 128) ? synchsafe(size) : uint(size);
    // Compressed or encrypted.
    const isOpaque = version > 2 && (byte(header, 9) & (version === 3 ? 0xc0 : 0x0c)) !== 0;
    return /^[A-Z0-9]{3,4}$/.test(name) ? { name: isOpaque ? "" : name, headerBytes, bodyBytes } : null;
  });
  const isText = ({ name, data, end }: Part) => /^(T|COM)/.test(name) && end > data && end <= tagAt + length;
  const texts = await copyTexts(file, frames, budget, isText);
  if (texts.length === 0) return new Uint8Array();
  if (version === 4) for (const frame of texts) frame.set(toSynchsafe(frame.length - headerBytes), nameBytes);
  const body = join(...texts);
  return join("ID3", Uint8Array.of(version, 0, 0), toSynchsafe(body.length), body);
}

/**
 * What stands behind the sound in MP3, AAC, Monkey's Audio, WavPack and Musepack: an APEv2 tag, an ID3v1 tag, both or
 * neither. `end` is where the sound ends, `readText` gives both tags with the text items alone.
 */
export async function findTrailingTags(source: RangeSource, budget: TextBudget) {
  let id3v1 = await source.copy(source.size - 128, 128);
  if (latin1(id3v1, 0, 3) !== "TAG") id3v1 = new Uint8Array();
  const end = source.size - id3v1.length;
  const footer = await source.copy(end - 32, 32);
  const size = uintLE(footer, 12, 4); // with the footer, without the header
  const isTag = latin1(footer, 0, 8) === "APETAGEX" && size >= 32 && size <= end;
  if (!isTag) return { end, readText: async () => id3v1 };
  const headerBytes = byte(footer, 23) >= 128 ? 32 : 0;
  const readText = async () => join(await readApeText(source, end - size, end - 32, budget), id3v1);
  return { end: Math.max(0, end - size - headerBytes), readText };
}

/** The text items between `start` and `end`, as an APEv2 tag; empty without any. */
async function readApeText(source: RangeSource, start: number, end: number, budget: TextBudget) {
  const items = source.parts(start, end, 8 + MAX_APE_KEY_BYTES, (header) => {
    const keyBytes = header.subarray(8).indexOf(0) + 1;
    const name = ((byte(header, 4) >> 1) & 3) === 0 ? "text" : "";
    return keyBytes === 0 ? null : { name, headerBytes: 8 + keyBytes, bodyBytes: uintLE(header, 0, 4) };
  });
  const texts = await copyTexts(source, items, budget, ({ name, end: itemEnd }) => name === "text" && itemEnd <= end);
  if (texts.length === 0) return new Uint8Array();
  const body = join(...texts);
  const frame = (flags: number) =>
    join("APETAGEX", le32(2000), le32(body.length + 32), le32(texts.length), le32(flags), new Uint8Array(8));
  return join(frame(0xa0000000), body, frame(0x80000000));
}

/** Gives the bytes of a block one after the other, wherever they lie; fewer at the block's end. */
type TakeBytes = (length: number) => Promise<Uint8Array>;

/**
 * The Vorbis comments that `take` comes upon, as a FLAC of nothing else. `take` is also asked for comments that are
 * left out, which need not be held: of more than `MAX_VALUE_BYTES` only the length counts.
 */
export async function readVorbisComments(take: TakeBytes, budget: TextBudget): Promise<Uint8Array> {
  const vendor = (await take(uintLE(await take(4), 0, 4))).slice(0, 256);
  const count = uintLE(await take(4), 0, 4);
  const comments: Uint8Array[] = [];
  for (let n = 0; n < Math.min(count, MAX_PARTS); n++) {
    const head = await take(4);
    const length = uintLE(head, 0, 4);
    const text = await take(length);
    if (head.length < 4 || (text.length < length && length <= MAX_VALUE_BYTES)) break;
    const isPicture = /^(METADATA_BLOCK_PICTURE|COVERART)=/i.test(latin1(text, 0, 30));
    if (!isPicture && text.includes(0x3d) && budget.admits(length)) comments.push(join(le32(length), text));
  }
  const block = join(le32(vendor.length), vendor, le32(comments.length), ...comments);
  return join("fLaC", Uint8Array.of(0x84), be32(block.length).subarray(1), block);
}
