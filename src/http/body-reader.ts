import { Buffer } from "node:buffer";
import type { Context } from "hono";
import { MIN_BYTES_PER_SECOND } from "../domain/files/upload.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

const READ_BYTES = 256 * 1024;

/** Of a body that is refused so much is still read: a client that is answered midway often sees a reset instead. */
export const MAX_DRAINED_BYTES = 1024 * 1024;

/** Reads a body into a buffer of ours: by default workerd gives 4 KiB at a time, at three times the cost. */
export class BodyReader {
  readonly #idleMilliseconds: number;
  readonly #broken: (cause: unknown) => Error;
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #buffer: Uint8Array = new Uint8Array(READ_BYTES);
  #bytes = 0;
  #waitedMilliseconds = 0;
  /** Whether more may come: not after the end, an error of the stream or a silence. */
  #isOpen = true;

  /** `broken` makes the error of a body that breaks off. */
  constructor(body: ReadableStream<Uint8Array>, idleMilliseconds: number, broken: (cause: unknown) => Error) {
    this.#idleMilliseconds = idleMilliseconds;
    this.#broken = broken;
    try {
      this.#reader = body.getReader({ mode: "byob" });
    } catch {
      this.#reader = body.getReader();
    }
  }

  /** The next bytes, in memory that the next read takes back; undefined at the end. */
  async read(): Promise<Buffer | undefined> {
    this.#isOpen = false;
    // The reader of a stream that is not of bytes takes no buffer and gives one of its own.
    const next = this.#reader.read(this.#buffer).catch((cause: unknown) => {
      throw this.#broken(cause);
    });
    const silence = Promise.withResolvers<never>();
    const timer = setTimeout(() => silence.reject(new AppError("upload_timeout")), this.#idleMilliseconds);
    const askedAt = Date.now();
    const { done, value } = await Promise.race([next, silence.promise]).finally(() => clearTimeout(timer));
    if (done) return undefined;
    this.#bytes += value.length;
    this.#waitedMilliseconds += Date.now() - askedAt;
    const allowedMilliseconds = this.#idleMilliseconds + (this.#bytes / MIN_BYTES_PER_SECOND) * 1000;
    if (this.#waitedMilliseconds > allowedMilliseconds) throw new AppError("upload_timeout");
    this.#isOpen = true;
    this.#buffer = new Uint8Array(value.buffer);
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }

  /** Reads on and throws away, to the end of the read that reaches `maxBytes`. What ends the body only ends this. */
  async drain(maxBytes: number): Promise<void> {
    for (let bytes = 0; this.#isOpen && bytes < maxBytes; ) {
      bytes += (await this.read().catch(() => undefined))?.length ?? 0;
    }
  }

  release(): void {
    try {
      this.#reader.releaseLock();
    } catch {
      // workerd doesn't release a reader that still waits for bytes, as it does after a timeout.
    }
  }
}

/** Gives the body's bytes to `take`, which may leave some. */
export async function withBody<T>(
  { req: { raw }, var: { deps } }: Context<AppEnv>,
  take: (bytes: AsyncIterable<Uint8Array>) => Promise<T>,
): Promise<T> {
  async function* none() {}
  if (raw.body === null) return take(none());
  const broken = (cause: unknown) => new AppError("upload_timeout", { message: "The body broke off.", cause });
  const reader = new BodyReader(raw.body, deps.settings.uploadIdleMilliseconds, broken);
  async function* pieces() {
    for (let chunk = await reader.read(); chunk; chunk = await reader.read()) yield chunk;
  }
  const taken = take(pieces())
    .catch(async (error) => {
      await reader.drain(MAX_DRAINED_BYTES);
      throw error;
    })
    .finally(() => reader.release());
  // A client that goes away must not end the invocation before what came of the body is stored.
  deps.after(taken.catch(() => undefined));
  return taken;
}
