/* The HTTP client of the smoke test. Unlike our client library, it never repeats a request. */

/** A failed expectation. Its message is for the operator. */
export class Problem extends Error {}

interface Reply {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the steps read bodies of many shapes.
  body: any;
}

interface Request {
  json?: object;
  body?: BodyInit;
  headers?: Record<string, string>;
  token?: string;
  /** The expected status; 200 by default. */
  status?: number;
}

export function createClient(url: string, key: string, signal: AbortSignal) {
  async function send(
    method: string,
    target: string,
    request: Request & { signal?: AbortSignal } = {},
  ): Promise<Response> {
    const { json, body = json && JSON.stringify(json), token = key, headers } = request;
    return fetch(new URL(target, url), {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(json && { "Content-Type": "application/json" }), ...headers },
      ...(body !== undefined && { body, duplex: "half" }),
      redirect: "error",
      signal: request.signal ?? signal,
    } as RequestInit);
  }

  async function call(method: string, path: string, request: Request = {}): Promise<Reply> {
    const response = await send(method, path, request);
    const text = await response.text();
    const { status, headers } = response;
    if (status !== (request.status ?? 200)) {
      throw new Problem(
        `${method} ${path} responded ${status} instead of ${request.status ?? 200}: ${text.slice(0, 300)}`,
      );
    }
    return { status, headers, body: text.startsWith("{") ? JSON.parse(text) : undefined };
  }

  /** Fails unless the first bytes of the URL are those of the file, by a range request without a token. */
  async function expectRange(target: string, bytes: Buffer): Promise<void> {
    const response = await fetch(target, { headers: { Range: "bytes=100-199" }, signal });
    const received = Buffer.from(await response.arrayBuffer());
    const host = new URL(target).host;
    if (response.status !== 206)
      throw new Problem(`${host} responded ${response.status} to a range request: ${received.subarray(0, 300)}`);
    if (!received.equals(bytes.subarray(100, 200))) throw new Problem(`${host} sent other bytes than were uploaded.`);
  }

  return { send, call, expectRange };
}
