import { createExecutionContext, createMessageBatch, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import worker from "../../src/index.ts";
import { operations as api } from "../support/contract.ts";
import { type Effects, watch } from "../support/effects.ts";
import { type CallOptions, form, newTeam, OPERATOR, type Team } from "../support/harness.ts";

/*
 * What each call costs: round trips to D1 (a round trip is the latency that a client far away feels), rows (they are
 * billed), R2 and queue operations. And of every statement that the service sends: that an index serves it.
 */

/** Reading the credential, once to prove the caller and once for the team in the other statement's WHERE. */
const CREDENTIAL_ROWS = 2;
const MEBIBYTE = 1024 * 1024;
/** As in domain/users.ts. */
const STEP_ROWS = 500;

type Counts = Pick<Effects, "trips" | "rowsRead" | "r2" | "messages">;

/** Every statement of every call in this file; explained at its end. */
const statements = new Map<string, unknown[]>();

/** A queue that takes messages and delivers none: the test runs the jobs itself, watched. */
const deaf = { send: async () => {}, sendBatch: async () => {} } as unknown as Queue;

/** Runs work on watched bindings: what it has cost by its answer, and what in all. */
async function watched<T>(work: (env: Env, ctx: ExecutionContext) => Promise<T>, change: Partial<Env> = {}) {
  const { bindings, effects } = watch({ ...env, JOBS: deaf, ...change });
  const ctx = createExecutionContext();
  const result = await work({ ...env, ...change, ...bindings }, ctx);
  const byAnswer: Counts = { ...effects, r2: [...effects.r2] };
  await waitOnExecutionContext(ctx);
  for (const [sql, values] of effects.statements) statements.set(sql, values);
  return { result, byAnswer, inAll: effects };
}

async function send(route: string, path: string, options: CallOptions, change?: Partial<Env>) {
  const { token, json, body, headers } = options;
  const request = new Request(new URL(path, "https://stowage.test"), {
    method: route.split(" ")[0] ?? "",
    headers: {
      ...(token && { Authorization: `Bearer ${token}` }),
      ...(json !== undefined && { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(json !== undefined && { body: JSON.stringify(json) }),
    ...(body !== undefined && { body: body as BodyInit }),
  });
  driven.add(route);
  const counted = await watched(async (bindings, ctx) => worker.fetch(request, bindings, ctx), change);
  return { ...counted, response: counted.result };
}
const driven = new Set<string>();

function runJobs(fileIds: string[], queue = "stowage-jobs", change?: Partial<Env>) {
  const messages = fileIds.map((fileId, i) => ({ id: `${i}`, timestamp: new Date(), attempts: 1, body: { fileId } }));
  return watched(
    async (bindings, ctx) => worker.queue(createMessageBatch(queue, messages), bindings as never, ctx),
    change,
  );
}

const recover = (change?: Partial<Env>) =>
  watched(async (bindings, ctx) => worker.scheduled({} as ScheduledController, bindings, ctx), change);

let team: Team;
let userId: string;
let publicToken: string;

const account = () => ({ email: `${crypto.randomUUID()}@example.com`, password: "correct horse battery" });
const newUser = async (json = account()): Promise<string> =>
  (await team.call("POST", "/auth/v1/users", { json })).body.data._id;

/** Uploads without processing: the message goes nowhere. */
async function put(size = 64, headers: Record<string, string> = {}) {
  const body = form("a.bin", new Uint8Array(size));
  const sent = await send("POST /docs/v1/uploads", "/docs/v1/uploads", { token: team.token, body, headers });
  return { ...sent, id: sent.response.headers.get("Location")?.split("/").at(-1) ?? "" };
}

beforeAll(async () => {
  team = await newTeam();
  userId = await newUser();
  const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } });
  publicToken = body.data.key;
});

describe("by its answer", () => {
  const fileId = async () => (await put()).id;
  const keyId = async () =>
    (await team.call("POST", "/auth/v1/apikeys", { json: { name: "brief" } })).body.data.id as string;

  test.each<[string, () => Promise<string>, { trips: number; r2?: string[]; messages?: number; json?: unknown }]>([
    ["GET /auth/v1/apikeys", async () => "", { trips: 1 }],
    ["GET /auth/v1/apikeys/{id}", async () => team.keyId, { trips: 1 }],
    ["GET /auth/v1/users/{id}", async () => userId, { trips: 1 }],
    ["GET /auth/v1/users", async () => "", { trips: 1 }],
    ["GET /docs/v1/uploads", async () => "", { trips: 1 }],
    ["GET /docs/v1/uploads/{id}", fileId, { trips: 1 }],
    ["GET /docs/v1/uploads/{id}/metadata", fileId, { trips: 1 }],
    ["GET /docs/v1/usage", async () => "", { trips: 1 }],
    ["POST /auth/v1/apikeys", async () => "", { trips: 2, json: { name: "one" } }],
    ["DELETE /auth/v1/apikeys/{id}", keyId, { trips: 2 }],
    ["POST /auth/v1/users", async () => "", { trips: 2, json: account() }],
    ["PATCH /auth/v1/users/{id}", async () => userId, { trips: 2, json: { ...account(), lastname: "King" } }],
    ["DELETE /auth/v1/users/{id}", () => newUser(), { trips: 2 }],
    ["DELETE /docs/v1/uploads/{id}", fileId, { trips: 2, r2: ["delete"] }],
    ["POST /docs/v1/uploads/{id}/reprocess", fileId, { trips: 2, messages: 1 }],
  ])("%s has cost so much, and no more", async (route, prepare, { trips, r2 = [], messages = 0, json }) => {
    const path = (route.split(" ")[1] ?? "").replace("{id}", await prepare());
    const { response, byAnswer } = await send(route, path, { token: team.token, json });
    expect(response.status).toBe(200);
    expect(byAnswer).toMatchObject({ trips, r2, messages });
  });

  test("a login has read the user and stored the key", async () => {
    const json = account();
    await newUser(json);
    const { response, byAnswer } = await send("POST /auth/v1/login", "/auth/v1/login", {
      json: { ...json, teamId: team.teamId },
    });
    expect(response.status).toBe(200);
    expect(byAnswer).toMatchObject({ trips: 2, r2: [], messages: 0 });
  });

  test.each<[string, number, Record<string, string>, string[]]>([
    ["64 bytes is one object", 64, {}, ["put"]],
    ["8 MiB, of which Content-Length tells, is one object", 8 * MEBIBYTE, { "Content-Length": "8400000" }, ["put"]],
    ["5 MiB without Content-Length is one object", 5 * MEBIBYTE, {}, ["put"]],
    [
      "more goes in parts of 5 MiB",
      11 * MEBIBYTE,
      {},
      ["createMultipartUpload", "uploadPart", "uploadPart", "uploadPart", "complete"],
    ],
    [
      "more than its Content-Length told goes in parts of 8 MiB",
      11 * MEBIBYTE,
      { "Content-Length": "1000" },
      ["createMultipartUpload", "uploadPart", "uploadPart", "complete"],
    ],
  ])("an upload of %s, three round trips and a message", async (_, size, headers, r2) => {
    const { response, byAnswer } = await put(size, headers);
    expect(response.status).toBe(200);
    expect(byAnswer).toMatchObject({ trips: 3, r2, messages: 1 });
  });

  test("an upload with an idempotency key costs no more, and its repetition stores nothing", async () => {
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    expect((await put(64, headers)).byAnswer).toMatchObject({ trips: 3, r2: ["put"], messages: 1 });
    expect((await put(64, headers)).byAnswer).toMatchObject({ trips: 3, r2: [], messages: 0 });
  });

  test("a refusal for what the request says of itself has read nothing", async () => {
    const { byAnswer } = await send("GET /docs/v1/uploads", "/docs/v1/uploads", { token: "hello" });
    expect(byAnswer).toMatchObject({ trips: 0, r2: [], messages: 0 });
  });

  test("a refusal of what a caller may not do has cost one round trip, and no more of its body", async () => {
    const route = "POST /auth/v1/users";
    const { response, byAnswer } = await send(route, "/auth/v1/users", { token: publicToken, json: account() });
    expect(response.status).toBe(403);
    expect(byAnswer).toMatchObject({ trips: 1, r2: [], messages: 0 });
  });
});

describe("a job", () => {
  test("claims and finishes, and asks R2 for the object's facts and a few ranges", async () => {
    const { id } = await put();
    const { inAll } = await runJobs([id]);
    expect(inAll).toMatchObject({ trips: 2, messages: 0 });
    expect(inAll.r2[0]).toBe("head");
    expect(inAll.r2.length).toBeLessThanOrEqual(3);
  });

  test("that finds nothing to do has made one round trip", async () => {
    const { inAll } = await runJobs(["0193477be8a01f9c3ad5e7b2"]);
    expect(inAll).toMatchObject({ trips: 1, r2: [], messages: 0 });
  });
});

describe("with 100,000 files and users in a team", () => {
  const ROWS = 100_000;
  let large: Team;

  beforeAll(async () => {
    large = await newTeam();
    const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)";
    const id = "printf('0193477be8a0%012x', i)";
    await env.DB.batch([
      env.DB.prepare(
        `insert into files (id, team_id, original_name, status, reserved_bytes, size_bytes, created_at, updated_at)
         ${numbers} select ${id}, ?2, 'a.mp3', 'completed', 1, 1, 1, 1 from n`,
      ).bind(ROWS, large.teamId),
      env.DB.prepare(
        `insert into users (id, team_id, first_name, last_name, email, email_key, password, created_at, updated_at)
         ${numbers} select ${id}, ?2, '', '', i, i, '', 1, 1 from n`,
      ).bind(ROWS, large.teamId),
    ]);
  });

  test.each(["/docs/v1/uploads?limit=20", "/auth/v1/users?limit=20"])(
    "GET %s reads its page, at any depth",
    async (path) => {
      const route = `GET ${path.split("?")[0]}`;
      const next = async (at: string) => {
        const { response, byAnswer } = await send(route, at, { token: large.token });
        const link = /<(.*)>/.exec(response.headers.get("Link") ?? "")?.[1];
        return { rowsRead: byAnswer.rowsRead, trips: byAnswer.trips, link: link ?? "" };
      };
      const first = await next(path);
      // By number, which reads all that it passes over; its link goes on by cursor.
      const deep = await next(`${path}&page=4000`);
      const deeper = await next(deep.link);
      for (const { rowsRead, trips } of [first, deeper]) {
        expect(trips).toBe(1);
        expect(rowsRead).toBeLessThanOrEqual(21 + CREDENTIAL_ROWS);
      }
    },
  );

  test("the list of all users reads each row once, and one more in each step", async () => {
    const { result, inAll } = await watched(async (bindings, ctx) => {
      const headers = { Authorization: `Bearer ${large.token}` };
      const response = await worker.fetch(
        new Request("https://stowage.test/auth/v1/users", { headers }),
        bindings,
        ctx,
      );
      return ((await response.json()) as unknown[]).length;
    });
    expect(result).toBe(ROWS);
    expect(inAll.trips).toBe(ROWS / STEP_ROWS);
    expect(inAll.rowsRead).toBeLessThanOrEqual(ROWS + inAll.trips * (1 + CREDENTIAL_ROWS));
  });

  test.each([
    ["GET /docs/v1/uploads/{id}", 1],
    ["GET /auth/v1/users/{id}", 1],
    ["GET /docs/v1/uploads/{id}/metadata", 1],
    ["GET /docs/v1/usage", 1],
    ["DELETE /docs/v1/uploads/{id}", 5],
    ["PATCH /auth/v1/users/{id}", 5],
    ["DELETE /auth/v1/users/{id}", 5],
  ])("%s reads the credential and at most %i rows", async (route, rows) => {
    const path = (route.split(" ")[1] ?? "").replace("{id}", "0193477be8a000000000c350");
    const json = route.startsWith("PATCH") ? { firstName: "Ada" } : undefined;
    const { response, inAll } = await send(route, path, { token: large.token, json });
    expect(response.status).toBe(200);
    expect(inAll.rowsRead).toBeLessThanOrEqual(rows + CREDENTIAL_ROWS);
  });
});

describe("every statement of the service", () => {
  beforeAll(async () => {
    await driveTheRest();
  });

  test("was sent in this file", () => {
    expect([...driven].sort()).toEqual(Object.keys(api).sort());
  });

  test("searches by an index: no scan, no temporary B-tree", async () => {
    const plans = await Promise.all(
      [...statements].map(async ([sql, values]) => ({ sql, plan: await explain(sql, values) })),
    );
    expect(plans.length).toBeGreaterThan(40);
    expect(plans.filter(({ plan }) => plan.some(isCostly))).toEqual([]);
  });

  test("and every statement of its triggers, too", async () => {
    const { results } = await env.DB.prepare("select sql from sqlite_schema where type = 'trigger'").all<{
      sql: string;
    }>();
    const bodies = results.flatMap(({ sql }) => /BEGIN(.*)END/s.exec(sql)?.[1]?.split(";").slice(0, -1) ?? []);
    expect(bodies).toHaveLength(3);
    for (const sql of bodies) {
      const plan = await explain(sql.replaceAll(/\b(old|new)\.\w+/g, "'1'"), []);
      expect(plan.filter(isCostly), sql).toEqual([]);
    }
  });
});

const isCostly = (step: string) => /^SCAN (?!CONSTANT ROW)|USE TEMP B-TREE/.test(step);

async function explain(sql: string, values: unknown[]): Promise<string[]> {
  const { results } = await env.DB.prepare(`explain query plan ${sql}`)
    .bind(...values)
    .all<{ detail: string }>();
  return results.map(({ detail }) => detail);
}

/** What the tests above have not sent: the operator's own queries, conditions, failures, and recovery. */
async function driveTheRest() {
  const operator = { token: OPERATOR };
  await send("GET /auth/v1/apikeys", "/auth/v1/apikeys", operator);
  await send("GET /auth/v1/apikeys", `/auth/v1/apikeys?teamId=${team.teamId}`, operator);
  await send("GET /auth/v1/apikeys/{id}", `/auth/v1/apikeys/${team.keyId}`, operator);
  const { response } = await send("POST /auth/v1/apikeys", "/auth/v1/apikeys", {
    ...operator,
    json: { name: "brief" },
  });
  const { data } = (await response.json()) as { data: { id: string } };
  await send("DELETE /auth/v1/apikeys/{id}", `/auth/v1/apikeys/${data.id}`, operator);

  const json = account();
  const user = await newUser(json);
  const path = `/auth/v1/users/${user}`;
  const ifMatch = { token: team.token, headers: { "If-Match": '"0", "1"' } };
  await send("PATCH /auth/v1/users/{id}", path, { ...ifMatch, json: { firstName: "Ada" } });
  // Under a new master key the hash is made anew, and recovery seals tokens anew.
  const MASTER_KEY = `${btoa("another".padEnd(32, "."))},${env.MASTER_KEY}`;
  const login = { json: { ...json, teamId: team.teamId } };
  await send("POST /auth/v1/login", "/auth/v1/login", login, { MASTER_KEY });
  await env.DB.prepare("update api_keys set expires_at = 1 where user_id = ?").bind(user).run();
  await send("DELETE /auth/v1/users/{id}", path, ifMatch);

  // Broken off midway, and repeated while the first has not ended in a stored file.
  const broken = "--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf";
  const headers = { "Content-Type": "multipart/form-data; boundary=b" };
  await send("POST /docs/v1/uploads", "/docs/v1/uploads", { token: team.token, body: broken, headers });

  const ids = await Promise.all([1, 2, 3, 4, 5].map(async () => (await put()).id));
  const bytesAway = { head: () => Promise.reject(new Error("away")) } as unknown as R2Bucket;
  await runJobs(ids.slice(0, 1), "stowage-jobs", { BUCKET: bytesAway });
  await runJobs(ids.slice(0, 1), "stowage-jobs-dead");
  const states = ["pending", "processing", "receiving", "deleting"];
  await env.DB.batch(
    states.map((state, i) =>
      env.DB.prepare("update files set status = ?, due_at = 1 where id = ?").bind(state, ids[i + 1]),
    ),
  );
  await recover({ MASTER_KEY });
}
