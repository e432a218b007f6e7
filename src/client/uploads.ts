import type { DetailedError, UploadOptions as TusOptions } from "tus-js-client";
import type { CallOptions, Connection } from "./connection.ts";
import { connectionError, errorOf, StowageError } from "./errors.ts";
import { waitToRetry } from "./retrying.ts";

/** From this size on an upload is resumable; below, one request costs less than what it may have to repeat. */
export const RESUMABLE_BYTES = 8 * 1000 * 1000;
/** Cloudflare's edge refuses requests above 100 MB; a multiple of the 5 MiB that the service stores at a time. */
const CHUNK_BYTES = 80 * 1024 * 1024;
/** Longer than the service needs for the answer to a last byte. Node's sockets would wait for ever. */
const SILENCE_MILLISECONDS = 120_000;
const FORM = "/docs/v1/uploads";

export interface UploadOptions extends CallOptions {
  /** The file's name, where `file` is no File or is to be called otherwise. */
  name?: string;
  /** From this size on the upload is resumable, and tells its progress in a browser; default 8,000,000. */
  resumableFromBytes?: number;
  /** Told how many bytes are sent of how many. */
  onProgress?: (sentBytes: number, totalBytes: number) => void;
  /** 64 hex digits with which the service compares what it stored of a resumable upload. */
  sha256?: string;
  /** Of a form: who sends the same key and bytes again within 24 hours gets the first answer. Default: a random one. */
  idempotencyKey?: string;
  /**
   * The address of a resumable upload that was begun before, of the same file: its size is compared (`file_changed`), and
   * its bytes by `sha256`. If it is gone a new one is begun.
   */
  resumeFrom?: string | undefined;
  /** Told the address to resume from, as soon as there is one. It holds a secret. */
  onResumable?: (address: string) => void;
}

/** An upload's path at the service that the token is for, wherever its address was told: behind a proxy it has several. */
const pathOf = (address: string) => `${FORM}/resumable/${address.slice(address.lastIndexOf("/") + 1)}`;

/** Removes a resumable upload, its bytes and its reservation; nothing where it is gone already. */
export async function discard(connection: Connection, address: string, signal?: AbortSignal): Promise<void> {
  try {
    const headers = { "Tus-Resumable": "1.0.0" };
    await connection.send(pathOf(address), { method: "DELETE", headers, signal }, () => {});
  } catch (error) {
    if (![404, 410].includes((error as StowageError).status)) throw error;
  }
}

/** Sends a file, as a form or as a resumable upload by its size. @returns its id */
export async function sendFile(connection: Connection, file: Blob, options: UploadOptions = {}): Promise<string> {
  if (typeof file?.arrayBuffer !== "function" || typeof file.slice !== "function")
    throw new TypeError("upload takes a Blob or File. In Node, fs.openAsBlob(path) opens a file as one.");
  options.signal?.throwIfAborted();
  const name = options.name ?? ("name" in file ? String(file.name) : "file");
  const { resumableFromBytes = RESUMABLE_BYTES } = options;
  const location = await (file.size < resumableFromBytes ? sendForm : sendResumable)(connection, file, name, options);
  const id = location.slice(location.lastIndexOf("/") + 1);
  if (id === "") throw new StowageError("unexpected_answer", "The answer tells no id, and is not the service's.");
  return id;
}

function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function sendForm(connection: Connection, file: Blob, name: string, options: UploadOptions): Promise<string> {
  const body = new FormData();
  // In memory: a file that can't be read fails here, and is no failure of the line; under fetch it ends Node 24.
  body.append("file", new Blob([await file.arrayBuffer()]), name);
  options.onProgress?.(0, file.size);
  const headers = { "Idempotency-Key": options.idempotencyKey ?? randomKey() };
  const { signal } = options;
  const location = await connection.send(
    FORM,
    { method: "POST", body, headers, signal, isIdempotent: true },
    async (response) => {
      // Only so that the connection is free for the next.
      await response.text();
      return response.headers.get("Location") ?? "";
    },
  );
  options.onProgress?.(file.size, file.size);
  return location;
}

async function sendResumable(
  connection: Connection,
  file: Blob,
  name: string,
  { onProgress, sha256, resumeFrom, onResumable, signal }: UploadOptions,
): Promise<string> {
  const { Upload } = await import("tus-js-client");
  // The signal may have aborted during the import, before anything listened to it.
  signal?.throwIfAborted();
  const url = `${connection.url}${FORM}/resumable`;
  let location = "";
  let attempt = 0;
  let storedBytes = 0;
  await new Promise<void>((resolve, reject) => {
    let silence: ReturnType<typeof setTimeout> | undefined;
    let isUnderWay = false;
    const listen = () => {
      clearTimeout(silence);
      // A request that was aborted may have something to say after that.
      if (!isUnderWay) return;
      silence = setTimeout(() => {
        upload.abort();
        onError(connectionError(url, new Error("it fell silent")));
      }, SILENCE_MILLISECONDS);
    };
    const start = () => {
      isUnderWay = true;
      listen();
      upload.start();
    };
    const rest = () => {
      isUnderWay = false;
      clearTimeout(silence);
    };
    const end = () => {
      rest();
      signal?.removeEventListener("abort", abort);
    };
    const stop = (reason: unknown) => {
      end();
      upload.abort();
      reject(reason);
    };
    // What the caller's own functions throw is no failure of the line, and not to be tried again.
    const tell = (callback: () => void) => {
      try {
        callback();
      } catch (error) {
        stop(error);
      }
    };
    const abort = () => stop(signal?.reason);
    const onError = async (error: unknown) => {
      rest();
      try {
        const policy = { attempt: attempt++, isIdempotent: true, ...connection.retryPolicy };
        await waitToRetry(stowageErrorOf(error, url), policy, signal);
        start();
      } catch (final) {
        stop(final);
      }
    };
    const upload = new Upload(file as File, {
      endpoint: url,
      uploadUrl: resumeFrom === undefined ? null : connection.url + pathOf(resumeFrom),
      headers: connection.authorization,
      metadata: { filename: name, ...(sha256 !== undefined && { sha256 }) },
      chunkSize: CHUNK_BYTES,
      // Ours obey Retry-After.
      retryDelays: null,
      storeFingerprintForResuming: false,
      ...nodeReader(stop),
      onUploadUrlAvailable: () => tell(() => onResumable?.(upload.url ?? "")),
      onProgress: (sent, total) => {
        listen();
        tell(() => onProgress?.(sent, total));
      },
      onAfterResponse: (request, response) => {
        listen();
        const status = response.getStatus();
        location = response.getHeader("Content-Location") ?? location;
        if (status < 300) {
          const length = Number(response.getHeader("Upload-Length") ?? file.size);
          if (length !== file.size) throw anotherFile(length, file.size);
          if (request.getMethod() === "POST") storedBytes = 0;
          const offset = Number(response.getHeader("Upload-Offset") ?? 0);
          // What was stored in spite of a failure counts: a line that always breaks, but later each time, is good enough.
          if (offset > storedBytes) attempt = 0;
          storedBytes = Math.max(storedBytes, offset);
        }
        // At any of these the library would begin at zero; only an upload that is gone begins anew.
        else if (request.getMethod() === "HEAD" && ![404, 410, 423].includes(status)) throw errorAt(response);
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

const anotherFile = (length: number, size: number) =>
  new StowageError("file_changed", `The upload was begun with a file of ${length} bytes, and this one has ${size}.`);

type Answer = NonNullable<DetailedError["originalResponse"]>;
const errorAt = (response: Answer) =>
  errorOf(response.getStatus(), response.getBody(), (name) => response.getHeader(name) ?? null);

function stowageErrorOf(error: unknown, url: string): unknown {
  const { originalRequest, originalResponse, causingError } = error as Partial<DetailedError>;
  if (causingError instanceof StowageError) return causingError;
  if (originalResponse) return conflictIsPassing(errorAt(originalResponse));
  return originalRequest ? connectionError(url, causingError) : error;
}

/** Another offset than ours: what is stored is asked for, and the upload goes on from there. */
function conflictIsPassing(error: StowageError): StowageError {
  if (error.code !== "offset_mismatch") return error;
  return new StowageError("upload_locked", error.message, { status: 423, requestId: error.requestId });
}

/** Node's tus-js-client takes no Blob; its streams keep memory flat. Asked for at run time: browsers have neither. */
function nodeReader(onError: (error: unknown) => void): Pick<TusOptions, "fileReader"> {
  const stream = globalThis.process?.getBuiltinModule?.("node:stream");
  if (!stream) return {};
  const slice = async (file: Blob, start: number, end: number) => {
    const part = file.slice(start, end);
    const value = stream.Readable.fromWeb(part.stream() as Parameters<typeof stream.Readable.fromWeb>[0]);
    value.on("error", onError);
    return { value: Object.assign(value, { size: part.size }), done: end >= file.size };
  };
  const openFile = async (file: Blob) => ({
    size: file.size,
    slice: (start: number, end: number) => slice(file, start, end),
    close: () => {},
  });
  return { fileReader: { openFile } };
}
