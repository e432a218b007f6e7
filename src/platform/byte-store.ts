import { createHash, type Hash } from "node:crypto";
import { withTimeout } from "../timeout.ts";
import { MemoryBudget, Part, type PartSpec, R2_CHECKSUM } from "./part.ts";
import { isUnknownUpload, once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** The largest file that is stored by one `put`: four times cheaper than parts, and R2 checks its SHA-256. */
export const SINGLE_PUT_BYTES = 8 * 1024 * 1024;
/** The smallest part that R2 takes. */
export const PART_BYTES = 5 * 1024 * 1024;
/** R2's limit for one call. */
const MAX_REMOVED_KEYS = 1000;
/** R2's calls have no time limit. A small object takes milliseconds. */
const MAX_STORE_SECONDS = 30;
/** Long enough that a file takes few reads, short enough that each read ends within seconds. */
const HASHED_BYTES = 64 * 1024 * 1024;

/** A part that R2 holds. */
export interface StoredPart {
  number: number;
  /** As R2 returned it. */
  etag: string;
  /** MD5 of the sent bytes, hex. */
  md5: string;
}

export interface ObjectFacts {
  sizeBytes: number;
  etag: string;
  /** Hex, as R2 checked it on write. Null for an object that was stored in parts. */
  sha256: string | null;
  contentType: string | undefined;
}

/** Metadata that R2 stores with the bytes, for downloads. */
export interface Download {
  /** The download name. */
  name: string;
  /** The Content-Type to serve. */
  contentType: string;
}

/** The Content-Disposition of a download (RFC 6266): an ASCII name for old clients, and the real one in UTF-8. */
export function contentDisposition(disposition: "attachment" | "inline", name: string): string {
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `${disposition}; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

/** Each isolate has one, which counts its memory. */
export function createByteStore(bucket: R2Bucket, system: System, budget = new MemoryBudget()) {
  const context = { bucket, system, budget };
  const metadataOf = ({ name, contentType }: Download) => ({
    contentType,
    contentDisposition: contentDisposition("attachment", name),
  });
  return {
    /** Starts the first part of an upload. */
    newPart: (spec: PartSpec, sha256?: Hash) => new Part(context, spec, sha256),

    /** Memory for a body that is needed as a whole, see `MemoryBudget`. */
    grow: (memory: Uint8Array<ArrayBuffer>, minBytes: number, maxBytes: number) =>
      budget.grow(memory, minBytes, maxBytes),
    free: (memory: Uint8Array) => budget.release(memory),
    budget,

    /**
     * Stores a part as a complete object. R2 checks it against `sha256` or the MD5. Never replaces another object.
     * @returns the etag; null if the key has other bytes
     */
    async put(key: string, part: Part, download: Download, sha256?: Hash): Promise<string | null> {
      const httpMetadata = metadataOf(download);
      const md5 = await retrying(system, () => part.md5());
      const checksum = sha256 ? { sha256: sha256.copy().digest() } : { md5 };
      const onlyIf = new Headers({ "If-None-Match": "*" });
      const put = (body: Uint8Array | ReadableStream) => bucket.put(key, body, { httpMetadata, onlyIf, ...checksum });
      const stored = await retrying(system, () => part.send(put));
      if (stored) return stored.etag;
      // An earlier try has stored it, or another request.
      const found = await retrying(system, () => bucket.head(key));
      return found?.etag === md5 ? md5 : null;
    },

    /** Stores a small object under a key that no other object has. @throws `unavailable` also if R2 does not respond in time */
    async store(key: string, bytes: Uint8Array): Promise<void> {
      const md5 = createHash(R2_CHECKSUM).update(bytes).digest();
      const stalled = () => new Error(`R2 did not respond within ${MAX_STORE_SECONDS} s.`);
      await retrying(system, () => withTimeout(MAX_STORE_SECONDS * 1000, bucket.put(key, bytes, { md5 }), stalled));
    },

    /** Creates a multipart upload. @returns its id in R2 */
    async createMultipart(key: string, download: Download): Promise<string> {
      const httpMetadata = metadataOf(download);
      return (await once(() => bucket.createMultipartUpload(key, { httpMetadata }))).uploadId;
    },

    async uploadPart(key: string, multipartId: string, number: number, part: Part): Promise<StoredPart> {
      const upload = bucket.resumeMultipartUpload(key, multipartId);
      return retrying(system, async () => {
        const { etag } = await part.send((body) => upload.uploadPart(number, body));
        return { number, etag, md5: await part.md5() };
      });
    },

    /**
     * Assembles the parts. It is idempotent: the response of an earlier call may have been lost.
     * @returns the etag that the object has if every part has the sent bytes. According to R2's documentation of multipart
     *   objects, it is the MD5 of the parts' MD5s
     */
    async complete(key: string, multipartId: string, parts: StoredPart[]): Promise<string> {
      const upload = bucket.resumeMultipartUpload(key, multipartId);
      const complete = () => upload.complete(parts.map(({ number, etag }) => ({ partNumber: number, etag })));
      await retrying(system, complete).catch(async (error) => {
        if (!isUnknownUpload(error) || !(await retrying(system, () => bucket.head(key)))) throw error;
      });
      const md5s = Buffer.from(parts.map(({ md5 }) => md5).join(""), "hex");
      return `${createHash(R2_CHECKSUM).update(md5s).digest("hex")}-${parts.length}`;
    },

    /** Cancels a multipart upload. Does nothing if it does not exist. */
    async abort(key: string, multipartId: string): Promise<void> {
      await retrying(system, () => bucket.resumeMultipartUpload(key, multipartId).abort()).catch((error) => {
        if (!isUnknownUpload(error)) throw error;
      });
    },

    async head(key: string): Promise<ObjectFacts | null> {
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

    /**
     * Stores an object again under another Content-Type, because R2 can't change it in place. A deleted object must not
     * reappear. R2 checks the bytes against `sha256` on write, and keeps the old object if they differ.
     * @returns null, and stores nothing, if no object has that etag any longer
     */
    async setContentType(
      key: string,
      { etag, sha256 }: { etag: string; sha256: string },
      contentType: string,
    ): Promise<string | null> {
      const onlyIf = { etagMatches: etag };
      const stored = await retrying(system, async () => {
        const object = await bucket.get(key, { onlyIf });
        if (!object || !("body" in object)) return null;
        const httpMetadata = { ...object.httpMetadata, contentType };
        return bucket.put(key, object.body, { httpMetadata, sha256, onlyIf });
      });
      return stored?.etag ?? null;
    },

    /** At most `length` bytes from `offset`; null if there is no such object. */
    async read(key: string, offset: number, length: number): Promise<Uint8Array | null> {
      return retrying(system, async () => {
        const object = await bucket.get(key, { range: { offset, length } });
        return object && new Uint8Array(await object.arrayBuffer());
      });
    },

    /** The same as a stream for a download; null if there is no such object. */
    async open(key: string, offset: number, length: number): Promise<ReadableStream<Uint8Array> | null> {
      const object = await retrying(system, () => bucket.get(key, { range: { offset, length } }));
      return object?.body ?? null;
    },

    /**
     * The SHA-256, hex, of an object with this etag; null if it no longer exists. Reads the object once. Calls `onProgress`
     * every 64 MiB.
     */
    async hash(
      key: string,
      { etag, sizeBytes }: Pick<ObjectFacts, "etag" | "sizeBytes">,
      onProgress: () => Promise<void>,
    ): Promise<string | null> {
      const digest = new crypto.DigestStream("SHA-256");
      for (let offset = 0; offset < sizeBytes; offset += HASHED_BYTES) {
        const range = { offset, length: Math.min(HASHED_BYTES, sizeBytes - offset) };
        const object = await retrying(system, () => bucket.get(key, { range, onlyIf: { etagMatches: etag } }));
        if (!object || !("body" in object)) return null;
        await once(() => object.body.pipeTo(digest, { preventClose: true }));
        await onProgress();
      }
      await digest.close();
      return Buffer.from(await digest.digest).toString("hex");
    },

    /** Ignores keys that do not exist. */
    async remove(keys: string[]): Promise<void> {
      for (let i = 0; i < keys.length; i += MAX_REMOVED_KEYS) {
        await retrying(system, () => bucket.delete(keys.slice(i, i + MAX_REMOVED_KEYS)));
      }
    },

    /** The objects after a key, in the order of their keys, and whether there are more. */
    async list(after: string, limit: number) {
      const options = { limit, ...(after !== "" && { startAfter: after }) };
      const { objects, truncated } = await retrying(system, () => bucket.list(options));
      const found = objects.map(({ key, size, uploaded }) => ({ key, sizeBytes: size, storedAt: uploaded.getTime() }));
      return { objects: found, isTruncated: truncated };
    },

    /** Deletes every object whose key starts with `prefix`. */
    async removeAll(prefix: string): Promise<void> {
      for (let isTruncated = true; isTruncated; ) {
        const page = await retrying(system, () => bucket.list({ prefix }));
        await this.remove(page.objects.map(({ key }) => key));
        isTruncated = page.truncated;
      }
    },
  };
}

export type ByteStore = ReturnType<typeof createByteStore>;
