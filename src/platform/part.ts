import { createHash, type Hash } from "node:crypto";
import { AppError } from "../errors.ts";
import { once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/* A part of an object while its bytes arrive: in memory as long as the budget lasts, in R2 after that. */

/** A body can hold as many bytes of a part without counting them: with its read buffer and the texts of a form, `BODY_BYTES`. */
export const FIRST_BYTES = 24 * 1024;
/**
 * Memory grows by these steps, and then to the size that it can have, so that a client can't reserve memory just by announcing a
 * length. (workerd copies a resizable buffer at each call that takes it, so each step allocates a new buffer.)
 */
const GROWTH_BYTES = [FIRST_BYTES, 256 * 1024, 1024 * 1024];
/** The isolate has 128 MB. The rest is for the first bytes of bodies (bodies.ts) and everything else. */
export const MAX_HELD_BYTES = 48 * 1024 * 1024;
/** Visitors hold at most a quarter, so that they don't make every other upload use R2 for its parts. */
export const VISITOR_DIVISOR = 4;

interface Held {
  bytes: number;
  isVisitor: boolean;
}

/**
 * Counts the memory that parts, read buffers and bodies of an isolate hold beyond their first bytes. If an invocation is killed,
 * garbage collection frees its memory.
 */
export class MemoryBudget {
  readonly #maxBytes: number;
  #heldBytes = 0;
  #visitorBytes = 0;
  readonly #held = new WeakMap<object, Held>();
  readonly #collected = new FinalizationRegistry<Held>((held) => this.#subtract(held));

  constructor(bytes = MAX_HELD_BYTES) {
    this.#maxBytes = bytes;
  }

  /** Counts the bytes until they are released, or the holder is collected. @returns false if the budget is used up */
  reserve(holder: object, bytes: number, isVisitor = false): boolean {
    const visitorBytes = isVisitor ? this.#visitorBytes + bytes : 0;
    if (this.#heldBytes + bytes > this.#maxBytes || visitorBytes > this.#maxBytes / VISITOR_DIVISOR) return false;
    const held = { bytes, isVisitor };
    this.#heldBytes += bytes;
    if (isVisitor) this.#visitorBytes += bytes;
    this.#held.set(holder, held);
    this.#collected.register(holder, held, holder);
    return true;
  }

  release(holder: object): void {
    const held = this.#held.get(holder);
    if (!held) return;
    this.#held.delete(holder);
    this.#collected.unregister(holder);
    this.#subtract(held);
  }

  #subtract({ bytes, isVisitor }: Held): void {
    this.#heldBytes -= bytes;
    if (isVisitor) this.#visitorBytes -= bytes;
  }

  /**
   * Returns memory of at least `minBytes` with the bytes of `memory`, which it releases. Undefined if the budget is used up.
   */
  grow(
    memory: Uint8Array<ArrayBuffer>,
    minBytes: number,
    maxBytes: number,
    isVisitor = false,
  ): Uint8Array<ArrayBuffer> | undefined {
    if (minBytes <= memory.length) return memory;
    const bytes = GROWTH_BYTES.find((size) => size >= minBytes && size < maxBytes) ?? maxBytes;
    const grown = new Uint8Array(bytes);
    if (bytes > FIRST_BYTES && !this.reserve(grown, bytes, isVisitor)) return undefined;
    grown.set(memory);
    this.release(memory);
    return grown;
  }
}

/** The checksum that R2 computes of an object and of a part. We compare it with that of the bytes we sent. */
export const R2_CHECKSUM = "md5";
const READ_BYTES = 64 * 1024;

/** Bytes of a part that R2 holds in an object until the part is full. */
export interface Chunk {
  key: string;
  sizeBytes: number;
  /** MD5 of the received bytes, hex. */
  md5: string;
}

/**
 * Reads a chunk. Each yielded buffer is valid until the next one is requested.
 * @throws `unavailable` unless the bytes are the received ones
 */
async function* readChunk(bucket: R2Bucket, { key, sizeBytes, md5 }: Chunk): AsyncGenerator<Uint8Array> {
  const stored = await once(() => bucket.get(key, { range: { offset: 0, length: sizeBytes } }));
  if (!stored) throw new AppError("unavailable", { cause: new Error("A chunk is missing.") });
  const hash = createHash(R2_CHECKSUM);
  // By default workerd allocates 4 KiB for each read, which the garbage collector is slow to free.
  const reader = stored.body.getReader({ mode: "byob" });
  const next = (buffer: ArrayBufferLike) =>
    reader.read(new Uint8Array(buffer)).catch((cause: unknown) => {
      throw new AppError("unavailable", { cause });
    });
  try {
    let { value } = await next(new ArrayBuffer(READ_BYTES));
    while (value?.length) {
      hash.update(value);
      yield value;
      ({ value } = await next(value.buffer));
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
  if (hash.digest("hex") !== md5) throw new AppError("unavailable", { cause: new Error("A chunk is incomplete.") });
}

const ZEROS = new Uint8Array(64 * 1024);

/** An object that is written while its bytes arrive. R2 needs its length first, so zeros are added after the last byte. */
class Spill {
  readonly key: string;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #stored: Promise<unknown>;
  #leftBytes: number;
  #hasEnded = false;

  constructor(bucket: R2Bucket, key: string, bytes: number) {
    const { readable, writable } = new FixedLengthStream(bytes);
    this.key = key;
    this.#writer = writable.getWriter();
    this.#leftBytes = bytes;
    this.#stored = once(() => bucket.put(key, readable));
    // If R2 stopped reading, a write would wait forever.
    this.#stored.catch((error) => this.#writer.abort(error).catch(() => undefined));
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#leftBytes -= bytes.length;
    await this.#writer.write(bytes).catch(async (error) => {
      await this.#stored;
      throw error;
    });
  }

  async end(): Promise<void> {
    if (!this.#hasEnded) {
      while (this.#leftBytes > 0) await this.write(ZEROS.subarray(0, this.#leftBytes));
      await this.#writer.close().catch(() => undefined);
      this.#hasEnded = true;
    }
    await this.#stored;
  }

  async abandon(): Promise<void> {
    if (!this.#hasEnded) await this.#writer.abort("abandoned").catch(() => undefined);
    await this.#stored.catch(() => undefined);
  }
}

/**
 * Saving rewrites the last chunk together with new bytes if both have at most this many bytes. This bounds what
 * it rewrites, however few bytes a request has, and a part of 5 MiB has at most 80 chunks.
 */
export const MERGED_BYTES = 128 * 1024;

export interface PartSpec {
  /** The size of a full part. */
  bytes: number;
  /** The maximum number of bytes that can arrive, as far as is known. */
  maxBytes: number;
  /** Returns a key for a chunk. No two chunks can have the same key. */
  newKey(): string;
  /** Counts its memory as that of visitors. */
  isVisitor?: boolean;
  /** The chunks that earlier requests saved. */
  chunks?: Chunk[];
}

/** The isolate's services that a part uses. */
interface PartContext {
  bucket: R2Bucket;
  system: System;
  budget: MemoryBudget;
}

/**
 * One part of an object while its bytes arrive, however slowly: chunks in R2, and after them the tail. The tail is
 * buffered while the memory budget lasts. After that, R2 holds it in an object that is still being written, the spill. So
 * no upload is rejected for lack of memory. Saving turns the tail into a chunk. Nothing is read back until the part is sent.
 */
export class Part {
  readonly #context: PartContext;
  readonly #sha256: Hash | undefined;
  #spec: PartSpec;
  #chunks: Chunk[];
  #memory = new Uint8Array();
  #spill: Spill | undefined;
  #tailBytes = 0;
  #tailMd5 = createHash(R2_CHECKSUM);
  #hashedBytes = 0;
  /** The MD5 of the part, once its chunks have been read. */
  #md5: string | undefined;

  /** `sha256` takes all bytes of all parts, in order. */
  constructor(context: PartContext, spec: PartSpec, sha256?: Hash) {
    this.#context = context;
    this.#spec = spec;
    this.#chunks = [...(spec.chunks ?? [])];
    this.#sha256 = sha256;
  }

  get #chunkBytes(): number {
    return this.#chunks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }

  get sizeBytes(): number {
    return this.#chunkBytes + this.#tailBytes;
  }

  get chunks(): readonly Chunk[] {
    return this.#chunks;
  }

  /** R2 holds the tail in a separate object. */
  get isSpilled(): boolean {
    return this.#spill !== undefined;
  }

  get isFull(): boolean {
    return this.sizeBytes === this.#spec.bytes;
  }

  /** Copies as many of the bytes as fit into the part, and returns how many. */
  async take(bytes: Uint8Array): Promise<number> {
    const count = Math.min(bytes.length, this.#spec.bytes - this.sizeBytes);
    const taken = bytes.subarray(0, count);
    if (!this.#spill && !this.#grow(this.#tailBytes + count)) await this.#openSpill();
    if (this.#spill) {
      this.#hash(taken);
      await this.#spill.write(taken);
    } else {
      this.#memory.set(taken, this.#tailBytes);
    }
    this.#tailBytes += count;
    this.#md5 = undefined;
    return count;
  }

  #grow(minBytes: number): boolean {
    const { bytes, isVisitor } = this.#spec;
    const grown = this.#context.budget.grow(this.#memory, minBytes, bytes - this.#chunkBytes, isVisitor);
    if (!grown) return false;
    this.#memory = grown;
    return true;
  }

  get #buffered(): Uint8Array {
    return this.#memory.subarray(0, this.#tailBytes);
  }

  async #openSpill(): Promise<void> {
    const { bytes, maxBytes } = this.#spec;
    const buffered = this.#buffered;
    this.#spill = new Spill(this.#context.bucket, this.#spec.newKey(), Math.min(bytes, maxBytes) - this.#chunkBytes);
    this.#hash(buffered.subarray(this.#hashedBytes));
    await this.#spill.write(buffered);
    this.free();
  }

  #hash(bytes: Uint8Array): void {
    this.#tailMd5.update(bytes);
    this.#sha256?.update(bytes);
    this.#hashedBytes += bytes.length;
  }

  /** MD5 of the tail, hex. Buffered bytes are hashed only now, when a call to R2 may already be sending them. */
  #tailDigest(): string {
    if (this.#hashedBytes < this.#tailBytes) this.#hash(this.#memory.subarray(this.#hashedBytes, this.#tailBytes));
    return this.#tailMd5.copy().digest("hex");
  }

  /** MD5 of the received part, hex. */
  async md5(): Promise<string> {
    const tailMd5 = this.#tailDigest();
    if (this.#chunks.length === 0) return tailMd5;
    this.#md5 ??= await this.#rehash();
    return this.#md5;
  }

  /** MD5 of the chunks and the tail, read back. Only a part that was not sent needs it. */
  async #rehash(): Promise<string> {
    const md5 = createHash(R2_CHECKSUM);
    for await (const bytes of this.#bytes()) md5.update(bytes);
    return md5.digest("hex");
  }

  /** The first bytes of the part, at most this many. */
  async head(maxBytes: number): Promise<Uint8Array> {
    await this.#spill?.end();
    let head = Buffer.alloc(0);
    for await (const bytes of this.#bytes()) {
      head = Buffer.concat([head, bytes.subarray(0, maxBytes - head.length)]);
      if (head.length === maxBytes) break;
    }
    return head;
  }

  /** Sends the part to R2. It can be called again to retry. */
  async send<T>(store: (body: Uint8Array | ReadableStream) => Promise<T>): Promise<T> {
    if (this.#chunks.length === 0 && !this.#spill) {
      const stored = store(this.#buffered);
      this.#tailDigest();
      return stored;
    }
    await this.#spill?.end();
    const { readable, writable } = new FixedLengthStream(this.sizeBytes);
    const writer = writable.getWriter();
    const abort = (reason?: unknown) => void writer.abort(reason).catch(() => undefined);
    let failure: unknown;
    const write = async () => {
      for await (const bytes of this.#bytes()) await writer.write(bytes);
      await writer.close();
    };
    write().catch((error: unknown) => {
      failure = error;
      abort(error);
    });
    try {
      return await store(readable);
    } catch (error) {
      // R2 only sees that its stream ended early.
      throw failure ?? error;
    } finally {
      // If R2 stopped reading, a write would wait forever.
      abort();
    }
  }

  /** The bytes of the part, in order. */
  async *#bytes(): AsyncGenerator<Uint8Array> {
    const md5 = createHash(R2_CHECKSUM);
    const spilled = this.#spill && { key: this.#spill.key, sizeBytes: this.#tailBytes, md5: this.#tailDigest() };
    for (const chunk of spilled ? [...this.#chunks, spilled] : this.#chunks) {
      for await (const bytes of readChunk(this.#context.bucket, chunk)) {
        md5.update(bytes);
        yield bytes;
      }
    }
    const buffered = spilled ? new Uint8Array() : this.#buffered;
    if (buffered.length > 0) yield buffered;
    // Not before: a caller that needs only the head stops there.
    this.#md5 = md5.update(buffered).digest("hex");
  }

  async #readAll(chunk: Chunk): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const bytes of readChunk(this.#context.bucket, chunk)) chunks.push(Buffer.from(bytes));
    return Buffer.concat(chunks);
  }

  /** Saves the tail as a chunk, so that another request can continue, and frees its memory. */
  async save(): Promise<void> {
    if (this.#tailBytes === 0) return;
    if (this.#spill) {
      await this.#spill.end();
      this.#chunks.push({ key: this.#spill.key, sizeBytes: this.#tailBytes, md5: this.#tailDigest() });
    } else await this.#saveBuffered();
    this.#spill = undefined;
    this.#startTail();
    this.free();
  }

  async #saveBuffered(): Promise<void> {
    const { bucket, system } = this.#context;
    const last = this.#chunks.at(-1);
    const merged = last && last.sizeBytes + this.#tailBytes <= MERGED_BYTES ? last : undefined;
    const before = merged && (await retrying(system, () => this.#readAll(merged)));
    const bytes = before ? Buffer.concat([before, this.#buffered]) : this.#buffered;
    const tailMd5 = this.#tailDigest();
    const md5 = merged ? createHash(R2_CHECKSUM).update(bytes).digest("hex") : tailMd5;
    const key = this.#spec.newKey();
    await retrying(system, () => bucket.put(key, bytes, { md5 }));
    if (merged) this.#chunks.pop();
    this.#chunks.push({ key, sizeBytes: bytes.length, md5 });
  }

  #startTail(): void {
    this.#tailBytes = 0;
    this.#tailMd5 = createHash(R2_CHECKSUM);
    this.#hashedBytes = 0;
    this.#md5 = undefined;
  }

  /** Starts the next part. The chunks of this one are no longer needed. */
  async next(spec: PartSpec): Promise<void> {
    await this.discard();
    const { bucket, system } = this.#context;
    const keys = this.#chunks.map(({ key }) => key);
    if (keys.length > 0) await retrying(system, () => bucket.delete(keys));
    this.#spec = spec;
    this.#chunks = [];
    this.#startTail();
  }

  /** Deletes what R2 holds of the tail. The memory can be used for the next part. */
  async discard(): Promise<void> {
    const { bucket, system } = this.#context;
    const spill = this.#spill;
    this.#spill = undefined;
    if (!spill) return;
    await spill.abandon();
    await retrying(system, () => bucket.delete(spill.key));
  }

  /** Returns the memory to the budget. */
  free(): void {
    this.#context.budget.release(this.#memory);
    this.#memory = new Uint8Array();
  }
}
