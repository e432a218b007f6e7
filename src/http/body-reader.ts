import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { Context } from "hono";
import { isVisitor } from "../access/actor.ts";
import { AppError, invalidField } from "../errors.ts";
import type { BodySlot } from "../platform/bodies.ts";
import { MIN_BYTES_PER_SECOND } from "../platform/bodies.ts";
import type { MemoryBudget } from "../platform/part.ts";
import { withTimeout } from "../timeout.ts";
import type { AppEnv } from "./app-env.ts";
import { clientIpOf } from "./authentication.ts";

/** The read buffer of a fast body, which the memory budget counts. Each read costs as much, however few bytes it returns. */
const FAST_READ_BYTES = 256 * 1024;
/** The read buffer of any other body. */
export const SLOW_READ_BYTES = 16 * 1024;
/** A body is slow if a read waits this long for it. */
const SLOW_MILLISECONDS = 1000;

/** How much of a rejected body is still read. A client that gets a response while it sends often sees a reset instead. */
export const MAX_DRAINED_BYTES = 1024 * 1024;

/** The memory of a body in progress. */
export interface BodyMemory {
  slot: BodySlot;
  budget: MemoryBudget;
  isVisitor: boolean;
}

/**
 * Counts a body that begins to arrive. One without a token counts as a visitor's.
 * @throws `unavailable` if the isolate receives too many
 */
export function beginBody(c: Context<AppEnv>): BodyMemory {
  const { bodies, bytes } = c.get("deps");
  const actor = c.get("credential")?.caller?.actor;
  const caller = actor && actor.kind !== "operator" ? actor : null;
  const isPublic = actor === undefined || (caller !== null && isVisitor(caller));
  const sender = { isVisitor: isPublic, teamId: caller?.teamId ?? null, clientIp: clientIpOf(c) };
  return { slot: bodies.enter(sender), budget: bytes.budget, isVisitor: isPublic };
}

/** Reads a body into its own buffer. By default workerd returns 4 KiB at a time, at three times the cost. */
export class BodyReader {
  readonly #memory: BodyMemory;
  readonly #idleMilliseconds: number;
  readonly #broken: (cause: unknown) => Error;
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #buffer: Uint8Array = new Uint8Array(SLOW_READ_BYTES);
  #bytes = 0;
  #waitedMilliseconds = 0;
  /** False after the end, an error, or a timeout. */
  #isOpen = true;

  /** @param broken makes the error for an interrupted body */
  constructor(
    body: ReadableStream<Uint8Array>,
    memory: BodyMemory,
    idleMilliseconds: number,
    broken: (cause: unknown) => Error,
  ) {
    this.#memory = memory;
    this.#idleMilliseconds = idleMilliseconds;
    this.#broken = broken;
    try {
      this.#reader = body.getReader({ mode: "byob" });
    } catch {
      this.#reader = body.getReader();
    }
  }

  /** Returns the next bytes, or undefined at the end. The next read reuses their memory. */
  async read(): Promise<Buffer | undefined> {
    this.#isOpen = false;
    // A default reader ignores the buffer and returns its own.
    const next = this.#reader.read(this.#buffer).catch((cause: unknown) => {
      throw this.#broken(cause);
    });
    const startedAt = Date.now();
    const { done, value } = await withTimeout(this.#idleMilliseconds, next, () => new AppError("upload_timeout"));
    if (done) return undefined;
    this.#bytes += value.length;
    const waitedMilliseconds = Date.now() - startedAt;
    this.#waitedMilliseconds += waitedMilliseconds;
    const allowedMilliseconds = this.#idleMilliseconds + (this.#bytes / MIN_BYTES_PER_SECOND) * 1000;
    if (this.#waitedMilliseconds > allowedMilliseconds) throw new AppError("upload_timeout");
    this.#isOpen = true;
    this.#buffer = this.#nextBuffer(value, waitedMilliseconds);
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }

  /** Larger while the body fills it at once, if the memory budget lasts, and small again once the body is slow. */
  #nextBuffer({ buffer, length }: Uint8Array, waitedMilliseconds: number): Uint8Array {
    const { budget, isVisitor } = this.#memory;
    const isSlow = waitedMilliseconds >= SLOW_MILLISECONDS;
    if (buffer.byteLength > SLOW_READ_BYTES && isSlow) {
      budget.release(this);
      return new Uint8Array(SLOW_READ_BYTES);
    }
    const isFilled = length === buffer.byteLength && length <= SLOW_READ_BYTES;
    if (isFilled && !isSlow && budget.reserve(this, FAST_READ_BYTES, isVisitor)) return new Uint8Array(FAST_READ_BYTES);
    return new Uint8Array(buffer);
  }

  /** Reads and discards up to `maxBytes`, rounded up to a read, for at most the idle period: a slow body may take hours. Never throws. */
  async drain(maxBytes: number): Promise<void> {
    const endsAt = Date.now() + this.#idleMilliseconds;
    for (let bytes = 0; this.#isOpen && bytes < maxBytes && Date.now() < endsAt; ) {
      bytes += (await this.read().catch(() => undefined))?.length ?? 0;
    }
  }

  release(): void {
    this.#memory.budget.release(this);
    this.#memory.slot.release();
    try {
      this.#reader.releaseLock();
    } catch {
      // workerd can't release a reader that is still waiting for bytes, as after a timeout.
    }
  }
}

/** The error for a body that can't be read because it is compressed. Null if the request states no content coding. */
export function encodingError(c: Context<AppEnv>): AppError | null {
  const coding = c.req.header("Content-Encoding")?.trim().toLowerCase() ?? "";
  if (coding === "" || coding === "identity") return null;
  const message = `Send the body without Content-Encoding: ${JSON.stringify(coding.slice(0, 40))} is not supported.`;
  return new AppError("unsupported_media_type", { message });
}

/** Passes the body to `take`, which may leave some of it unread. */
export async function withBody<T>(
  c: Context<AppEnv>,
  take: (bytes: AsyncIterable<Uint8Array>) => Promise<T>,
): Promise<T> {
  const deps = c.get("deps");
  const { raw } = c.req;
  async function* none() {}
  if (raw.body === null) return take(none());
  const broken = (cause: unknown) =>
    new AppError("upload_timeout", { message: "The body ended early. Send it again.", cause });
  const reader = new BodyReader(raw.body, beginBody(c), deps.settings.uploadIdleMilliseconds, broken);
  async function* chunks() {
    for (let chunk = await reader.read(); chunk; chunk = await reader.read()) yield chunk;
  }
  const taken = take(chunks())
    .catch(async (error) => {
      await reader.drain(MAX_DRAINED_BYTES);
      throw error;
    })
    .finally(() => reader.release());
  // A disconnect must not end the invocation before the received bytes are stored.
  deps.after(taken.catch(() => undefined));
  return taken;
}

/*
 * Digest fields of requests (RFC 9530). Only SHA-256 is checked. Other registered algorithms are ignored; anything else is
 * rejected, because a misspelled `sha-256` would disable the check unnoticed.
 */

const OTHER_NAMES = "(sha-512|sha|md5|unixsum|unixcksum|adler|crc32c)";
const OTHER_ALGORITHM = new RegExp(`^${OTHER_NAMES}=:`);

const MEMBER = `(sha-256=:[A-Za-z0-9+/]{43}=:|${OTHER_NAMES}=:[A-Za-z0-9+/=]*:)`;
const SCHEMA = {
  type: "string",
  pattern: `^${MEMBER}( *, *${MEMBER})*$`,
  example: "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
};
export const CONTENT_DIGEST = {
  description: "SHA-256 of the request body (RFC 9530).",
  schema: SCHEMA,
};
export const REPR_DIGEST = { description: "SHA-256 of the file (RFC 9530).", schema: SCHEMA };

/** Returns the SHA-256, in hex, that a digest field states; null if it states none. @throws `invalid_input` */
export function statedSha256(c: Context<AppEnv>, field: "Content-Digest" | "Repr-Digest"): string | null {
  const members =
    c.req
      .header(field)
      ?.split(",")
      .map((text) => text.trim()) ?? [];
  const checked = members.filter((text) => !OTHER_ALGORITHM.test(text));
  // The field is a dictionary: if a key is repeated, the last member counts (RFC 8941, section 3.2).
  const member = checked.findLast((text) => text.startsWith("sha-256=")) ?? checked[0];
  if (member === undefined) return null;
  const [, encoded = ""] = /^sha-256=:([A-Za-z0-9+/]{43}=):$/.exec(member) ?? [];
  const bytes = Buffer.from(encoded, "base64");
  if (bytes.length !== 32) throw invalidField(field, "Must be sha-256=:…: with 32 bytes in base64.");
  return bytes.toString("hex");
}

/** Hashes bytes as they pass, if the client has stated their digest. */
export class DigestCheck {
  readonly #field: string;
  readonly #stated: string | null;
  readonly #hash = createHash("sha256");

  constructor(c: Context<AppEnv>, field: "Content-Digest" | "Repr-Digest") {
    this.#field = field;
    this.#stated = statedSha256(c, field);
  }

  update(bytes: Uint8Array): void {
    if (this.#stated !== null) this.#hash.update(bytes);
  }

  /** Call once, after the last byte. @throws `digest_mismatch` */
  end(): void {
    if (this.#stated === null || this.#hash.digest("hex") === this.#stated) return;
    throw new AppError("digest_mismatch", { message: `The bytes do not match ${this.#field}. Send them again.` });
  }
}
