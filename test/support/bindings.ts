/*
 * The one proxy of the bindings. It lies between an invocation of the Worker and D1, R2 and the Queue, counts and records
 * every awaited call, and lets one of them fail, or the invocation be killed over it. It imports nothing, so that the
 * benchmarks can use it too.
 */

/**
 * - `transient`: this call fails, with an error that Cloudflare says passes; tried again it succeeds.
 * - `permanent`: this call fails, with an error that no retry helps.
 * - `outage`: this call and all that follow fail, with transient errors.
 * - `death`: the Worker is killed. None of its code runs any more: no call is made and none comes back.
 */
export const FAILURES = ["transient", "permanent", "outage", "death"] as const;

/** After: the call took effect, and its answer was lost. */
export const MOMENTS = ["before", "after"] as const;

export type BindingName = "D1" | "R2" | "Queue";

export interface Fault {
  /** The number of the call, from 1; of the calls to `binding` alone where that is named. */
  call: number;
  moment: (typeof MOMENTS)[number];
  /** `quoting`: like `outage`, permanent, and the error quotes all that the call was given. */
  failure: (typeof FAILURES)[number] | "quoting";
  binding?: BindingName;
}

/** Every call to the binding fails. */
export const outageOf = (binding: BindingName): Fault => ({ binding, call: 1, moment: "before", failure: "outage" });

/** The calls that have come back, as they are billed: what nobody waited for is not in yet. */
export interface Effects {
  /** Round trips to D1; a batch is one. */
  trips: number;
  rowsRead: number;
  rowsWritten: number;
  /** R2's methods, in order. */
  r2: string[];
  /** Messages put on the queue. */
  messages: number;
}

/** SQL as it went to D1, with its parameters. */
export interface Sent {
  sql: string;
  parameters: unknown[];
}

/** A multipart upload in R2. */
export interface Multipart {
  key: string;
  id: string;
  /** D1 has its id. */
  isKnown: boolean;
}

interface Bindings {
  DB: D1Database;
  BUCKET: R2Bucket;
  JOBS: Queue;
  WEBHOOKS?: Queue | undefined;
}

const TRANSIENT: Record<BindingName, string> = {
  D1: "D1_ERROR: Network connection lost.",
  R2: "We encountered an internal error. Please try again. (10001)",
  Queue: "Queue send failed: Network connection lost.",
};
const PERMANENT: Record<BindingName, string> = {
  D1: "D1_ERROR: The database has been deleted.",
  R2: "The bucket does not exist. (10006)",
  Queue: "Queue send failed: Forbidden",
};

let callsOfAll = 0;

/** R2's methods that change nothing. */
const READS = ["head", "get", "list"];

// biome-ignore lint/suspicious/noExplicitAny: it stands for any method of a binding.
type Method = (...input: any[]) => unknown;

/** The same object with some of its methods replaced. */
function replace<T extends object>(target: T, methods: Record<string, Method>): T {
  return new Proxy(target, {
    get(_, name) {
      if (typeof name === "string" && methods[name]) return methods[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** Text for an error that quotes; bytes are left out. */
const quoted = (given: unknown[]) =>
  given.map((one) => `${JSON.stringify(one)} ${String(one)}`.slice(0, 10_000)).join();

export class ProxiedBindings {
  /** What was called so far, in order: `D1 batch`. */
  readonly calls: string[] = [];
  /** The numbers of those that changed nothing: they read, or found nothing to change. */
  readonly idle = new Set<number>();
  readonly effects: Effects = { trips: 0, rowsRead: 0, rowsWritten: 0, r2: [], messages: 0 };
  /** Every query that was prepared, and again with its parameters when they were bound. */
  readonly queries: Sent[] = [];
  /** The messages of each call to the queue. */
  readonly messages: unknown[][] = [];
  /** The keys of each deletion from the bucket. */
  readonly deletedKeys: string[][] = [];
  /** Those that were begun, in a list that other invocations share. */
  multiparts: Multipart[] = [];
  /** Settles when the invocation is killed. */
  readonly death: Promise<"dead">;
  /** The clock of those that share it, in milliseconds. */
  now = (): number => 0;
  /** Is told of every call when it is made. */
  onCall: (call: string) => unknown = () => undefined;
  #die: () => void = () => undefined;
  readonly #faults: Fault[];
  /** Calls that have not come back, and the last one: how many there were of all invocations by then, and when. */
  #open = 0;
  #last = "";
  /** The numbers of those before which all had come back, and nothing else was called and no time passed since. */
  readonly #following = new Set<number>();
  #state: "well" | "outage" | "quoting" | "dead" = "well";
  #failing: BindingName | undefined;
  readonly #statements = new WeakMap<object, { real: D1PreparedStatement; sent: Sent }>();

  constructor(...faults: Fault[]) {
    this.#faults = faults;
    this.death = new Promise((resolve) => {
      this.#die = () => {
        this.#state = "dead";
        resolve("dead");
      };
    });
  }

  /** Whether a fault has begun that no retry helps. */
  get isBroken(): boolean {
    return this.#faults.some(({ call, failure }) => call <= this.calls.length && failure !== "transient");
  }

  get hasFailedPermanently(): boolean {
    const isPermanent = ({ failure }: Fault) => failure === "permanent" || failure === "quoting";
    return this.#faults.some((fault) => isPermanent(fault) && fault.call <= this.#countFor(fault));
  }

  get isDead(): boolean {
    return this.#state === "dead";
  }

  /**
   * Every fault at each call that was made, from one of them on, but for two that leave everything as another does. Of a
   * call that changes nothing, an answer that is lost is a call that was never made. And a Worker that dies before a call
   * has died after the one before, where nobody did anything in between.
   */
  *everyFault(from = 1): Generator<Fault & { failure: (typeof FAILURES)[number] }> {
    for (let call = from; call <= this.calls.length; call++) {
      for (const moment of this.idle.has(call) ? MOMENTS.slice(0, 1) : MOMENTS) {
        const isKnown = moment === "before" && call > from && this.#following.has(call);
        for (const failure of FAILURES) if (!(isKnown && failure === "death")) yield { call, moment, failure };
      }
    }
  }

  kill(): void {
    this.#die();
  }

  /** The environment with its bindings behind this proxy. */
  wrap<E extends Bindings>(env: E): E {
    const { DB, BUCKET, JOBS, WEBHOOKS } = env;
    const wrapped = { DB: this.database(DB), BUCKET: this.bucket(BUCKET), JOBS: this.queue(JOBS) };
    return { ...env, ...wrapped, ...(WEBHOOKS && { WEBHOOKS: this.queue(WEBHOOKS) }) };
  }

  async #pass<T>(
    binding: BindingName,
    name: string,
    given: unknown[],
    work: () => Promise<T>,
    isIdle: (result: T) => boolean = () => false,
  ): Promise<T> {
    if (this.isDead) return new Promise<never>(() => undefined);
    const call = this.calls.push(`${binding} ${name}`);
    if (this.#open === 0 && this.#last === `${callsOfAll} ${this.now()}`) this.#following.add(call);
    this.#last = `${++callsOfAll} ${this.now()}`;
    this.onCall(`${binding} ${name}`);
    if (this.#state !== "well" && (this.#failing ?? binding) === binding) {
      throw new Error(this.#state === "quoting" ? `Failed: ${quoted(given)}` : TRANSIENT[binding]);
    }
    const fault = this.#faults.find((one) => (one.binding ?? binding) === binding && one.call === this.#countFor(one));
    if (fault?.moment === "before") return this.#fail(binding, fault, given);
    this.#open += 1;
    const result = await work().finally(() => {
      this.#open -= 1;
    });
    if (isIdle(result)) this.idle.add(call);
    if (fault) return this.#fail(binding, fault, given);
    return this.isDead ? new Promise<never>(() => undefined) : result;
  }

  #countFor({ binding }: Fault): number {
    return binding ? this.calls.filter((call) => call.startsWith(binding)).length : this.calls.length;
  }

  async #fail(binding: BindingName, { failure, binding: only }: Fault, given: unknown[]): Promise<never> {
    if (failure === "outage" || failure === "quoting") {
      this.#state = failure;
      this.#failing = only;
    }
    if (failure === "death") {
      this.#die();
      return new Promise<never>(() => undefined);
    }
    if (failure === "quoting") throw new Error(`Failed: ${quoted(given)}`);
    throw new Error((failure === "permanent" ? PERMANENT : TRANSIENT)[binding]);
  }

  /** A round trip to D1. What it cost is told by its results. */
  async #query<R extends Pick<D1Result, "meta">>(name: string, given: Sent[], work: () => Promise<R[]>): Promise<R[]> {
    const send = async () => {
      const results = await work();
      this.effects.trips += 1;
      for (const multipart of this.multiparts) {
        multipart.isKnown ||= given.some(
          ({ parameters }, at) => parameters.includes(multipart.id) && (results[at]?.meta.changes ?? 0) > 0,
        );
      }
      for (const { meta } of results) {
        this.effects.rowsRead += meta.rows_read;
        this.effects.rowsWritten += meta.rows_written;
      }
      return results;
    };
    return this.#pass("D1", name, given, send, (results) =>
      results.every(({ meta }) => meta.rows_written === 0 && !meta.changed_db),
    );
  }

  database(database: D1Database): D1Database {
    const statement = (real: D1PreparedStatement, sent: Sent): D1PreparedStatement => {
      this.queries.push(sent);
      // D1's own `first` and `raw` tell no cost. Drizzle too reads the rows of a batch in this way.
      const all = async (name: string) =>
        (await this.#query(name, [sent], async () => [await real.all()]))[0] as D1Result;
      const rows = async (name: string) => (await all(name)).results as Record<string, unknown>[];
      const proxied = replace(real, {
        all: () => all("all"),
        run: () => all("run"),
        raw: async () => (await rows("raw")).map((row) => Object.values(row)),
        first: async (column?: string) => {
          const [row] = await rows("first");
          return column === undefined ? (row ?? null) : (row?.[column] ?? null);
        },
        bind: (...parameters) => statement(real.bind(...parameters), { sql: sent.sql, parameters }),
      });
      this.#statements.set(proxied, { real, sent });
      return proxied;
    };
    const known = (one: D1PreparedStatement) => {
      const found = this.#statements.get(one);
      if (!found) throw new Error("A batch holds a query that another database prepared.");
      return found;
    };
    return replace(database, {
      prepare: (sql: string) => statement(database.prepare(sql), { sql, parameters: [] }),
      batch: (statements: D1PreparedStatement[]) =>
        this.#query(
          "batch",
          statements.map((one) => known(one).sent),
          () => database.batch(statements.map((one) => known(one).real)),
        ),
    });
  }

  bucket(bucket: R2Bucket): R2Bucket {
    const reads = () => true;
    const count = async <T>(name: string, given: unknown[], work: () => Promise<T>) => {
      const send = async () => {
        const result = await work();
        this.effects.r2.push(name);
        return result;
      };
      return this.#pass("R2", name, given, send, () => READS.includes(name));
    };
    const body = (object: R2ObjectBody | R2Object | null) =>
      object && "body" in object
        ? replace(object, {
            arrayBuffer: () => this.#pass("R2", "body", [], () => object.arrayBuffer(), reads),
          })
        : object;
    const upload = (real: R2MultipartUpload): R2MultipartUpload =>
      replace(real, {
        uploadPart: (number: number, bytes: ArrayBufferView) =>
          count("uploadPart", [number], () => real.uploadPart(number, bytes)),
        complete: (parts: R2UploadedPart[]) => count("complete", [parts], () => real.complete(parts)),
        abort: () => count("abort", [], () => real.abort()),
      });
    return replace(bucket, {
      head: (key: string) => count("head", [key], () => bucket.head(key)),
      get: (key: string, options?: R2GetOptions) =>
        count("get", [key, options], async () => body(await bucket.get(key, options))),
      put: (key: string, bytes: ArrayBufferView, options?: R2PutOptions) =>
        count("put", [key, options], () => bucket.put(key, bytes, options)),
      list: (options?: R2ListOptions) => count("list", [options], () => bucket.list(options)),
      delete: (keys: string | string[]) => {
        this.deletedKeys.push([keys].flat());
        return count("delete", [keys], () => bucket.delete(keys));
      },
      createMultipartUpload: (key: string, options?: R2MultipartOptions) =>
        count("createMultipartUpload", [key, options], async () => {
          const begun = await bucket.createMultipartUpload(key, options);
          this.multiparts.push({ key, id: begun.uploadId, isKnown: false });
          return upload(begun);
        }),
      resumeMultipartUpload: (key: string, id: string) => upload(bucket.resumeMultipartUpload(key, id)),
    });
  }

  queue<T>(queue: Queue<T>): Queue<T> {
    const count = async <R>(name: string, bodies: T[], work: () => Promise<R>) => {
      this.messages.push(bodies);
      return this.#pass("Queue", name, bodies, async () => {
        const result = await work();
        this.effects.messages += bodies.length;
        return result;
      });
    };
    return replace(queue, {
      send: (body: T, options?: QueueSendOptions) => count("send", [body], () => queue.send(body, options)),
      sendBatch: (batch: Iterable<MessageSendRequest<T>>, options?: QueueSendBatchOptions) => {
        const messages = [...batch];
        return count(
          "sendBatch",
          messages.map(({ body }) => body),
          () => queue.sendBatch(messages, options),
        );
      },
    });
  }
}
