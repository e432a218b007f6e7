import { once } from "./retry.ts";

const ZEROS = new Uint8Array(64 * 1024);

/** An object that is written while its bytes arrive. R2 needs its length first, so zeros are added after the last byte. */
export class Spill {
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
