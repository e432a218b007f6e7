import { Refusal } from "./refusal.ts";

/* The HTTP client of the scripts. Unlike our client library, it never repeats a request. */

interface Reply {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the scripts read bodies of many shapes.
  body: any;
}

interface Request {
  json?: object;
  body?: BodyInit;
  headers?: Record<string, string>;
  token?: string;
}

interface Options {
  fetch?: typeof fetch;
  signal?: AbortSignal;
}

/** @param defaultToken null for requests without a token */
export function createClient(url: string, defaultToken: string | null, options: Options = {}) {
  const { fetch = globalThis.fetch } = options;

  async function send(
    method: string,
    target: string,
    request: Request & { signal?: AbortSignal } = {},
  ): Promise<Response> {
    const { json, body = json && JSON.stringify(json), token = defaultToken, headers } = request;
    const signal = request.signal ?? options.signal;
    return fetch(new URL(target, url), {
      method,
      headers: {
        ...(token !== null && { Authorization: `Bearer ${token}` }),
        ...(json && { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body, duplex: "half" }),
      redirect: "error",
      ...(signal && { signal }),
    } as RequestInit);
  }

  /** @throws Refusal unless the response has the `status`, by default 200 */
  async function call(method: string, path: string, request: Request & { status?: number } = {}): Promise<Reply> {
    const response = await send(method, path, request);
    const text = await response.text();
    const { status, headers } = response;
    const { status: expected = 200 } = request;
    if (status !== expected) {
      throw new Refusal(`${method} ${path} responded ${status} instead of ${expected}: ${text.slice(0, 300)}`);
    }
    return { status, headers, body: text.startsWith("{") ? JSON.parse(text) : undefined };
  }

  return { send, call };
}
