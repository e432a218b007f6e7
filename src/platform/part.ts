import { createHash, type Hash } from "node:crypto";
import { AppError } from "../errors.ts";
import { once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** Every upload has so much in any case. */
const FIRST_BYTES = 64 * 1024;
/**
 * The memory of a part grows to this, and then at once to all of it: what a client says will come must not cost memory,
 * and each step leaves the one before it to the garbage collector. (A buffer that grows in place is copied by workerd at
 * each call that takes it.)
 */
const SECOND_BYTES = 1024 * 1024;
/** Of the isolate's 128 MB: hundreds of uploads need the rest for what they are reading. */
const MAX_HELD_BYTES = 48 * 1024 * 1024;
/** R2's own checksum of an object and of a part, against which what was sent is compared. */
export const R2_CHECKSUM = "md5";
const ZEROS = new Uint8Array(64 * 1024);

/** Counts what the parts of an isolate hold. What one that was killed midway never gave back counts until collected. */
export class MemoryBudget {
  #leftBytes: number;
  readonly #collected = new FinalizationRegistry<number>((bytes) => {
    this.#leftBytes += bytes;
  });

  constructor(bytes = MAX_HELD_BYTES) {
    this.#leftBytes = bytes;
  }

  /** Undefined where there is no room. */
  allocate(bytes: number): Uint8Array<ArrayBuffer> | undefined {
    if (bytes <= FIRST_BYTES) return new Uint8Array(bytes);
    if (bytes > this.#leftBytes) return undefined;
    const memory = new Uint8Array(bytes);
    this.#leftBytes -= bytes;
    this.#collected.register(memory, bytes, memory);
    return memory;
  }

  free(memory: Uint8Array): void {
    if (this.#collected.unregister(memory)) this.#leftBytes += memory.length;
  }
}

export interface PartRoom {
  /** How many bytes make the part full. */
  bytes: number;
  /** How many will come at most, as far as is known. */
  maxBytes: number;
  /** The key of an object that may hold them meanwhile; no other part ever has the same. */
  key: string;
}

/** What a part needs of the isolate. */
export interface PartHome {
  bucket: R2Bucket;
  system: System;
  budget: MemoryBudget;
  /** How much of the beginning of a part is kept, to tell its type. */
  headBytes: number;
}

/**
 * One part of an object on its way in, of bytes that come as slowly as they like. It is gathered in memory while there is
 * some; otherwise R2 holds it in an object of its own (the spill), so that an upload takes 64 KiB of memory however long
 * it stands still, and none is refused. Either way it can be sent again, and what has come of it outlives a cut.
 */
export class Part {
  readonly #home: PartHome;
  readonly #sha256: Hash | undefined;
  #room: PartRoom;
  #memory = new Uint8Array();
  #spill: Spill | undefined;
  #used = 0;
  #md5 = createHash(R2_CHECKSUM);
  #hashedBytes = 0;
  #head = new Uint8Array();

  /** `sha256`, where given, takes all bytes of all parts. */
  constructor(home: PartHome, room: PartRoom, sha256?: Hash) {
    this.#home = home;
    this.#room = room;
    this.#sha256 = sha256;
  }

  get sizeBytes(): number {
    return this.#used;
  }

  /** Of the object that may hold it. */
  get key(): string {
    return this.#room.key;
  }

  /** R2 holds the part in an object of its own. */
  get isSpilled(): boolean {
    return this.#spill !== undefined;
  }

  get isFull(): boolean {
    return this.#used === this.#room.bytes;
  }

  /** Its first bytes, for its media type. */
  get head(): Uint8Array {
    return this.#spill ? this.#head : this.#memory.subarray(0, Math.min(this.#used, this.#home.headBytes));
  }

  /** Takes as much of `chunk` as fits the part, and says how much. The chunk's memory is not kept. */
  async take(chunk: Uint8Array): Promise<number> {
    const count = Math.min(chunk.length, this.#room.bytes - this.#used);
    const bytes = count === chunk.length ? chunk : chunk.subarray(0, count);
    if (!this.#spill && !this.#grow(this.#used + count)) await this.#openSpill();
    if (this.#spill) {
      const { headBytes } = this.#home;
      if (this.#head.length < headBytes) this.#head = Buffer.concat([this.#head, bytes.subarray(0, headBytes)]);
      this.#hash(bytes);
      await this.#spill.write(bytes);
    } else {
      this.#memory.set(bytes, this.#used);
    }
    this.#used += count;
    return count;
  }

  #grow(minBytes: number): boolean {
    if (minBytes <= this.#memory.length) return true;
    const { bytes } = this.#room;
    const step = [FIRST_BYTES, SECOND_BYTES].find((size) => size >= minBytes && size < bytes) ?? bytes;
    const grown = this.#home.budget.allocate(step);
    if (!grown) return false;
    grown.set(this.#memory.subarray(0, this.#used));
    this.#home.budget.free(this.#memory);
    this.#memory = grown;
    return true;
  }

  async #openSpill(): Promise<void> {
    const held = this.#memory.subarray(0, this.#used);
    const { bytes, maxBytes, key } = this.#room;
    this.#head = held.slice(0, this.#home.headBytes);
    this.#spill = new Spill(this.#home.bucket, key, Math.min(bytes, maxBytes));
    this.#hash(held.subarray(this.#hashedBytes));
    await this.#spill.write(held);
    this.#release();
  }

  #hash(bytes: Uint8Array): void {
    this.#md5.update(bytes);
    this.#sha256?.update(bytes);
    this.#hashedBytes += bytes.length;
  }

  /** The bytes as R2 takes them. May be asked again, to try again. */
  async content(): Promise<Uint8Array | ReadableStream> {
    if (!this.#spill) return this.#memory.subarray(0, this.#used);
    await this.#spill.end();
    const stored = await this.#home.bucket.get(this.#room.key, { range: { offset: 0, length: this.#used } });
    if (!stored) throw new AppError("unavailable", { cause: new Error("The part went away.") });
    return stored.body;
  }

  /** MD5 of what came, hex. Of what is in memory it is taken now: by then a call to R2 may be on its way with it. */
  digest(): string {
    if (this.#hashedBytes < this.#used) this.#hash(this.#memory.subarray(this.#hashedBytes, this.#used));
    return this.#md5.copy().digest("hex");
  }

  /** Leaves what has come of the part under its key, for another request to begin with. */
  async leave(): Promise<void> {
    const { key } = this.#room;
    if (this.#spill) await this.#spill.end();
    else {
      const bytes = this.#memory.subarray(0, this.#used);
      const md5 = this.digest();
      await retrying(this.#home.system, () => this.#home.bucket.put(key, bytes, { md5 }));
    }
    this.#spill = undefined;
  }

  /** Takes more of the part after it was left. What comes from now on may be left under another key. */
  async goOn(key: string): Promise<void> {
    const { bucket } = this.#home;
    const left = this.#room;
    this.#room = { ...left, key };
    if (this.#used <= this.#memory.length) return;
    this.#spill = new Spill(bucket, key, Math.min(left.bytes, left.maxBytes));
    const stored = await once(() => bucket.get(left.key, { range: { offset: 0, length: this.#used } }));
    if (!stored) throw new AppError("unavailable", { cause: new Error("The part went away.") });
    for await (const chunk of wholly(stored.body, this.#used)) await this.#spill.write(chunk);
  }

  /** Makes room for the next part. */
  async next(room: PartRoom): Promise<void> {
    await this.discard();
    this.#room = room;
    this.#used = 0;
    this.#md5 = createHash(R2_CHECKSUM);
    this.#hashedBytes = 0;
  }

  /** Removes what R2 held; memory is kept for the next part. */
  async discard(): Promise<void> {
    const spill = this.#spill;
    this.#spill = undefined;
    if (!spill) return;
    await spill.abandon();
    await retrying(this.#home.system, () => this.#home.bucket.delete(this.#room.key));
  }

  /** Gives the memory back. */
  free(): void {
    this.#release();
  }

  #release(): void {
    this.#home.budget.free(this.#memory);
    this.#memory = new Uint8Array();
  }
}

/** So many bytes. @throws `unavailable` where they break off */
export async function* wholly(bytes: AsyncIterable<Uint8Array>, sizeBytes: number): AsyncGenerator<Uint8Array> {
  let count = 0;
  const pieces = bytes[Symbol.asyncIterator]();
  const next = () =>
    pieces.next().catch((cause: unknown) => {
      throw new AppError("unavailable", { cause });
    });
  for (let piece = await next(); !piece.done; piece = await next()) {
    count += piece.value.length;
    yield piece.value;
  }
  if (count !== sizeBytes) throw new AppError("unavailable", { cause: new Error("An object broke off.") });
}

/** An object that is written while its bytes come. R2 must know its length: what does not come is zeros. */
class Spill {
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #stored: Promise<unknown>;
  #leftBytes: number;
  #hasEnded = false;

  constructor(bucket: R2Bucket, key: string, bytes: number) {
    const { readable, writable } = new FixedLengthStream(bytes);
    this.#writer = writable.getWriter();
    this.#leftBytes = bytes;
    this.#stored = once(() => bucket.put(key, readable));
    // Nobody reads the stream any more: a write would wait for ever.
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
