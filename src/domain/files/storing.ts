import type { Hash } from "node:crypto";
import type { Deps } from "../../deps.ts";
import { type Download, HEAD_BYTES, type StoredPart } from "../../platform/byte-store.ts";
import type { Part, PartRoom } from "../../platform/part.ts";
import { detectMediaType, servedContentType } from "../audio/media-type.ts";
import { type Named, objectKey } from "./names.ts";

/** What the first 4 KiB say a file is, as its row holds it. */
export interface DetectedType {
  mimeType: string;
  fileType: string;
}

/** How far an object has come. */
export interface Progress {
  /** R2's id of the multipart upload, which begins with the first full part. */
  multipartId: string | null;
  /** Null until the first 4 KiB are there. */
  type: DetectedType | null;
  /** Of the next part. */
  number: number;
}

interface Storing {
  sha256?: Hash;
  /** The room of the part that begins now. */
  roomOf(number: number): PartRoom;
  /** The multipart upload has begun: nobody else knows its id. */
  onBegun?(): Promise<void>;
  /** R2 has a part. */
  onPart(part: StoredPart): Promise<void>;
}

/** Stores an object: in parts, or by one `put` where all of it is in the first. Both transports write through it. */
export class ObjectWriter {
  readonly progress: Progress;
  readonly part: Part;
  readonly #deps: Deps;
  readonly #upload: Named;
  readonly #storing: Storing;

  constructor(deps: Deps, upload: Named, storing: Storing, progress: Partial<Progress> = {}) {
    this.#deps = deps;
    this.#upload = upload;
    this.#storing = storing;
    this.progress = { multipartId: null, type: null, number: 1, ...progress };
    this.part = deps.bytes.newPart(storing.roomOf(this.progress.number), storing.sha256);
  }

  /** Takes bytes in pieces that are good until the next is asked for. What is left in `part` is the caller's to send. */
  async write(bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    for await (const chunk of bytes) {
      for (let rest = chunk; rest.length > 0; ) {
        // A full part waits for one more byte: what fits it exactly may be all there is.
        if (this.part.isFull) await this.sendPart();
        rest = rest.subarray(await this.part.take(rest));
      }
    }
  }

  async sendPart(): Promise<void> {
    const { bytes } = this.#deps;
    const key = objectKey(this.#upload);
    if (this.progress.multipartId === null) {
      this.progress.multipartId = await bytes.createMultipart(key, await this.#download());
      await this.#storing.onBegun?.();
    }
    const { multipartId, number } = this.progress;
    const stored = await bytes.uploadPart(key, multipartId, number, this.part);
    this.progress.number += 1;
    await this.#storing.onPart(stored);
    await this.part.next(this.#storing.roomOf(this.progress.number));
  }

  /** @returns the object's etag; null where there is one of other bytes, and the part is still the caller's to send */
  async putWhole(): Promise<string | null> {
    const download = await this.#download();
    const etag = await this.#deps.bytes.put(objectKey(this.#upload), this.part, download, this.#storing.sha256);
    if (etag !== null) await this.part.discard();
    return etag;
  }

  /** R2 gives up what this can't reach after seven days. */
  async abort(): Promise<void> {
    const { multipartId } = this.progress;
    await this.part.discard().catch(() => undefined);
    if (multipartId !== null) await this.#deps.bytes.abort(objectKey(this.#upload), multipartId).catch(() => undefined);
  }

  /** Detects the type from the first bytes of the object, which only its first part has. */
  async #download(): Promise<Download> {
    this.progress.type ??= await detectType(await this.part.head(HEAD_BYTES));
    return { name: this.#upload.originalName, contentType: servedContentType(this.progress.type.mimeType) };
  }
}

async function detectType(head: Uint8Array): Promise<DetectedType> {
  const { mediaType: mimeType, fileType } = await detectMediaType(head);
  return { mimeType, fileType };
}
