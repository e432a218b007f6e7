import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";
import { StowageError } from "./errors.ts";
import { sleep } from "./retrying.ts";
import { discard, sendFile, type UploadOptions } from "./uploads.ts";

const FIRST_LOOK_MILLISECONDS = 100;
const MAX_LOOK_MILLISECONDS = 2000;

export type FileFilters = Omit<NonNullable<Api["GET /docs/v1/uploads"]["query"]>, "cursor" | "page">;

export class Files {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Sends a file, as a form below 8 MB and as a resumable upload above.
   * @returns its id. It is processed after that: `waitFor` tells what was found
   */
  async upload(file: Blob, options?: UploadOptions): Promise<{ id: string }> {
    return { id: await sendFile(this.#connection, file, options) };
  }

  /** Gives up the resumable upload at `address`, which counts against what the team may keep for as long as it is there. */
  discard(address: string, { signal }: CallOptions = {}): Promise<void> {
    return discard(this.#connection, address, signal);
  }

  /** The team's files, newest first; by name where `name` is given. */
  list(filters: FileFilters = {}, { signal }: CallOptions = {}): List<Schemas["File"]> {
    return this.#connection.list("GET /docs/v1/uploads", { query: filters, signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Schemas["FileMetadata"]> {
    return this.#connection.data("GET /docs/v1/uploads/{id}/metadata", { id, signal });
  }

  /** Until the file is processed. It may have failed: `status` and `failure` tell. */
  async waitFor(id: string, { signal }: CallOptions = {}): Promise<Schemas["FileMetadata"]> {
    for (let delay = FIRST_LOOK_MILLISECONDS; ; delay = Math.min(delay * 1.2, MAX_LOOK_MILLISECONDS)) {
      const file = await this.get(id, { signal });
      if (file.status === "completed" || file.status === "failed") return file;
      await sleep(delay, signal);
    }
  }

  /** An address that opens the file to whoever holds it, for so many seconds; default 3600. */
  async sign(id: string, { expiresIn, signal }: CallOptions & { expiresIn?: number } = {}): Promise<string> {
    const query = { expiresIn };
    return (await this.#connection.call("GET /docs/v1/uploads/{id}", { id, query, signal })).signedUrl;
  }

  /** The file's bytes, as an answer whose body is still to be read; from byte `from` on, if given. */
  async download(id: string, { from = 0, signal }: CallOptions & { from?: number } = {}): Promise<Response> {
    const address = await this.sign(id, { signal });
    const headers = from > 0 ? { Range: `bytes=${from}-` } : undefined;
    return this.#connection.send(address, { headers, signal }, (response) => response);
  }

  async reprocess(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("POST /docs/v1/uploads/{id}/reprocess", { id, signal });
  }

  /** For each channel its peaks, from -1 to 1; null where the file has none. */
  async waveform(id: string, { signal }: CallOptions = {}): Promise<number[][] | null> {
    try {
      return (await this.#connection.call("GET /docs/v1/uploads/{id}/waveform", { id, signal })).data.channels;
    } catch (error) {
      if (error instanceof StowageError && error.code === "not_found") return null;
      throw error;
    }
  }

  /** @returns what is kept: each peak rounded to what a byte tells */
  async setWaveform(id: string, channels: number[][], { signal }: CallOptions = {}): Promise<number[][]> {
    const body = { channels };
    return (await this.#connection.call("PUT /docs/v1/uploads/{id}/waveform", { id, body, signal })).data.channels;
  }

  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /docs/v1/uploads/{id}", { id, signal });
  }
}
