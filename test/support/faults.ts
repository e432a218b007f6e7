import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createApp } from "../../src/app.ts";
import { type Deps, readDeps } from "../../src/deps.ts";
import { giveUpFile, processFile } from "../../src/domain/files/processing.ts";
import { recover } from "../../src/domain/recovery.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb } from "../../src/platform/db.ts";
import { createJobs, type Job, receiveJobs } from "../../src/platform/jobs.ts";
import type { LogFields } from "../../src/platform/log.ts";
import type { Secrets } from "../../src/platform/secrets.ts";
import { realSystem, type System } from "../../src/platform/system.ts";
import { expectDocumented } from "./contract.ts";
import { form, OPERATOR, randomAddress } from "./harness.ts";

/*
 * Trouble, on demand. A `Wire` lies between one invocation of the Worker and its bindings: it numbers every awaited call
 * to D1, R2 and the Queue, and lets one of them fail or the invocation die over it. A `World` is all that is outside of
 * an invocation: a clock that a test sets ahead, a queue that delivers when a test says so; D1 and R2 are the real ones.
 */

/**
 * - `passing`: this call fails, with an error that Cloudflare says passes; tried again it succeeds.
 * - `lasting`: this call fails, with an error that no retry helps.
 * - `outage`: this call and all that follow fail, with errors that would pass.
 * - `death`: the Worker is killed. None of its code runs any more: no call is made and none comes back.
 */
export const TROUBLES = ["passing", "lasting", "outage", "death"] as const;
export type Trouble = (typeof TROUBLES)[number];

/** After: the call took effect, and its answer was lost. */
export const MOMENTS = ["before", "after"] as const;

export interface Fault {
  /** The number of the call, from 1. */
  call: number;
  moment: (typeof MOMENTS)[number];
  trouble: Trouble;
}

type Store = "D1" | "R2" | "Queue";

const PASSING: Record<Store, string> = {
  D1: "D1_ERROR: Network connection lost.",
  R2: "We encountered an internal error. Please try again. (10001)",
  Queue: "Queue send failed: Network connection lost.",
};
const LASTING: Record<Store, string> = {
  D1: "D1_ERROR: The database has been deleted.",
  R2: "The bucket does not exist. (10006)",
  Queue: "Queue send failed: Forbidden",
};

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

export class Wire {
  /** What was called so far, in order. */
  readonly calls: string[] = [];
  /** Settles when the invocation is killed. */
  readonly death: Promise<"dead">;
  #die: () => void = () => undefined;
  readonly #faults: Fault[];
  #state: "well" | "outage" | "dead" = "well";
  readonly #statements = new WeakMap<object, D1PreparedStatement>();

  constructor(...faults: Fault[]) {
    this.#faults = faults;
    this.death = new Promise((resolve) => {
      this.#die = () => {
        this.#state = "dead";
        resolve("dead");
      };
    });
  }

  /** Whether its trouble has begun, of the kind that no retry helps. */
  get isLost(): boolean {
    return this.#faults.some(({ call, trouble }) => call <= this.calls.length && trouble !== "passing");
  }

  get isDead(): boolean {
    return this.#state === "dead";
  }

  kill(): void {
    this.#die();
  }

  async #pass<T>(store: Store, name: string, call: () => Promise<T>): Promise<T> {
    if (this.isDead) return new Promise<never>(() => undefined);
    this.calls.push(`${store} ${name}`);
    if (this.#state === "outage") throw new Error(PASSING[store]);
    const number = this.calls.length;
    const fault = this.#faults.find(({ call: at }) => at === number);
    if (fault?.moment === "before") return this.#fail(store, fault);
    const result = await call();
    if (fault) return this.#fail(store, fault);
    return this.isDead ? new Promise<never>(() => undefined) : result;
  }

  async #fail(store: Store, { trouble }: Fault): Promise<never> {
    if (trouble === "outage") this.#state = "outage";
    if (trouble === "death") {
      this.#die();
      return new Promise<never>(() => undefined);
    }
    throw new Error((trouble === "lasting" ? LASTING : PASSING)[store]);
  }

  database(database: D1Database): D1Database {
    const counted = <T extends object>(target: T, store: Store, names: string[]) =>
      Object.fromEntries(
        names.map((name) => [
          name,
          (...input: unknown[]) =>
            this.#pass(
              store,
              name,
              () => (Reflect.get(target, name) as Method).apply(target, input) as Promise<unknown>,
            ),
        ]),
      );
    const statement = (real: D1PreparedStatement): D1PreparedStatement => {
      const wired = replace(real, {
        ...counted(real, "D1", ["first", "run", "all", "raw"]),
        bind: (...values) => statement(real.bind(...values)),
      });
      this.#statements.set(wired, real);
      return wired;
    };
    return replace(database, {
      prepare: (query: string) => statement(database.prepare(query)),
      batch: (wired: D1PreparedStatement[]) =>
        this.#pass("D1", "batch", () => database.batch(wired.map((one) => this.#statements.get(one) ?? one))),
    });
  }

  bucket(bucket: R2Bucket): R2Bucket {
    const body = (object: R2ObjectBody | R2Object | null) =>
      object && "body" in object
        ? replace(object, { arrayBuffer: () => this.#pass("R2", "body", () => object.arrayBuffer()) })
        : object;
    const upload = (real: R2MultipartUpload): R2MultipartUpload =>
      replace(real, {
        uploadPart: (number: number, bytes: ArrayBufferView) =>
          this.#pass("R2", "uploadPart", () => real.uploadPart(number, bytes)),
        complete: (parts: R2UploadedPart[]) => this.#pass("R2", "complete", () => real.complete(parts)),
        abort: () => this.#pass("R2", "abort", () => real.abort()),
      });
    return replace(bucket, {
      head: (key: string) => this.#pass("R2", "head", () => bucket.head(key)),
      get: (key: string, options?: R2GetOptions) =>
        this.#pass("R2", "get", async () => body(await bucket.get(key, options))),
      put: (key: string, bytes: ArrayBufferView | ReadableStream, options?: R2PutOptions) =>
        this.#pass("R2", "put", () => bucket.put(key, bytes, options)),
      delete: (keys: string | string[]) => this.#pass("R2", "delete", () => bucket.delete(keys)),
      createMultipartUpload: (key: string, options?: R2MultipartOptions) =>
        this.#pass("R2", "createMultipartUpload", async () => upload(await bucket.createMultipartUpload(key, options))),
    });
  }

  queue<T>(queue: Queue<T>): Queue<T> {
    return replace(queue, {
      send: (message: T) => this.#pass("Queue", "send", () => queue.send(message)),
      sendBatch: (messages: MessageSendRequest<T>[]) =>
        this.#pass("Queue", "sendBatch", () => queue.sendBatch(messages)),
    });
  }
}

/** What an invocation came to: its answer, or nothing where it died. */
export type Ended<T> = T | "dead";

export interface Answered {
  status: number;
  code: string | undefined;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  body: any;
  /** The id in `Location`; empty where there is none. */
  id: string;
}

export interface Line extends LogFields {
  level: string;
  event: string;
}

export interface Form {
  body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;
  contentType: string;
}

/** A form with one file, as the bytes that a client sends. */
export async function encodeForm(
  name: string,
  bytes: Uint8Array<ArrayBuffer> | string,
): Promise<Form & { body: Uint8Array<ArrayBuffer> }> {
  const encoded = new Response(form(name, bytes));
  const contentType = encoded.headers.get("Content-Type") ?? "";
  return { contentType, body: new Uint8Array(await encoded.arrayBuffer()) };
}

export interface Founded {
  teamId: string;
  token: string;
}

export type Ask = { token?: string; json?: unknown; form?: Form; headers?: Record<string, string> };

export type Change = (deps: Deps) => Deps;

export class World {
  /** How far the world's clock is ahead of the real one. */
  aheadMilliseconds = 0;
  /** File ids of the messages that wait to be delivered, in the order they were sent. */
  messages: string[] = [];
  readonly lines: Line[] = [];
  /** In place of the secrets of the environment, where a test rotates them. */
  secrets: Secrets | undefined;

  readonly system: System = {
    ...realSystem,
    now: () => realSystem.now() + this.aheadMilliseconds,
    // Time passes at once, and whatever else is under way gets its turn.
    sleep: async (milliseconds) => {
      this.aheadMilliseconds += Math.ceil(milliseconds);
      await realSystem.sleep(0);
    },
  };

  readonly queue = {
    send: async ({ fileId }: Job) => {
      this.messages.push(fileId);
    },
    sendBatch: async (batch: Iterable<MessageSendRequest<Job>>) => {
      for (const { body } of batch) this.messages.push(body.fileId);
    },
  } as unknown as Queue<Job>;

  /** What one invocation depends on. Its `waitUntil` goes to `after`. */
  deps(wire = new Wire(), after: (work: Promise<unknown>) => void = () => undefined): Deps {
    return {
      ...readDeps(env, { waitUntil: after }),
      ...(this.secrets && { secrets: this.secrets }),
      system: this.system,
      log: (level, event, fields) => {
        // Its own copy: what is dead says nothing either.
        if (!wire.isDead) this.lines.push({ level, event, ...fields });
      },
      db: createDb(wire.database(env.DB)),
      bytes: createByteStore(wire.bucket(env.BUCKET), this.system),
      jobs: createJobs(wire.queue(this.queue)),
    };
  }

  /** One request, with all that goes on after its answer. The answer must be one that the OpenAPI document describes. */
  async ask(
    method: string,
    path: string,
    { token, json, form: sent, headers = {} }: Ask = {},
    wire = new Wire(),
    change: Change = (deps) => deps,
  ): Promise<Ended<Answered>> {
    const url = new URL(path, "https://stowage.test");
    const request = new Request(url, {
      method,
      headers: {
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
        ...(json !== undefined && { "Content-Type": "application/json" }),
        ...(sent !== undefined && { "Content-Type": sent.contentType }),
        ...(sent?.body instanceof Uint8Array && { "Content-Length": String(sent.body.byteLength) }),
        "CF-Connecting-IP": randomAddress(),
        ...headers,
      },
      ...(json !== undefined && { body: JSON.stringify(json) }),
      ...(sent !== undefined && { body: sent.body }),
    });
    const afters: Promise<unknown>[] = [];
    const after = (work: Promise<unknown>) => void afters.push(work);
    const app = createApp(() => change(this.deps(wire, after)));
    const ctx = { waitUntil: after, passThroughOnException: () => undefined, props: {} } as unknown as ExecutionContext;
    const invocation = async (): Promise<Answered> => {
      const response = await app.fetch(request, env, ctx);
      if (!wire.isLost) expect(response.status, "a transient error of a binding is never a bug of ours").not.toBe(500);
      await expectDocumented(method, url, response);
      const text = await response.text();
      await Promise.all(afters);
      const body = text === "" ? undefined : JSON.parse(text);
      const id = response.headers.get("Location")?.split("/").at(-1) ?? "";
      return { status: response.status, code: body?.code, headers: response.headers, body, id };
    };
    return Promise.race([invocation(), wire.death]);
  }

  /** As `ask`, by a Worker that nothing happens to. */
  async get(path: string, team: Founded): Promise<Answered> {
    return this.must(this.ask("GET", path, { token: team.token }));
  }

  /** For an invocation that can't die. */
  async must<T>(ended: Promise<Ended<T>>): Promise<T> {
    const answer = await ended;
    if (answer === "dead") throw new Error("The invocation died.");
    return answer;
  }

  async foundTeam(): Promise<Founded> {
    const { body } = await this.must(this.ask("POST", "/auth/v1/apikeys", { token: OPERATOR, json: { name: "test" } }));
    return { teamId: body.data.teamId, token: body.data.key };
  }

  async upload(team: Founded, sent: Form, headers: Record<string, string> = {}, wire?: Wire, change?: Change) {
    return this.ask("POST", "/docs/v1/uploads", { token: team.token, form: sent, headers }, wire, change);
  }

  /** An upload that nothing happens to, and its message. @returns the file's id */
  async store(team: Founded, name: string, bytes: Uint8Array<ArrayBuffer> | string): Promise<string> {
    const { status, id } = await this.must(this.upload(team, await encodeForm(name, bytes)));
    expect(status).toBe(200);
    return id;
  }

  /**
   * Delivers one message to a consumer. Answers the seconds after which it wants the message again, null where it is
   * done with it. A message whose consumer died is for the caller to deliver again, or to forget.
   */
  async deliver(fileId: string, wire = new Wire(), queue = "stowage-jobs"): Promise<Ended<number | null>> {
    let again: number | null = null;
    const message = {
      id: "1",
      timestamp: new Date(this.system.now()),
      attempts: 1,
      body: { fileId },
      ack: () => undefined,
      retry: (options?: QueueRetryOptions) => {
        again = options?.delaySeconds ?? 0;
      },
    };
    const batch = { queue, messages: [message] } as unknown as MessageBatch;
    const deps = this.deps(wire);
    const handle = queue === deps.settings.deadLetterQueue ? giveUpFile : processFile;
    const work = receiveJobs(batch, deps.log, (id) => handle(deps, id)).then(() => again);
    return Promise.race([work, wire.death]);
  }

  /** Delivers what waits, and what is sent meanwhile; what wants to be tried again is, after its delay. */
  async drain(): Promise<void> {
    for (let next = this.messages.shift(); next !== undefined; next = this.messages.shift()) {
      const again = await this.deliver(next);
      if (typeof again === "number") {
        this.aheadMilliseconds += again * 1000;
        this.messages.push(next);
      }
    }
  }

  async recover(wire = new Wire()): Promise<Ended<Record<string, number>>> {
    return Promise.race([recover(this.deps(wire)), wire.death]);
  }

  /** The bindings are well again and a day goes by, with recovery at work, until nothing is left to do. */
  async heal(teamIds: string[]): Promise<void> {
    this.aheadMilliseconds += 25 * 60 * 60 * 1000;
    for (let round = 0; round < 10; round++) {
      await this.drain();
      await this.recover();
      await this.drain();
      if (!(await hasUnfinished(teamIds))) return;
      this.aheadMilliseconds += 60 * 60 * 1000;
    }
  }
}

export interface Row {
  id: string;
  team_id: string;
  original_name: string;
  status: string;
  reserved_bytes: number;
  size_bytes: number | null;
  sha256: string | null;
  etag: string | null;
  failure_code: string | null;
  audio: string | null;
  idempotency_key: string | null;
  attempts: number;
  due_at: number | null;
  version: number;
}

export const IN_TRANSIT = ["receiving", "pending", "processing", "deleting"];

export async function rowsOf(teamId: string): Promise<Row[]> {
  const { results } = await env.DB.prepare("select * from files where team_id = ? order by id").bind(teamId).all<Row>();
  return results;
}

async function hasUnfinished(teamIds: string[]): Promise<boolean> {
  for (let i = 0; i < teamIds.length; i += 90) {
    const some = teamIds.slice(i, i + 90);
    const marks = some.map(() => "?").join();
    const found = await env.DB.prepare(
      `select 1 from files where team_id in (${marks}) and status in ('${IN_TRANSIT.join("','")}') limit 1`,
    )
      .bind(...some)
      .first();
    if (found) return true;
  }
  return false;
}

export async function sha256(bytes: ArrayBuffer | Uint8Array): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}

/** SHA-256 by etag, which R2 takes from the bytes: each content, and each way to cut it into parts, is read once. */
const digests = new Map<string, string>();

async function digestOf(object: R2Object | undefined): Promise<string | undefined> {
  if (!object) return undefined;
  const known = digests.get(object.etag);
  if (known) return known;
  const stored = await env.BUCKET.get(object.key);
  if (!stored) return undefined;
  const digest = await sha256(await stored.arrayBuffer());
  digests.set(object.etag, digest);
  return digest;
}

/** Everything that must hold of a team at any moment, whatever died; unless the test itself took bytes away. @returns its rows */
export async function expectSound(teamId: string, { whole = false, bytesLost = false } = {}): Promise<Row[]> {
  const [rows, { objects }, usage] = await Promise.all([
    rowsOf(teamId),
    env.BUCKET.list({ prefix: `${teamId}/` }),
    env.DB.prepare("select files, bytes from team_usage where team_id = ?").bind(teamId).first(),
  ]);
  const keyOf = (row: Row) => `${teamId}/${row.id}-${row.original_name}`;
  const keys = new Set(rows.map(keyOf));
  expect(
    objects.filter(({ key }) => !keys.has(key)),
    "objects without a row",
  ).toEqual([]);
  const bytes = rows.reduce((sum, row) => sum + row.reserved_bytes, 0);
  expect(usage ?? { files: 0, bytes: 0 }, "team_usage is the sum of the rows").toEqual({ files: rows.length, bytes });
  for (const row of rows) {
    if (row.status !== "completed" && row.status !== "failed") {
      expect(row.due_at, `a file ${row.status} has a fate`).not.toBeNull();
    }
    if (["receiving", "deleting"].includes(row.status) || bytesLost) continue;
    const object = objects.find(({ key }) => key === keyOf(row));
    expect([object?.size, object?.etag], "a listed file has its bytes").toEqual([row.size_bytes, row.etag]);
    if (whole) expect(await digestOf(object), "a listed file has exactly its bytes").toBe(row.sha256);
  }
  return rows;
}

/** What must hold once the bindings are well and recovery has run: every row has come to an end. */
export async function expectSettled(teamId: string, { bytesLost = false } = {}): Promise<Row[]> {
  const rows = await expectSound(teamId, { whole: true, bytesLost });
  expect(
    rows.filter(({ status }) => status !== "completed" && status !== "failed").map(({ status }) => status),
    "files without an end",
  ).toEqual([]);
  return rows;
}

/** The team's objects, rows and keys, gone: room for the next run. */
export async function forget(teamId: string): Promise<void> {
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  if (objects.length > 0) await env.BUCKET.delete(objects.map(({ key }) => key));
  await env.DB.batch(
    ["files", "api_keys"].map((table) => env.DB.prepare(`delete from ${table} where team_id = ?`).bind(teamId)),
  );
}
