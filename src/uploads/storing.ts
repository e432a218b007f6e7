import type { Hash } from "node:crypto";
import { detectMediaType, HEAD_BYTES, possibleFileTypes, servedContentType } from "../audio/media-type.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { type Named, objectKey } from "../files/names.ts";
import type { Download, StoredPart } from "../platform/byte-store.ts";
import type { Part, PartSpec } from "../platform/part.ts";

export const typeNotAllowed = errorCode("type_not_allowed", 415, "This key can't upload files of this type.");

/** The type of a file by its first 64 KiB. */
interface DetectedType {
  mimeType: string;
  fileType: string;
}

/** The facts about a file once all of its bytes are stored. */
export interface StoredObject extends DetectedType {
  sizeBytes: number;
  /** Hex. Null if the bytes must be read back first. */
  sha256: string | null;
  etag: string;
}

export interface Progress {
  /** R2's id of the multipart upload. Null until the first part is full. */
  multipartId: string | null;
  /** Null until the first part is stored. */
  type: DetectedType | null;
  /** The number of the next part. */
  number: number;
}

interface ObjectWriterOptions {
  sha256?: Hash;
  /** JSON: the file types that the object may have. Null for all. */
  allowedTypes: string | null;
  /** The room of the part that starts now. */
  partSpec(number: number): PartSpec;
  /** Called once the multipart upload is created, whose id is stored nowhere else. */
  onCreated?(): Promise<void>;
  /** Called once a part is stored. */
  onPart(part: StoredPart): Promise<void>;
}

/** Stores an object in parts, or by one `put` if all of it fits the first. Form and resumable uploads use it. */
export class ObjectWriter {
  readonly progress: Progress;
  readonly part: Part;
  readonly #deps: Deps;
  readonly #upload: Named;
  readonly #options: ObjectWriterOptions;

  constructor(deps: Deps, upload: Named, options: ObjectWriterOptions, progress: Partial<Progress> = {}) {
    this.#deps = deps;
    this.#upload = upload;
    this.#options = options;
    this.progress = { multipartId: null, type: null, number: 1, ...progress };
    this.part = deps.bytes.newPart(options.partSpec(this.progress.number), options.sha256);
  }

  /** Each chunk is valid until the next one is requested. The caller sends the rest of the bytes, which are in `part`. */
  async write(bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    for await (const chunk of bytes) {
      for (let rest = chunk; rest.length > 0; ) {
        // A full part waits for one more byte, because it may be the whole object.
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
      await this.#options.onCreated?.();
    }
    const { multipartId, number } = this.progress;
    const stored = await bytes.uploadPart(key, multipartId, number, this.part);
    this.progress.number += 1;
    await this.#options.onPart(stored);
    await this.part.next(this.#options.partSpec(this.progress.number));
  }

  /** @returns the object's etag; null if the key has other bytes, and the caller must send the part instead */
  async putObject(): Promise<string | null> {
    const download = await this.#download();
    const etag = await this.#deps.bytes.put(objectKey(this.#upload), this.part, download, this.#options.sha256);
    if (etag !== null) await this.part.discard();
    return etag;
  }

  /** If this fails, R2 drops the parts after seven days. */
  async abort(): Promise<void> {
    const { multipartId } = this.progress;
    await this.part.discard().catch(() => undefined);
    if (multipartId !== null) await this.#deps.bytes.abort(objectKey(this.#upload), multipartId).catch(() => undefined);
  }

  /** Detects the type from the first bytes of the object, which only its first part has. */
  async #download(): Promise<Download> {
    this.progress.type ??= await this.#detectType();
    return { name: this.#upload.originalName, contentType: servedContentType(this.progress.type.mimeType) };
  }

  /** @throws `type_not_allowed` if processing can find no allowed type either */
  async #detectType(): Promise<DetectedType> {
    const { mediaType: mimeType, fileType } = await detectMediaType(await this.part.head(HEAD_BYTES));
    const { allowedTypes } = this.#options;
    const allowed: string[] | null = allowedTypes === null ? null : JSON.parse(allowedTypes);
    if (allowed && !possibleFileTypes(mimeType).some((type) => allowed.includes(type))) {
      throw new AppError(typeNotAllowed, { message: `This key can upload only these types: ${allowed.join(", ")}.` });
    }
    return { mimeType, fileType };
  }
}
