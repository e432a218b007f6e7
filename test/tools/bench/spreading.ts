import { AsyncLocalStorage } from "node:async_hooks";
import service from "../../../src/index.ts";
import type { FileJob } from "../../../src/platform/messages.ts";

/*
 * Runs the service with several databases in virtual time. Simulated is only how long a database takes: it runs one query
 * at a time, for a millisecond each, as Cloudflare describes D1. Results come from a real local D1. The service's own code
 * and R2 take no virtual time, because Workers run on as many machines as requests need: the clock advances once every
 * client waits for a database.
 */

const QUERY_MILLISECONDS = 1;
/** Enough to keep a database busy: a client waits for one batch at a time. */
const CLIENTS_PER_DATABASE = 16;
/** Until clients no longer work in step. */
const WARM_MILLISECONDS = 200;

export type SpreadOperation = "reads" | "writes" | "uploads";

export interface SpreadScenario {
  databases: number;
  operation: SpreadOperation;
  milliseconds: number;
}

interface Timer {
  at: number;
  client: number;
  resolve: () => void;
}

/** @returns the operations per second. An upload includes its job */
export async function spread(env: Env & Record<string, unknown>, scenario: SpreadScenario): Promise<number> {
  const { databases, operation, milliseconds } = scenario;
  const client = new AsyncLocalStorage<number>();
  const messages = new Map<number, FileJob[]>();
  let timers: Timer[] = [];
  let now = 0;

  function simulated(number: number): D1Database {
    const real = env[`SPREAD_${number}`] as D1Database;
    let freeAt = 0;
    const batch = async (statements: D1PreparedStatement[]) => {
      const own = client.getStore();
      const results = real.batch(statements);
      // Preparations take no time.
      if (own === undefined) return results;
      freeAt = Math.max(now, freeAt) + statements.length * QUERY_MILLISECONDS;
      const isDone = new Promise<void>((resolve) => timers.push({ at: freeAt, client: own, resolve }));
      return (await Promise.all([results, isDone]))[0];
    };
    return { prepare: (sql: string) => real.prepare(sql), batch } as unknown as D1Database;
  }

  const jobs = {
    send: async (job: FileJob) => void messages.get(client.getStore() ?? -1)?.push(job),
  } as unknown as Queue;
  const names = Array.from({ length: databases }, (_, number) => (number === 0 ? "DB" : `DB_${number}`));
  const bound = Object.fromEntries(names.map((name, number) => [name, simulated(number)]));
  const isolate = { ...env, ...bound, JOBS: jobs, BULK_JOBS: jobs } as Env;

  const ctx = { waitUntil: () => undefined, passThroughOnException: () => undefined, props: {} } as never;
  async function call(method: string, path: string, token: string, body?: object | FormData): Promise<Response> {
    const isForm = body instanceof FormData;
    const headers = { Authorization: `Bearer ${token}`, ...(!isForm && { "Content-Type": "application/json" }) };
    const init = { method, headers, ...(body && { body: isForm ? body : JSON.stringify(body) }) };
    const response = await service.fetch(new Request(`https://bench.example${path}`, init) as never, isolate, ctx);
    if (response.status !== 200) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  }

  /** Processes the files that this client has uploaded. */
  async function processOwn(own: FileJob[]): Promise<void> {
    for (const body of own.splice(0)) {
      const retry = () => {
        throw new Error("A job was retried.");
      };
      const message = { id: "1", timestamp: new Date(), attempts: 1, body, ack: () => undefined, retry };
      await service.queue({ queue: "stowage-jobs", messages: [message] } as never, isolate, ctx);
    }
  }

  async function prepare(database: number) {
    const created = await call("POST", "/auth/v1/teams", env.OPERATOR_TOKEN, { name: "bench", database });
    const token = ((await created.json()) as { apiKey: { key: string } }).apiKey.key;
    const email = `${crypto.randomUUID()}@example.com`;
    const user = await call("POST", "/auth/v1/users", token, { email, password: "a long password" });
    return { token, path: `/auth/v1/users/${((await user.json()) as { data: { _id: string } }).data._id}` };
  }

  const teams = await Promise.all(names.map((_, database) => prepare(database)));
  const bytes = new TextEncoder().encode("An interview. ".repeat(100));
  const clients = Array.from({ length: databases * CLIENTS_PER_DATABASE }, (_, number) => number);
  let count = 0;
  let isOver = false;
  const failures: unknown[] = [];

  async function work(number: number): Promise<void> {
    const { token, path } = teams[number % databases] as (typeof teams)[number];
    const own: FileJob[] = [];
    messages.set(number, own);
    while (!isOver) {
      if (operation === "reads") await call("GET", path, token);
      if (operation === "writes") await call("PATCH", path, token, { firstName: `${number}` });
      if (operation === "uploads") {
        const body = new FormData();
        body.append("file", new File([bytes], "interview.txt"));
        await call("POST", "/docs/v1/uploads", token, body);
        await processOwn(own);
      }
      if (now >= WARM_MILLISECONDS) count++;
    }
  }

  const running = clients.map((number) =>
    client.run(number, () => work(number).catch((error) => failures.push(error))),
  );
  while (now < milliseconds + WARM_MILLISECONDS) {
    // Waits until each client waits for a database.
    while (new Set(timers.map((timer) => timer.client)).size < clients.length) {
      if (failures.length > 0) throw failures[0];
      await scheduler.wait(0);
    }
    now = Math.min(...timers.map(({ at }) => at));
    const due = timers.filter(({ at }) => at <= now);
    timers = timers.filter(({ at }) => at > now);
    for (const { resolve } of due) resolve();
  }
  isOver = true;
  const total = count;
  const drain = setInterval(() => {
    for (const { resolve } of timers.splice(0)) resolve();
  }, 1);
  await Promise.all(running).finally(() => clearInterval(drain));
  return (total * 1000) / milliseconds;
}
