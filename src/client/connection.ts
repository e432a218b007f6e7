import type { Api } from "./api.ts";
import { connectionError, errorOf, StowageError } from "./errors.ts";
import { waitToRetry } from "./retrying.ts";

const TIMEOUT_MILLISECONDS = 60_000;
const PAGE_ITEMS = 100;

export interface StowageOptions {
  /** The service's address, such as `https://stowage.example.workers.dev`. */
  url: string;
  /** An API key's token, or the operator's. Without one only logging in works. */
  key?: string | undefined;
  /** How often a request is repeated that failed for a passing reason; default 4. */
  retries?: number;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
}

type Route = keyof Api;
type Input<R extends Route> = CallOptions & {
  /** The path's `{id}`. */
  id?: string;
  headers?: Record<string, string>;
} & (Api[R]["query"] extends undefined ? { query?: undefined } : { query?: Api[R]["query"] }) &
  (Api[R]["body"] extends undefined ? { body?: undefined } : { body: Api[R]["body"] });

/** Routes whose answers are pages. */
type ListRoute = { [R in Route]: Api[R]["answer"] extends { data: unknown[] } | unknown[] ? R : never }[Route];
type ItemOf<A> = A extends (infer T)[] ? T : A extends { data: (infer T)[] } ? T : never;
export type Item<R extends ListRoute> = ItemOf<Api[R]["answer"]>;

export interface Page<T> {
  /** Few or none where filters are combined, although more follow. */
  items: T[];
  /** What the following page is asked for with; undefined on the last. */
  next: string | undefined;
}

/** The items of a list, page after page, as long as they are asked for; or one page at a time. */
export interface List<T> extends AsyncGenerator<T, void, undefined> {
  /** The first page, or the one behind the page that told `next`: with its filters, whatever this list's are. */
  page(next?: string): Promise<Page<T>>;
}

type DataOf<A> = A extends { data: infer D } ? D : never;

interface Sent extends CallOptions {
  method?: string;
  headers?: Record<string, string> | undefined;
  body?: BodyInit;
  /** Whether a second time does no harm; where it isn't said, the method decides. */
  isRepeatable?: boolean;
  /** None where bytes are sent or taken, which last as long as they are many. */
  timeoutMilliseconds?: number;
}

/** One service, and the token that it is asked with. */
export class Connection {
  readonly url: string;
  readonly retries: number;
  readonly #key: string | undefined;

  constructor({ url, key, retries = 4 }: StowageOptions) {
    const { origin, pathname } = new URL(url);
    this.url = (origin + pathname).replace(/\/+$/, "");
    this.retries = retries;
    this.#key = key;
    // What can't be sent is told at once, and is no failure of the line.
    new Headers(this.authorization);
  }

  get authorization(): Record<string, string> {
    return this.#key === undefined ? {} : { Authorization: `Bearer ${this.#key}` };
  }

  /** Calls a route with JSON. */
  async call<R extends Route>(route: R, input: Input<R>): Promise<Api[R]["answer"]> {
    return this.#ask(route, input, jsonOf<Api[R]["answer"]>);
  }

  /** Calls a route whose answer is `data`, and a message for people. */
  async data<R extends Route>(route: R, input: Input<R>): Promise<DataOf<Api[R]["answer"]>> {
    return this.#ask(route, input, async (response) => {
      const { data } = await jsonOf<{ data?: DataOf<Api[R]["answer"]> }>(response);
      if (!data) throw notOurs(response);
      return data;
    });
  }

  list<R extends ListRoute>(route: R, input: Input<R>): List<Item<R>> {
    const page = async (next?: string): Promise<Page<Item<R>>> => {
      const filters = { limit: PAGE_ITEMS, ...(input.query as object | undefined) };
      const query = next === undefined ? filters : Object.fromEntries(new URLSearchParams(next));
      return this.#ask(route, { ...input, query } as Input<R>, async (response) => {
        const answer = await jsonOf<Item<R>[] | { data: Item<R>[] }>(response);
        const items = Array.isArray(answer) ? answer : answer.data;
        if (!Array.isArray(items)) throw notOurs(response);
        const link = /<([^>]*)>\s*;[^,]*\brel="?next\b/.exec(response.headers.get("Link") ?? "")?.[1];
        // Its query alone: behind a proxy the address is another, and the token goes to none but ours.
        return { items, next: link === undefined ? undefined : new URL(link, this.url).search };
      });
    };
    return Object.assign(itemsOf(page), { page });
  }

  /**
   * Sends to the service, or to a signed address of its store without the token. `read` is a part of it: where the line
   * breaks below an answer, the request is repeated too.
   * @throws StowageError
   */
  async send<T>(
    address: string,
    { isRepeatable, timeoutMilliseconds, signal, ...init }: Sent,
    read: (response: Response) => T | Promise<T>,
  ): Promise<T> {
    const isOurs = address.startsWith("/");
    const url = isOurs ? this.url + address : address;
    const headers = { ...(isOurs && this.authorization), ...init.headers };
    const repeatable = isRepeatable ?? ["GET", "PUT", "DELETE"].includes(init.method ?? "GET");
    for (let attempt = 0; ; attempt++) {
      try {
        return await once(url, { ...init, headers }, { signal, timeoutMilliseconds, read });
      } catch (error) {
        // The first try has deleted it, and only its answer was lost.
        const isGone = init.method === "DELETE" && attempt > 0 && (error as StowageError).code === "not_found";
        if (isGone) return read(new Response("{}"));
        await waitToRetry(error, { attempt, retries: this.retries, isRepeatable: repeatable }, signal);
      }
    }
  }

  #ask<R extends Route, T>(
    route: R,
    { id = "", query, body, headers, signal }: Input<R>,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const [method = "", path = ""] = route.split(" ");
    const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    const json = body !== undefined && { body: JSON.stringify(body) };
    const address = path.replace("{id}", encodeURIComponent(id)) + (given.length > 0 ? `?${search}` : "");
    const init = {
      method,
      ...json,
      headers: json ? { "Content-Type": "application/json", ...headers } : headers,
      signal,
      timeoutMilliseconds: TIMEOUT_MILLISECONDS,
    };
    return this.send(address, init, read);
  }
}

async function* itemsOf<T>(page: List<T>["page"]): AsyncGenerator<T, void, undefined> {
  let next: string | undefined;
  do {
    const found = await page(next);
    yield* found.items;
    next = found.next;
  } while (next !== undefined);
}

/** An answer in the service's place, such as a proxy's page. */
export const notOurs = (response: Response) => errorOf(response.status, "", (name) => response.headers.get(name));

async function jsonOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  try {
    const answer: unknown = JSON.parse(text);
    if (answer !== null && typeof answer === "object") return answer as T;
  } catch {}
  throw notOurs(response);
}

interface Try<T> {
  signal: AbortSignal | undefined;
  timeoutMilliseconds: number | undefined;
  read(response: Response): T | Promise<T>;
}

async function once<T>(url: string, init: RequestInit, { signal, timeoutMilliseconds, read }: Try<T>): Promise<T> {
  const limits = timeoutMilliseconds === undefined ? [] : [AbortSignal.timeout(timeoutMilliseconds)];
  const stop = AbortSignal.any(signal ? [signal, ...limits] : limits);
  const attempt = async () => {
    // The service has no redirections: whoever follows one to another place leaves the token behind, or the body.
    const response = await fetch(url, { ...init, redirect: "manual", signal: stop });
    if (response.ok) return read(response);
    const text = await response.text().catch(() => "");
    throw errorOf(response.status, text, (name) => response.headers.get(name));
  };
  let onAbort = () => {};
  // Node 20 forgets some bodies when it aborts: whoever reads them would wait for ever.
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
