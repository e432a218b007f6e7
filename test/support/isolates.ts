import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createApp } from "../../src/app.ts";
import { type Effects, ProxiedBindings, type Sent } from "./bindings.ts";
import { buildRequest } from "./client.ts";
import { promptNamespaces, readDeps, sink } from "./deps.ts";

/*
 * Isolates of the Worker whose calls to bindings are recorded: what a request costs depends on whether its isolate knows the
 * caller.
 */

/** The real Worker, except for its cheap password hashes. */
export const app = createApp(readDeps);

export type Counts = Pick<Effects, "trips" | "rowsRead" | "r2" | "messages">;

/** Every query of every call so far. */
export const queries: Sent[] = [];

const objects = promptNamespaces(readDeps(env, { waitUntil: () => {} }));

export type Work<T> = (env: Env, ctx: ExecutionContext) => Promise<T>;

export interface Isolate {
  bindings: ProxiedBindings;
  env: Env;
}

/** Starts an isolate on proxied bindings. */
export function newIsolate(change: Partial<Env> = {}): Isolate {
  const bindings = new ProxiedBindings();
  const EMAIL = { send: async () => ({ messageId: "" }) };
  const email = { EMAIL, EMAIL_FROM: "accounts@example.com", PUBLIC_URL: "https://files.example.com" };
  // This file sends more heavy requests a minute than a team has.
  const HEAVY_LIMIT = { limit: async () => ({ success: true }) };
  const wrapped = bindings.wrap({
    ...env,
    ...email,
    HEAVY_LIMIT,
    JOBS: sink,
    BULK_JOBS: sink,
    WAVEFORMS: sink,
    ...objects,
    ...change,
  });
  return { bindings, env: wrapped };
}

/**
 * Runs work in an isolate, by default in a new one.
 * @returns the cost until the response, and the cost in total. The test runs the jobs itself.
 */
export async function watched<T>(work: Work<T>, { bindings, env }: Isolate = newIsolate()) {
  const ctx = createExecutionContext();
  Object.assign(bindings.effects, { trips: 0, rowsRead: 0, rowsWritten: 0, r2: [], messages: 0, objects: 0 });
  bindings.roundTrips.splice(0);
  const result = await work(env, ctx);
  const byResponse: Counts = { ...bindings.effects, r2: [...bindings.effects.r2] };
  const roundTrips = [...bindings.roundTrips];
  await waitOnExecutionContext(ctx);
  queries.push(...bindings.queries.splice(0));
  return { result, byResponse, roundTrips, inTotal: { ...bindings.effects } };
}

/** Starts an isolate that knows the token. */
export async function introduced(token: string, change?: Partial<Env>): Promise<Isolate> {
  const isolate = newIsolate(change);
  await watched(async (env, ctx) => app.fetch(buildRequest("GET", "/auth/v1/me", { token }), env, ctx), isolate);
  return isolate;
}
const introductions = new Map<string, Promise<Isolate>>();

/** The isolate of a caller: for each token one that knows it, and a new one if bindings change or there is no token. */
export function isolateFor(token: string | undefined, change?: Partial<Env>): Isolate | Promise<Isolate> {
  if (!token) return newIsolate(change);
  if (change) return introduced(token, change);
  const known = introductions.get(token) ?? introduced(token);
  introductions.set(token, known);
  return known;
}
