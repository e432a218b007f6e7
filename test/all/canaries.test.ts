import { env } from "cloudflare:workers";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { consoleLog } from "../../src/platform/log.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { recover } from "../../src/upkeep/recovery.ts";
import { type BindingName, ProxiedBindings } from "../support/bindings.ts";
import { leaksInDatabase, leaksInLine, leaksInObjects, watchConsole, watcher } from "../support/canaries.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { readDeps, sink, withBindings } from "../support/deps.ts";
import {
  type CallOptions,
  type Change,
  compose,
  type Deps,
  form,
  newTeam,
  OPERATOR,
  startWorker,
  upload,
  withoutJobs,
} from "../support/harness.ts";
import { deletionsLast, newRecords, pathIn, pathTo, type Records } from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";
import { issueToken } from "../support/visitors.ts";
import { inWebhook } from "../support/webhook-objects.ts";
import { begin, createEvent, keyOf } from "../support/webhooks.ts";

/* No log line and no error contains a secret: each dependency fails in turn, while every route gets requests full of secrets. */

const PASSWORD = "canary-password-1";
const EMAIL = "o'canary@canary.example";

const fail = (message: string) => async (): Promise<never> => {
  throw new Error(message);
};
const withSecrets =
  (secrets: Partial<Deps["secrets"]>): Change =>
  (deps) => ({ ...deps, secrets: { ...deps.secrets, ...secrets } });

const SIGNED = "https://x.example/a?X-Amz-Expires=60&X-Amz-Signature=0a1b";
const LEAKS: [what: string, line: string][] = [
  ["a token", `{"cause":"unknown ${newToken(realSystem, "secret", 0)}"}`],
  ["a token", newToken(realSystem, "public", 0)],
  ["an invitation", `stow_in_${"0a".repeat(12)}.${"0a".repeat(16)}`],
  ["a password", `params: ${PASSWORD}`],
  ["the operator token", OPERATOR],
  ["the master key", env.MASTER_KEY],
  ["the master key", atob(env.MASTER_KEY)],
  ["the S3 secret", env.S3_SECRET_ACCESS_KEY],
  ["a signed URL", SIGNED],
  ["an email", `no user ${EMAIL}`],
];

describe("The watcher", () => {
  test.each(LEAKS)("catches %s: %s", (what, line) => {
    expect(leaksInLine(line)).toContain(what);
  });

  test("checks everything that any console method prints, and still prints it", () => {
    const printed: unknown[] = [];
    const print = (...values: unknown[]) => printed.push(...values);
    const fake = { debug: print, log: print, info: print, warn: print, error: print, trace: print };
    const { leaks } = watchConsole(fake);
    const values = ["a", { b: EMAIL }, new Error("c", { cause: new Error(PASSWORD) }), `d ${OPERATOR}`, undefined];
    for (const method of Object.keys(fake) as (keyof typeof fake)[]) for (const value of values) fake[method](value);
    expect(printed).toEqual(Array(6).fill(values).flat());
    expect(leaks.map((leak) => leak.split(" in the line")[0])).toEqual(
      Array(6).fill(["an email", "a password", "the operator token"]).flat(),
    );
  });

  test("checks the output of the test file", async () => {
    expect(await watcher.catching(() => console.info(`a planted ${EMAIL}`))).toHaveLength(1);
    expect(await watcher.catching(() => consoleLog("info", "planted", { outcome: PASSWORD }))).toHaveLength(1);
    expect(await watcher.catching(() => console.info("nothing"))).toEqual([]);
  });

  test("checks the output of the Worker", async () => {
    const token = fail(`planted ${PASSWORD}`);
    const leaky = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, countUnauthenticated: token } }));
    const request = { token: newToken(realSystem, "secret", 0) };
    const caught = await watcher.catching(() => leaky.call("GET", "/docs/v1/usage", request));
    expect(caught.join()).toMatch(/^a password in the line: .*"request_failed"/);
  });

  test("finds a secret in any column", async () => {
    const planted = { api_keys: "name", users: "first_name", uploads: "idempotency_key", teams: "name" };
    const team = await newTeam();
    await team.call("POST", "/auth/v1/users", { json: { email: EMAIL, password: PASSWORD } });
    const headers = { "Idempotency-Key": "planted" };
    await team.call("POST", "/docs/v1/uploads", { body: form("a.txt", "a"), headers });
    for (const [table, column] of Object.entries(planted)) {
      const row = `${table === "teams" ? "id" : "team_id"} = '${team.teamId}'`;
      const previous = await DB.prepare(`select ${column} as text from ${table} where ${row}`).first("text");
      const set = (text: unknown) => DB.prepare(`update ${table} set ${column} = ? where ${row}`).bind(text).run();
      for (const [what, secret] of [
        ["a token", newToken(realSystem, "secret", 0)],
        ["a password", PASSWORD],
        ["the master key", env.MASTER_KEY],
      ] as const) {
        await set(secret);
        expect(await leaksInDatabase()).toContain(`${table}.${column}: ${what}`);
      }
      await set(previous);
    }
    expect(await leaksInDatabase()).toEqual([]);
  });
});

test("The watcher finds a secret in the storage of a webhook's object", async () => {
  const { world, team, hook } = await begin();
  await createEvent(team);
  world.answer = () => ({ httpStatus: 500, body: hook.secret });
  await world.runAlarms();
  expect(await leaksInObjects()).toEqual(["deliveries: a signing secret", "state: a signing secret"]);
  await inWebhook(keyOf(hook), ({ storage }) => storage.deleteAll());
  expect(await leaksInObjects()).toEqual([]);
});

/** Failing dependencies. The errors of a binding quote everything that it was called with. */
const FAILURES: Record<string, Change> = {
  "nothing failing": (deps) => deps,
  "D1 failing": (deps) => quoting(deps, "D1"),
  "R2 failing": (deps) => quoting(deps, "R2"),
  "the queue failing": (deps) => quoting(deps, "Queue"),
  "hashing failing": withSecrets({ hashPassword: fail("no memory"), verifyPassword: fail("no memory") }),
  "decryption failing": withSecrets({
    decrypt: () => {
      throw new Error("can't be decrypted");
    },
  }),
  "the limiter failing": (deps) => ({
    ...deps,
    limiter: {
      ...deps.limiter,
      countRequest: quote,
      countOpening: quote,
      countUnauthenticated: quote,
      countGuess: quote,
      takeLogin: quote,
    },
  }),
};

const quote = async (...values: unknown[]): Promise<never> => {
  throw new Error(`called with ${JSON.stringify(values)} ${values.join()}`);
};
function quoting(deps: Deps, binding: BindingName): Deps {
  const bindings = new ProxiedBindings({ binding, call: 1, moment: "before", failure: "quoting" });
  return withBindings(deps, bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink }));
}

describe("Log lines and errors", () => {
  test.each(Object.entries(FAILURES))("contain no secret on any route, with %s", async (failing, change) => {
    const team = await newTeam();
    const email = `${crypto.randomUUID()}@canary.example`;
    const credentials = { teamId: team.teamId, email, password: PASSWORD };
    const user = await team.call("POST", "/auth/v1/users", { json: { email, password: PASSWORD } });
    const page = await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } });
    const visitor = await issueToken(team, { properties: { reference: email } });
    const login = await team.call("POST", "/auth/v1/login", { json: credentials });
    const invited = await team.call("POST", `/auth/v1/users/${user.body.data._id}/invitations`);
    const invitation = invited.body.data.token;
    const records: Records = {
      ...(await newRecords(team)),
      sessions: login.body.data.id,
      users: user.body.data._id,
      uploads: await upload(team, `${email}.txt`, "canary"),
      events: (await team.call("GET", "/auth/v1/events")).body.data[0]._id,
    };
    const secretRequests: Record<string, () => CallOptions> = {
      "POST /auth/v1/login": () => ({ json: credentials }),
      "POST /auth/v1/invitations/describe": () => ({ json: { token: invitation } }),
      "POST /auth/v1/invitations/accept": () => ({ json: { token: invitation, password: PASSWORD } }),
      "POST /auth/v1/password/forgot": () => ({ json: { teamId: team.teamId, email } }),
      "POST /auth/v1/users/{id}/invitations": () => ({ json: { email: true } }),
      "POST /auth/v1/apikeys": () => ({ json: { name: email } }),
      "POST /auth/v1/users": () => ({ json: { email, password: PASSWORD } }),
      "PATCH /auth/v1/users/{id}": () => ({
        json: { email, password: `${PASSWORD}-new` },
        headers: { "If-Match": '"0"' },
      }),
      "PUT /docs/v1/uploads/{id}/waveform": () => ({ json: { channels: [Array(16).fill(PASSWORD)] } }),
      "POST /docs/v1/uploads": () => ({ body: form(`${email}.txt`, email), headers: { "Idempotency-Key": email } }),
    };
    const worker = startWorker(compose(withoutJobs, change));
    const lines = watcher.lines;
    // Each route gets an unknown token, a public key, the operator token and the team's key, and secrets in the query. While
    // something fails, `npm test` sends the team's key and one of the others.
    const others = [newToken(realSystem, "secret", 0), page.body.data.key, visitor.token, OPERATOR];
    const isShort = failing !== "nothing failing" && !isExhaustive;
    const other = Object.keys(FAILURES).indexOf(failing) % others.length;
    const tokens = [...(isShort ? others.slice(other, other + 1) : others), team.token];
    const query = `?token=${team.token}&email=${email}&password=${PASSWORD}`;
    for (const route of deletionsLast) {
      for (const token of tokens) {
        const path = token === page.body.data.key ? pathTo(route, team.token) : pathIn(route, records);
        const options = { ...secretRequests[route.name]?.(), token };
        const { status, text } = await worker.call(route.method, path + query, options);
        if (status >= 400) expect(leaksInLine(text), `${route.name} returned ${text}`).toEqual([]);
        if (status >= 500) expect(failing, `${route.name} returned ${text}`).not.toBe("nothing failing");
      }
    }
    expect(watcher.lines).toBeGreaterThan(lines + deletionsLast.length * (tokens.length - 1) - 1);
  });

  test("omit the message of a Drizzle error, because it contains SQL and values", async () => {
    const values = `params: ${PASSWORD}, ${EMAIL}`;
    const cause = new Error(`Failed query: insert into users values (?)\n${values}`, {
      cause: new Error("D1_ERROR: no"),
    });
    const caught = await watcher.catching(() => {
      consoleLog("error", "planted", { cause });
      consoleLog("error", "planted", { cause: new Error("outer", { cause }) });
    });
    expect(caught).toEqual([]);
  });

  test.each([
    "/docs/v1/links/ID/a.mp3",
    "/docs/v1/links/ID/transcript/a.vtt",
    "/docs/v1/uploads/resumable/ID",
    "/share/ID",
  ])("omit the URL with a secret %s", (path) => {
    const secret = "5f1d7b0c9e2a48d3b6f0a1c2d3e4f567";
    const url = `https://stowage.example.com${path.replace("ID", `0193477d0a5e2b7f4d1c8e91.${secret}`)}`;
    const print = vi.spyOn(console, "error");
    onTestFinished(() => print.mockRestore());
    consoleLog("error", "planted", { cause: new Error(`Can't fetch "${url}" twice.`) });
    const [[line] = []] = print.mock.calls;
    expect(line).toContain('[redacted]\\" twice.');
    for (const part of [secret, "a.mp3", "a.vtt"]) expect(line).not.toContain(part);
  });

  test("contain no secret if the recovery job has no database", async () => {
    const lines = watcher.lines;
    const deps = quoting(readDeps(env, { waitUntil: () => {} }), "D1");
    for (const db of deps.databases.values()) await recover({ ...deps, db });
    expect(watcher.lines).toBeGreaterThan(lines);
  });

  test("contain no secret if the Worker is misconfigured", async () => {
    for (const setting of [
      { MASTER_KEY: `x${env.MASTER_KEY}` },
      { MASTER_KEY: OPERATOR.slice(1) },
      { OPERATOR_TOKEN: "canary-password" },
      { S3_ENDPOINT: env.S3_SECRET_ACCESS_KEY },
      { MAX_UPLOAD_BYTES: OPERATOR },
    ]) {
      const worker = startWorker(() => readDeps({ ...env, ...setting } as Env, { waitUntil: () => {} }));
      const response = await worker.call("GET", "/docs/v1/usage", { token: OPERATOR });
      expect(response.status).toBe(503);
      expect(leaksInLine(response.text)).toEqual([]);
    }
  });
});
