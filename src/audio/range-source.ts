/*
 * The only way to the bytes of a stored file, and the limits on what a file may cost: requests, bytes, CPU time, and the
 * text that music-metadata gets.
 */

/** The bytes identify as audio but cannot be read as such. The message is short and safe to show to users. */
export class UnreadableAudio extends Error {
  override readonly name = "UnreadableAudio";
}

/** Reads exactly `length` bytes from `offset`. Never called with a range past the end. */
export type ReadRange = (offset: number, length: number) => Promise<Uint8Array>;

/** The result of reading a file in one format. */
export interface Reading {
  container: string;
  codec: string | null;
  sampleRate: number;
  channels: number;
  lossless: boolean | null;
  /** The media type, if only the sound decides it. */
  mediaType?: string;
  /** Playing time: 0 or NaN means no sound, null means unknown. */
  seconds: number | null;
  /** The number of bytes that hold sound. */
  soundBytes: number;
  /** The number of bytes that `seconds` refers to, if the file may hold fewer. */
  statedBytes?: number;
  /** Returns a small file of texts for music-metadata. Called last, so that tags cannot use up the budget of the facts. */
  readTags(): Promise<Uint8Array>;
  /** Texts that count only if no other tag has them. They are parsed first. */
  earlyTags?: Uint8Array;
  /** Where the samples are, if they are stored as numbers of a fixed size. */
  pcm?: Pcm | undefined;
}

/** Samples of all channels in turn. */
export interface Pcm {
  start: number;
  end: number;
  /** The size of one sample of one channel. */
  sampleBytes: number;
  encoding: "signed" | "unsigned" | "float" | "alaw" | "mulaw";
  isLittleEndian: boolean;
}

/** A chunk, box, element, frame, or item: most formats are sequences of these. */
export interface Segment {
  name: string;
  start: number;
  /** The end of the header. */
  data: number;
  end: number;
  /** Where the walk continues. The caller may change it. */
  next: number;
}

/** The parsed header of a segment. */
interface SegmentHeader {
  name: string;
  headerBytes: number;
  bodyBytes: number;
  paddingBytes?: number;
  /** Whether the walk continues inside this segment, behind its header. */
  isEntered?: boolean;
}

export type ParseHeader = (header: Uint8Array, at: number) => SegmentHeader | null;

/** The size of a first or a random read: up to about here, one R2 request always costs the same. */
export const MIN_WINDOW_BYTES = 64 * 1024;
/** The size of the largest sequential read. Two windows are held, and an isolate has 128 MB. */
export const MAX_WINDOW_BYTES = 1024 * 1024;
/**
 * The most that a walk through a whole recording reads: every byte of the largest form upload that the defaults allow.
 * Larger recordings are measured by their start and end.
 */
export const MAX_WALK_BYTES = 128 * 1024 * 1024;
/** A walk of `MAX_WALK_BYTES` takes 130 reads, any other inspection a few dozen. */
const MAX_READS = 400;
/** How far before the end a marker is searched for: longer than any cluster or fragment that recorders write. */
const MAX_TAIL_BYTES = 8 * 1024 * 1024;
/** A marker of a few bytes also occurs in sound by chance. At most this many occurrences are tried. */
const MAX_MARKS = 64;
/** The segments of one walk. Well-formed headers and tags have a few hundred. */
export const MAX_SEGMENTS = 2000;
/** Work units for one read, with the parsing of a small header that usually follows. */
const STEP_WORK = 1500;

/*
 * One unit of work is about a nanosecond on a slow core. Units are charged, not measured: the local and the deployed
 * runtime freeze the clock while code runs, and the same file must always have the same outcome.
 */

/** The work for one file, whatever its size: a walk through 128 MiB with a million MP3 frames costs 0.9e9. */
export const MAX_WORK = 1e9;
/** The work that even the smallest file may cost, 15 times what our samples need. */
const BASE_WORK = 200e6;
/** The densest valid format is an Ogg with one 3-byte packet per page: 3,300 units for each 31 bytes, up to 50,000 pages. */
const WORK_PER_BYTE = 40;
/** An inspection yields after this many units, so that other requests can run. */
const PAUSE_WORK = 20e6;
/** All texts of a file together: 200 times what typical tags contain. The worst ones take music-metadata 0.3 seconds. */
const MAX_TEXT_BYTES = 64 * 1024;
/** One text. Anything longer is a picture, a cue sheet, or a log, of which only 256 characters would be kept. */
export const MAX_VALUE_BYTES = 16 * 1024;
const MAX_TEXTS = 1000;
/** ID3v2 tags per file. Files have one, and up to four if several programs added their own. */
const MAX_ID3_TAGS = 8;

/** The budget of an inspection. */
const budgetFor = (sizeBytes: number) => new Budget(Math.min(MAX_WORK, BASE_WORK + WORK_PER_BYTE * sizeBytes));

/** Limits the CPU time and the texts of one file. Everything that a file's content can repeat or enlarge charges it. */
export class Budget {
  #workLeft: number;
  #sincePause = 0;
  #textBytesLeft = MAX_TEXT_BYTES;
  #textsLeft = MAX_TEXTS;
  #id3TagsLeft = MAX_ID3_TAGS;

  constructor(work: number) {
    this.#workLeft = work;
  }

  /** Call it before doing the work. @throws `UnreadableAudio` if the work is used up */
  charge(units: number): void {
    this.#workLeft -= units;
    this.#sincePause += units;
    if (!(this.#workLeft >= 0)) throw new UnreadableAudio("The file is too complex to inspect.");
  }

  get isPauseDue(): boolean {
    return this.#sincePause > PAUSE_WORK;
  }

  /** Lets other requests of the isolate run. Reading cached bytes never does. */
  async pause(): Promise<void> {
    this.#sincePause = 0;
    await new Promise((resolve) => setTimeout(resolve, 0));
  }

  /** Charges a text of this size. Returns false, and charges nothing, if the text exceeds a limit. */
  chargeText(bytes: number): boolean {
    if (bytes > MAX_VALUE_BYTES || bytes > this.#textBytesLeft || this.#textsLeft <= 0) return false;
    this.#textBytesLeft -= bytes;
    this.#textsLeft -= 1;
    return true;
  }

  /** Charges an ID3v2 tag. Returns false if there were too many. */
  chargeId3Tag(): boolean {
    return --this.#id3TagsLeft >= 0;
  }
}

const NOTHING: Uint8Array = new Uint8Array();

/**
 * A stored file, read by ranges through two cached windows: the head, which readers return to, and one that moves.
 * When a limit on reads or bytes is reached, `read` returns nothing, as at the end of the file. When the budget is used
 * up, it throws.
 */
export class RangeSource {
  /** Set when `read` has thrown, which is not the file's fault. */
  failure: { error: unknown } | undefined;
  /** The bytes from position 0 to the end of the file. */
  size: number;
  /** Where position 0 is in the file: behind the leading tags, whose positions are negative. */
  origin = 0;
  readonly budget: Budget;
  readonly #read: ReadRange;
  #head = { offset: 0, bytes: NOTHING };
  #window = this.#head;
  #windowBytes = MIN_WINDOW_BYTES;
  #readsLeft: number;
  #bytesLeft: number;

  constructor(
    read: ReadRange,
    sizeBytes: number,
    budget = budgetFor(sizeBytes),
    { maxReads = MAX_READS, maxBytes = MAX_WALK_BYTES * 1.5 } = {},
  ) {
    this.#read = read;
    this.size = sizeBytes;
    this.budget = budget;
    this.#readsLeft = maxReads;
    this.#bytesLeft = Math.min(4 * sizeBytes, maxBytes) + MAX_WINDOW_BYTES;
  }

  /** Moves position 0 by this many bytes. */
  skip(bytes: number): void {
    this.origin += bytes;
    this.size -= bytes;
  }

  /**
   * Returns a copy of up to `length` bytes, at most `MAX_WINDOW_BYTES`: fewer at the end of the file, or beyond a limit.
   * @throws `UnreadableAudio` if the work is used up
   */
  async read(position: number, length: number): Promise<Uint8Array> {
    const start = this.origin + position;
    const fileEnd = this.origin + this.size;
    const end = Math.min(start + Math.min(length, MAX_WINDOW_BYTES), fileEnd);
    if (!(start >= 0 && end > start)) return NOTHING;
    this.budget.charge(STEP_WORK + end - start);
    if (this.budget.isPauseDue) await this.budget.pause();
    for (const { offset, bytes } of [this.#window, this.#head]) {
      if (start >= offset && end <= offset + bytes.length) return bytes.slice(start - offset, end - offset);
    }
    const { offset, bytes } = this.#window;
    // Skipped bytes are read as well if they are few. That saves requests, and at most doubles the bytes.
    const isSequential = bytes.length > 0 && start >= offset && start <= offset + bytes.length + MIN_WINDOW_BYTES;
    this.#windowBytes = isSequential ? Math.min(this.#windowBytes * 2, MAX_WINDOW_BYTES) : MIN_WINDOW_BYTES;
    const wanted = Math.min(Math.max(end - start, this.#windowBytes), fileEnd - start);
    this.#bytesLeft -= wanted;
    if (--this.#readsLeft < 0 || this.#bytesLeft < 0) return NOTHING;
    this.budget.charge(wanted);
    this.#window = { offset: start, bytes: await this.#fetch(start, wanted) };
    if (start === 0 && this.#head.bytes.length === 0) this.#head = this.#window;
    return this.#window.bytes.slice(0, end - start);
  }

  /** Yields the segments from `start` on, each with a header of at most `headerBytes`, until `parse` returns null. */
  async *segments(start: number, end: number, headerBytes: number, parse: ParseHeader, max = MAX_SEGMENTS) {
    for (let at = start, n = 0; at < end && n < max; n++) {
      const header = parse(await this.read(at, headerBytes), at);
      if (!header) return;
      const data = at + header.headerBytes;
      const segmentEnd = data + header.bodyBytes;
      const next = header.isEntered ? data : segmentEnd + (header.paddingBytes ?? 0);
      const segment: Segment = { name: header.name, start: at, data, end: segmentEnd, next };
      yield segment;
      at = segment.next;
    }
  }

  /** Calls `read` at the occurrences of `mark` (Latin-1) in the file's tail, last one first, until it returns a result. */
  async findLast<T>(mark: string, from: number, read: (at: number) => Promise<T | null>): Promise<T | null> {
    const stop = Math.max(from, this.size - MAX_TAIL_BYTES);
    let tries = 0;
    let end = this.size;
    for (let bytes = 2 * MIN_WINDOW_BYTES; end - mark.length >= stop; bytes = Math.min(2 * bytes, MAX_WINDOW_BYTES)) {
      const start = Math.max(stop, end - bytes);
      const text = latin1(await this.read(start, end - start));
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

/** Reads a big-endian number from the bytes that exist. Exact up to 2^53. */
export function uint(bytes: Uint8Array, at = 0, length = bytes.length): number {
  let value = 0;
  for (let i = at; i < Math.min(at + length, bytes.length); i++) value = value * 256 + byte(bytes, i);
  return value;
}

/** Reads a little-endian number from the bytes that exist. Exact up to 2^53. */
export function uintLE(bytes: Uint8Array, at = 0, length = bytes.length): number {
  let value = 0;
  for (let i = Math.min(at + length, bytes.length) - 1; i >= at; i--) value = value * 256 + byte(bytes, i);
  return value;
}

export function be32(value: number): Uint8Array {
  return Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
}

export function le32(value: number): Uint8Array {
  return be32(value).reverse();
}

/** Decodes one character per byte. */
export function latin1(bytes: Uint8Array, at = 0, length = bytes.length): string {
  return new TextDecoder("latin1").decode(bytes.subarray(at, at + length));
}

/** Concatenates the values. A string becomes one byte per character (Latin-1). */
export function join(...values: (Uint8Array | string)[]): Uint8Array {
  const arrays = values.map((value) =>
    typeof value === "string" ? Uint8Array.from(value, (c) => c.charCodeAt(0)) : value,
  );
  const all = new Uint8Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}
