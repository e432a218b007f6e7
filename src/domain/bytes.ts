/*
 * Reading a stored file piece by piece: what the parsers of domain/audio.ts stand on.
 */

/** Reads exactly `length` bytes from `offset`; never asked for bytes past the end. */
export type ReadRange = (offset: number, length: number) => Promise<Uint8Array>;

/** The bytes call themselves audio and can't be read as such. The message is short and fit for a user's eyes. */
export class UnreadableAudio extends Error {
  override readonly name = "UnreadableAudio";
}

export const FIRST_WINDOW_BYTES = 64 * 1024;
export const MAX_WINDOW_BYTES = 1024 * 1024;
/** Room for a tag with its cover; an isolate has 128 MB, and the parser copies a tag more than once. */
export const MAX_BLOCK_BYTES = 4 * 1024 * 1024;
/** Far above what an honest file takes; one to two seconds of CPU. */
const MAX_STEPS = 500_000;

/** The stored bytes through two cached windows: the head, to which parsers come back, and one that moves. */
export class Source {
  /** Set once `read` has thrown: parsers swallow errors, and this one must come through. */
  failure: { error: unknown } | undefined;
  readonly size: number;
  readonly #read: ReadRange;
  #head: Window = { offset: 0, bytes: new Uint8Array() };
  #window: Window = this.#head;
  #windowBytes = FIRST_WINDOW_BYTES;
  #bytesLeft: number;
  #stepsLeft = MAX_STEPS;

  constructor(read: ReadRange, size: number) {
    this.#read = read;
    this.size = size;
    this.#bytesLeft = 4 * size + MAX_WINDOW_BYTES;
  }

  /** The bytes [start, start + length), or fewer at the end of the file. A view of the cache: read, don't keep. */
  async upTo(start: number, length: number): Promise<Uint8Array> {
    const end = Math.min(start + length, this.size);
    if (end <= start) return new Uint8Array();
    if (end - start > MAX_BLOCK_BYTES) throw new UnreadableAudio("A block in the file is too large.");
    if (--this.#stepsLeft < 0) throw new UnreadableAudio("The file is too fragmented.");
    for (const { offset, bytes } of [this.#window, this.#head]) {
      if (start >= offset && end <= offset + bytes.length) return bytes.subarray(start - offset, end - offset);
    }
    const { offset, bytes } = this.#window;
    const isSequential = bytes.length > 0 && start >= offset && start <= offset + bytes.length;
    this.#windowBytes = isSequential ? Math.min(this.#windowBytes * 2, MAX_WINDOW_BYTES) : FIRST_WINDOW_BYTES;
    const wanted = Math.min(Math.max(end - start, this.#windowBytes), this.size - start);
    this.#bytesLeft -= wanted;
    if (this.#bytesLeft < 0) throw new UnreadableAudio("The file is too fragmented.");
    this.#window = { offset: start, bytes: await this.#fetch(start, wanted) };
    if (start === 0 && this.#head.bytes.length === 0) this.#head = this.#window;
    return this.#window.bytes.subarray(0, end - start);
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

interface Window {
  offset: number;
  bytes: Uint8Array;
}

/** The parser's way in: it takes a Blob, and of a Blob it uses the size, the type and slices. */
export class RangeBlob extends Blob {
  readonly #source: Source;
  readonly #start: number;
  readonly #end: number;
  readonly #type: string;

  constructor(source: Source, start: number, end: number, type: string) {
    super();
    this.#source = source;
    this.#start = start;
    this.#end = end;
    this.#type = type;
  }

  override get size(): number {
    return this.#end - this.#start;
  }

  override get type(): string {
    return this.#type;
  }

  override slice(start = 0, end = this.size): RangeBlob {
    return new RangeBlob(this.#source, this.#start + start, this.#start + end, this.#type);
  }

  override async arrayBuffer(): Promise<ArrayBuffer> {
    return new Uint8Array(await this.#source.upTo(this.#start, this.size)).buffer;
  }
}

/** The length of the ID3v2 tag that the bytes begin with, its header included; 0 without one. */
export function id3Length(head: Uint8Array): number {
  const size = head.subarray(6, 10);
  if (latin1(head.subarray(0, 3)) !== "ID3" || size.length < 4 || size.some((b) => b > 127)) return 0;
  const hasFooter = (byte(head, 5) & 0x10) !== 0;
  return 10 + size.reduce((sum, b) => sum * 128 + b, 0) + (hasFooter ? 10 : 0);
}

export function byte(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}

/** Big-endian; exact up to 2^53. */
export function uint(bytes: Uint8Array, base = 256): number {
  return bytes.reduce((sum, b) => sum * base + b, 0);
}

export function latin1(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}
