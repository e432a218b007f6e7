import type { DetailedError, UploadOptions as TusOptions } from "tus-js-client";
import type { CallOptions, Connection } from "./connection.ts";
import { connectionError, errorOf, StowageError } from "./errors.ts";
import { fetchStack } from "./fetch-stack.ts";
import type { FileProperties } from "./files.ts";
import { waitToRetry } from "./retrying.ts";
import { openSource, type Source, type UploadSource } from "./upload-source.ts";

/** Files of at least this size use a resumable upload. For smaller ones, repeating one request costs less. */
export const RESUMABLE_BYTES = 8 * 1000 * 1000;
/** A multiple of the service's parts of 5 MiB, below the 100 MB that Cloudflare's edge accepts. */
const CHUNK_BYTES = 80 * 1024 * 1024;
/** Longer than the service needs after the last byte. Without a limit, Node would wait forever. */
const STALL_MILLISECONDS = 120_000;
const FORM = "/docs/v1/uploads";

export interface UploadOptions extends CallOptions {
  /** The name to store. Default: the name of the File or path, otherwise "file". */
  name?: string;
  /** The number of bytes. Required for a stream. */
  size?: number;
  /** Smallest size of a resumable upload. In browsers, only resumable uploads report progress. Default: 8,000,000. */
  resumableFromBytes?: number;
  /** Reports progress. */
  onProgress?: (sentBytes: number, totalBytes: number) => void;
  /**
   * 64 hex digits. The service compares them with what it received: a form upload fails with `digest_mismatch`, and a
   * resumable one ends as failed, with `bytes_altered`.
   */
  sha256?: string;
  /** Name, folder, reference, tags and metadata of the file. */
  properties?: FileProperties | undefined;
  /**
   * A form upload: the same key and bytes within 24 hours store one file. A resumable upload: a repeated creation replaces
   * the unfinished one. Default: random.
   */
  idempotencyKey?: string;
  /**
   * The URL of an unfinished upload of the same file. A different size fails with `file_changed`; different bytes are
   * detected only with `sha256`. If the upload no longer exists, a new one starts.
   */
  resumeUrl?: string | undefined;
  /** Called with the upload URL once it is known. The URL contains a secret. */
  onResumeUrl?: (url: string) => void;
}

/** Returns the path of an upload. The token must never go to another host, and behind a proxy the host may differ. */
export const pathOf = (uploadUrl: string) => `${FORM}/resumable/${uploadUrl.slice(uploadUrl.lastIndexOf("/") + 1)}`;

/** Uploads a file, by its size as a form or as a resumable upload. @returns its id */
export async function sendFile(
  connection: Connection,
  input: UploadSource,
  options: UploadOptions = {},
): Promise<string> {
  options.signal?.throwIfAborted();
  const file = await openSource(input, options.size);
  const name = options.name ?? file.name ?? "file";
  const { resumableFromBytes = RESUMABLE_BYTES } = options;
  const location = await (file.size < resumableFromBytes ? sendForm : sendResumable)(connection, file, name, options);
  const id = location.slice(location.lastIndexOf("/") + 1);
  if (id === "")
    throw new StowageError("unexpected_response", "The response has no file id, so it is not from Stowage.");
  return id;
}

function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const base64Of = (hex: string) =>
  btoa(String.fromCharCode(...(hex.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16))));

async function sendForm(connection: Connection, file: Source, name: string, options: UploadOptions): Promise<string> {
  const body = new FormData();
  // Read it before fetch: an unreadable file must not look like a connection error, and inside fetch it crashes Node 24.
  if (options.properties) body.append("properties", JSON.stringify(options.properties));
  body.append("file", new Blob([await (await file.slice(0, file.size)).arrayBuffer()]), name);
  options.onProgress?.(0, file.size);
  const { signal, sha256 } = options;
  const headers = {
    "Idempotency-Key": options.idempotencyKey ?? randomKey(),
    ...(sha256 !== undefined && { "Repr-Digest": `sha-256=:${base64Of(sha256)}:` }),
    // Decompressing the short response would take longer than receiving it.
    "Accept-Encoding": "identity",
  };
  const location = await connection.send(
    FORM,
    { method: "POST", body, headers, signal, isIdempotent: true },
    async (response) => {
      // Reading the body frees the connection for the next request.
      await response.text();
      return response.headers.get("Location") ?? "";
    },
  );
  options.onProgress?.(file.size, file.size);
  return location;
}

async function sendResumable(
  connection: Connection,
  file: Source,
  name: string,
  { onProgress, sha256, properties, idempotencyKey = randomKey(), resumeUrl, onResumeUrl, signal }: UploadOptions,
): Promise<string> {
  const { Upload } = await import("tus-js-client");
  // The signal may have aborted during the import, before anything listened to it.
  signal?.throwIfAborted();
  const url = `${connection.url}${FORM}/resumable`;
  let location = "";
  let attempt = 0;
  let storedBytes = 0;
  await new Promise<void>((resolve, reject) => {
    let stallTimer: ReturnType<typeof setTimeout> | undefined;
    let isRunning = false;
    const restartStallTimer = () => {
      clearTimeout(stallTimer);
      // Aborted requests may still report progress. A given fetch reports none, so it has its own timeouts.
      if (!isRunning || connection.fetch) return;
      stallTimer = setTimeout(() => {
        upload.abort();
        onError(connectionError(url, new Error("it stopped responding")));
      }, STALL_MILLISECONDS);
    };
    const start = () => {
      isRunning = true;
      restartStallTimer();
      upload.start();
    };
    const pause = () => {
      isRunning = false;
      clearTimeout(stallTimer);
    };
    const end = () => {
      pause();
      signal?.removeEventListener("abort", abort);
    };
    const stop = (reason: unknown) => {
      end();
      upload.abort();
      reject(reason);
    };
    // Errors of the caller's callbacks end the upload. They are not connection errors, which are retried.
    const call = (callback: () => void) => {
      try {
        callback();
      } catch (error) {
        stop(error);
      }
    };
    const abort = () => stop(signal?.reason);
    const onError = async (error: unknown) => {
      pause();
      try {
        const policy = { attempt: attempt++, isIdempotent: true, ...connection.retryPolicy };
        await waitToRetry(stowageErrorOf(error, url), policy, signal);
        start();
      } catch (final) {
        stop(final);
      }
    };
    const upload = new Upload(new Blob() as File, {
      endpoint: url,
      uploadUrl: resumeUrl === undefined ? null : connection.url + pathOf(resumeUrl),
      // A creation whose response is lost is repeated, and replaces the first one.
      headers: { ...connection.headers, "Idempotency-Key": idempotencyKey },
      metadata: {
        filename: name,
        ...(sha256 !== undefined && { sha256 }),
        ...(properties && { properties: JSON.stringify(properties) }),
      },
      chunkSize: Math.min(CHUNK_BYTES, file.maxSliceBytes ?? CHUNK_BYTES),
      // We retry, because the library ignores Retry-After.
      retryDelays: null,
      storeFingerprintForResuming: false,
      fileReader: readerOf(file, connection.fetch !== undefined, stop),
      ...(connection.fetch && { httpStack: fetchStack(connection.fetch) }),
      onUploadUrlAvailable: () => call(() => onResumeUrl?.(upload.url ?? "")),
      onProgress: (sent, total) => {
        restartStallTimer();
        call(() => onProgress?.(sent, total));
      },
      onAfterResponse: (request, response) => {
        restartStallTimer();
        const status = response.getStatus();
        location = response.getHeader("Content-Location") ?? location;
        if (status < 300) {
          const length = Number(response.getHeader("Upload-Length") ?? file.size);
          if (length !== file.size) throw fileChanged(length, file.size);
          if (request.getMethod() === "POST") storedBytes = 0;
          const offset = Number(response.getHeader("Upload-Offset") ?? 0);
          // Stored bytes are progress: over a connection that always breaks, the upload continues as long as it advances.
          if (offset > storedBytes) attempt = 0;
          storedBytes = Math.max(storedBytes, offset);
        }
        // On any other status the library would restart from zero. Only an upload that no longer exists may restart.
        else if (request.getMethod() === "HEAD" && ![404, 410, 423].includes(status)) throw errorFrom(response);
      },
      onSuccess: () => {
        end();
        resolve();
      },
      onError,
    });
    signal?.addEventListener("abort", abort);
    start();
  });
  return location;
}

const fileChanged = (length: number, size: number) =>
  new StowageError(
    "file_changed",
    `This is not the same file: the upload expects ${length} bytes, and the file has ${size}.`,
  );

type TusResponse = NonNullable<DetailedError["originalResponse"]>;
const errorFrom = (response: TusResponse) =>
  errorOf(response.getStatus(), response.getBody(), (name) => response.getHeader(name) ?? null);

function stowageErrorOf(error: unknown, url: string): unknown {
  const { originalRequest, originalResponse, causingError } = error as Partial<DetailedError>;
  if (causingError instanceof StowageError) return causingError;
  if (originalResponse) return asTransientConflict(errorFrom(originalResponse));
  return originalRequest ? connectionError(url, causingError) : error;
}

/** After an offset mismatch, the library asks for the stored offset and resumes there. */
function asTransientConflict(error: StowageError): StowageError {
  if (error.code !== "offset_mismatch") return error;
  return new StowageError("upload_locked", error.message, { status: 423, requestId: error.requestId });
}

/**
 * Lets tus-js-client read the file. Its requests take Blobs in browsers, and streams in Node, whose module is looked up at
 * run time.
 */
function readerOf(
  file: Source,
  isFetch: boolean,
  onError: (error: unknown) => void,
): NonNullable<TusOptions["fileReader"]> {
  const stream = isFetch ? undefined : globalThis.process?.getBuiltinModule?.("node:stream");
  const slice = async (start: number, end: number) => {
    const part = await file.slice(start, end).catch((error) => {
      // The library would report it as a connection error, which is retried.
      onError(error);
      throw error;
    });
    const done = end >= file.size;
    if (!stream) return { value: part, done };
    const value = stream.Readable.fromWeb(part.stream() as Parameters<typeof stream.Readable.fromWeb>[0]);
    value.on("error", onError);
    return { value: Object.assign(value, { size: part.size }), done };
  };
  return { openFile: async () => ({ size: file.size, slice, close: () => {} }) };
}
