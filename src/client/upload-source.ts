import { StowageError } from "./errors.ts";
import { isNode } from "./runtime.ts";
import { chunksOf, type Slice } from "./transfer.ts";

/**
 * The bytes of an upload: a Blob or File, bytes in memory, a Response, in Node, Deno and Bun the path of a file, or a
 * stream if you give its `size`.
 */
export type UploadSource =
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | Response
  | string
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** Bytes that are read in order, and again from the start of the latest slice. */
export interface Source {
  size: number;
  name?: string | undefined;
  /** Identifies this version of a file on this machine, if anything does. */
  version?: string | undefined;
  /** The largest slice that fits in memory; undefined if slices take none. */
  maxSliceBytes?: number | undefined;
  slice(start: number, end: number): Promise<Slice>;
  /** Ends a stream that is no longer needed. Only streams have it, which can't be read again. */
  cancel?(reason?: unknown): void;
}

/** The service stores whole parts. A stream keeps one in memory, to send it again after a disconnect. */
export const PART_BYTES = 5 * 1024 * 1024;
const READ_BYTES = 64 * 1024;
/** A stream that has more bytes than its size, or that ends, does so within this time. It may also stay open. */
const END_MILLISECONDS = 1000;
const INPUTS = "upload takes a Blob, bytes, a Response, a path (not in browsers), or a stream and its size.";

/** @throws TypeError if the input is none of the supported ones */
export async function openSource(input: UploadSource, size: number | undefined): Promise<Source> {
  if (typeof input === "string") return openPath(input);
  if (input instanceof ArrayBuffer || ArrayBuffer.isView(input)) return blobSource(new Blob([input as BlobPart]));
  if (isA<Blob>(input, "arrayBuffer", "slice")) {
    const { name, lastModified } = input as Partial<File>;
    return blobSource(input, name, lastModified === undefined ? undefined : `${name} ${lastModified}`);
  }
  if (isA<Response>(input, "arrayBuffer", "headers")) return openResponse(input, size);
  if (!isA<ReadableStream>(input, "getReader") && !isA(input, Symbol.asyncIterator)) throw new TypeError(INPUTS);
  return streamSource(input as ReadableStream<Uint8Array>, size);
}

/** Recognizes objects of other realms and implementations, too. */
const isA = <T>(input: unknown, ...members: (string | symbol)[]): input is T =>
  members.every((member) => (input as Record<symbol | string, unknown> | null)?.[member] !== undefined);

export const blobSource = (blob: Blob, name?: string, version?: string): Source => ({
  size: blob.size,
  name,
  version: version && `${version} ${blob.size}`,
  slice: async (start, end) => {
    const part = blob.slice(start, end);
    return { size: part.size, chunks: () => chunksOf(part.stream()), blob: async () => part };
  },
});

async function openPath(path: string): Promise<Source> {
  // Looked up at run time, because bundlers for browsers can't resolve Node's modules.
  const fs = globalThis.process?.getBuiltinModule?.("node:fs");
  if (!fs?.promises?.open) throw new TypeError(INPUTS);
  try {
    // Unlike openAsBlob, these report why a file can't be opened.
    await fs.promises.access(path, fs.constants.R_OK);
    const stat = await fs.promises.stat(path);
    if (!stat.isFile()) throw new Error("It is not a file.");
    const { size, mtimeMs } = stat;
    /** Yields these bytes, and fails before the last of them if the file has changed. */
    const read = async function* (start: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
      const file = await fs.promises.open(path);
      try {
        for (let at = start; at < end; ) {
          const chunk = new Uint8Array(Math.min(READ_BYTES, end - at));
          const { bytesRead } = await file.read(chunk, 0, chunk.length, at);
          at += bytesRead;
          const now = at === end || bytesRead === 0 ? await file.stat() : { size, mtimeMs };
          if (bytesRead === 0 || now.size !== size || now.mtimeMs !== mtimeMs)
            throw new StowageError("file_changed", "The file changed during the upload.");
          yield chunk.subarray(0, bytesRead);
        }
      } finally {
        await file.close();
      }
    };
    return {
      size,
      name: path.split(/[\\/]/).at(-1),
      version: `${await fs.promises.realpath(path)} ${mtimeMs} ${size}`,
      maxSliceBytes: isNode ? undefined : PART_BYTES,
      slice: async (start, end) => sliceOf(end - start, () => read(start, end)),
    };
  } catch (cause) {
    throw new StowageError("file_unreadable", `Can't read ${path}: ${(cause as Error).message}`, { cause });
  }
}

function openResponse(response: Response, size: number | undefined): Source {
  const { ok, status, body, headers } = response;
  if (!ok || !body) throw new TypeError(`The Response to upload has status ${status}.`);
  const length = headers.get("Content-Length");
  // The length of compressed bytes is not that of the file.
  const stated = length === null || headers.has("Content-Encoding") ? undefined : Number(length);
  return streamSource(body, size ?? stated);
}

const sliceOf = (size: number, chunks: Slice["chunks"]): Slice => ({
  size,
  chunks,
  blob: async () => {
    const parts: BlobPart[] = [];
    for await (const chunk of chunks()) parts.push(chunk as Uint8Array<ArrayBuffer>);
    return new Blob(parts);
  },
});

function streamSource(input: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>, size: number | undefined): Source {
  if (size === undefined || !(size >= 0)) throw new TypeError("The upload of a stream needs its `size` in bytes.");
  const chunks = "getReader" in input ? input.getReader() : input[Symbol.asyncIterator]();
  const buffered: Uint8Array[] = [];
  let bufferStart = 0;
  let bufferEnd = 0;
  const wrongSize = (received: string) =>
    new StowageError("file_changed", `The stream has ${received} bytes, and its size is ${size}.`);
  const dropBefore = (start: number) => {
    for (let first = buffered[0]; first && bufferStart + first.length <= start; first = buffered[0]) {
      buffered.shift();
      bufferStart += first.length;
    }
  };
  const readNext = async (): Promise<boolean> => {
    const { value } = await ("read" in chunks ? chunks.read() : chunks.next());
    if (!value) return false;
    buffered.push(value);
    bufferEnd += value.length;
    if (bufferEnd > size) throw wrongSize(`at least ${bufferEnd}`);
    return true;
  };
  const readToEnd = () =>
    new Promise<void>((resolve, reject) => {
      const timer = setTimeout(resolve, END_MILLISECONDS);
      const read = async () => {
        while (await readNext());
        clearTimeout(timer);
      };
      read().then(resolve, reject);
    });
  return {
    size,
    maxSliceBytes: PART_BYTES,
    slice: async (start, end) => {
      // Stored bytes are never needed again.
      dropBefore(start);
      if (start < bufferStart) throw new StowageError("file_changed", "The service lost bytes of the stream.");
      const stop = Math.min(end, size);
      while (bufferEnd < stop) {
        if (!(await readNext())) throw wrongSize(`only ${bufferEnd}`);
        // A resumed upload skips what the service has.
        dropBefore(start);
      }
      // Detects surplus bytes before the last byte completes the upload.
      if (stop === size) await readToEnd();
      const slice = async function* () {
        let at = bufferStart;
        for (const bytes of buffered) {
          if (at + bytes.length > start && at < stop)
            yield bytes.subarray(Math.max(0, start - at), Math.min(bytes.length, stop - at));
          at += bytes.length;
        }
      };
      return sliceOf(stop - start, slice);
    },
    cancel: (reason) => {
      // A Node stream has `destroy`. The iterator would end it only after the chunk that it waits for.
      if ("destroy" in input) (input as unknown as { destroy(): void }).destroy();
      else Promise.resolve("read" in chunks ? chunks.cancel(reason) : chunks.return?.()).catch(() => {});
    },
  };
}
