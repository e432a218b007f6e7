import { createExecutionContext, createMessageBatch, getQueueResult } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import worker from "../src/index.ts";
import { createDb } from "../src/platform/db.ts";
import { createHealth, HEALTH_CACHE_MILLISECONDS } from "../src/platform/health.ts";
import { realSystem } from "../src/platform/system.ts";
import { type BindingName, outageOf, ProxiedBindings } from "./support/bindings.ts";
import { buildRequest } from "./support/client.ts";
import { DB } from "./support/databases.ts";
import { type Deps, withBindings } from "./support/deps.ts";
import { newTeam, startWorker, upload } from "./support/harness.ts";
import { rowsOf } from "./support/queries.ts";

/* How the Worker validates its bindings and settings. */

/** Every required binding and setting. A new one does not compile until it is listed here. Nothing sends to the dead letters. */
const NEEDED: Record<Exclude<keyof Env, "OPERATOR_TOKEN" | "DEAD_LETTERS"> | "S3_ENDPOINT" | "S3_ACCESS_KEY_ID", true> =
  {
    DB: true,
    RECOVERY: true,
    MAX_DATABASE_BYTES: true,
    BUCKET: true,
    JOBS: true,
    BULK_JOBS: true,
    WAVEFORMS: true,
    WEBHOOKS: true,
    SEARCH: true,
    PAGES: true,
    LIGHT_LIMIT: true,
    HEAVY_LIMIT: true,
    VISITORS_LIMIT: true,
    UPLOAD_TOKEN_LIMIT: true,
    TRANSCRIPT_LIMIT: true,
    CONTRIBUTOR_LIGHT_LIMIT: true,
    CONTRIBUTOR_HEAVY_LIMIT: true,
    CLIENT_IP_LIMIT: true,
    LOGIN_LIMIT: true,
    HASH_LIMIT: true,
    S3_ENDPOINT: true,
    S3_BUCKET: true,
    S3_ACCESS_KEY_ID: true,
    MASTER_KEY: true,
    MAX_UPLOAD_BYTES: true,
    MAX_FILE_BYTES: true,
    UPLOAD_IDLE_SECONDS: true,
    MAX_TEAM_BYTES: true,
    MAX_TEAM_FILES: true,
    MAX_TEAM_EVENTS: true,
    EVENT_DAYS: true,
    TRASH_DAYS: true,
    DEAD_LETTER_QUEUE: true,
  };

/** The Worker's response with this environment, and its log lines. */
async function respondWith(environment: Env, token = "none") {
  const lines: string[] = [];
  const spy = vi.spyOn(console, "error").mockImplementation((line: string) => void lines.push(line));
  const request = buildRequest("GET", "/docs/v1/usage", { token });
  const response = await worker.fetch(request, environment, createExecutionContext());
  spy.mockRestore();
  return { status: response.status, headers: response.headers, body: (await response.json()) as object, lines };
}

test.each(Object.keys(NEEDED))("a Worker without %s responds 503, and logs which is missing", async (name) => {
  const { status, headers, body, lines } = await respondWith({ ...env, [name]: undefined });
  expect([status, headers.get("Retry-After")]).toEqual([503, expect.any(String)]);
  const message = "The service is temporarily unavailable. Retry shortly.";
  expect(body).toMatchObject({ code: "unavailable", message });
  expect(lines.join()).toContain(`The Worker is not set up. ${name}: `);
});

test.each(["", "31", "-1", "1.5", "soon"])("a Worker with TRASH_DAYS %j responds 503", async (TRASH_DAYS) => {
  const { status, lines } = await respondWith({ ...env, TRASH_DAYS });
  expect(status).toBe(503);
  expect(lines.join()).toContain("TRASH_DAYS: Must be a whole number from 0 to 30.");
});

test("a Worker with EMAIL needs EMAIL_FROM and PUBLIC_URL, and sends emails with both", async () => {
  const team = await newTeam();
  const { body } = await team.call("POST", "/auth/v1/users", { json: { email: "ada@example.com" } });
  const sent: unknown[] = [];
  const EMAIL = { send: async (mail: object) => void sent.push(mail) };
  const path = `/auth/v1/users/${body.data._id}/invitations`;
  const invite = (settings: object) =>
    worker.fetch(
      buildRequest("POST", path, { token: team.token, json: { email: true } }),
      { ...env, ...settings } as Env,
      createExecutionContext(),
    );
  expect((await invite({})).status).toBe(501);
  expect((await invite({ EMAIL_FROM: "accounts@example.com" })).status).toBe(501);
  const complete = { EMAIL, EMAIL_FROM: "accounts@example.com", PUBLIC_URL: "https://files.example.com" };
  const wrong: Record<string, unknown[]> = {
    EMAIL_FROM: [undefined, "accounts"],
    PUBLIC_URL: [undefined, "files.example.com", "https://files.example.com/path", "ftp://files.example.com"],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) {
      const { status, lines } = await respondWith({ ...env, ...complete, [name]: value } as unknown as Env);
      expect(status).toBe(503);
      expect(lines.join()).toContain(`The Worker is not set up. ${name}: `);
    }
  }
  expect((await invite(complete)).status).toBe(200);
  expect(sent).toMatchObject([{ from: "accounts@example.com", to: "ada@example.com" }]);
});

test("a Worker without operator token serves everyone except the operator", async () => {
  const team = await newTeam();
  const { OPERATOR_TOKEN, ...others } = env;
  const statusFor = async (token: string) => (await respondWith(others as unknown as Env, token)).status;
  expect([await statusFor(team.token), await statusFor(OPERATOR_TOKEN)]).toEqual([200, 401]);
});

test("a Worker without several bindings logs all names and no values", async () => {
  const missing = { DB: undefined, CLIENT_IP_LIMIT: undefined, S3_ENDPOINT: "canary endpoint" } as unknown as Env;
  const { status, lines } = await respondWith({ ...env, ...missing });
  expect(status).toBe(503);
  expect(lines.join()).toMatch(/DB: .* CLIENT_IP_LIMIT: .* S3_ENDPOINT: /);
  expect(lines.join()).not.toContain("canary endpoint");
});

/** The status of a response of a Worker whose binding fails each call. */
async function healthWith(name: BindingName | null): Promise<[number, string]> {
  const bindings = new ProxiedBindings(...(name === null ? [] : [outageOf(name)]));
  const worker = startWorker((deps) => withBindings(deps, bindings.wrap(env)));
  const { status, body } = await worker.call("GET", "/health");
  return [status, body.message];
}

describe("GET /health", () => {
  test("responds 200 if every binding responds, and otherwise 503 with the names of those that do not", async () => {
    expect(await healthWith(null)).toEqual([200, "Database, bucket and queues respond."]);
    expect(await healthWith("D1")).toEqual([503, "Not responding: database 0, database 1, database 2."]);
    expect(await healthWith("R2")).toEqual([503, "Not responding: bucket."]);
    expect(await healthWith("Queue")).toEqual([
      503,
      "Not responding: queue, bulk queue, waveform queue, recovery queue.",
    ]);
  });

  test("reports a binding that hangs, and a database without tables", async () => {
    const system = { ...realSystem, sleep: () => realSystem.sleep(100) };
    const hanging = { head: () => new Promise<never>(() => {}) };
    const batch = () => env.DB.batch([env.DB.prepare("select id from no_such_table")]);
    const unmigrated = createDb({ prepare: env.DB.prepare.bind(env.DB), batch } as unknown as D1Database, 0);
    const works = { check: async () => {} };
    const health = createHealth({
      system,
      databases: new Map([[0, unmigrated]]),
      bytes: hanging,
      jobs: works,
      bulkJobs: works,
      waveformJobs: works,
      recoveryJobs: works,
    });
    expect((await health.check()).failing).toEqual(["database", "bucket"]);
  });

  test("checks the bindings once in 10 seconds, however many requests arrive", async () => {
    const bindings = new ProxiedBindings();
    let now = Date.now();
    // Like an isolate, it keeps its dependencies.
    let kept: Deps | undefined;
    const worker = startWorker((deps) => {
      kept ??= withBindings({ ...deps, system: { ...deps.system, now: () => now } }, bindings.wrap(env));
      return kept;
    });
    await Promise.all(Array.from({ length: 50 }, () => worker.call("GET", "/health")));
    await worker.call("GET", "/health");
    expect(bindings.calls.toSorted()).toEqual([
      ...Array(3).fill("D1 batch"),
      ...Array(4).fill("Queue metrics"),
      "R2 head",
    ]);
    now += HEALTH_CACHE_MILLISECONDS;
    await worker.call("GET", "/health");
    expect(bindings.calls).toHaveLength(16);
  });
});

test.each([
  ["MASTER_KEY", "", 503],
  ["MASTER_KEY", btoa("short"), 503],
  ["OPERATOR_TOKEN", "x".repeat(31), 503],
  ["S3_ENDPOINT", "nowhere", 503],
  ["MAX_UPLOAD_BYTES", "many", 503],
  ["MAX_FILE_BYTES", "5368709120", 503],
  ["MAX_FILE_BYTES", "5000000000", 401],
  ["WEBHOOK_ALLOW_INSECURE", "yes", 503],
  ["WEBHOOK_ALLOW_INSECURE", "", 401],
])(
  "the setting %s=%j makes the Worker respond %i to a request with an invalid token",
  async (name, value, expected) => {
    const { status, lines } = await respondWith({ ...env, [name]: value });
    expect(status).toBe(expected);
    expect(lines.join().includes(`${name}: `)).toBe(expected === 503);
  },
);

test.each([
  ["given-up", "failed"],
  ["jobs-dead", "completed"],
])("a message of the queue %s makes the file %s if DEAD_LETTER_QUEUE is given-up", async (queue, status) => {
  const team = await newTeam();
  const fileId = await upload(team, "a.txt", "text");
  await DB.prepare("update files set attempts = 1 where id = ?").bind(fileId).run();
  const body = { teamId: team.teamId, fileId };
  const batch = createMessageBatch(queue, [{ id: "1", timestamp: new Date(), attempts: 1, body }]);
  const ctx = createExecutionContext();
  await worker.queue(batch, { ...env, DEAD_LETTER_QUEUE: "given-up" }, ctx);
  expect((await getQueueResult(batch, ctx)).explicitAcks).toEqual(["1"]);
  expect(await rowsOf(team.teamId)).toMatchObject([{ id: fileId, status }]);
});
