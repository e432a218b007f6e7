import type { Api, Schemas } from "./api.ts";
import { type Call, callOf, type List } from "./call.ts";
import {
  type CallOptions,
  type Filters,
  type PageFields,
  Resource,
  STALL_MILLISECONDS,
  type VersionOptions,
} from "./connection.ts";
import { type ErrorCode, errorOf, StowageError } from "./errors.ts";
import { sleep } from "./retrying.ts";
import { limitStalls } from "./transfer.ts";
import { type FileProperties, type UploadOptions, uploadFile } from "./upload.ts";
import type { UploadSource } from "./upload-source.ts";

const MIN_POLL_MILLISECONDS = 100;
const MAX_POLL_MILLISECONDS = 2000;
/** The largest batch that the service takes. */
export const MAX_BATCH_FILES = 100;

const ABSENT: ErrorCode[] = ["not_found"];
/** The codes for statuses of the store, whose errors have no code of the service. */
const STORE_CODES: Record<number, ErrorCode> = { 404: "not_found", 416: "range_not_satisfiable" };

export type FileFilters = Filters<"GET /docs/v1/uploads">;
export type FolderFilters = Filters<"GET /docs/v1/folders">;
export type TagFilters = Filters<"GET /docs/v1/tags">;
export type TranscriptFilters = Omit<Filters<"GET /docs/v1/transcripts">, "search">;
/** Whether a search finds all transcripts. */
export type SearchState = PageFields<"GET /docs/v1/transcripts">;
/** The limits of an upload token, and the properties of its files. */
export type UploadTokenInput = Api["POST /docs/v1/uploadtokens"]["body"];
/** An action on 1 to 100 files. */
export type Batch = Api["POST /docs/v1/uploads/batch"]["body"];
export type BatchResult = Api["POST /docs/v1/uploads/batch"]["response"]["data"][number];

export type FolderChange = Api["PATCH /docs/v1/folders"]["response"]["data"];
export type FolderDeletion = Api["POST /docs/v1/folders/delete"]["response"]["data"];

export class Files extends Resource {
  /**
   * Uploads a file: below 8 MB in one request, above, or if that request fails, as a resumable upload.
   * A failed upload of a stream cancels the stream.
   * @param file a Blob, a File, bytes in memory, a Response, a path (not in browsers), or a stream with its `size`
   * @returns its id. The service processes the file afterwards; `waitUntilProcessed` waits for that
   */
  upload(file: UploadSource, options?: UploadOptions): Call<{ id: string }> {
    return callOf(async (onResponse) => ({
      id: await uploadFile(this.connection, file, { ...options, onResponse }),
    }));
  }

  /** Creates a token with which a web page uploads a few files. Default: one file, for an hour. */
  createUploadToken(token?: UploadTokenInput, options?: CallOptions): Call<Schemas["UploadToken"]> {
    return this.connection.json("POST /docs/v1/uploadtokens", { body: token, isIdempotent: true }, options);
  }

  /**
   * Lists the team's files. Default order: newest first, or by name if `name` or `search` is given. With `include: "metadata"`,
   * each has what `get` returns.
   */
  list(filters: FileFilters & { include: "metadata" }, options?: CallOptions): List<Schemas["FileMetadata"]>;
  list(filters?: FileFilters, options?: CallOptions): List<Schemas["StoredFile"]>;
  list(filters?: FileFilters, options?: CallOptions): List<Schemas["ListedFile"]> {
    return this.connection.list("GET /docs/v1/uploads", { query: filters }, options);
  }

  /** Returns everything that is known about a file. */
  get(id: string, options?: CallOptions): Call<Schemas["FileMetadata"]> {
    return this.connection.json("GET /docs/v1/uploads/{id}/metadata", { id }, options);
  }

  /**
   * Waits until the file is processed. Check `status`: processing may have failed. A public key or upload token gets no
   * more than `status` does, for which it writes `waitUntilProcessed<FileStatus>(id)`.
   * @example const { status, audio } = await stowage.files.waitUntilProcessed(id);
   */
  waitUntilProcessed<F extends Schemas["ProcessingStatus"] = Schemas["FileMetadata"]>(
    id: string,
    options?: CallOptions,
  ): Call<F> {
    return callOf(async (onResponse) => {
      const call = { ...options, onResponse };
      let read: "get" | "status" = "get";
      for (let delay = MIN_POLL_MILLISECONDS; ; delay = Math.min(delay * 1.2, MAX_POLL_MILLISECONDS)) {
        const file = await this[read](id, call).catch((error) => {
          if (read === "status" || error.code !== "insufficient_scope") throw error;
          read = "status";
          return this.status(id, call);
        });
        if (file.status === "completed" || file.status === "failed") return file as F;
        await sleep(delay, options?.signal);
      }
    });
  }

  /** Returns a signed URL, which opens the file without a token. It expires in `expiresIn` seconds; default 3600. */
  createSignedUrl(id: string, params?: { expiresIn?: number | undefined }, options?: CallOptions): Call<string> {
    const input = { id, query: params };
    return this.connection.json("GET /docs/v1/uploads/{id}", input, options, ({ signedUrl }) => signedUrl);
  }

  /**
   * Returns a response whose body is the file, starting at byte `from`. Reading it fails if no bytes arrive for two minutes.
   * If `from` is the size of the file, nothing is left, and the body is empty. Beyond it, the call fails with
   * `range_not_satisfiable`.
   * @example const response = await stowage.files.download(id, { from: 100 });
   */
  download(id: string, range?: { from?: number | undefined }, options?: CallOptions): Call<Response> {
    const from = range?.from ?? 0;
    return callOf(async (onResponse) => {
      // The store would ignore it, and send the whole file.
      if (!(from >= 0 && from % 1 === 0)) throw new TypeError(`\`from\` is ${from}.`);
      const url = await this.createSignedUrl(id, {}, options);
      const read = (response: Response) => {
        if (from === 0 || response.status === 206) return limitStalls(url, response, STALL_MILLISECONDS);
        // A proxy has ignored the range. The caller would append the whole file to its beginning.
        void response.body?.cancel();
        throw errorOf(response);
      };
      const open = (first: number) => {
        const headers = from > 0 ? { Range: `bytes=${first}-` } : undefined;
        return this.connection.stream(url, { ...options, headers, onResponse, isTransfer: true }, read);
      };
      return open(from)
        .catch(async (error) => {
          if (error?.status !== 416) throw error;
          // Nothing is left if the byte before exists. Scripts of pages can't read the size, which the response has.
          await (await open(from - 1)).body?.cancel();
          return new Response("", { status: 206 });
        })
        .catch((cause) => {
          const status: number = cause?.status;
          const code = STORE_CODES[status];
          throw code ? new StowageError(code, "The file has no such bytes.", { status, cause }) : cause;
        });
    });
  }

  /** Changes the given fields. `metadata` is merged: null removes a field. */
  update(id: string, changes: FileProperties, options?: VersionOptions): Call<Schemas["StoredFile"]> {
    return this.connection.json("PATCH /docs/v1/uploads/{id}", { id, body: changes }, options);
  }

  /** Changes up to 100 files at once. @returns a result for each id: `ok`, or the `code` of its error */
  batch(batch: Batch, options?: CallOptions): Call<BatchResult[]> {
    // Repeating a deletion would report the deleted files as not found, and restored files are not in the trash.
    const isIdempotent = batch.action !== "delete" && batch.action !== "restore";
    return this.connection.json("POST /docs/v1/uploads/batch", { body: batch, isIdempotent }, options);
  }

  /** Lists the folders directly below `under`, or the top-level folders, as full paths. */
  folders(filters?: FolderFilters, options?: CallOptions): List<string> {
    return this.connection.list("GET /docs/v1/folders", { query: filters }, options);
  }

  /** Lists the tags of the team's files, by name. For a contributor, those of the own files. */
  tags(filters?: TagFilters, options?: CallOptions): List<Schemas["Tag"]> {
    return this.connection.list("GET /docs/v1/tags", { query: filters }, options);
  }

  /** Creates an empty folder. One that exists stays as it is. */
  createFolder(folder: string, options?: CallOptions): Call<{ folder: string }> {
    return this.connection.json("POST /docs/v1/folders", { body: { folder }, isIdempotent: true }, options);
  }

  /** Renames or moves a folder with everything in it. If `isComplete` is false, the rest follows within minutes. */
  moveFolder(folder: string, to: string, options?: CallOptions): Call<FolderChange> {
    return this.connection.json("PATCH /docs/v1/folders", { body: { folder, to }, isIdempotent: false }, options);
  }

  /** Deletes a folder with everything in it, except for held files. If `isComplete` is false, the rest follows within minutes. */
  deleteFolder(folder: string, options?: CallOptions): Call<FolderDeletion> {
    return this.connection.json("POST /docs/v1/folders/delete", { body: { folder } }, options);
  }

  /** Returns the processing status. A public key or upload token can ask for the files that it uploaded. */
  status(id: string, options?: CallOptions): Call<Schemas["ProcessingStatus"]> {
    return this.connection.json("GET /docs/v1/uploads/{id}/status", { id }, options);
  }

  /** Processes a file again, such as after `failed`. */
  reprocess(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("POST /docs/v1/uploads/{id}/reprocess", { id, isIdempotent: true }, options);
  }

  /** Returns the peaks of each channel, from -1 to 1; null if the file has no waveform. */
  waveform(id: string, options?: CallOptions): Call<number[][] | null> {
    const input = { id, nullCodes: ABSENT };
    return this.connection.json("GET /docs/v1/uploads/{id}/waveform", input, options, ({ data }) => data.channels);
  }

  /**
   * Sets the waveform.
   * @param channels one or two channels of 16 to 2,000 peaks from -1 to 1
   * @returns the stored peaks, which are rounded to 8 bits
   */
  setWaveform(id: string, channels: number[][], options?: CallOptions): Call<number[][]> {
    const input = { id, body: { channels } };
    return this.connection.json("PUT /docs/v1/uploads/{id}/waveform", input, options, ({ data }) => data.channels);
  }

  /**
   * Sets the transcript.
   * @param text WebVTT or SubRip (SRT). The service stores it as WebVTT
   */
  setTranscript(
    id: string,
    text: string,
    params?: { language?: string | undefined },
    options?: CallOptions,
  ): Call<Schemas["Transcript"]> {
    const isSubRip = /-->/.test(text) && !/^\ufeff?WEBVTT/.test(text);
    const type = isSubRip ? "application/x-subrip" : "text/vtt";
    const input = { id, query: params, text: { type, content: text }, isTransfer: true };
    return this.connection.json("PUT /docs/v1/uploads/{id}/transcript", input, options);
  }

  /** Returns the transcript as WebVTT; null if the file has none. */
  getTranscript(id: string, options?: CallOptions): Call<string | null> {
    const input = { id, nullCodes: ABSENT };
    return this.connection.request("GET /docs/v1/uploads/{id}/transcript", input, options, (response) =>
      response.text(),
    );
  }

  /**
   * Finds the files in whose transcripts all words are said, best first. Words in quotes must stand side by side. Each page says
   * whether transcripts may be missing (`isComplete`).
   */
  searchTranscripts(
    words: string,
    filters?: TranscriptFilters,
    options?: CallOptions,
  ): List<Schemas["FoundTranscript"], SearchState> {
    return this.connection.list("GET /docs/v1/transcripts", { query: { search: words, ...filters } }, options);
  }

  /** Deletes the transcript. */
  deleteTranscript(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /docs/v1/uploads/{id}/transcript", { id }, options);
  }

  /** Deletes a file: moves it to the trash, if the service has one. With `permanent`, erases it, also from the trash. */
  delete(id: string, params?: { permanent?: boolean | undefined }, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /docs/v1/uploads/{id}", { id, query: params }, options);
  }

  /** Forbids the deletion of a file until a secret key or an admin releases it. */
  hold(id: string, reason: string, options?: CallOptions): Call<Schemas["Hold"]> {
    return this.connection.json("PUT /docs/v1/uploads/{id}/hold", { id, body: { reason } }, options);
  }

  /** Releases a held file. Needs a secret key, or an admin. */
  release(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /docs/v1/uploads/{id}/hold", { id }, options);
  }
}
