/* Ways to send many bytes and to report the number sent, which `fetch` itself can't. */

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

/**
 * Node sends a stream, so that it reports its progress, and reads ahead of the connection no more than a few chunks: it
 * keeps a whole Blob in memory, to send it again after a redirect.
 */
export const isNode = globalThis.process?.versions?.undici !== undefined;

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
      resolve(new Response(status === 204 ? null : request.response, { status, headers: fields }));
    };
    request.onerror = () => reject(new TypeError("network error"));
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}
