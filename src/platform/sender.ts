import { withTimeout } from "../timeout.ts";
import type { System } from "./system.ts";

/** Covers the connection, the response, and the part of its body that is read. */
const TIMEOUT_MILLISECONDS = 15_000;
/** Bytes kept of a response body. The rest is not read, because an invocation has few connections. */
const KEPT_BYTES = 1024;

/** The response, or why there is none. Error messages of the platform may contain the URL, so they are not passed on. */
export interface Reply {
  /** Null if there was no response. */
  httpStatus: number | null;
  error: "timeout" | "connection_failed" | null;
  /** The value of the header. */
  retryAfter: string | null;
  /** The first KiB. */
  body: string;
  durationMilliseconds: number;
}

export interface Sender {
  /** Does not follow redirects. Never throws. */
  post(url: string, headers: Record<string, string>, body: string): Promise<Reply>;
}

async function readStart(body: ReadableStream<Uint8Array> | null): Promise<string> {
  const reader = body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
    chunks.push(read.value);
    size += read.value.length;
    if (size >= KEPT_BYTES) break;
  }
  reader?.cancel().catch(() => undefined);
  // `stream` omits an incomplete character at the end.
  const text = new TextDecoder().decode(Buffer.concat(chunks).subarray(0, KEPT_BYTES), { stream: true });
  // JSON escapes each control character with six characters.
  return text.replace(/(?![\t\r\n])\p{Cc}/gu, " ");
}

export function createSender(
  system: System,
  send: (url: string, init: RequestInit) => Promise<Response> = (url, init) => fetch(url, init),
  timeoutMilliseconds = TIMEOUT_MILLISECONDS,
): Sender {
  return {
    async post(url, headers, body) {
      const startedAt = system.now();
      const abort = new AbortController();
      const timeOut = () => {
        abort.abort();
        return new Error("Timed out.");
      };
      const reply: Omit<Reply, "durationMilliseconds"> = { httpStatus: null, error: null, retryAfter: null, body: "" };
      const exchange = async () => {
        const response = await send(url, { method: "POST", headers, body, redirect: "manual", signal: abort.signal });
        reply.httpStatus = response.status;
        reply.retryAfter = response.headers.get("Retry-After");
        reply.body = await readStart(response.body);
      };
      try {
        await withTimeout(timeoutMilliseconds, exchange(), timeOut);
      } catch {
        reply.error = abort.signal.aborted ? "timeout" : "connection_failed";
      }
      return { ...reply, durationMilliseconds: system.now() - startedAt };
    },
  };
}
