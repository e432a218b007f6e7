import { StowageError } from "./errors.ts";

/** The bytes of an upload: a Blob or File, in Node also the path of a file, or a stream if you give `size`. */
export type UploadSource = Blob | string | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Bytes that are read in order, and again from the start of the latest slice. */
export interface Source {
  size: number;
  name: string | undefined;
  /** The largest slice that fits in memory; undefined if slices take none. */
  maxSliceBytes: number | undefined;
  slice(start: number, end: number): Promise<Blob>;
}

/** Two parts of the service. A stream keeps one slice in memory, to send it again after a disconnect. */
const STREAM_SLICE_BYTES = 10 * 1024 * 1024;
const INPUTS = "upload takes a Blob, a File, the path of a file (in Node), or a stream and its size.";

/** @throws TypeError if the input is none of the supported ones */
export async function openSource(input: UploadSource, size: number | undefined): Promise<Source> {
  if (typeof input === "string") return openPath(input);
  if (typeof (input as Blob)?.arrayBuffer === "function" && typeof (input as Blob).slice === "function") {
    const { name } = input as { name?: string };
    return blobSource(input as Blob, name);
  }
  const isStream =
    typeof (input as ReadableStream)?.getReader === "function" ||
    typeof (input as AsyncIterable<Uint8Array>)?.[Symbol.asyncIterator] === "function";
  if (!isStream) throw new TypeError(INPUTS);
  if (!Number.isSafeInteger(size)) throw new TypeError("The upload of a stream needs its `size` in bytes.");
  return streamSource(input as ReadableStream<Uint8Array>, size as number);
}

const blobSource = (blob: Blob, name: string | undefined): Source => ({
  size: blob.size,
  name,
  maxSliceBytes: undefined,
  slice: async (start, end) => blob.slice(start, end),
});

async function openPath(path: string): Promise<Source> {
  // Looked up at run time, because bundlers for browsers can't resolve Node's modules.
  const fs = globalThis.process?.getBuiltinModule?.("node:fs");
  if (!fs) throw new TypeError(INPUTS);
  try {
    // Unlike openAsBlob, these report why a file can't be opened.
    await fs.promises.access(path, fs.constants.R_OK);
    if (!(await fs.promises.stat(path)).isFile()) throw new Error("It is not a file.");
    return blobSource(await fs.openAsBlob(path), path.split(/[\\/]/).at(-1));
  } catch (cause) {
    throw new StowageError("file_unreadable", `Can't read ${path}: ${(cause as Error).message}`, { cause });
  }
}

async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

function streamSource(input: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>, size: number): Source {
  const chunks = "getReader" in input ? chunksOf(input) : input[Symbol.asyncIterator]();
  const buffered: Uint8Array<ArrayBuffer>[] = [];
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
    const { value, done } = await chunks.next();
    if (done) return false;
    const bytes = new Uint8Array(value);
    buffered.push(bytes);
    bufferEnd += bytes.length;
    if (bufferEnd > size) throw wrongSize(`at least ${bufferEnd}`);
    return true;
  };
  return {
    size,
    name: undefined,
    maxSliceBytes: STREAM_SLICE_BYTES,
    slice: async (start, end) => {
      // Stored bytes are never needed again.
      dropBefore(start);
      if (start < bufferStart)
        throw new StowageError("file_changed", "The service lost bytes of the stream, which can't be read again.");
      const stop = Math.min(end, size);
      while (bufferEnd < stop) {
        if (!(await readNext())) throw wrongSize(`only ${bufferEnd}`);
        // A resumed upload skips what the service has.
        dropBefore(start);
      }
      // Detects surplus bytes before the last byte completes the upload.
      if (stop === size) while (await readNext());
      return new Blob(buffered).slice(start - bufferStart, stop - bufferStart);
    },
  };
}
