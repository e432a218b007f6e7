import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, vi } from "vitest";
import { createApp } from "../../src/app.ts";
import { type Deps, readDeps } from "../../src/deps.ts";
import { expectDocumented } from "./contract.ts";

export const OPERATOR = env.OPERATOR_TOKEN;

export interface CallOptions {
  token?: string | undefined;
  json?: unknown;
  body?: BodyInit | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** The client's address, which rate limits count by. */
  address?: string;
}

export interface Answer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  body: any;
  text: string;
}

/** Sends a request and reads its answer, which must be one that the OpenAPI document describes. */
export type Call = (method: string, path: string, options?: CallOptions) => Promise<Answer>;

/** A Worker of its own: `change` replaces what it depends on, to make it fail or to set it otherwise. */
export function startWorker(change: (deps: Deps) => Deps = (deps) => deps): { call: Call; fetch: typeof fetchWorker } {
  const app = createApp((bindings, ctx) => change(readDeps(bindings, ctx)));
  const fetchWorker = async (request: Request): Promise<Response> => {
    const ctx = createExecutionContext();
    const response = await app.fetch(request, env, ctx);
    await waitOnExecutionContext(ctx);
    return response;
  };
  return { fetch: fetchWorker, call: (method, path, options) => callWith(fetchWorker, method, path, options) };
}

/** Messages go nowhere: for tests that need no processing. */
export const withoutJobs = (deps: Deps): Deps => ({
  ...deps,
  jobs: { send: async () => {}, sendAll: async () => {} },
});

const HASH = `$scrypt$ln=14,r=8,p=5,keyid=00000000$${"a".repeat(22)}$${"b".repeat(43)}`;
/** Passwords get one hash: for tests that are not about hashing, which takes 0.1 s. */
export const withoutHashing = (deps: Deps): Deps => ({
  ...deps,
  secrets: { ...deps.secrets, hashPassword: async () => HASH },
});

async function fetchWorker(_: Request): Promise<Response> {
  throw new Error("Only a type.");
}

async function callWith(
  send: typeof fetchWorker,
  method: string,
  path: string,
  { token, json, body, headers = {}, address }: CallOptions = {},
): Promise<Answer> {
  const url = new URL(path, "https://stowage.test");
  const request = new Request(url, {
    method,
    headers: {
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(json !== undefined && { "Content-Type": "application/json" }),
      "CF-Connecting-IP": address ?? randomAddress(),
      ...headers,
    },
    ...(json !== undefined && { body: JSON.stringify(json) }),
    ...(body !== undefined && { body: body as BodyInit }),
  });
  const response = await send(request);
  if (method !== "HEAD" && method !== "OPTIONS") await expectDocumented(method, url, response);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: parse(text) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function randomAddress(): string {
  return `10.${[...crypto.getRandomValues(new Uint8Array(3))].join(".")}`;
}

const plain = startWorker();
export const call: Call = plain.call;

export interface Team {
  teamId: string;
  /** A secret key's token. */
  token: string;
  keyId: string;
  call: Call;
}

/** A team of the test's own, founded by the operator. Its `call` sends its secret key. */
export async function newTeam(worker: { call: Call } = plain): Promise<Team> {
  const { status, body } = await worker.call("POST", "/auth/v1/apikeys", { token: OPERATOR, json: { name: "test" } });
  expect(status).toBe(200);
  const { teamId, key: token, id: keyId } = body.data;
  const address = randomAddress();
  return {
    teamId,
    token,
    keyId,
    call: (method, path, options) => worker.call(method, path, { token, address, ...options }),
  };
}

export function form(name: string, bytes: Uint8Array | string, part = "file"): FormData {
  const data = new FormData();
  data.append(part, new File([bytes], name));
  return data;
}

/** Uploads and answers the file's id. */
export async function upload(team: Team, name: string, bytes: Uint8Array | string): Promise<string> {
  const { status, headers, text } = await team.call("POST", "/docs/v1/uploads", { body: form(name, bytes) });
  expect(status, text).toBe(200);
  return headers.get("Location")?.split("/").at(-1) ?? "";
}

/** Waits until the file has been processed, and answers its metadata. */
export async function processed(team: Team, id: string) {
  return vi.waitFor(
    async () => {
      const { body } = await team.call("GET", `/docs/v1/uploads/${id}/metadata`);
      expect(["completed", "failed"]).toContain(body.data?.status);
      return body.data;
    },
    { timeout: 20_000, interval: 50 },
  );
}

/** Every row and object that belongs to a team: what a refusal must leave as it is. */
export async function snapshot(teamId: string): Promise<unknown> {
  const tables = ["api_keys", "users", "files"].map((table) =>
    env.DB.prepare(`select * from ${table} where team_id = ? order by id`).bind(teamId),
  );
  const rows = (await env.DB.batch(tables)).map(({ results }) => results);
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  return { rows, objects: objects.map(({ key, etag }) => [key, etag]) };
}

export const PASSWORD = "correct horse battery";

/** Sends the text as it is, as JSON. */
export const sendText = (
  team: Team,
  method: string,
  path: string,
  text: string | Uint8Array,
  type = "application/json",
): Promise<Answer> => team.call(method, path, { body: text as BodyInit, headers: { "Content-Type": type } });

/** A user of the team, as the answer shows it. */
export async function newUser(team: Team, fields: Record<string, string> = {}) {
  const json = { email: "ada@example.com", password: PASSWORD, ...fields };
  const { status, body, text } = await team.call("POST", "/auth/v1/users", { json });
  expect(status, text).toBe(200);
  return body.data;
}

/**
 * Asserts that the call is refused in the one error shape and changes nothing of the team's. `paths` are the invalid
 * fields that the answer must name.
 */
export async function refused(
  team: Team,
  status: number,
  code: string,
  act: () => Promise<Answer>,
  paths?: string[],
): Promise<Answer> {
  const before = await snapshot(team.teamId);
  const answer = await act();
  expect([answer.status, answer.body?.code], answer.text).toEqual([status, code]);
  const { status: isFine, message, requestId, errors } = answer.body;
  expect([isFine, typeof message, requestId]).toEqual([false, "string", answer.headers.get("X-Request-Id")]);
  if (paths) expect([...new Set(errors.map(({ path }: { path: string }) => path))]).toEqual(paths);
  else if (code !== "invalid_input") expect(errors).toBeUndefined();
  expect(await snapshot(team.teamId)).toEqual(before);
  return answer;
}

/** The names of a body's fields, to be compared with those that are documented. */
export const fieldsOf = (body: object): string[] => Object.keys(body).sort();

// What each row has after its id and team, in the order of migrations/0000_tables.sql; n is its number.
const FILLERS = {
  api_keys: "'f3cd2a1b-0000-4000-8000-000000000000', n, 0, ?1 || n, 'unsealed', 'none', null, 1, 4e12",
  users: "'User', n, n || '@b.de', n || '@b.de', 'x', 1, 1, 0",
  files: `n || '.txt', 'completed', 1, 1, '${"0".repeat(64)}', 'x', 'text/plain', 'text file', null, null, null, null,
    1, 1, null, 1, 1, 0`,
};

/** Rows straight into the database, older than any that a call makes, numbered and ordered from `first` on. */
export async function fill(team: Team, table: keyof typeof FILLERS, count: number, first = 1): Promise<void> {
  const prefix = `00${team.teamId.slice(-10)}`;
  const rows =
    "with recursive rows(n) as (select cast(?4 as integer) union all select n + 1 from rows where n < ?4 + ?3 - 1)";
  await env.DB.prepare(`${rows} insert into ${table} select ?1 || printf('%012x', n), ?2, ${FILLERS[table]} from rows`)
    .bind(prefix, team.teamId, count, first)
    .run();
}
