/*
 * A proxy between an invocation of the Worker and its bindings: D1, R2, queues and objects. It counts and records every awaited
 * call, and can make a call fail or kill the invocation. It imports nothing, so that the benchmarks can use it too.
 */

/**
 * - `transient`: this call fails with an error that Cloudflare documents as transient. A retry succeeds.
 * - `permanent`: this call fails with an error that retries cannot fix.
 * - `outage`: this call and all later ones fail with transient errors.
 * - `death`: the Worker is killed. Its code stops: it makes no further call, and gets no result.
 */
export const FAILURES = ["transient", "permanent", "outage", "death"] as const;

/** "after": the call took effect, but its result was lost. */
export const MOMENTS = ["before", "after"] as const;

/** `Object`: the Durable Objects, their alarms, and the requests of webhooks to endpoints. */
export type BindingName = "D1" | "R2" | "Queue" | "Object";

export interface Fault {
  /** The number of the call, from 1. Counts only the calls to `binding`, and of `method`, if they are set. */
  call: number;
  moment: (typeof MOMENTS)[number];
  /** `quoting`: like `outage`, but with permanent errors that quote the arguments of the call. */
  failure: (typeof FAILURES)[number] | "quoting";
  binding?: BindingName;
  /** A method of the binding, such as `complete`. Unlike a plain number, it stays the same call when others are added. */
  method?: string;
}

/** A fault at a numbered call of any binding. */
export type InjectedFault = Fault & { failure: (typeof FAILURES)[number] };

/** The Worker dies right before or after its first call of the method. */
export const deathAt = (binding: BindingName, method: string, moment: Fault["moment"]): ProxiedBindings =>
  new ProxiedBindings({ binding, method, call: 1, moment, failure: "death" });

/** The Worker dies after its first put to R2, which R2 gets only after `release`. */
export function deathInLatePut() {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const bindings = deathAt("R2", "put", "after");
  const bucket = bindings.bucket.bind(bindings);
  bindings.bucket = (real) => {
    const proxied = bucket(real);
    const late: R2Bucket["put"] = async (...given: Parameters<R2Bucket["put"]>) => {
      reached.resolve();
      await gate.promise;
      return proxied.put(...given);
    };
    return new Proxy(proxied, { get: (target, name) => (name === "put" ? late : Reflect.get(target, name)) });
  };
  return { bindings, reached: reached.promise, release: () => gate.resolve() };
}

/** The first put to R2 fails at once, and R2 stores it after that, when `store` is called. */
export function failureOfLatePut() {
  const bindings = new ProxiedBindings();
  const bucket = bindings.bucket.bind(bindings);
  let stored: (() => Promise<unknown>) | undefined;
  bindings.bucket = (real) => {
    const put = async (key: string, body: Uint8Array, options: R2PutOptions) => {
      if (stored) return bucket(real).put(key, body, options);
      const bytes = body.slice();
      stored = () => real.put(key, bytes, options);
      throw new Error(PERMANENT.R2);
    };
    return replace(bucket(real), { put });
  };
  return { bindings, store: async () => stored?.() };
}

/** Every call to the binding fails. */
export const outageOf = (binding: BindingName): Fault => ({ binding, call: 1, moment: "before", failure: "outage" });

/** The finished calls, as they are billed. Calls that nothing awaits are counted once they finish. */
export interface Effects {
  /** Round trips to D1; a batch is one. */
  trips: number;
  rowsRead: number;
  rowsWritten: number;
  /** R2's methods, in order. */
  r2: string[];
  /** Messages put on the queue. */
  messages: number;
  /** Calls to Durable Objects. */
  objects: number;
}

/** SQL as sent to D1, with its parameters. */
export interface Sent {
  sql: string;
  parameters: unknown[];
}

/** A round trip to D1, with the cost of each statement. */
export interface RoundTrip {
  database: D1Database;
  statements: (Sent & { statement: D1PreparedStatement; rowsRead: number; rowsWritten: number })[];
}

/** A multipart upload in R2. */
export interface Multipart {
  key: string;
  id: string;
  /** Whether its id is stored in D1. */
  isKnown: boolean;
}

/** A call that is about to be sent. */
export interface PendingCall {
  binding: BindingName;
  /** Such as `D1 batch`. */
  name: string;
}

interface Bindings {
  DB: D1Database;
  BUCKET: R2Bucket;
  JOBS: Queue;
  BULK_JOBS?: Queue;
  WAVEFORMS?: Queue | undefined;
  RECOVERY?: Queue | undefined;
  WEBHOOKS?: DurableObjectNamespace | undefined;
  SEARCH?: DurableObjectNamespace | undefined;
}

/** The databases of an environment: `DB`, `DB_1`, … */
export const databasesIn = (env: object): [name: string, database: D1Database][] =>
  Object.entries(env).filter(([name]) => /^DB(_\d+)?$/.test(name));

const TRANSIENT: Record<BindingName, string> = {
  D1: "D1_ERROR: Network connection lost.",
  R2: "We encountered an internal error. Please try again. (10001)",
  Queue: "Queue send failed: Network connection lost.",
  Object: "Network connection lost.",
};
const PERMANENT: Record<BindingName, string> = {
  D1: "D1_ERROR: The database has been deleted.",
  R2: "The bucket does not exist. (10006)",
  Queue: "Queue send failed: Forbidden",
  Object: "The object was deleted.",
};

let totalCalls = 0;

/** The methods of R2 that only read. */
const READS = ["head", "get", "list"];

// biome-ignore lint/suspicious/noExplicitAny: it is the type of any method of a binding.
type Method = (...input: any[]) => unknown;

/** Returns a proxy of the object with some of its methods replaced. */
function replace<T extends object>(target: T, methods: Record<string, Method>): T {
  return new Proxy(target, {
    get(_, name) {
      if (typeof name === "string" && methods[name]) return methods[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** Quotes the arguments of a call in an error. */
const quoted = (values: unknown[]) =>
  values.map((value) => `${JSON.stringify(value)} ${String(value)}`.slice(0, 10_000)).join();

export class ProxiedBindings {
  /** The calls so far, in order, such as `D1 batch`. */
  readonly calls: string[] = [];
  /** The numbers of the calls that changed nothing. */
  readonly idle = new Set<number>();
  readonly effects: Effects = { trips: 0, rowsRead: 0, rowsWritten: 0, r2: [], messages: 0, objects: 0 };
  /** Every prepared query, and every query with its bound parameters. */
  readonly queries: Sent[] = [];
  /** Every round trip to D1 that had a result, in order. */
  readonly roundTrips: RoundTrip[] = [];
  /** The messages of each call to the queue. */
  readonly messages: unknown[][] = [];
  /** The keys of each deletion from the bucket. */
  readonly deletedKeys: string[][] = [];
  /** The multipart uploads that were created. Other invocations share the list. */
  multiparts: Multipart[] = [];
  /** The last result of an invocation with these bindings, such as its response. */
  outcome: unknown;
  /** Settles when the invocation is killed. */
  readonly death: Promise<"dead">;
  /** The shared clock of the invocations, in milliseconds. */
  now = (): number => 0;
  /** Called with every call before it is sent. */
  onCall: (call: string) => unknown = () => undefined;
  /** Sends each call, when a scheduler lets it: see orders.ts. */
  sendInTurn: (<T>(call: PendingCall, send: () => Promise<T>) => Promise<T>) | undefined;
  #die: () => void = () => undefined;
  readonly #faults: Fault[];
  /** The number of unfinished calls, and the total count and time of the last call of all invocations. */
  #open = 0;
  #last = "";
  /** The numbers of the calls before which all others had finished, with no call of another invocation and no time in between. */
  readonly #following = new Set<number>();
  #state: "working" | "outage" | "quoting" | "dead" = "working";
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

  /** Whether a fault has occurred that retries cannot fix. */
  get isBroken(): boolean {
    return this.#faults.some(({ call, failure }) => call <= this.calls.length && failure !== "transient");
  }

  get isDead(): boolean {
    return this.#state === "dead";
  }

  /** Yields every fault at each call from number `from`, except those that leave the same state and response as others. */
  *everyFault(from = 1): Generator<InjectedFault> {
    for (const fault of this.allFaults(from)) if (!this.equalsOf(fault, from)) yield fault;
  }

  *allFaults(from = 1): Generator<InjectedFault> {
    for (let call = from; call <= this.calls.length; call++)
      for (const failure of FAILURES) for (const moment of MOMENTS) yield { call, moment, failure };
  }

  /**
   * Returns the fault that leaves the same state, and the one that gets the same response, or null if the fault stands for
   * itself. `crash-points` compares them in `npm run test:all`.
   * - A lost result of a call that changes nothing: a failure before the call.
   * - A death before a call: a death after the previous call, if nothing happened in between.
   * - An outage after a call: the state of a death after it, and the response of an outage before it, because both look
   *   the same to the code.
   */
  equalsOf(
    { call, moment, failure }: InjectedFault,
    from = 1,
  ): { state: InjectedFault; response: InjectedFault } | null {
    const same = (fault: InjectedFault) => this.equalsOf(fault, from) ?? { state: fault, response: fault };
    if (moment === "after" && this.idle.has(call)) return same({ call, moment: "before", failure });
    if (moment === "before" && failure === "death" && call > from && this.#following.has(call))
      return same({ call: call - 1, moment: "after", failure });
    if (moment === "after" && failure === "outage")
      return {
        state: same({ call, moment, failure: "death" }).state,
        response: same({ call, moment: "before", failure }).response,
      };
    return null;
  }

  kill(): void {
    this.#die();
  }

  /** Returns the environment with its bindings behind this proxy. */
  wrap<E extends Bindings>(env: E): E {
    const { BUCKET, JOBS, BULK_JOBS, WAVEFORMS, RECOVERY, WEBHOOKS, SEARCH } = env;
    return {
      ...env,
      ...Object.fromEntries(databasesIn(env).map(([name, database]) => [name, this.database(database)])),
      BUCKET: this.bucket(BUCKET),
      JOBS: this.queue(JOBS),
      ...(BULK_JOBS && { BULK_JOBS: this.queue(BULK_JOBS) }),
      ...(WAVEFORMS && { WAVEFORMS: this.queue(WAVEFORMS) }),
      ...(RECOVERY && { RECOVERY: this.queue(RECOVERY) }),
      ...(WEBHOOKS && { WEBHOOKS: this.#namespace(WEBHOOKS) }),
      ...(SEARCH && { SEARCH: this.#namespace(SEARCH) }),
    };
  }

  #pass<T>(
    binding: BindingName,
    name: string,
    given: unknown[],
    work: () => Promise<T>,
    isIdle?: (result: T) => boolean,
  ): Promise<T> {
    const send = () => this.#send(binding, name, given, work, isIdle);
    if (!this.sendInTurn) return send();
    return this.sendInTurn({ binding, name: `${binding} ${name}` }, send);
  }

  async #send<T>(
    binding: BindingName,
    name: string,
    given: unknown[],
    work: () => Promise<T>,
    isIdle: (result: T) => boolean = () => false,
  ): Promise<T> {
    if (this.isDead) return new Promise<never>(() => undefined);
    const call = this.calls.push(`${binding} ${name}`);
    if (this.#open === 0 && this.#last === `${totalCalls} ${this.now()}`) this.#following.add(call);
    this.#last = `${++totalCalls} ${this.now()}`;
    this.onCall(`${binding} ${name}`);
    if (this.#state !== "working" && (this.#failing ?? binding) === binding) {
      throw new Error(this.#state === "quoting" ? `Failed: ${quoted(given)}` : TRANSIENT[binding]);
    }
    const isOf = (one: Fault) => (one.binding ?? binding) === binding && (one.method ?? name) === name;
    const fault = this.#faults.find((one) => isOf(one) && one.call === this.#countFor(one));
    if (fault?.moment === "before") return this.#fail(binding, fault, given);
    this.#open += 1;
    const result = await work().finally(() => {
      this.#open -= 1;
    });
    if (isIdle(result)) this.idle.add(call);
    if (fault) return this.#fail(binding, fault, given);
    return this.isDead ? new Promise<never>(() => undefined) : result;
  }

  #countFor({ binding, method }: Fault): number {
    const isCounted = (call: string) => call.startsWith(binding ?? "") && (!method || call === `${binding} ${method}`);
    return this.calls.filter(isCounted).length;
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

  /** Sends a round trip to D1, and adds the costs that its results report. */
  async #query<R extends Pick<D1Result, "meta">>(name: string, given: Sent[], work: () => Promise<R[]>): Promise<R[]> {
    const send = async () => {
      const results = await work().finally(() => {
        this.effects.trips += 1;
      });
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
      // D1's own `first` and `raw` report no cost. Drizzle also reads the rows of a batch like this.
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
    const recordOf = (statement: D1PreparedStatement) => {
      const record = this.#statements.get(statement);
      if (!record) throw new Error("A batch contains a query that another database prepared.");
      return record;
    };
    return replace(database, {
      prepare: (sql: string) => statement(database.prepare(sql), { sql, parameters: [] }),
      batch: (statements: D1PreparedStatement[]) => {
        const given = statements.map((one) => recordOf(one));
        const sent = given.map((one) => one.sent);
        return this.#query("batch", sent, async () => {
          const results = await database.batch(given.map(({ real }) => real));
          const costs = results.map(({ meta }) => ({ rowsRead: meta.rows_read, rowsWritten: meta.rows_written }));
          const noCost = { rowsRead: 0, rowsWritten: 0 };
          const sentWithCosts = statements.map((statement, i) => ({
            statement,
            sql: "",
            parameters: [],
            ...sent[i],
            ...noCost,
            ...costs[i],
          }));
          this.roundTrips.push({ database, statements: sentWithCosts });
          return results;
        });
      },
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
          const created = await bucket.createMultipartUpload(key, options);
          this.multiparts.push({ key, id: created.uploadId, isKnown: false });
          return upload(created);
        }),
      resumeMultipartUpload: (key: string, id: string) => upload(bucket.resumeMultipartUpload(key, id)),
    });
  }

  /** A write of an object to its storage takes effect at once, in the order of the code, so it never waits for its turn. */
  store<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#send("Object", name, [], work);
  }

  /** A call to a Durable Object, or of a webhook's object to an endpoint. */
  object<T>(name: string, work: () => Promise<T>, isRead = false): Promise<T> {
    const send = async () => {
      const result = await work();
      this.effects.objects += 1;
      return result;
    };
    return this.#pass("Object", name, [], send, () => isRead);
  }

  #namespace(namespace: DurableObjectNamespace): DurableObjectNamespace {
    const method =
      (name: string, stub: unknown) =>
      (...input: unknown[]) =>
        this.object(name, async () => (stub as Record<string, Method>)[name]?.(...input));
    const getByName = (name: string) => {
      const stub = namespace.getByName(name);
      return new Proxy({}, { get: (_, called) => method(String(called), stub) }) as DurableObjectStub;
    };
    return { getByName } as DurableObjectNamespace;
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
      metrics: () =>
        this.#pass(
          "Queue",
          "metrics",
          [],
          () => queue.metrics(),
          () => true,
        ),
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
