import type { System } from "./system.ts";

/** For all of it: connection, answer, and what is read of its body. */
const TIMEOUT_MILLISECONDS = 15_000;
/** So much of an answer is kept; what follows is not read, since an invocation has few connections. */
const KEPT_BYTES = 1024;

/** What came back, or why nothing did. The platform's own words may quote the address, so they are not passed on. */
export interface Reply {
  /** Null where no answer came. */
  httpStatus: number | null;
  error: "timeout" | "connection_failed" | null;
  /** As the header has it. */
  retryAfter: string | null;
  /** The first KiB. */
  body: string;
  durationMilliseconds: number;
}

export interface Sender {
  /** Never follows a redirect, and never throws. */
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
  // As a stream, so that half a character at the end is left out.
  const text = new TextDecoder().decode(Buffer.concat(chunks).subarray(0, KEPT_BYTES), { stream: true });
  // In JSON each of these is six characters long.
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
      let timer: ReturnType<typeof setTimeout> | undefined;
      const timeout = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          abort.abort();
          reject(new Error("Out of time."));
        }, timeoutMilliseconds);
      });
      const reply: Omit<Reply, "durationMilliseconds"> = { httpStatus: null, error: null, retryAfter: null, body: "" };
      try {
        const sent = send(url, { method: "POST", headers, body, redirect: "manual", signal: abort.signal });
        const response = await Promise.race([sent, timeout]);
        reply.httpStatus = response.status;
        reply.retryAfter = response.headers.get("Retry-After");
        reply.body = await Promise.race([readStart(response.body), timeout]);
      } catch {
        reply.error = abort.signal.aborted ? "timeout" : "connection_failed";
      } finally {
        clearTimeout(timer);
      }
      return { ...reply, durationMilliseconds: system.now() - startedAt };
    },
  };
}
