import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createApp } from "../../src/app.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { databaseOf, newId, newToken, realSystem } from "../../src/platform/system.ts";
import { type Answer, type Call, createCall, foundTeam, PASSWORD, type Send, type Team } from "./client.ts";
import { DB, nextDatabase } from "./databases.ts";
import { type Change, readDeps, type Settings, withoutJobs } from "./deps.ts";
import { snapshot } from "./rows.ts";

export {
  type Answer,
  type Call,
  type CallOptions,
  form,
  PASSWORD,
  processed,
  randomAddress,
  type Team,
  upload,
} from "./client.ts";
export {
  type Change,
  compose,
  type Deps,
  type Settings,
  withoutHashing,
  withoutJobs,
  withoutLimits,
  withRealHashing,
} from "./deps.ts";
export { fill, snapshot } from "./rows.ts";
export { brokenStream, pausedStream, streamOf } from "./streams.ts";

export const OPERATOR = env.OPERATOR_TOKEN;

export interface TestWorker {
  call: Call;
  send: Send;
}

/** Starts a separate Worker. `change` replaces its dependencies, to make them fail or to change settings. */
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

/** Enqueues nothing, because a job in flight at the end of a test file can hang the run. */
const plain = startWorker(withoutJobs);
export const call: Call = plain.call;

/** Enqueues jobs, which the Worker's own consumer runs. A test that uploads with it waits until they are done. */
export const queueing: TestWorker = startWorker();

/** Creates a team for one test, by the operator token. Each is in another database than the one before. */
export const newTeam = (worker: { call: Call } = plain, database = nextDatabase()): Promise<Team> =>
  foundTeam(worker.call, OPERATOR, database);

/** Asserts that the team has no file and no upload, and that none is counted. */
export async function expectNoFiles(team: Team): Promise<void> {
  expect(await snapshot(team.teamId)).toMatchObject({ files: [], uploads: [], parts: [], objects: [] });
  expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
}

/** Sends the text unchanged, as JSON. */
export const sendText = (
  team: Team,
  method: string,
  path: string,
  text: string | Uint8Array,
  type = "application/json",
): Promise<Answer> => team.call(method, path, { body: text as BodyInit, headers: { "Content-Type": type } });

/** Awaits a success. @returns the `data` of its body */
export async function dataOf(answer: Promise<Answer>) {
  const { status, body, text } = await answer;
  expect(status, text).toBe(200);
  return body.data;
}

type Caller = Pick<Team, "call">;
export const read = (team: Caller, path: string) => dataOf(team.call("GET", path));
export const usageOf = (team: Caller) => read(team, "/docs/v1/usage");
export const metadataOf = (team: Caller, id: string) => read(team, `/docs/v1/uploads/${id}/metadata`);
/** The team's events, oldest first. */
export const eventsOf = (team: Caller, query = "") =>
  read(team, `/auth/v1/events?order=asc&limit=100${query && `&${query}`}`);

export const EMAIL = "ada@example.com";
/** Creates a user of the team. @returns the user in the response */
export const newUser = (team: Caller, fields: Record<string, string> = {}) =>
  dataOf(team.call("POST", "/auth/v1/users", { json: { email: EMAIL, password: PASSWORD, ...fields } }));

/** Creates a secret key, unless the fields say otherwise. @returns the key in the response */
export const newKey = (team: Caller, fields: object = {}) =>
  dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "key", ...fields } }));

export const logIn = ({ call, teamId }: Pick<Team, "call" | "teamId">, email = EMAIL, password = PASSWORD) =>
  call("POST", "/auth/v1/login", { json: { teamId, email, password } });

/** Creates a session of the key with this token. @returns the session in the response */
export const openSession = (token: string) => dataOf(call("POST", "/auth/v1/sessions", { token }));

export const isAccepted = async (token: string) => (await call("GET", "/docs/v1/usage", { token })).status === 200;

/** Creates a user with a role. @returns the user's id and the token of a session */
export async function newMember(team: Team, role: string, email = `${crypto.randomUUID()}@example.com`) {
  const { _id: id }: { _id: string } = await newUser(team, { role, email });
  return { id, token: await newSession(team, id) };
}

export const idsIn = (records: { _id: string }[]) => records.map(({ _id }) => _id);

/** The URL of the next page. */
export const nextOf = ({ headers }: Answer) => /^<([^>]+)>; rel="next"$/.exec(headers.get("Link") ?? "")?.[1];

/** Follows `Link` from page to page. */
export async function* pagesOf(team: Caller, path: string) {
  for (let next: string | undefined = path; next !== undefined; ) {
    const page = await team.call("GET", next);
    expect(page.status, page.text).toBe(200);
    yield page;
    next = nextOf(page);
  }
}

/** Reads all pages of a list. @returns the records of each page */
export async function readPages(team: Caller, path: string) {
  // biome-ignore lint/suspicious/noExplicitAny: tests read records of every shape.
  const pages: any[][] = [];
  for await (const { body } of pagesOf(team, path)) pages.push(body.data ?? body);
  return pages;
}

/** Replaces settings, and discards jobs. */
export const withSettings =
  (settings: Partial<Settings>): Change =>
  (deps) => ({ ...withoutJobs(deps), settings: { ...deps.settings, ...settings } });

const trashing = startWorker(withSettings({ trashDays: 1 }));
/** Moves a file to the trash, also if the Worker has none. */
export async function moveToTrash({ token }: Pick<Team, "token">, id: string): Promise<void> {
  const { status, text } = await trashing.call("DELETE", `/docs/v1/uploads/${id}`, { token });
  expect(status, text).toBe(200);
}

export const withoutRequestId = (text: string) => text.replace(/"requestId":"[^"]+"/, "");

/** Inserts a session of the user, without the password check of a login. @returns its token */
export async function newSession({ teamId }: Team, userId: string): Promise<string> {
  const token = newToken(realSystem, "secret", databaseOf(teamId));
  await DB.prepare(
    `insert into api_keys (id, team_id, uuid, name, kind, token_hash, user_id, lifetime_milliseconds, created_at, expires_at)
     values (?1, ?2, ?3, 'session', 'session', ?4, ?5, 1, 1, 4e12)`,
  )
    .bind(newId(realSystem, databaseOf(teamId)), teamId, crypto.randomUUID(), fingerprint(token), userId)
    .run();
  return token;
}

/**
 * Asserts that the call is rejected in the one error shape and changes nothing of the team. The response must name the
 * invalid fields `paths`.
 */
export async function rejected(
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

/** The field names of a body, for comparison with the documented ones. */
export const fieldsOf = (body: object): string[] => Object.keys(body).sort();

export const atOnce = (count: number, act: (i: number) => Promise<Answer>): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => act(i)));

/** Counts responses by error code, or by status if there is no code. */
export function tally(answers: Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, code } of answers) {
    const name = code ?? String(status);
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
