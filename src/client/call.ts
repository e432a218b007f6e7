/* The results of calls: a promise with its response, or a list. */

/** The result of a call, with its response. */
export interface WithResponse<T> {
  /** The result of the call itself. */
  data: T;
  /** The last response of the call, whose body has been read. */
  response: Response;
}

/** The promise of a call. `withResponse` also returns the response, for its status and headers. Its body has been read. */
export interface Call<T> extends Promise<T> {
  /** Returns the result with the response. */
  withResponse(): Promise<WithResponse<T>>;
}

/** Begins a call. @param start passes each response on. The last one is that of the call */
export function callOf<T>(start: (onResponse: (response: Response) => void) => Promise<T>): Call<T> {
  let response: Response;
  const data = start((latest) => {
    response = latest;
  });
  return Object.assign(data, { withResponse: async () => ({ data: await data, response }) });
}

/** Requests the page after the one that returned `next`, or the first one. `F` are further fields of a page. */
type Read<T, F = unknown> = (next?: string) => Call<Page<T> & F>;

/** Items of a list, with those of the pages after it for `for await`. */
export class Page<T> implements AsyncIterable<T> {
  /** With several filters, a page may hold few items or none although more pages follow. */
  declare readonly items: T[];
  /** Pass it to `page` of a list to get the next page. Undefined on the last page, after which there is none. */
  declare readonly next: string | undefined;
  readonly #read: Read<T>;

  constructor(items: T[], next: string | undefined, read: Read<T>) {
    this.items = items;
    this.next = next;
    this.#read = read;
  }

  /** Yields the items of this page, and of all pages after it. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (let page: Page<T> = this; ; page = await this.#read(page.next)) {
      yield* page.items;
      if (page.next === undefined) return;
    }
  }
}

/**
 * The promise of the first page, whose items and those of all later pages `for await` yields. Its request is sent once, when
 * it is first awaited or iterated. The pages of some lists have further fields, such as `isComplete` of a search.
 * @example
 * for await (const file of stowage.files.list()) console.log(file.name);
 * const { items, next } = await stowage.files.list({ limit: 20 });
 */
export class List<T, F = unknown> extends Promise<Page<T> & F> implements AsyncIterable<T> {
  /** The promises that `then` returns are not lists. */
  static override get [Symbol.species]() {
    return Promise;
  }

  readonly #read: Read<T, F>;
  #first: Call<Page<T> & F> | undefined;

  constructor(read: Read<T, F>) {
    // Nothing settles this promise itself: `then`, which `await`, `catch` and `finally` call, is that of the first page.
    super(() => {});
    this.#read = read;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is a promise
  override then<A = Page<T> & F, B = never>(
    onPage?: ((page: Page<T> & F) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#firstPage().then(onPage, onError);
  }

  /** Returns the first page with its response. */
  withResponse(): Promise<WithResponse<Page<T> & F>> {
    return this.#firstPage().withResponse();
  }

  /**
   * Returns the page after the one that returned `next`, with the filters of this list. The list itself is the first page.
   * @throws TypeError if it is no `next`, instead of returning the first page again
   */
  page(next: string): Call<Page<T> & F> {
    return this.#read(next ?? "");
  }

  #firstPage(): Call<Page<T> & F> {
    this.#first ??= this.#read();
    return this.#first;
  }

  /** Returns the first items, at most `limit`. Default: all. */
  async toArray({ limit = Number.POSITIVE_INFINITY }: { limit?: number | undefined } = {}): Promise<T[]> {
    const items: T[] = [];
    if (limit <= 0) return items;
    for await (const item of this) {
      items.push(item);
      if (items.length >= limit) break;
    }
    return items;
  }

  /** Yields the items of all pages, from the first one. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    yield* await this;
  }
}
