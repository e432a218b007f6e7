import { createHash, type Hash } from "node:crypto";
import { MemoryBudget } from "./memory-budget.ts";
import { Part, type PartSpec, R2_CHECKSUM } from "./part.ts";
import { once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** The largest file that is stored by one `put`: four times cheaper than parts, and R2 checks its SHA-256. */
export const SINGLE_PUT_BYTES = 8 * 1024 * 1024;
/** The smallest part that R2 takes. */
export const PART_BYTES = 5 * 1024 * 1024;
/** R2's limit for one call. */
const MAX_REMOVED_KEYS = 1000;
/** What the media type of a file is detected from. */
export const HEAD_BYTES = 4096;
/** Long enough that a file takes few reads, short enough that each is over within seconds. */
const HASHED_BYTES = 64 * 1024 * 1024;

/** A part that R2 has. */
export interface StoredPart {
  number: number;
  /** As R2 told it. */
  etag: string;
  /** Of what was sent, hex. */
  md5: string;
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
  /** The Content-Type to serve. */
  contentType: string;
}

export interface ByteStore {
  /** Room for the parts of one upload. */
  newPart(spec: PartSpec, sha256?: Hash): Part;
  /**
   * Stores a part as a whole object, which R2 checks while it writes: against `sha256` or the MD5. Nothing is ever put in
   * place of another object. @returns its etag; null where there is one of other bytes
   */
  put(key: string, part: Part, download: Download, sha256?: Hash): Promise<string | null>;
  /** Stores a small object, and replaces any other under this key. */
  replace(key: string, bytes: Uint8Array): Promise<void>;
  /** Begins an object that is stored in parts. @returns R2's id of it */
  createMultipart(key: string, download: Download): Promise<string>;
  uploadPart(key: string, multipartId: string, number: number, part: Part): Promise<StoredPart>;
  /**
   * Puts the parts together; also where an earlier call did so and its answer was lost. @returns the etag that the object
   * has if every part is what was sent: R2's is the MD5 of the parts' MD5s (its documentation of multipart objects)
   */
  complete(key: string, multipartId: string, parts: StoredPart[]): Promise<string>;
  /** Gives up what was stored in parts; no error where there is nothing. */
  abort(key: string, multipartId: string): Promise<void>;
  /**
   * Stores an object once more under another Content-Type, which R2 can't change in place. R2 checks the bytes against
   * `sha256` as it writes, and keeps the old object where they differ. @returns null where there is no object of that
   * etag any more: nothing that was deleted comes back
   */
  setContentType(key: string, stored: { etag: string; sha256: string }, contentType: string): Promise<string | null>;
  head(key: string): Promise<ObjectFacts | null>;
  /** Bytes from `offset`, `length` of them or as many as there are; null when there is no such object. */
  read(key: string, offset: number, length: number): Promise<Uint8Array | null>;
  /** The same as a stream for a download; null if there is no such object. */
  open(key: string, offset: number, length: number): Promise<ReadableStream<Uint8Array> | null>;
  /**
   * SHA-256, hex, of an object that has this etag, read once from one end to the other; null where there is none any more.
   * `onProgress` is called every 64 MiB.
   */
  hash(
    key: string,
    object: Pick<ObjectFacts, "etag" | "sizeBytes">,
    onProgress: () => Promise<void>,
  ): Promise<string | null>;
  /** A key that is not there is no error. */
  remove(keys: string[]): Promise<void>;
  /** Removes every object whose key begins so. */
  removeAll(prefix: string): Promise<void>;
}

/** The Content-Disposition of a download (RFC 6266): an ASCII name for old clients, and the real one in UTF-8. */
export function contentDisposition(disposition: "attachment" | "inline", name: string): string {
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `${disposition}; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

/** R2 knows no such multipart upload: it was put together, given up, or never was. */
const isUnknownUpload = (error: unknown) => /\(10024\)/.test(String(error));

/** One for each isolate, whose memory it counts. */
export function createByteStore(bucket: R2Bucket, system: System, budget = new MemoryBudget()): ByteStore {
  const context = { bucket, system, budget };
  const metadataOf = ({ name, contentType }: Download) => ({
    contentType,
    contentDisposition: contentDisposition("attachment", name),
  });
  return {
    newPart: (spec, sha256) => new Part(context, spec, sha256),

    async put(key, part, download, sha256) {
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

    async replace(key, bytes) {
      const md5 = createHash(R2_CHECKSUM).update(bytes).digest();
      await retrying(system, () => bucket.put(key, bytes, { md5 }));
    },

    async createMultipart(key, download) {
      const httpMetadata = metadataOf(download);
      return (await once(() => bucket.createMultipartUpload(key, { httpMetadata }))).uploadId;
    },

    async uploadPart(key, multipartId, number, part) {
      const upload = bucket.resumeMultipartUpload(key, multipartId);
      return retrying(system, async () => {
        const { etag } = await part.send((body) => upload.uploadPart(number, body));
        return { number, etag, md5: await part.md5() };
      });
    },

    async complete(key, multipartId, parts) {
      const upload = bucket.resumeMultipartUpload(key, multipartId);
      const complete = () => upload.complete(parts.map(({ number, etag }) => ({ partNumber: number, etag })));
      await retrying(system, complete).catch(async (error) => {
        if (!isUnknownUpload(error) || !(await retrying(system, () => bucket.head(key)))) throw error;
      });
      const md5s = Buffer.from(parts.map(({ md5 }) => md5).join(""), "hex");
      return `${createHash(R2_CHECKSUM).update(md5s).digest("hex")}-${parts.length}`;
    },

    async abort(key, multipartId) {
      await retrying(system, () => bucket.resumeMultipartUpload(key, multipartId).abort()).catch((error) => {
        if (!isUnknownUpload(error)) throw error;
      });
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

    async open(key, offset, length) {
      const object = await retrying(system, () => bucket.get(key, { range: { offset, length } }));
      return object?.body ?? null;
    },

    async hash(key, { etag, sizeBytes }, onProgress) {
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

    async remove(keys) {
      for (let i = 0; i < keys.length; i += MAX_REMOVED_KEYS) {
        await retrying(system, () => bucket.delete(keys.slice(i, i + MAX_REMOVED_KEYS)));
      }
    },

    async removeAll(prefix) {
      for (let isTruncated = true; isTruncated; ) {
        const page = await retrying(system, () => bucket.list({ prefix }));
        await this.remove(page.objects.map(({ key }) => key));
        isTruncated = page.truncated;
      }
    },
  };
}
