import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createApp } from "../../src/app.ts";
import { type Answer, type Call, createCall, foundTeam, type Send, type Team } from "./client.ts";
import { type Change, readDeps, withoutJobs } from "./deps.ts";
import { PASSWORD } from "./routes.ts";

export {
  type Answer,
  type Call,
  type CallOptions,
  form,
  processed,
  randomAddress,
  streamOf,
  type Team,
  upload,
} from "./client.ts";
export { type Change, compose, type Deps, type Settings, withoutHashing, withoutJobs, withoutLimits } from "./deps.ts";
export { PASSWORD } from "./routes.ts";

export const OPERATOR = env.OPERATOR_TOKEN;

export interface TestWorker {
  call: Call;
  send: Send;
}

/** A Worker of its own: `change` replaces what it depends on, to make it fail or to set it otherwise. */
export function startWorker(change: Change = (deps) => deps): TestWorker {
  const app = createApp((bindings, ctx) => change(readDeps(bindings, ctx)));
  const send: Send = async (request) => {
    const ctx = createExecutionContext();
    const response = await app.fetch(request, env, ctx);
    await waitOnExecutionContext(ctx);
    return response;
  };
  return { send, call: createCall(send) };
}

/** Enqueues nothing: a job that is under way when a file of tests ends can hang the run. */
const plain = startWorker(withoutJobs);
export const call: Call = plain.call;

/** Enqueues jobs, which the Worker's own consumer carries out. A test that uploads by it waits until they are done. */
export const queueing: TestWorker = startWorker();

/** A team of the test's own, founded by the operator. */
export const newTeam = (worker: { call: Call } = plain): Promise<Team> => foundTeam(worker.call, OPERATOR);

const minuteNow = () => Math.floor(Date.now() / 60_000);

/**
 * The local limiter counts by the minutes of the clock. Runs work until a run begins and ends in the same minute; each
 * run needs subjects of its own.
 */
export async function withinOneMinute<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    const began = minuteNow();
    const result = await work();
    if (minuteNow() === began) return result;
  }
}

/** Every row and object that belongs to a team: what a refusal must leave as it is. */
export async function snapshot(teamId: string): Promise<unknown> {
  const tables = ["api_keys", "users", "files", "waveforms", "uploads", "events", "webhooks", "deliveries"].map(
    (table) => env.DB.prepare(`select * from ${table} where team_id = ? order by 1, 2`).bind(teamId),
  );
  const rows = (await env.DB.batch(tables)).map(({ results }) => results);
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  return { rows, objects: objects.map(({ key, etag }) => [key, etag]) };
}

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

// What each row has after its id and team, in the order of the migrations; n is its number.
const FILLERS = {
  api_keys: "'f3cd2a1b-0000-4000-8000-000000000000', n, 0, ?1 || n, 'unsealed', 'none', null, 1, 4e12",
  users: "'User', n, n || '@b.de', n || '@b.de', 'x', 1, 1, 0",
  files: `n || '.txt', 'completed', 1, 1, '${"0".repeat(64)}', 'x', 'text/plain', 'text file', null, null, null, null,
    1, 1, null, null, 1, 1, 0`,
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

export const atOnce = (count: number, act: (i: number) => Promise<Answer>): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => act(i)));

/** How often each code was answered, or each status where there is no code. */
export function tally(answers: Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, code } of answers) {
    const name = code ?? String(status);
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
