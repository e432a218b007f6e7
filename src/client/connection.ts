import type { Api } from "./api.ts";
import { rejectSurplusArguments } from "./arguments.ts";
import { type Call, callOf, List, Page } from "./call.ts";
import { connectionError, type ErrorCode, errorOf, StowageError, timeoutAfter } from "./errors.ts";
import { withIds } from "./ids.ts";
import { orAborted, Retries } from "./retrying.ts";
import { isNode } from "./runtime.ts";
import { type Slice, sendByXhr, streamed } from "./transfer.ts";

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
  maxRetries?: number | undefined;
  /** Milliseconds that an attempt may take, except uploads and downloads. Default: 60,000. */
  timeout?: number | undefined;
  /** Headers to add to each request to the service. */
  headers?: Record<string, string> | undefined;
  /** Replaces the global `fetch`. In browsers, progress is then reported only after each request. */
  fetch?: FetchFunction | undefined;
  /** Called before each retry, with the error and the number of earlier retries. */
  onRetry?: ((error: StowageError, attempt: number) => void) | undefined;
  /**
   * Called after each call that succeeded, with its route, such as `DELETE /auth/v1/users/{id}`. Uploads have no route.
   * @internal
   */
  onSuccess?: ((route: string) => void) | undefined;
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

type Route = keyof Api;
/** The input of a call to a route. */
interface AnyInput extends Pick<RequestSpec, "isIdempotent" | "isTransfer" | "onResponse" | "nullCodes"> {
  /** Replaces `{id}` in the path. */
  id?: string;
  /** A body of this type. All others are JSON. */
  text?: { type: string; content: string };
  query?: object | undefined;
  /** If it is undefined, an empty object is sent. */
  body?: object | undefined;
}
type Input<R extends Route> = AnyInput &
  (Api[R]["query"] extends undefined ? { query?: undefined } : { query?: Api[R]["query"] | undefined }) &
  (Api[R]["body"] extends undefined ? { body?: undefined } : { body: Api[R]["body"] | undefined });

/** Routes that respond with pages. */
type ListRoute = { [R in Route]: Api[R]["response"] extends { data: unknown[] } | unknown[] ? R : never }[Route];
type ItemOf<A> = A extends (infer T)[] ? T : A extends { data: (infer T)[] } ? T : never;
export type Item<R extends ListRoute> = ItemOf<Api[R]["response"]>;
/** What a page of a list has besides its items. */
export type PageFields<R extends ListRoute> = Omit<Exclude<Api[R]["response"], unknown[]>, "message" | "data">;
/** The filters of a list. The list itself follows the pages. */
export type Filters<R extends ListRoute> = Omit<NonNullable<Api[R]["query"]>, "cursor" | "page">;

type DataOf<A> = A extends { data: infer D } ? D : never;

/** Takes the result of a call from the response. */
type Reader<R extends Route, T> = (body: Api[R]["response"], response: Response) => T;

/** A request that has not been sent. */
export interface RequestSpec extends CallOptions {
  method?: string;
  body?: string | FormData | Slice | undefined;
  /** Whether the request may run twice. Default: unless it is a POST, or a PATCH of a version. */
  isIdempotent?: boolean | undefined;
  /** The bytes of a file, in either direction, may take as long as they move. */
  isTransfer?: boolean | undefined;
  /** Receives the number of bytes sent so far. */
  onProgress?: ((sentBytes: number) => void) | undefined;
  /** Receives each response, also of an error. */
  onResponse?: ((response: Response) => void) | undefined;
  /** Errors that say there is nothing. Instead of failing, the call returns null. */
  nullCodes?: ErrorCode[];
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

/** Sends requests to one service with one token. What only uploads does without the routes of `Connection`. */
export class Sender {
  readonly url: string;
  protected readonly options: Omit<StowageOptions, "key" | "headers">;
  readonly #headers: Headers;
  /** Whether the service has responded. An error that concerns its name or certificate is transient from then on. */
  #isKnown = false;

  constructor(options: StowageOptions & { url: string }) {
    const { url, key, headers, ...others } = options;
    const normalized = normalizeUrl(url);
    if (normalized === undefined) throw new TypeError(`The url must start with https:// or http://, and is "${url}".`);
    this.url = normalized;
    // Without the key, which a logger could print.
    this.options = others;
    // Throws if a value can't be a header, instead of failing each request.
    this.#headers = new Headers(headers);
    if (typeof key === "string") this.#headers.set("Authorization", `Bearer ${key}`);
  }

  /** Counts the failures of one call, and waits between its attempts. */
  retries({ maxRetries = this.options.maxRetries ?? 4, signal }: CallOptions): Retries {
    return new Retries({ maxRetries, onRetry: this.options.onRetry, signal });
  }

  /**
   * Sends a request to the service or, without the token, to a signed URL. If the connection breaks while `read` reads
   * the response, the request is retried, too.
   * @throws StowageError
   */
  async stream<T>(target: string, sent: RequestSpec, read: (response: Response) => T | Promise<T>): Promise<T> {
    const { method = "GET", isIdempotent = method !== "POST" } = sent;
    const retries = this.retries(sent);
    let mayHaveExecuted = false;
    for (;;) {
      try {
        return await this.#attempt(target, sent, read);
      } catch (error) {
        if (!(error instanceof StowageError)) throw error;
        const { code, status } = error;
        // An earlier attempt may have deleted the record, and its response was lost.
        const isDeleted = method === "DELETE" && mayHaveExecuted && code === "not_found";
        if (isDeleted || sent.nullCodes?.includes(code)) return null as T;
        mayHaveExecuted ||= (code === "connection_failed" && status < 300) || status >= 500;
        await retries.wait(error, isIdempotent);
      }
    }
  }

  /** Sends a request once. @throws StowageError, the signal's reason, and errors of the body and of `onProgress` */
  async #attempt<T>(target: string, sent: RequestSpec, read: (response: Response) => T | Promise<T>): Promise<T> {
    const { method = "GET", signal, timeout = this.options.timeout ?? TIMEOUT_MILLISECONDS, isTransfer } = sent;
    signal?.throwIfAborted();
    const isService = target.startsWith("/");
    const url = isService ? this.url + target : target;
    const headers = new Headers(isService ? this.#headers : undefined);
    for (const [name, value] of Object.entries(sent.headers ?? {})) headers.set(name, value);

    const stop = new AbortController();
    const aborted = AbortSignal.any(signal ? [signal, stop.signal] : [stop.signal]);
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
      const { fetch = globalThis.fetch } = this.options;
      // The service never redirects. Following a redirect could send the token or the body elsewhere.
      const init = { method, headers, body: null, redirect: "manual" as const, signal: aborted };
      let response: Response;
      if (globalThis.process && chunks && slice) {
        headers.set("Content-Length", String(slice.size));
        response = await fetch(url, { ...init, ...streamed(chunks, onBytes, fail) });
      } else {
        const body = slice ? await slice.blob() : (sent.body as string | FormData | undefined);
        const isReported = sent.onProgress && typeof body === "object" && !this.options.fetch;
        if (isReported && globalThis.XMLHttpRequest) response = await sendByXhr(url, { ...init, body }, onBytes);
        else response = await fetch(url, { ...init, body: body ?? null });
      }
      this.#isKnown ||= isService;
      sent.onResponse?.(response);
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
      return await orAborted(attempt(), aborted);
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
}

/** Calls the routes of the service. */
export class Connection extends Sender {
  /** Calls a route that responds with JSON. @returns its `data`, or what `pick` takes from the response */
  json<R extends Route>(route: R, input: Input<R>, options?: VersionOptions): Call<DataOf<Api[R]["response"]>>;
  json<R extends Route, T>(route: R, input: Input<R>, options: VersionOptions | undefined, pick: Reader<R, T>): Call<T>;
  json<R extends Route>(
    route: R,
    input: Input<R>,
    options?: VersionOptions,
    pick: Reader<R, unknown> = dataOf,
  ): Call<unknown> {
    return this.request(route, input, options, async (response) =>
      pick(await jsonOf<Api[R]["response"]>(response), response),
    );
  }

  /** Calls a route whose response has nothing to return. */
  empty<R extends Route>(route: R, input: Input<R>, options?: VersionOptions): Call<void> {
    return this.json(route, input, options, () => {});
  }

  list<R extends ListRoute>(route: R, input: Input<R>, options?: CallOptions): List<Item<R>, PageFields<R>> {
    const read = (next?: string): Call<Page<Item<R>> & PageFields<R>> => {
      // The list of webhooks has no pages.
      const filters = "query" in input ? { limit: PAGE_ITEMS, ...input.query } : undefined;
      // Only the place, because `next` may come from a visitor, and the filters say what that may see.
      const { cursor, page } = Object.fromEntries(new URLSearchParams(next));
      if (next !== undefined && !cursor && !page) throw new TypeError(`There is no page "${next}".`);
      const query = filters && { ...filters, cursor, page };
      return this.json(route, { ...input, query } as Input<R>, options, (body, response) => {
        const { data, message, ...fields } = (Array.isArray(body) ? { data: body } : body) as Record<string, unknown>;
        if (!Array.isArray(data)) throw errorOf(response);
        // Only the query: the token must never go to another host, and behind a proxy the host may differ.
        const after = /<[^>?]*(\?[^>]*)>\s*;[^,]*\brel="?next\b/.exec(response.headers.get("Link") ?? "")?.[1];
        return Object.assign(new Page<Item<R>>(data, after, read), fields as PageFields<R>);
      });
    };
    return new List(read);
  }

  /** Calls a route, and returns what `read` takes from the response. */
  request<T>(
    route: string,
    input: AnyInput,
    options: VersionOptions | undefined,
    read: (response: Response) => Promise<T>,
  ): Call<T> {
    return callOf((onResponse) => this.#request(route, { onResponse, ...input, ...options }, read));
  }

  async #request<T>(
    route: string,
    input: AnyInput & VersionOptions,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const { id, query, body = "body" in input ? {} : undefined, version, headers, ...others } = input;
    const { text = body && { type: "application/json", content: JSON.stringify(body) }, ...options } = others;
    options.signal?.throwIfAborted();
    const [method = "", path = ""] = route.split(" ");
    // An empty ID would call another route.
    if (path.includes("{id}") && !id) throw new TypeError(`The ID is "${id}".`);
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries<unknown>({ ...query }))
      if (value !== undefined) search.set(name, value instanceof Date ? value.toISOString() : String(value));
    const target = path.replace("{id}", encodeURIComponent(id ?? "")) + (search.size > 0 ? `?${search}` : "");
    const sent = {
      method,
      isIdempotent: method === "DELETE" || (method !== "POST" && version === undefined),
      ...options,
      headers: {
        ...(text && { "Content-Type": text.type }),
        ...(version !== undefined && { "If-Match": tagOf(version) }),
        ...headers,
      },
      body: text?.content,
    };
    const result = await this.stream(target, sent, read);
    this.options.onSuccess?.(route);
    return result;
  }
}

/** Methods that call one service. */
export class Resource {
  /** @internal */
  protected readonly connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.connection = connection;
    rejectSurplusArguments(this);
  }
}

/** The `ETag` of a version: a number or an `ETag`. @throws TypeError instead of requests that would always fail */
function tagOf(version: number | string): string {
  const number = /^(?:W\/)?"?(\d{1,15})"?$/.exec(String(version))?.[1];
  if (number === undefined) throw new TypeError(`The version is ${version}.`);
  return `"${number}"`;
}

function dataOf(body: unknown, response: Response): unknown {
  const { data } = body as { data?: unknown };
  if (!data) throw errorOf(response);
  return data;
}

async function jsonOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  try {
    const body: unknown = JSON.parse(text);
    if (body !== null && typeof body === "object") return withIds(body as T);
  } catch {}
  throw errorOf(response);
}
