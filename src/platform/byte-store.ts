import { createHash } from "node:crypto";
import { AppError } from "../errors.ts";
import { once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** The largest file that is stored by one `put`: four times cheaper than parts, and R2 checks its SHA-256. */
export const SINGLE_PUT_BYTES = 8 * 1024 * 1024;
/** The smallest part that R2 takes: each upload holds one, and the isolate has 128 MB for all of them. */
export const PART_BYTES = 5 * 1024 * 1024;
/** What the media type of a file is detected from. */
export const HEAD_BYTES = 4096;

/**
 * The memory of a part grows in so many bytes, and at once to all of it: what a client says will come must not cost
 * memory, and each step leaves the one before it to the garbage collector. (A buffer that grows in place is copied by
 * workerd at each call that takes it.)
 */
const GROWTH_BYTES = [64 * 1024, 1024 * 1024];
/** Of the isolate's 128 MB: above it a further upload is refused, where running out would end all that are under way. */
const MAX_HELD_BYTES = 80 * 1024 * 1024;

export interface StoredBytes {
  sizeBytes: number;
  /** Hex. */
  sha256: string;
  etag: string;
}

export interface ObjectFacts {
  sizeBytes: number;
  etag: string;
  /** Hex, as R2 checked it while it wrote; null for an object that was stored in parts. */
  sha256: string | null;
  contentType: string | undefined;
}

/** What is stored beside the bytes, for whoever downloads them. */
export interface Download {
  /** The file's name for the one who saves it. */
  name: string;
  /** The Content-Type to serve, told the first 4 KiB. */
  contentType(head: Uint8Array): Promise<string>;
}

export interface ByteStore {
  /**
   * Stores a stream in constant memory. `minBytes` says how many there will be at least, as far as is known: up to
   * 8 MiB they go by one `put`, whose SHA-256 R2 checks as it writes; others in parts of 5 MiB, or by one `put` if they
   * fit the first. A wrong guess does no harm. When the stream or R2 fails, parts are given up and the error comes
   * through; an object may be left under the key.
   * @throws `NoMemory` where the isolate holds too many uploads, of a file larger than 1 MiB
   */
  put(key: string, bytes: AsyncIterable<Uint8Array>, minBytes: number | null, download: Download): Promise<StoredBytes>;
  /**
   * Stores an object once more under another Content-Type, which R2 can't change in place. R2 checks the bytes against
   * `sha256` as it writes, and keeps the old object where they differ. @returns null where there is no object of that
   * etag any more: nothing that was deleted comes back
   */
  setContentType(
    key: string,
    stored: Pick<StoredBytes, "etag" | "sha256">,
    contentType: string,
  ): Promise<string | null>;
  head(key: string): Promise<ObjectFacts | null>;
  /** Bytes from `offset`, `length` of them or as many as there are; null when there is no such object. */
  read(key: string, offset: number, length: number): Promise<Uint8Array | null>;
  /** Up to 1,000 keys in one call (R2's limit); a key that is not there is no error. */
  remove(keys: string[]): Promise<void>;
}

/** RFC 6266: a name in ASCII for old clients, and the real one in UTF-8. Never inline: no file is a page of ours. */
function attachment(name: string): string {
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

/** The isolate has no memory for another part. Nothing of the upload has been written. */
export class NoMemory extends AppError {
  constructor() {
    super("unavailable", { retryAfterSeconds: 10, cause: new Error("This isolate holds too many uploads.") });
  }
}

/** Counts the parts that an isolate holds. What one that was killed midway never gave back counts until collected. */
class MemoryBudget {
  #leftBytes = MAX_HELD_BYTES;
  readonly #collected = new FinalizationRegistry<number>((bytes) => {
    this.#leftBytes += bytes;
  });

  allocate(bytes: number): Uint8Array<ArrayBuffer> {
    if (bytes > this.#leftBytes) throw new NoMemory();
    const memory = new Uint8Array(bytes);
    this.#leftBytes -= bytes;
    this.#collected.register(memory, bytes, memory);
    return memory;
  }

  free(memory: Uint8Array): void {
    if (this.#collected.unregister(memory)) this.#leftBytes += memory.length;
  }
}

/** Gathers a stream into parts, in the same memory every time. */
class PartBuffer {
  readonly #partBytes: number;
  readonly #budget: MemoryBudget;
  #memory = new Uint8Array();
  #used = 0;

  constructor(partBytes: number, budget: MemoryBudget) {
    this.#partBytes = partBytes;
    this.#budget = budget;
  }

  get tail(): Uint8Array<ArrayBuffer> {
    return this.#memory.subarray(0, this.#used);
  }

  /** Takes as much of `chunk` as fits the part, and says how much. */
  take(chunk: Uint8Array): number {
    const count = Math.min(chunk.length, this.#partBytes - this.#used);
    const end = this.#used + count;
    if (end > this.#memory.length) this.#grow(end);
    this.#memory.set(count === chunk.length ? chunk : chunk.subarray(0, count), this.#used);
    this.#used = end;
    return count;
  }

  #grow(minBytes: number): void {
    const step = GROWTH_BYTES.find((bytes) => bytes >= minBytes);
    // A small file is taken in any case: large ones that go slowly must not keep it out.
    const grown = step ? new Uint8Array(step) : this.#budget.allocate(this.#partBytes);
    grown.set(this.tail);
    this.#memory = grown;
  }

  get isFull(): boolean {
    return this.#used === this.#partBytes;
  }

  clear(): void {
    this.#used = 0;
  }

  free(): void {
    this.#budget.free(this.#memory);
  }
}

/** One for each isolate, whose memory it counts. */
export function createByteStore(bucket: R2Bucket, system: System): ByteStore {
  const budget = new MemoryBudget();
  return {
    async put(key, bytes, minBytes, download) {
      const isSmall = minBytes !== null && minBytes <= SINGLE_PUT_BYTES;
      const part = new PartBuffer(isSmall ? SINGLE_PUT_BYTES : PART_BYTES, budget);
      const digest = createHash("sha256");
      let sizeBytes = 0;
      let upload: R2MultipartUpload | undefined;
      const parts: R2UploadedPart[] = [];

      const metadata = async () => ({
        contentType: await download.contentType(part.tail.subarray(0, HEAD_BYTES)),
        contentDisposition: attachment(download.name),
      });
      const sendPart = async () => {
        upload ??= await createUpload();
        const opened = upload;
        const number = parts.length + 1;
        // The call has the bytes on their way before the hash runs, so both go on at once.
        const sent = retrying(system, () => opened.uploadPart(number, part.tail));
        digest.update(part.tail);
        parts.push(await sent);
        part.clear();
      };
      const createUpload = async () => {
        const httpMetadata = await metadata();
        return once(() => bucket.createMultipartUpload(key, { httpMetadata }));
      };

      try {
        for await (const chunk of bytes) {
          sizeBytes += chunk.length;
          for (let rest = chunk; rest.length > 0; ) {
            // A full part waits for one more byte: what fits it exactly is still one put.
            if (part.isFull) await sendPart();
            rest = rest.subarray(part.take(rest));
          }
        }
        if (!upload) {
          digest.update(part.tail);
          const sha256 = digest.digest();
          const httpMetadata = await metadata();
          const object = await retrying(system, () => bucket.put(key, part.tail, { httpMetadata, sha256 }));
          return { sizeBytes, sha256: sha256.toString("hex"), etag: object.etag };
        }
        await sendPart();
        const finished = upload;
        const object = await once(() => finished.complete(parts));
        return { sizeBytes, sha256: digest.digest("hex"), etag: object.etag };
      } catch (error) {
        // R2 gives up what this can't reach after seven days.
        await upload?.abort().catch(() => undefined);
        throw error;
      } finally {
        part.free();
      }
    },

    async head(key) {
      const object = await retrying(system, () => bucket.head(key));
      if (!object) return null;
      const { sha256 } = object.checksums;
      return {
        sizeBytes: object.size,
        etag: object.etag,
        sha256: sha256 ? Buffer.from(sha256).toString("hex") : null,
        contentType: object.httpMetadata?.contentType,
      };
    },

    async setContentType(key, { etag, sha256 }, contentType) {
      const onlyIf = { etagMatches: etag };
      const stored = await retrying(system, async () => {
        const object = await bucket.get(key, { onlyIf });
        if (!object || !("body" in object)) return null;
        const httpMetadata = { ...object.httpMetadata, contentType };
        return bucket.put(key, object.body, { httpMetadata, sha256, onlyIf });
      });
      return stored?.etag ?? null;
    },

    async read(key, offset, length) {
      return retrying(system, async () => {
        const object = await bucket.get(key, { range: { offset, length } });
        return object && new Uint8Array(await object.arrayBuffer());
      });
    },

    async remove(keys) {
      if (keys.length > 0) await retrying(system, () => bucket.delete(keys));
    },
  };
}
