import type { Api } from "./api.ts";
import { connectionError, errorOf, StowageError, timeoutAfter } from "./errors.ts";
import { orAborted, Retries } from "./retrying.ts";
import { isNode, type Slice, sendByXhr, streamed } from "./transfer.ts";

const TIMEOUT_MILLISECONDS = 60_000;
/** Longer than the service needs after the last byte. Without a limit, some runtimes would wait forever. */
export const STALL_MILLISECONDS = 120_000;
/** The service times out slower clients. */
const MIN_BYTES_PER_MILLISECOND = 8;
/** Larger than any form. */
const FORM_BYTES = 10_000_000;
const PAGE_ITEMS = 100;
const MAX_TIMER_MILLISECONDS = 2 ** 31 - 1;

export type FetchFunction = (url: string, init: RequestInit) => Promise<Response>;

export interface StowageOptions {
  /** The URL of the service, such as `https://stowage.example.workers.dev`. Default: the variable `STOWAGE_URL`. */
  url?: string | undefined;
  /**
   * An API key, an upload token, or the operator token; null to log in, or to accept an invitation. Default: the variable
   * `STOWAGE_KEY`, which belongs to `STOWAGE_URL` if that is set.
   */
  key?: string | null | undefined;
  /** How often a request is retried after a transient error. Default: 4. */
  maxRetries?: number;
  /** Milliseconds that an attempt may take, except uploads and downloads. Default: 60,000. */
  timeout?: number;
  /** Headers to add to each request to the service. */
  headers?: Record<string, string>;
  /** Replaces the global `fetch`. In browsers, progress is then reported only after each request. */
  fetch?: FetchFunction;
  /** Called before each retry, with the error and the number of earlier retries. */
  onRetry?: (error: StowageError, attempt: number) => void;
  /** Called after each call that succeeded, with its route, such as `DELETE /auth/v1/users/{id}`. Uploads have no route. */
  onSuccess?: (route: string) => void;
}

/** Options of every call. They replace those of the client for this call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Milliseconds that an attempt may take. Uploads and downloads have no such limit. */
  timeout?: number | undefined;
  /** How often a request is retried after a transient error. */
  maxRetries?: number | undefined;
  /** Headers to add to those of the client. */
  headers?: Record<string, string> | undefined;
}

export interface VersionOptions extends CallOptions {
  /** The record's `__v`, or its `ETag`. If the record has changed since, the call fails with `version_mismatch`. */
  version?: number | string | undefined;
}

/** The result of a call. `withResponse` also returns the response, for its status and headers. Its body has been read. */
export type Call<T> = Promise<T> & { withResponse(): Promise<{ data: T; response: Response }> };

type Route = keyof Api;
type Input<R extends Route> = VersionOptions & {
  /** Replaces `{id}` in the path. */
  id?: string;
  /** Whether the request may run twice. By default the method decides. */
  isIdempotent?: boolean;
  isTransfer?: boolean | undefined;
  /** A body of WebVTT. All others are JSON. */
  text?: string;
} & (Api[R]["query"] extends undefined ? { query?: undefined } : { query?: Api[R]["query"] }) &
  (Api[R]["body"] extends undefined ? { body?: undefined } : { body: Api[R]["body"] });

/** Routes that respond with pages. */
type ListRoute = { [R in Route]: Api[R]["response"] extends { data: unknown[] } | unknown[] ? R : never }[Route];
type ItemOf<A> = A extends (infer T)[] ? T : A extends { data: (infer T)[] } ? T : never;
export type Item<R extends ListRoute> = ItemOf<Api[R]["response"]>;
/** The filters of a list. The list itself follows the pages. */
export type Filters<R extends ListRoute> = Omit<NonNullable<Api[R]["query"]>, "cursor" | "page">;

export interface Page<T> {
  /** With several filters, a page may hold few items or none although more pages follow. */
  items: T[];
  /** Pass it to `page` to get the next page. Undefined on the last page. */
  next: string | undefined;
}

/**
 * Items to iterate over, or to read page by page. Each iteration starts at the first item. `await` returns the first page.
 * @example
 * for await (const file of stowage.files.list()) console.log(file.name);
 * const { items, next } = await stowage.files.list({ limit: 20 });
 */
export interface List<T> extends AsyncIterable<T>, PromiseLike<Page<T>> {
  /** Returns the first page, or the page after the one that returned `next`, with the filters of that page. */
  page(next?: string): Promise<Page<T>>;
  /** Returns the first items, at most `limit`. Default: all. */
  toArray(options?: { limit?: number }): Promise<T[]>;
}

type DataOf<A> = A extends { data: infer D } ? D : never;

/** A request that has not been sent. */
export interface RequestSpec extends CallOptions {
  method?: string;
  body?: string | FormData | Slice | undefined;
  /** Whether the request may run twice. By default the method decides. */
  isIdempotent?: boolean | undefined;
  /** The bytes of a file, in either direction, may take as long as they move. */
  isTransfer?: boolean | undefined;
  /** Receives the number of bytes sent so far. */
  onProgress?: ((sentBytes: number) => void) | undefined;
}

/**
 * The URL of a service without what people may write in several ways: case of the host, default port, slashes at its end,
 * and pages of the console, which people copy it from.
 * @returns undefined unless it is a URL of HTTP
 */
export function normalizeUrl(url: string): string | undefined {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  // Other schemes have no origin: requests would go to a relative URL, which a browser resolves against the page.
  if (!parsed || !/^https?:$/.test(parsed.protocol)) return undefined;
  return parsed.origin + parsed.pathname.replace(/(\/console(\/.*)?)?\/*$/, "");
}

/** Sends requests to one service with one token. */
export class Connection {
  readonly url: string;
  readonly #options: StowageOptions;
  readonly #headers: Headers;
  /** Whether the service has responded. An error that concerns its name or certificate is transient from then on. */
  #isKnown = false;

  constructor(options: StowageOptions & { url: string }) {
    const { url, key, headers } = options;
    const normalized = normalizeUrl(url);
    if (normalized === undefined) throw new TypeError(`The url must start with https:// or http://, and is "${url}".`);
    this.url = normalized;
    this.#options = options;
    // Throws if a value can't be a header, instead of failing each request.
    this.#headers = new Headers(headers);
    if (typeof key === "string") this.#headers.set("Authorization", `Bearer ${key}`);
  }

  /** Calls a route with JSON, and returns what `pick` takes from the response. */
  call<R extends Route, T>(
    route: R,
    input: Input<R>,
    pick: (body: Api[R]["response"], response: Response) => T,
  ): Call<T> {
    let response = new Response();
    const data = this.#request(route, input, async (received) => {
      const picked = pick(await jsonOf<Api[R]["response"]>(received), received);
      response = received;
      return picked;
    });
    return Object.assign(data, { withResponse: async () => ({ data: await data, response }) });
  }

  /** Calls a route and returns the `data` of its response. */
  data<R extends Route>(route: R, input: Input<R>): Call<DataOf<Api[R]["response"]>> {
    return this.call(route, input, (body, response) => {
      const { data } = body as { data?: DataOf<Api[R]["response"]> };
      if (!data) throw errorOf(response);
      return data;
    });
  }

  /** Calls a route whose response has nothing to return. */
  run<R extends Route>(route: R, input: Input<R>): Call<void> {
    return this.call(route, input, () => {});
  }

  /** Calls a route that responds with a text, which is not among those of JSON. */
  text(route: `GET ${string}`, input: CallOptions & { id: string }): Promise<string> {
    return this.#request(route as Route, input as Input<Route>, (response) => response.text());
  }

  list<R extends ListRoute>(route: R, input: Input<R>): List<Item<R>> {
    const page = (next?: string): Promise<Page<Item<R>>> => {
      const filters = input.query && { limit: PAGE_ITEMS, ...(input.query as object) };
      const query = next === undefined ? filters : Object.fromEntries(new URLSearchParams(next));
      return this.#request(route, { ...input, query } as Input<R>, async (response) => {
        const body = await jsonOf<Item<R>[] | { data: Item<R>[] }>(response);
        const items = Array.isArray(body) ? body : body.data;
        if (!Array.isArray(items)) throw errorOf(response);
        const link = /<([^>]*)>\s*;[^,]*\brel="?next\b/.exec(response.headers.get("Link") ?? "")?.[1];
        // Keep only the query: the token must never go to another host, and behind a proxy the host may differ.
        return { items, next: link === undefined ? undefined : new URL(link, this.url).search };
      });
    };
    const iterate = () => itemsOf(page);
    const toArray = ({ limit = Number.POSITIVE_INFINITY } = {}) => firstOf(iterate(), limit);
    const then: List<Item<R>>["then"] = (onPage, onError) => page().then(onPage, onError);
    return { page, toArray, then, [Symbol.asyncIterator]: iterate };
  }

  /** Counts the failures of one call, and waits between its attempts. */
  retries({ maxRetries = this.#options.maxRetries ?? 4, signal }: CallOptions): Retries {
    return new Retries({ maxRetries, onRetry: this.#options.onRetry, signal });
  }

  /**
   * Sends a request to the service or, without the token, to a signed URL. If the connection breaks while `read` reads
   * the response, the request is retried, too.
   * @throws StowageError
   */
  async send<T>(target: string, sent: RequestSpec, read: (response: Response) => T | Promise<T>): Promise<T> {
    const { method = "GET", isIdempotent = ["GET", "PUT", "DELETE"].includes(method) } = sent;
    const retries = this.retries(sent);
    let mayHaveExecuted = false;
    for (;;) {
      try {
        return await this.attempt(target, sent, read);
      } catch (error) {
        if (!(error instanceof StowageError)) throw error;
        const { code, status } = error;
        // An earlier attempt deleted the record, but its response was lost.
        if (method === "DELETE" && mayHaveExecuted && code === "not_found") return read(new Response("{}"));
        mayHaveExecuted ||= (code === "connection_failed" && status < 300) || status >= 500;
        await retries.wait(error, isIdempotent);
      }
    }
  }

  /** Sends a request once. @throws StowageError, the signal's reason, and errors of the body and of `onProgress` */
  async attempt<T>(target: string, sent: RequestSpec, read: (response: Response) => T | Promise<T>): Promise<T> {
    const { method = "GET", signal, timeout = this.#options.timeout ?? TIMEOUT_MILLISECONDS, isTransfer } = sent;
    signal?.throwIfAborted();
    const isService = target.startsWith("/");
    const url = isService ? this.url + target : target;
    const headers = new Headers(isService ? this.#headers : undefined);
    for (const [name, value] of Object.entries(sent.headers ?? {})) headers.set(name, value);

    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const limit = (milliseconds: number) => {
      clearTimeout(timer);
      // Timers fire at once after a longer time.
      if (milliseconds <= MAX_TIMER_MILLISECONDS)
        timer = setTimeout(() => stop.abort(timeoutAfter(milliseconds)), milliseconds);
    };
    let failure: { error: unknown } | undefined;
    // Errors of the caller's code are not connection errors, which would be retried.
    const fail = (error: unknown) => {
      failure ??= { error };
      stop.abort(error);
    };
    let isOver = false;
    const onBytes = (sentBytes: number) => {
      // Aborted requests may still report progress.
      if (isOver || stop.signal.aborted) return;
      limit(STALL_MILLISECONDS);
      try {
        sent.onProgress?.(sentBytes);
      } catch (error) {
        fail(error);
      }
    };
    const slice = typeof sent.body === "object" && "chunks" in sent.body ? sent.body : undefined;
    const chunks = isNode ? slice?.chunks() : undefined;
    // Some runtimes don't report that bytes move.
    const sendMilliseconds = sent.body ? (slice?.size ?? FORM_BYTES) / MIN_BYTES_PER_MILLISECOND : 0;
    limit(isTransfer ? STALL_MILLISECONDS + sendMilliseconds : timeout);

    const attempt = async () => {
      const { fetch = globalThis.fetch } = this.#options;
      const aborted = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
      // The service never redirects. Following a redirect could send the token or the body elsewhere.
      const init = { method, headers, body: null, redirect: "manual" as const, signal: aborted };
      let response: Response;
      if (chunks && slice) {
        headers.set("Content-Length", String(slice.size));
        response = await fetch(url, { ...init, ...streamed(chunks, onBytes, fail) });
      } else {
        const body = slice ? await slice.blob() : (sent.body as string | FormData | undefined);
        const isReported = sent.onProgress && typeof body === "object" && !this.#options.fetch;
        if (isReported && globalThis.XMLHttpRequest) response = await sendByXhr(url, { ...init, body }, onBytes);
        else response = await fetch(url, { ...init, body: body ?? null });
      }
      this.#isKnown ||= isService;
      if (response.ok) return read(response);
      // Without its body, a refusal has no code: what looks final may be transient.
      const { status } = response;
      const text = await response.text().catch((cause) => {
        throw new StowageError("connection_failed", "The response was lost.", { status, cause });
      });
      throw errorOf(response, text);
    };
    try {
      // Node 20 may not settle the reading of a body after an abort.
      return await orAborted(attempt(), signal, stop.signal);
    } catch (cause) {
      signal?.throwIfAborted();
      if (failure) throw failure.error;
      throw cause instanceof StowageError ? cause : connectionError(url, cause, isService && this.#isKnown);
    } finally {
      isOver = true;
      clearTimeout(timer);
      // Closes the file. Node may drop a stream without a word when a request ends early.
      void chunks?.return(undefined);
    }
  }

  async #request<R extends Route, T>(
    route: R,
    { id, query, body, text, version, headers, ...options }: Input<R>,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    options.signal?.throwIfAborted();
    const [method = "", path = ""] = route.split(" ");
    // An empty ID would call another route.
    if (path.includes("{id}") && !id) throw new TypeError(`The ID is "${id}".`);
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries<unknown>({ ...query }))
      if (value !== undefined) search.set(name, String(value));
    const target = path.replace("{id}", encodeURIComponent(id ?? "")) + (search.size > 0 ? `?${search}` : "");
    const sent = {
      method,
      ...options,
      headers: {
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...(text !== undefined && { "Content-Type": "text/vtt" }),
        ...(version !== undefined && { "If-Match": tagOf(version) }),
        ...headers,
      },
      body: body === undefined ? text : JSON.stringify(body),
    };
    const result = await this.send(target, sent, read);
    this.#options.onSuccess?.(route);
    return result;
  }
}

/** The `ETag` of a version. @throws TypeError instead of requests that would always fail */
function tagOf(version: number | string): string {
  const number = /^(?:W\/)?"?(\d{1,15})"?$/.exec(String(version))?.[1];
  if (number === undefined) throw new TypeError(`The version must be a number or an ETag, and is ${version}.`);
  return `"${number}"`;
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

async function jsonOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  try {
    const body: unknown = JSON.parse(text);
    if (body !== null && typeof body === "object") return body as T;
  } catch {}
  throw errorOf(response);
}
