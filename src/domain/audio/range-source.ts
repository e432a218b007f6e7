/** Reads exactly `length` bytes from `offset`; is never asked for bytes past the end. */
export type ReadRange = (offset: number, length: number) => Promise<Uint8Array>;

/** The bytes call themselves audio and can't be read as such. The message is short and fit for a user's eyes. */
export class UnreadableAudio extends Error {
  override readonly name = "UnreadableAudio";
}

/** What the reader of a format makes of a file. */
export interface Reading {
  container: string;
  codec: string | null;
  sampleRate: number;
  channels: number;
  lossless: boolean | null;
  /** How long the sound plays: 0 or NaN is nothing, null is "not told". */
  seconds: number | null;
  /** How much of the file is sound. */
  soundBytes: number;
  /** Of how many bytes of sound `seconds` is the length, where fewer may be there. */
  statedBytes?: number;
  /** A small file of nothing but texts, for the parser. Read last, so that texts use up nothing that facts need. */
  readTags(): Promise<Uint8Array>;
}

/** A chunk, box, element, frame or item: most formats are sequences of these. */
export interface Part {
  name: string;
  start: number;
  /** Where its header ends. */
  data: number;
  end: number;
  /** Where the walk goes on; whoever walks may change it. */
  next: number;
}

/** What the header of a part says. */
interface PartHeader {
  name: string;
  headerBytes: number;
  bodyBytes: number;
  paddingBytes?: number;
  /** Whether its own parts follow in the walk, as if they stood behind its header. */
  isEntered?: boolean;
}

export type ParseHeader = (header: Uint8Array, at: number) => PartHeader | null;

/** What a first or a far read fetches: one R2 request costs the same up to about here. */
export const MIN_WINDOW_BYTES = 64 * 1024;
/** What one read in a row of reads fetches at most; two windows are held, and an isolate has 128 MB. */
export const MAX_WINDOW_BYTES = 1024 * 1024;
/** What a walk through a whole recording reads at most: every byte of the largest upload that the defaults allow. */
export const MAX_WALK_BYTES = 128 * 1024 * 1024;
/** A walk of `MAX_WALK_BYTES` takes 130 reads, any other reading a few dozen. */
const MAX_READS = 400;
/** So often a byte that was read may be looked at again: readers that go round in the cache must end too. */
const MAX_LOOKS = 4;
/** Each step is an `await`; so many take a third of a second of CPU. */
const MAX_STEPS = 250_000;
/** How far before the end a mark is looked for: beyond the longest cluster or fragment that recorders write. */
const MAX_TAIL_BYTES = 8 * 1024 * 1024;
/** A mark of a few bytes also stands in sound by chance; this many are tried. */
const MAX_MARKS = 64;
/** Parts of one walk: honest headers and tags have a few hundred. */
export const MAX_PARTS = 2000;

const NOTHING: Uint8Array = new Uint8Array();

/**
 * A stored file that is read by ranges, through two cached windows: the head, to which readers come back, and one that
 * moves. Past its bounds on reads, bytes and steps, it gives no more bytes, as at the end of the file.
 */
export class RangeSource {
  /** Set once `read` has thrown, which is no fault of the file. */
  failure: { error: unknown } | undefined;
  readonly size: number;
  readonly #read: ReadRange;
  #head = { offset: 0, bytes: NOTHING };
  #window = this.#head;
  #windowBytes = MIN_WINDOW_BYTES;
  #readsLeft = MAX_READS;
  #stepsLeft = MAX_STEPS;
  #bytesLeft: number;
  #lookedAtLeft: number;

  constructor(read: ReadRange, sizeBytes: number) {
    this.#read = read;
    this.size = sizeBytes;
    this.#bytesLeft = Math.min(4 * sizeBytes, MAX_WALK_BYTES * 1.5) + MAX_WINDOW_BYTES;
    this.#lookedAtLeft = MAX_LOOKS * this.#bytesLeft;
  }

  /** Up to `length` bytes, and up to `MAX_WINDOW_BYTES`. The result is a view of the cache: copy what is kept. */
  async upTo(start: number, length: number): Promise<Uint8Array> {
    const end = Math.min(start + Math.min(length, MAX_WINDOW_BYTES), this.size);
    if (!(start >= 0 && end > start) || --this.#stepsLeft < 0) return NOTHING;
    this.#lookedAtLeft -= end - start;
    if (this.#lookedAtLeft < 0) return NOTHING;
    for (const { offset, bytes } of [this.#window, this.#head]) {
      if (start >= offset && end <= offset + bytes.length) return bytes.subarray(start - offset, end - offset);
    }
    const { offset, bytes } = this.#window;
    const isSequential = bytes.length > 0 && start >= offset && start <= offset + bytes.length;
    this.#windowBytes = isSequential ? Math.min(this.#windowBytes * 2, MAX_WINDOW_BYTES) : MIN_WINDOW_BYTES;
    const wanted = Math.min(Math.max(end - start, this.#windowBytes), this.size - start);
    this.#bytesLeft -= wanted;
    if (--this.#readsLeft < 0 || this.#bytesLeft < 0) return NOTHING;
    this.#window = { offset: start, bytes: await this.#fetch(start, wanted) };
    if (start === 0 && this.#head.bytes.length === 0) this.#head = this.#window;
    return this.#window.bytes.subarray(0, end - start);
  }

  /** What `upTo` gives, fit to be kept. */
  async copy(start: number, length: number): Promise<Uint8Array> {
    return (await this.upTo(start, length)).slice();
  }

  /** The parts from `start` on, each with a header of at most `headerBytes`, until `parse` finds none. */
  async *parts(start: number, end: number, headerBytes: number, parse: ParseHeader, max = MAX_PARTS) {
    for (let at = start, n = 0; at < end && n < max; n++) {
      const header = parse(await this.upTo(at, headerBytes), at);
      if (!header) return;
      const data = at + header.headerBytes;
      const partEnd = data + header.bodyBytes;
      const next = header.isEntered ? data : partEnd + (header.paddingBytes ?? 0);
      const part: Part = { name: header.name, start: at, data, end: partEnd, next };
      yield part;
      at = part.next;
    }
  }

  /** What `read` makes of `mark` (Latin-1) where it last stands in the file's tail, and stands for something. */
  async findLast<T>(mark: string, from: number, read: (at: number) => Promise<T | null>): Promise<T | null> {
    const stop = Math.max(from, this.size - MAX_TAIL_BYTES);
    let tries = 0;
    let end = this.size;
    for (let bytes = 2 * MIN_WINDOW_BYTES; end - mark.length >= stop; bytes = Math.min(2 * bytes, MAX_WINDOW_BYTES)) {
      const start = Math.max(stop, end - bytes);
      const text = latin1(await this.upTo(start, end - start));
      for (let at = text.lastIndexOf(mark); at >= 0; at = at === 0 ? -1 : text.lastIndexOf(mark, at - 1)) {
        if (++tries > MAX_MARKS) return null;
        const found = await read(start + at);
        if (found !== null) return found;
      }
      if (text === "" || start === stop) return null;
      end = start + mark.length - 1;
    }
    return null;
  }

  async #fetch(offset: number, length: number): Promise<Uint8Array> {
    try {
      const bytes = await this.#read(offset, length);
      if (bytes.length !== length) throw new Error(`short read: ${bytes.length} of ${length} bytes at ${offset}`);
      return bytes;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}

export function byte(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}

/** Big-endian, of as many bytes as there are; exact up to 2^53. */
export function uint(bytes: Uint8Array, at = 0, length = bytes.length): number {
  return bytes.subarray(at, at + length).reduce((sum, b) => sum * 256 + b, 0);
}

/** Little-endian; exact up to 2^53. */
export function uintLE(bytes: Uint8Array, at = 0, length = bytes.length): number {
  return bytes.subarray(at, at + length).reduceRight((sum, b) => sum * 256 + b, 0);
}

export function be32(value: number): Uint8Array {
  return Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
}

export function le32(value: number): Uint8Array {
  return be32(value).reverse();
}

/** One character a byte. */
export function latin1(bytes: Uint8Array, at = 0, length = bytes.length): string {
  return new TextDecoder("latin1").decode(bytes.subarray(at, at + length));
}

/** The parts in one array; of a string, one byte per character (Latin-1). */
export function join(...parts: (Uint8Array | string)[]): Uint8Array {
  const arrays = parts.map((part) => (typeof part === "string" ? Uint8Array.from(part, (c) => c.charCodeAt(0)) : part));
  const all = new Uint8Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}
