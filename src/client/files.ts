import type { Api, Schemas } from "./api.ts";
import { type CallOptions, type Connection, type IfMatch, ifMatch, type List } from "./connection.ts";
import { StowageError } from "./errors.ts";
import { sendFile, type UploadOptions } from "./file-upload.ts";
import { sleep } from "./retrying.ts";
import type { UploadSource } from "./upload-source.ts";

const MIN_POLL_MILLISECONDS = 100;
const MAX_POLL_MILLISECONDS = 2000;

export type FileFilters = Omit<NonNullable<Api["GET /docs/v1/uploads"]["query"]>, "cursor" | "page">;

/** The fields that a team sets on a file. */
export type FileProperties = Api["PATCH /docs/v1/uploads/{id}"]["body"];
/** An action on 1 to 100 files. */
export type Batch = Api["POST /docs/v1/uploads/batch"]["body"];
export type BatchResult = Api["POST /docs/v1/uploads/batch"]["response"]["data"][number];

export class Files {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Uploads a Blob, a File, the path of a file (in Node), or a stream with its `size`: below 8 MB as a form, above as a
   * resumable upload.
   * @returns its id. The service processes the file afterwards; `waitUntilProcessed` waits for that
   */
  async upload(file: UploadSource, options?: UploadOptions): Promise<{ id: string }> {
    return { id: await sendFile(this.#connection, file, options) };
  }

  /** Lists the team's files, newest first, or by name if `name` or `search` is given, unless `sort` is. */
  list(filters: FileFilters = {}, { signal }: CallOptions = {}): List<Schemas["File"]> {
    return this.#connection.list("GET /docs/v1/uploads", { query: filters, signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Schemas["FileMetadata"]> {
    return this.#connection.data("GET /docs/v1/uploads/{id}/metadata", { id, signal });
  }

  /** Waits until the file is processed. Check `status` and `failure`: processing may have failed. */
  async waitUntilProcessed(id: string, { signal }: CallOptions = {}): Promise<Schemas["FileMetadata"]> {
    for (let delay = MIN_POLL_MILLISECONDS; ; delay = Math.min(delay * 1.2, MAX_POLL_MILLISECONDS)) {
      const file = await this.get(id, { signal });
      if (file.status === "completed" || file.status === "failed") return file;
      await sleep(delay, signal);
    }
  }

  /** Returns a signed URL, which opens the file without a token. It expires in `expiresIn` seconds; default 3600. */
  async createSignedUrl(id: string, { expiresIn, signal }: CallOptions & { expiresIn?: number } = {}): Promise<string> {
    const query = { expiresIn };
    return (await this.#connection.call("GET /docs/v1/uploads/{id}", { id, query, signal })).signedUrl;
  }

  /** Returns a response whose body is the file, starting at byte `from`. */
  async download(id: string, { from = 0, signal }: CallOptions & { from?: number } = {}): Promise<Response> {
    const url = await this.createSignedUrl(id, { signal });
    const headers = from > 0 ? { Range: `bytes=${from}-` } : undefined;
    return this.#connection.send(url, { headers, signal }, (response) => response);
  }

  /** Changes the given fields. `metadata` is merged: null removes a field. */
  async update(id: string, changes: FileProperties, { version, signal }: IfMatch = {}): Promise<Schemas["File"]> {
    const input = { id, body: changes, signal, ...ifMatch(version), isIdempotent: version === undefined };
    return this.#connection.data("PATCH /docs/v1/uploads/{id}", input);
  }

  /** Changes up to 100 files at once. @returns a result for each id: `ok`, or the `code` of its error */
  async batch(batch: Batch, { signal }: CallOptions = {}): Promise<BatchResult[]> {
    // Repeating a deletion would report the deleted files as not found.
    const isIdempotent = batch.action !== "delete";
    return this.#connection.data("POST /docs/v1/uploads/batch", { body: batch, signal, isIdempotent });
  }

  /** Lists the folders directly below `under`, or the top-level folders, as full paths. */
  folders({ under, signal }: CallOptions & { under?: string } = {}): List<string> {
    return this.#connection.list("GET /docs/v1/folders", { query: { under }, signal });
  }

  /** Returns the processing status. A public key can ask for the files that it uploaded. */
  async status(id: string, { signal }: CallOptions = {}): Promise<Schemas["FileStatus"]> {
    return (await this.#connection.call("GET /docs/v1/uploads/{id}/status", { id, signal })).data;
  }

  async reprocess(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("POST /docs/v1/uploads/{id}/reprocess", { id, signal });
  }

  /** Returns the peaks of each channel, from -1 to 1; null if the file has no waveform. */
  async waveform(id: string, { signal }: CallOptions = {}): Promise<number[][] | null> {
    try {
      return (await this.#connection.call("GET /docs/v1/uploads/{id}/waveform", { id, signal })).data.channels;
    } catch (error) {
      if (error instanceof StowageError && error.code === "not_found") return null;
      throw error;
    }
  }

  /** Sets the waveform. @returns the stored peaks, which are rounded to 8 bits */
  async setWaveform(id: string, channels: number[][], { signal }: CallOptions = {}): Promise<number[][]> {
    const body = { channels };
    return (await this.#connection.call("PUT /docs/v1/uploads/{id}/waveform", { id, body, signal })).data.channels;
  }

  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /docs/v1/uploads/{id}", { id, signal });
  }
}
