import { connectionError, timeoutAfter } from "./errors.ts";
import { isWorker } from "./runtime.ts";

/* Ways to send and receive many bytes, with the progress and the time limits that `fetch` itself lacks. */

/** A part of a file. */
export interface Slice {
  size: number;
  /** Reads the bytes, again in each call. */
  chunks(): AsyncGenerator<Uint8Array>;
  /** Returns them as a Blob, for runtimes that send no stream of known length. */
  blob(): Promise<Blob>;
}

export async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
  } finally {
    await reader.cancel();
  }
}

/** Returns how Node's fetch sends chunks, and reports the bytes that it takes, and errors. */
export function streamed(
  chunks: AsyncGenerator<Uint8Array>,
  onBytes: (sentBytes: number) => void,
  onError: (error: unknown) => void,
) {
  let sentBytes = 0;
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    try {
      const { done, value } = await chunks.next();
      if (done) return controller.close();
      sentBytes += value.length;
      onBytes(sentBytes);
      controller.enqueue(value);
    } catch (error) {
      // The stream itself must not fail: Node 24 crashes if it does while fetch reads it.
      onError(error);
    }
  };
  const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
  // Without a redirect and a window, Node does not store a copy of the sent bytes.
  return { body, duplex: "half", redirect: "error" as const, window: null };
}

/** Returns the response with a body that fails if no bytes arrive for this long while they are awaited. */
export function limitStalls(url: string, response: Response, milliseconds: number): Response {
  // A Worker ends requests by itself, and must know the length of a stream, such as to store it in R2.
  if (!response.body || isWorker()) return response;
  const reader = response.body.getReader();
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stalled = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(connectionError(url, timeoutAfter(milliseconds), true)), milliseconds);
    });
    try {
      const { done, value } = await Promise.race([reader.read(), stalled]);
      if (done) controller.close();
      else controller.enqueue(value);
    } catch (error) {
      controller.error(error);
      void reader.cancel(error).catch(() => {});
    } finally {
      clearTimeout(timer);
    }
  };
  const body = new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) }, { highWaterMark: 0 });
  return new Response(body, response);
}

/** Sends like `fetch`, and reports the bytes sent. @throws TypeError if there is no response, the signal's reason */
export function sendByXhr(
  url: string,
  { method, headers, body, signal }: { method: string; headers: Headers; body: Blob | FormData; signal: AbortSignal },
  onBytes: (sentBytes: number) => void,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of headers) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => onBytes(loaded);
    request.onload = () => {
      const { status } = request;
      const lines = request.getAllResponseHeaders().trim().split("\r\n");
      const fields = lines.map((line) => line.split(/: (.*)/).slice(0, 2) as [string, string]);
      // A response of some statuses must have no body, not even an empty one.
      resolve(new Response(request.response || null, { status, headers: fields }));
    };
    request.onerror = () => reject(new TypeError("network error"));
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}
