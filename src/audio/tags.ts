import {
  be32,
  byte,
  join,
  latin1,
  le32,
  MAX_SEGMENTS,
  MAX_VALUE_BYTES,
  MIN_WINDOW_BYTES,
  RangeSource,
  type Segment,
  uint,
  uintLE,
} from "./range-source.ts";

/*
 * Tags reduced to their texts. The time and memory that music-metadata needs grow with everything that a tag contains, in
 * places quadratically. So it gets copies with bounded text, and without pictures and other bulk.
 */

/** The header and the footer of an APE tag. */
const APE_FRAME_BYTES = 32;
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

/** Some programs put a second tag behind the first. */
const MAX_LEADING_TAGS = 4;

/** Returns the length of the ID3v2 or APE tag at the start of `head`; 0 if there is none. */
function leadingTagLength(head: Uint8Array): number {
  const isApe = latin1(head, 0, 8) === "APETAGEX" && byte(head, 23) >= 0x80;
  return isApe ? APE_FRAME_BYTES + uintLE(head, 12, 4) : id3Length(head);
}

/** Returns the length of all tags in front of the sound. A longer one than the file states a wrong length. */
export function leadingTagsLength(head: Uint8Array): number {
  let at = 0;
  for (let n = 0; n < MAX_LEADING_TAGS; n++) at += leadingTagLength(head.subarray(at, at + APE_FRAME_BYTES));
  return at;
}

/** Moves position 0 of the source behind the tags in front of the sound. @returns their texts, in the order to parse */
export async function skipLeadingTags(source: RangeSource): Promise<ReadText[]> {
  const texts: ReadText[] = [];
  for (let n = 0; n < MAX_LEADING_TAGS; n++) {
    const head = await source.read(0, APE_FRAME_BYTES);
    const [tagAt, length] = [source.origin, leadingTagLength(head)];
    if (length === 0) break;
    const isId3 = id3Length(head) > 0;
    // An APE tag is found from the end of the texts.
    if (isId3) texts.unshift(() => readId3Text(source, tagAt - source.origin));
    else
      texts.push(() =>
        readApeText(source, tagAt + APE_FRAME_BYTES - source.origin, tagAt + length - APE_FRAME_BYTES - source.origin),
      );
    // A tag that claims more than the file leaves the sound to be searched.
    if (length >= source.size) break;
    source.skip(length);
  }
  return texts;
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
 * Returns the text and comment frames of the ID3v2 tag at `start` (versions 2 to 4, see id3.org), as a tag of version 4;
 * empty if there are none. In the older versions, music-metadata takes the slash of "AC/DC" for a separator. Only the
 * first MiB of an unsynchronized tag of version 2 or 3 is read.
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
  const texts: Id3Text[] = [];
  for await (const { name, flags: frameFlags, data, end } of id3Frames(file, framesAt, tagAt + length, version)) {
    if (!/^(T|COM)/.test(name) || end === data || !source.budget.chargeText(end - data)) continue;
    let body = await file.read(data, end - data);
    // Only version 4 has a length in front of the text, and unsynchronized frames.
    if (version === 4 && (frameFlags & 1) !== 0) body = body.subarray(4);
    if (version === 4 && (frameFlags & 2) !== 0) body = removeUnsynchronization(body);
    texts.push(readText(name, body, version));
  }
  return makeId3(
    4,
    texts.filter((text) => isForPeople(text, texts)),
  );
}

/** A text frame. Only comments and texts with a free name have a description. */
interface Id3Text {
  name: string;
  body: Uint8Array;
  description: string;
}

/** Makes a tag of texts; empty if there are none. */
function makeId3(version: 2 | 4, texts: Pick<Id3Text, "name" | "body">[]): Uint8Array {
  if (texts.length === 0) return new Uint8Array();
  const frames = texts.map(({ name, body }) => {
    if (version === 2) return join(name, be32(body.length).subarray(1), body);
    return join(name, toSynchsafe(body.length), Uint8Array.of(0, 0), body);
  });
  const tag = join(...frames);
  return join("ID3", Uint8Array.of(version, 0, 0), toSynchsafe(tag.length), tag);
}

const ID3_ENCODINGS = ["latin1", "utf-16", "utf-16be", "utf-8"];
const [LATIN1, UTF8] = [0, 3];

/** The frames that list several people or genres, behind zeros also in versions whose texts end at the first one. */
const LISTS = /^T(PE|COM|CON)/;

/**
 * Reads the body of a text frame. Comments and texts with a free name are encoded as UTF-8, because music-metadata rejects
 * the whole tag for a wrong one. A text that is valid UTF-8 is not Latin-1, whatever it claims.
 */
function readText(name: string, body: Uint8Array, version: number): Id3Text {
  const languageBytes = name.startsWith("COM") ? 3 : 0;
  const text = body.subarray(1 + languageBytes);
  const encoding = byte(body, 0) === LATIN1 && isUtf8(text) ? UTF8 : byte(body, 0);
  const label = ID3_ENCODINGS[encoding] ?? "utf-8";
  const isWide = label.startsWith("utf-16");
  let at = 0;
  while (at < text.length && (byte(text, at) !== 0 || (isWide && byte(text, at + 1) !== 0))) at += isWide ? 2 : 1;
  if (languageBytes === 0 && name !== "TXXX") {
    const isComplete = version === 4 || at === 0 || LISTS.test(name);
    return { name, body: join(Uint8Array.of(encoding), isComplete ? text : text.subarray(0, at)), description: "" };
  }
  const decode = (bytes: Uint8Array) => {
    const isSwapped = label === "utf-16" && byte(bytes, 0) === 0xfe && byte(bytes, 1) === 0xff;
    return new TextDecoder(isSwapped ? "utf-16be" : label).decode(bytes);
  };
  const [description, value] = [decode(text.subarray(0, at)), decode(text.subarray(at + (isWide ? 2 : 1)))];
  const encode = (part: string) => new TextEncoder().encode(part);
  const language = languageBytes === 0 ? "" : "und";
  const utf8 = join(Uint8Array.of(UTF8), language, encode(description), Uint8Array.of(0), encode(value));
  return { name, body: utf8, description };
}

/** The descriptions of the comments in which programs keep numbers for themselves. */
const MACHINE_COMMENT = /^(iTun|MusicMatch|Songs-DB_)/i;
/** The start of an older comment, which some programs keep next to the comment. */
const OLD_COMMENT = "ID3v1 Comment";

function isForPeople({ name, description }: Id3Text, all: Id3Text[]): boolean {
  if (!name.startsWith("COM")) return true;
  const isOther = (text: Id3Text) => text.name === name && text.description !== OLD_COMMENT;
  if (description === OLD_COMMENT) return !all.some((text) => isOther(text) && isForPeople(text, all));
  return !MACHINE_COMMENT.test(description);
}

/** The texts of version 2, by their names in the later ones. Some programs write the short ones into those, too. */
const LONG_NAMES: Record<string, string> = {
  TT1: "TIT1",
  TT2: "TIT2",
  TT3: "TIT3",
  TP1: "TPE1",
  TP2: "TPE2",
  TP3: "TPE3",
  TP4: "TPE4",
  TAL: "TALB",
  TRK: "TRCK",
  TPA: "TPOS",
  TYE: "TYER",
  TCO: "TCON",
  TCM: "TCOM",
  TCR: "TCOP",
  TBP: "TBPM",
  TRC: "TSRC",
  TXX: "TXXX",
  COM: "COMM",
  TEN: "TENC",
  TXT: "TEXT",
  TPB: "TPUB",
  TLA: "TLAN",
  TDA: "TDAT",
  TDR: "TDRC",
};
/** How far behind a frame with a wrong length the next one is searched for. */
const MAX_RESYNC_BYTES = MIN_WINDOW_BYTES;
/** Work units to check whether a frame starts at a byte. */
const FRAME_NAME_WORK = 30;

/**
 * Yields the frames of a tag up to its padding. If a frame has no name, or none follows where it ends, the next one is
 * searched for. It checks at most `MAX_SEGMENTS` frames and possible ones.
 */
async function* id3Frames(source: RangeSource, start: number, tagEnd: number, version: number) {
  const [nameBytes, headerBytes] = version === 2 ? [3, 6] : [4, 10];
  const isName = (name: string) => (version === 2 ? /^[A-Z][A-Z0-9]{2}$/ : /^[A-Z][A-Z0-9]{2}[A-Z0-9\0 ]$/).test(name);
  /** Whether a frame, padding, or the end of the tag is at `at`. */
  const isBorder = async (at: number) => {
    const next = await source.read(at, nameBytes);
    return at === tagEnd || (at < tagEnd && (byte(next, 0) === 0 || isName(latin1(next))));
  };
  /** Reads the frame at `at`; null if there is none, or if it claims more than the tag. */
  const frameAt = async (at: number) => {
    const header = await source.read(at, headerBytes);
    const [name, size] = [latin1(header, 0, nameBytes), header.subarray(nameBytes, 2 * nameBytes)];
    if (!isName(name) || header.length < headerBytes) return null;
    const flags = version === 2 ? 0 : byte(header, 9);
    const data = at + headerBytes;
    // Some programs write version 4 with the lengths of version 3, and the reverse. What follows shows it.
    const lengths = version > 2 && size.every((b) => b < 128) ? [uint(size), synchsafe(size)] : [uint(size)];
    if (version === 4) lengths.reverse();
    let isCertain = false;
    let end = data + (lengths[0] ?? 0);
    for (const length of lengths) {
      if (isCertain || !(await isBorder(data + length))) continue;
      [isCertain, end] = [true, data + length];
    }
    const isCompressedOrEncrypted = (flags & (version === 3 ? 0xc0 : version === 4 ? 0x0c : 0)) !== 0;
    const known = version === 2 || /[\0 ]$/.test(name) ? (LONG_NAMES[name.slice(0, 3)] ?? "") : name;
    return { name: isCompressedOrEncrypted ? "" : known, flags, data, end, isCertain };
  };
  let tries = 0;
  for (let at = start; at + headerBytes < tagEnd && tries < MAX_SEGMENTS; ) {
    tries += 1;
    const frame = await frameAt(at);
    if (frame?.isCertain) {
      yield frame;
      at = frame.end;
      continue;
    }
    if (!frame && byte(await source.read(at, 1), 0) === 0) return;
    const searched = frame?.data ?? at + 1;
    const rest = latin1(await source.read(searched, Math.min(MAX_RESYNC_BYTES, tagEnd - searched)));
    source.budget.charge(rest.length * FRAME_NAME_WORK);
    const names = version === 2 ? /(?=[A-Z][A-Z0-9]{2})/g : /(?=[A-Z][A-Z0-9]{2}[A-Z0-9\0 ])/g;
    let next = tagEnd;
    for (const { index } of rest.matchAll(names)) {
      if (next < tagEnd || ++tries > MAX_SEGMENTS) break;
      if ((await frameAt(searched + index))?.isCertain) next = searched + index;
    }
    if (frame) yield { ...frame, end: Math.min(frame.end, next) };
    at = next;
  }
}

/** Whether the text is valid UTF-8 with characters beyond ASCII. A field of a fixed size may cut the last one. */
export function isUtf8(bytes: Uint8Array): boolean {
  if (bytes.every((b) => b < 128)) return false;
  try {
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** Makes a tag of texts in UTF-8, by their names in version 2. It stands for fields that can't state their encoding. */
export function makeUtf8Tag(texts: [name: string, text: Uint8Array][]): Uint8Array {
  return makeId3(
    2,
    texts.map(([name, text]) => ({
      name,
      body: join(Uint8Array.of(UTF8), name === "COM" ? "und\0" : "", text),
    })),
  );
}

/** Makes a tag of texts in UTF-8 with names that music-metadata does not know, behind zeros. */
export function makeNamedTag(texts: Uint8Array[]): Uint8Array {
  return makeId3(
    4,
    texts.map((text) => ({ name: "TXXX", body: join(Uint8Array.of(UTF8), text) })),
  );
}

const ID3V1_TEXTS: [name: string, at: number, bytes: number][] = [
  ["TT2", 3, 30],
  ["TP1", 33, 30],
  ["TAL", 63, 30],
  ["COM", 97, 28],
];

/**
 * Splits an ID3v1 tag, in which texts are Latin-1. `early` is a tag of its texts that are valid UTF-8, and of its track:
 * in music-metadata, the last track counts, so it is to be parsed before all others.
 */
function splitId3v1(tag: Uint8Array): { early: Uint8Array; rest: Uint8Array } {
  const rest = tag.slice();
  const texts = ID3V1_TEXTS.filter(([, at, bytes]) => isUtf8(tag.subarray(at, at + bytes)));
  for (const [, at, bytes] of texts) rest.fill(0, at, at + bytes);
  const encode = (text: string) => new TextEncoder().encode(text);
  const early = texts.map(([name, at, bytes]): [string, Uint8Array] => {
    const text = new TextDecoder().decode(tag.subarray(at, at + bytes), { stream: true }).replace(/\0.*/s, "");
    return [name, encode(text.trim())];
  });
  if (byte(rest, 125) === 0 && byte(rest, 126) > 0) {
    early.push(["TRK", encode(String(byte(rest, 126)))]);
    rest[126] = 0;
  }
  return { early: makeUtf8Tag(early), rest };
}

/**
 * Finds the tags behind the sound of MP3, AAC, Monkey's Audio, WavPack, and Musepack: APEv2, ID3v1, both, or neither.
 * `end` is the end of the sound. `readTags` returns both tags with only their text items.
 */
export async function findTrailingTags(source: RangeSource) {
  const id3v1 = await source.read(source.size - 128, 128);
  const hasOld = id3v1.length === 128 && latin1(id3v1, 0, 3) === "TAG";
  const end = source.size - (hasOld ? 128 : 0);
  const { early, rest } = hasOld ? splitId3v1(id3v1) : { early: new Uint8Array(), rest: new Uint8Array() };
  const footer = await source.read(end - 32, 32);
  const size = uintLE(footer, 12, 4); // with the footer, without the header
  const isTag = latin1(footer, 0, 8) === "APETAGEX" && size >= 32 && size <= end;
  const headerBytes = byte(footer, 23) >= 128 ? 32 : 0;
  const readTags = async () => join(isTag ? await readApeText(source, end - size, end - 32) : "", rest);
  return { end: isTag ? Math.max(0, end - size - headerBytes) : end, tags: { earlyTags: early, readTags } };
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
