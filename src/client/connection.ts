import type { Api } from "./api.ts";
import { connectionError, errorOf, StowageError } from "./errors.ts";
import { type RetryPolicy, waitToRetry } from "./retrying.ts";

const TIMEOUT_MILLISECONDS = 60_000;
const PAGE_ITEMS = 100;

export type FetchFunction = (url: string, init: RequestInit) => Promise<Response>;

export interface StowageOptions {
  /** The URL of the service, such as `https://stowage.example.workers.dev`. */
  url: string;
  /** An API key or the operator token. Without one, you can only log in. */
  key?: string | undefined;
  /** How often a request is retried after a transient error. Default: 4. */
  maxRetries?: number;
  /** Milliseconds that an attempt may take, except uploads and downloads. Default: 60,000. */
  timeout?: number;
  /** Headers to add to each request to the service. */
  headers?: Record<string, string>;
  /** Replaces the global `fetch`. Progress is then reported only after each request. */
  fetch?: FetchFunction;
  /** Called before each retry, with the error and the number of earlier retries. */
  onRetry?: (error: StowageError, attempt: number) => void;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export type IfMatch = CallOptions & {
  /** The record's `__v`. If the record has changed since, the call fails with `version_mismatch`. */
  version?: number;
};

export const ifMatch = (version: number | undefined) =>
  version === undefined ? {} : { headers: { "If-Match": `"${version}"` } };

type Route = keyof Api;
type Input<R extends Route> = CallOptions & {
  /** Replaces `{id}` in the path. */
  id?: string;
  headers?: Record<string, string>;
  /** Whether the request may run twice. By default the method decides. */
  isIdempotent?: boolean;
} & (Api[R]["query"] extends undefined ? { query?: undefined } : { query?: Api[R]["query"] }) &
  (Api[R]["body"] extends undefined ? { body?: undefined } : { body: Api[R]["body"] });

/** Routes that respond with pages. */
type ListRoute = { [R in Route]: Api[R]["response"] extends { data: unknown[] } | unknown[] ? R : never }[Route];
type ItemOf<A> = A extends (infer T)[] ? T : A extends { data: (infer T)[] } ? T : never;
export type Item<R extends ListRoute> = ItemOf<Api[R]["response"]>;

export interface Page<T> {
  /** With several filters, a page may hold few items or none although more pages follow. */
  items: T[];
  /** Pass it to `page` to get the next page. Undefined on the last page. */
  next: string | undefined;
}

/** Items to iterate over, or to read page by page. Each iteration starts at the first item. */
export interface List<T> extends AsyncIterable<T> {
  /** Returns the first page, or the page after the one that returned `next`, with the filters of that page. */
  page(next?: string): Promise<Page<T>>;
  /** Returns the first items, at most `limit`. */
  toArray(options: { limit: number }): Promise<T[]>;
}

type DataOf<A> = A extends { data: infer D } ? D : never;

interface Sent extends CallOptions {
  method?: string;
  headers?: Record<string, string> | undefined;
  body?: NonNullable<RequestInit["body"]>;
  /** Whether the request may run twice. By default the method decides. */
  isIdempotent?: boolean;
  /** File transfers have no timeout: they may take long. */
  hasTimeout?: boolean;
}

/** Sends requests to one service with one token. */
export class Connection {
  readonly url: string;
  readonly retryPolicy: RetryPolicy;
  /** The headers of each request to the service. */
  readonly headers: Record<string, string>;
  /** Undefined for the global `fetch`. */
  readonly fetch: FetchFunction | undefined;
  readonly #timeoutMilliseconds: number;

  constructor({ url, key, maxRetries = 4, onRetry, timeout, headers, fetch }: StowageOptions) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    // Other schemes have no origin: requests would go to a relative URL, which a browser resolves against the page.
    if (!parsed || !/^https?:$/.test(parsed.protocol))
      throw new TypeError(`The url must start with https:// or http://, and is "${url}".`);
    this.url = (parsed.origin + parsed.pathname).replace(/\/+$/, "");
    this.retryPolicy = { retries: maxRetries, onRetry };
    this.fetch = fetch;
    this.#timeoutMilliseconds = timeout ?? TIMEOUT_MILLISECONDS;
    // Throws if a value can't be a header, instead of failing each request. Unifies the case of the names.
    const merged = new Headers(headers);
    if (key !== undefined) merged.set("Authorization", `Bearer ${key}`);
    this.headers = Object.fromEntries(merged);
  }

  /** Calls a route with JSON. */
  async call<R extends Route>(route: R, input: Input<R>): Promise<Api[R]["response"]> {
    return this.#request(route, input, jsonOf<Api[R]["response"]>);
  }

  /** Calls a route and returns the `data` of its response. */
  async data<R extends Route>(route: R, input: Input<R>): Promise<DataOf<Api[R]["response"]>> {
    return this.#request(route, input, async (response) => {
      const { data } = await jsonOf<{ data?: DataOf<Api[R]["response"]> }>(response);
      if (!data) throw unexpectedResponse(response);
      return data;
    });
  }

  list<R extends ListRoute>(route: R, input: Input<R>): List<Item<R>> {
    const page = async (next?: string): Promise<Page<Item<R>>> => {
      const filters = { limit: PAGE_ITEMS, ...(input.query as object | undefined) };
      const query = next === undefined ? filters : Object.fromEntries(new URLSearchParams(next));
      return this.#request(route, { ...input, query } as Input<R>, async (response) => {
        const body = await jsonOf<Item<R>[] | { data: Item<R>[] }>(response);
        const items = Array.isArray(body) ? body : body.data;
        if (!Array.isArray(items)) throw unexpectedResponse(response);
        const link = /<([^>]*)>\s*;[^,]*\brel="?next\b/.exec(response.headers.get("Link") ?? "")?.[1];
        // Keep only the query: the token must never go to another host, and behind a proxy the host may differ.
        return { items, next: link === undefined ? undefined : new URL(link, this.url).search };
      });
    };
    const iterate = () => itemsOf(page);
    return { page, toArray: ({ limit }) => firstOf(iterate(), limit), [Symbol.asyncIterator]: iterate };
  }

  /**
   * Sends a request to the service or, without the token, to a signed URL. If the connection breaks while `read` reads
   * the response, the request is retried, too.
   * @throws StowageError
   */
  async send<T>(
    target: string,
    { isIdempotent, hasTimeout = false, signal, ...init }: Sent,
    read: (response: Response) => T | Promise<T>,
  ): Promise<T> {
    const isService = target.startsWith("/");
    const url = isService ? this.url + target : target;
    const headers = new Headers(isService ? this.headers : undefined);
    for (const [name, value] of Object.entries(init.headers ?? {})) headers.set(name, value);
    const timeoutMilliseconds = hasTimeout ? this.#timeoutMilliseconds : undefined;
    const limits = { signal, timeoutMilliseconds, read, fetch: this.fetch ?? globalThis.fetch };
    const mayRepeat = isIdempotent ?? ["GET", "PUT", "DELETE"].includes(init.method ?? "GET");
    let mayHaveExecuted = false;
    for (let attempt = 0; ; attempt++) {
      try {
        return await attemptOnce(url, { ...init, headers }, limits);
      } catch (error) {
        if (!(error instanceof StowageError)) throw error;
        const { code, status } = error;
        // An earlier attempt deleted the record, but its response was lost.
        if (init.method === "DELETE" && mayHaveExecuted && code === "not_found") return read(new Response("{}"));
        mayHaveExecuted ||= code === "connection_failed" || status >= 500;
        await waitToRetry(error, { attempt, isIdempotent: mayRepeat, ...this.retryPolicy }, signal);
      }
    }
  }

  #request<R extends Route, T>(
    route: R,
    { id = "", query, body, headers, signal, isIdempotent }: Input<R>,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const [method = "", path = ""] = route.split(" ");
    const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    const json = body !== undefined && { body: JSON.stringify(body) };
    const target = path.replace("{id}", encodeURIComponent(id)) + (given.length > 0 ? `?${search}` : "");
    const init = {
      method,
      ...json,
      headers: json ? { "Content-Type": "application/json", ...headers } : headers,
      signal,
      hasTimeout: true,
      ...(isIdempotent !== undefined && { isIdempotent }),
    };
    return this.send(target, init, read);
  }
}

async function firstOf<T>(items: AsyncIterable<T>, limit: number): Promise<T[]> {
  const found: T[] = [];
  if (limit <= 0) return found;
  for await (const item of items) {
    found.push(item);
    if (found.length >= limit) break;
  }
  return found;
}

async function* itemsOf<T>(page: List<T>["page"]): AsyncGenerator<T, void, undefined> {
  let next: string | undefined;
  do {
    const found = await page(next);
    yield* found.items;
    next = found.next;
  } while (next !== undefined);
}

/** The error for a response that another server sent, such as the error page of a proxy. */
const unexpectedResponse = (response: Response) => errorOf(response.status, "", (name) => response.headers.get(name));

async function jsonOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  try {
    const body: unknown = JSON.parse(text);
    if (body !== null && typeof body === "object") return body as T;
  } catch {}
  throw unexpectedResponse(response);
}

interface Attempt<T> {
  signal: AbortSignal | undefined;
  timeoutMilliseconds: number | undefined;
  read(response: Response): T | Promise<T>;
  fetch: FetchFunction;
}

async function attemptOnce<T>(
  url: string,
  init: RequestInit,
  { signal, timeoutMilliseconds, read, fetch }: Attempt<T>,
): Promise<T> {
  const limits = timeoutMilliseconds === undefined ? [] : [AbortSignal.timeout(timeoutMilliseconds)];
  const stop = AbortSignal.any(signal ? [signal, ...limits] : limits);
  const attempt = async () => {
    // The service never redirects. Following a redirect could send the token or the body elsewhere.
    const response = await fetch(url, { ...init, redirect: "manual", signal: stop });
    if (response.ok) return read(response);
    const text = await response.text().catch(() => "");
    throw errorOf(response.status, text, (name) => response.headers.get(name));
  };
  let onAbort = () => {};
  // Node 20 may not settle the reading of a body after an abort.
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(stop.reason);
    stop.addEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([attempt(), aborted]);
  } catch (cause) {
    signal?.throwIfAborted();
    throw cause instanceof StowageError ? cause : connectionError(url, cause);
  } finally {
    stop.removeEventListener("abort", onAbort);
  }
}
