import type { Api } from "./api.ts";
import type { CallOptions, RequestSpec, Sender } from "./connection.ts";
import { errorOf, StowageError } from "./errors.ts";
import { orAborted } from "./retrying.ts";
import { openSource, PART_BYTES, type Source, type UploadSource } from "./upload-source.ts";
import { cancelUpload, pathOf, TUS, UPLOADS } from "./upload-url.ts";

/*
 * A file below 8 MB is one request, a form, which the service stores once however often it is repeated. A larger file is
 * a resumable upload (tus 1.0.0): POST creates it, PATCH appends, and after each failure HEAD asks for the offset. POST
 * carries no bytes: a lost response would also lose the upload URL, and the repeated creation would discard the stored
 * bytes, or store a complete file twice. A form that the connection can't carry continues as a resumable upload.
 */

/** The fields that a team sets on a file. */
export type FileProperties = Api["PATCH /docs/v1/uploads/{id}"]["body"];

/** Files of at least this size use a resumable upload. For smaller ones, repeating one request costs less. */
export const RESUMABLE_BYTES = 8 * 1000 * 1000;
/** Whole parts, below the 100 MB that Cloudflare's edge accepts. */
const MAX_APPENDED_BYTES = 16 * PART_BYTES;
/** The bytes of the first request, and of the next one after a failure. */
const MIN_APPENDED_BYTES = PART_BYTES / 20;
/** Requests of about this length lose little, and show progress, if the connection buffers what it can't send. */
const APPENDING_MILLISECONDS = 10_000;
/** A failed upload waits this long for its deletion. After that, the service expires it. */
const CLEANUP_MILLISECONDS = 10_000;

/** The data that an interrupted upload needs to resume. */
export interface SavedUpload {
  /** Set before the first byte, so that the same file is not stored twice. */
  idempotencyKey: string;
  /** The upload URL, once it is known. It contains a secret. */
  url?: string | undefined;
}

type Awaitable<T> = T | Promise<T>;

/**
 * Keeps unfinished uploads by a key, such as a `Map`, or one that writes to a file or IndexedDB. An upload that fails
 * stays saved if it can be resumed.
 */
export interface UploadStore {
  /** Returns what was set for the key. */
  get(key: string): Awaitable<SavedUpload | null | undefined>;
  /** Keeps what an upload needs to resume. */
  set(key: string, upload: SavedUpload): unknown;
  /** Forgets an upload, which has ended. */
  delete(key: string): unknown;
}

export interface UploadOptions extends Omit<CallOptions, "timeout"> {
  /** The name to store. Default: the name of the File or path, otherwise "file". */
  name?: string | undefined;
  /** The number of bytes. Required for a stream, and for a Response without `Content-Length`. */
  size?: number | undefined;
  /** Smallest size of a file that starts as a resumable upload. Default: 8,000,000. */
  resumableFromBytes?: number | undefined;
  /** Reports progress, each count once. If bytes did not arrive, the count goes back. */
  onProgress?: ((sentBytes: number, totalBytes: number) => void) | undefined;
  /**
   * 64 hex digits. The service compares them with what it received: below 8 MB the upload fails with `digest_mismatch`,
   * a resumable one ends as failed, with `bytes_altered`.
   */
  sha256?: string | undefined;
  /** Name, folder, reference, tags and metadata of the file. */
  properties?: FileProperties | undefined;
  /** Remembers the upload, so that the same call resumes it later, also in another process or after a reload. */
  store?: UploadStore | undefined;
  /** The key in `store`. Default: made of the URL of the service, the name or path, the size, and the time of change. */
  storeKey?: string | undefined;
  /**
   * Below 8 MB: the same key and bytes within 24 hours store one file. A resumable upload: a repeated creation replaces
   * the unfinished one. Default: random.
   */
  idempotencyKey?: string | undefined;
  /**
   * The URL of an unfinished upload of the same file. A different size fails with `file_changed`; different bytes are
   * detected only with `sha256`. If the upload no longer exists, a new one starts.
   */
  resumeUrl?: string | undefined;
  /** Called with the upload URL once it is known. The URL contains a secret. */
  onResumeUrl?: ((url: string) => void) | undefined;
}

type TransferOptions = UploadOptions & Pick<RequestSpec, "onResponse">;

export const hasStatus = (error: unknown, ...statuses: number[]) =>
  error instanceof StowageError && statuses.includes(error.status);

/** Uploads a file. @returns its id */
export async function uploadFile(connection: Sender, input: UploadSource, options: TransferOptions = {}) {
  return uploadSource(connection, await openSource(input, options.size), options);
}

/** Uploads bytes whose kind the caller knows, without the code for all others. @returns the id of the file */
export const uploadSource = (connection: Sender, source: Source, options: TransferOptions = {}) =>
  new Upload(connection, source, options).run();

class Upload {
  readonly #connection: Sender;
  readonly #file: Source;
  readonly #options: TransferOptions;
  readonly #name: string;
  /** Empty if there is nothing that identifies the file. */
  readonly #storeKey: string;
  #saved: SavedUpload = { idempotencyKey: "" };
  /** How many bytes the next request appends. */
  #appendedBytes = MIN_APPENDED_BYTES;
  #reportedBytes = -1;

  constructor(connection: Sender, file: Source, options: TransferOptions) {
    this.#connection = connection;
    this.#file = file;
    this.#options = options;
    this.#name = options.name ?? file.name ?? "file";
    this.#storeKey = options.storeKey ?? (file.version ? `${connection.url} ${file.version}` : "");
  }

  async run(): Promise<string> {
    const { signal, store, resumeUrl, resumableFromBytes = RESUMABLE_BYTES } = this.#options;
    const key = this.#storeKey;
    const send = async () => {
      signal?.throwIfAborted();
      if (store && !key) throw new TypeError("These bytes need a `storeKey`.");
      const earlier = await store?.get(key);
      const { idempotencyKey = earlier?.idempotencyKey ?? randomKey() } = this.#options;
      this.#saved = { idempotencyKey, url: resumeUrl ?? earlier?.url };
      // An empty file is none, which the service says of a form.
      const isForm = this.#file.size < (resumableFromBytes || 1) && this.#saved.url === undefined;
      const location = await (isForm ? this.#sendForm() : this.#sendResumable());
      const id = location.slice(location.lastIndexOf("/") + 1);
      if (id === "") throw new StowageError("unexpected_response", "The response has no file ID.");
      return id;
    };
    try {
      // Rejects at once, even if the source waits for bytes.
      const id = await orAborted(send(), signal);
      await store?.delete(key);
      // It may have more to give, or not end.
      this.#file.cancel?.();
      return id;
    } catch (error) {
      const cleaning = this.#cleanUp(error);
      // An abort rejects at once.
      if (!signal?.aborted) await cleaning;
      throw error;
    }
  }

  /** Frees what a failed upload holds. */
  async #cleanUp(error: unknown): Promise<void> {
    // These are of another version of the file.
    const isStale = error instanceof StowageError && /^(file_changed|idempotency_conflict)$/.test(error.code);
    if (isStale) await this.#options.store?.delete(this.#storeKey);
    this.#file.cancel?.(error);
    await this.#discard();
  }

  /** Frees what the upload reserves on the service, unless it can be resumed. Otherwise, it would do so for a day. */
  async #discard(): Promise<void> {
    const { store, resumeUrl, onResumeUrl, headers } = this.#options;
    const { url } = this.#saved;
    if (!url || store || resumeUrl || onResumeUrl) return;
    const options = { headers, maxRetries: 0, timeout: CLEANUP_MILLISECONDS };
    await cancelUpload(this.#connection, url, options).catch(() => {});
  }

  async #save(url?: string): Promise<void> {
    this.#saved = { ...this.#saved, url };
    await this.#options.store?.set(this.#storeKey, this.#saved);
  }

  #report(sentBytes: number): void {
    const { size } = this.#file;
    const bytes = Math.min(sentBytes, size);
    if (bytes === this.#reportedBytes) return;
    this.#reportedBytes = bytes;
    this.#options.onProgress?.(bytes, size);
  }

  /** The listener for progress in a request that starts at `offset`. */
  #listener(offset: number): ((sentBytes: number) => void) | undefined {
    return this.#options.onProgress && ((sentBytes) => this.#report(offset + sentBytes));
  }

  async #sendForm(): Promise<string> {
    const { sha256, properties } = this.#options;
    // Read it before the request: an unreadable file must not look like a connection error.
    const bytes = await (await (await this.#file.slice(0, this.#file.size)).blob()).arrayBuffer();
    const send = (file: Blob, digest: string | undefined, onProgress?: RequestSpec["onProgress"]) => {
      const body = new FormData();
      if (properties) body.append("properties", JSON.stringify(properties));
      body.append("file", file, this.#name);
      const ownHeaders = {
        "Idempotency-Key": this.#saved.idempotencyKey,
        ...(digest && { "Repr-Digest": `sha-256=:${digest}:` }),
      };
      return this.#request("POST", UPLOADS, ownHeaders, { body, onProgress, isTransfer: true });
    };
    /** By the digest, the service finds a form that it has stored. Otherwise it rejects these bytes. */
    const findStored = (digest: string) => send(new Blob(["?"]), digest);
    const given = sha256 && base64OfHex(sha256);
    await this.#save();
    this.#report(0);
    const retries = this.#connection.retries(this.#options);
    /** The digest of a form whose response was lost. The service may have stored it. */
    let lost: string | undefined;
    for (;;) {
      try {
        const response = await (lost ? findStored(lost) : send(new Blob([bytes]), given, this.#listener(0)));
        this.#report(this.#file.size);
        return response.headers.get("Location") ?? "";
      } catch (error) {
        // An abort, or an error of the caller's code.
        if (!(error instanceof StowageError)) throw error;
        const { code, isTransient } = error;
        // The connection can't carry the form.
        if (code === "upload_timeout" || (lost && !isTransient)) return this.#sendResumable();
        await retries.wait(error);
        // Pages without a secure connection can't compute digests, and send the form again.
        if (code === "connection_failed" && crypto.subtle) lost = given ?? (await digestOf(bytes));
      }
    }
  }

  async #sendResumable(): Promise<string> {
    const { size } = this.#file;
    const retries = this.#connection.retries(this.#options);
    let location = "";
    let storedBytes = 0;
    /** Undefined if the service has to be asked. */
    let offset: number | undefined;
    for (;;) {
      try {
        const { url } = this.#saved;
        const response: Response =
          url === undefined
            ? await this.#create()
            : offset === undefined
              ? await this.#request("HEAD", pathOf(url), TUS)
              : await this.#append(url, offset);
        location = response.headers.get("Content-Location") ?? location;
        const length = Number(response.headers.get("Upload-Length") ?? size);
        if (length !== size)
          throw new StowageError("file_changed", `The upload expects ${length} bytes, and the file has ${size}.`);
        const stored = url === undefined ? 0 : Number(response.headers.get("Upload-Offset") ?? Number.NaN);
        const hasAdvanced = stored > (offset ?? -1);
        if (!hasAdvanced) throw new StowageError("connection_failed", "No bytes were stored.");
        // Stored bytes are progress: over a connection that always breaks, the upload continues as long as it advances.
        if (stored > storedBytes) retries.reset();
        storedBytes = Math.max(stored, storedBytes);
        offset = stored;
        this.#report(offset);
        if (offset === size) return location;
      } catch (error) {
        const isAsking = this.#saved.url !== undefined && offset === undefined;
        offset = undefined;
        this.#appendedBytes = MIN_APPENDED_BYTES;
        // Only an upload that no longer exists starts again.
        if (isAsking && hasStatus(error, 404, 410)) {
          storedBytes = 0;
          await this.#save();
        } else await retries.wait(error);
      }
    }
  }

  async #create(): Promise<Response> {
    const { properties, sha256, onResumeUrl, signal } = this.#options;
    await this.#save();
    const metadata = { filename: this.#name, sha256, properties: properties && JSON.stringify(properties) };
    const pairs = Object.entries(metadata).flatMap(([name, value]) => (value ? [`${name} ${base64Of(value)}`] : []));
    const headers = {
      ...TUS,
      "Upload-Length": String(this.#file.size),
      "Upload-Metadata": pairs.join(","),
      // A creation whose response is lost is repeated, and replaces the first one.
      "Idempotency-Key": this.#saved.idempotencyKey,
    };
    // An abort waits for its response, which alone has the URL by which the upload is canceled.
    const response = await this.#request("POST", `${UPLOADS}/resumable`, headers, { signal: undefined });
    const path = response.headers.get("Location");
    if (path === null) throw errorOf(response);
    const url = this.#connection.url + pathOf(path);
    await this.#save(url);
    if (signal?.aborted) await this.#discard();
    onResumeUrl?.(url);
    return response;
  }

  async #append(url: string, offset: number): Promise<Response> {
    const { maxSliceBytes = MAX_APPENDED_BYTES, size } = this.#file;
    const bytes = Math.min(this.#appendedBytes, maxSliceBytes);
    const end = offset + bytes - (bytes < PART_BYTES ? 0 : (offset + bytes) % PART_BYTES);
    const body = await this.#file.slice(offset, Math.min(end, size));
    const headers = { ...TUS, "Upload-Offset": String(offset), "Content-Type": "application/offset+octet-stream" };
    const startedAt = performance.now();
    try {
      const response = await this.#request("PATCH", pathOf(url), headers, {
        body,
        isTransfer: true,
        onProgress: this.#listener(offset),
      });
      const sendable = Math.ceil((body.size / (performance.now() - startedAt)) * APPENDING_MILLISECONDS);
      this.#appendedBytes = Math.min(Math.max(sendable, MIN_APPENDED_BYTES), MAX_APPENDED_BYTES);
      return response;
    } catch (error) {
      // Browsers report a file that can't be read any more as a connection error.
      if (hasStatus(error, 0)) for await (const _ of body.chunks()) break;
      throw error;
    }
  }

  /** Sends a request once. Reads its response, which frees the connection for the next request. */
  #request(
    method: string,
    target: string,
    headers: Record<string, string>,
    transfer: RequestSpec = {},
  ): Promise<Response> {
    const { signal, onResponse, headers: others } = this.#options;
    const sent = { method, headers: { ...headers, ...others }, signal, onResponse, maxRetries: 0, ...transfer };
    return this.#connection.stream(target, sent, async (response) => {
      await response.text();
      return response;
    });
  }
}

const base64OfBytes = (bytes: Iterable<number>) => btoa(String.fromCharCode(...bytes));
const base64Of = (text: string) => base64OfBytes(new TextEncoder().encode(text));
const base64OfHex = (hex: string) => base64OfBytes((hex.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)));
const digestOf = async (bytes: ArrayBuffer) =>
  base64OfBytes(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
const randomKey = () => base64OfBytes(crypto.getRandomValues(new Uint8Array(16)));
