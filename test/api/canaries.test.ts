import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Deps } from "../../src/deps.ts";
import { recover } from "../../src/domain/recovery.ts";
import { createDb } from "../../src/platform/db.ts";
import { consoleLog } from "../../src/platform/log.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { leaksInDatabase, leaksInLine, watchConsole, watcher } from "../support/canaries.ts";
import { type CallOptions, form, newTeam, OPERATOR, startWorker, withoutJobs } from "../support/harness.ts";
import { deletionsLast } from "../support/routes.ts";

const PASSWORD = "canary-password-1";
const EMAIL = "o'canary@canary.example";

// No message is delivered: whatever is still under way when a file of tests ends may hang the run.
const quiet = startWorker(withoutJobs);

const SIGNED = "https://x.example/a?X-Amz-Expires=60&X-Amz-Signature=0a1b";
const LEAKS: [what: string, line: string][] = [
  ["a token", `{"cause":"unknown ${newToken(realSystem, false)}"}`],
  ["a token", newToken(realSystem, true)],
  ["a password", `params: ${PASSWORD}`],
  ["the operator's token", OPERATOR],
  ["the master key", env.MASTER_KEY],
  ["the master key", atob(env.MASTER_KEY)],
  ["the S3 secret", env.S3_SECRET_ACCESS_KEY],
  ["a signed address", SIGNED],
  ["an email", `no user ${EMAIL}`],
];

describe("The watcher", () => {
  test.each(LEAKS)("The watcher catches %s: %s", (what, line) => {
    expect(leaksInLine(line)).toContain(what);
  });

  test("The watcher looks into all that is printed, by any method, and still prints it.", () => {
    const printed: unknown[] = [];
    const print = (...values: unknown[]) => printed.push(...values);
    const fake = { debug: print, log: print, info: print, warn: print, error: print, trace: print };
    const { leaks } = watchConsole(fake);
    const values = ["a", { b: EMAIL }, new Error("c", { cause: new Error(PASSWORD) }), `d ${OPERATOR}`, undefined];
    for (const method of Object.keys(fake) as (keyof typeof fake)[]) for (const value of values) fake[method](value);
    expect(printed).toEqual(Array(6).fill(values).flat());
    expect(leaks.map((leak) => leak.split(" in the line")[0])).toEqual(
      Array(6).fill(["an email", "a password", "the operator's token"]).flat(),
    );
  });

  test("The watcher sees what this file prints.", async () => {
    expect(await watcher.catching(() => console.info(`a planted ${EMAIL}`))).toHaveLength(1);
    expect(await watcher.catching(() => consoleLog("info", "planted", { outcome: PASSWORD }))).toHaveLength(1);
    expect(await watcher.catching(() => console.info("nothing"))).toEqual([]);
  });

  test("The watcher sees what the Worker prints.", async () => {
    const leaky = startWorker((deps) => ({
      ...deps,
      limiter: {
        ...deps.limiter,
        token: async () => {
          throw new Error(`planted ${PASSWORD}`);
        },
      },
    }));
    const caught = await watcher.catching(() =>
      leaky.call("GET", "/docs/v1/usage", { token: newToken(realSystem, false) }),
    );
    expect(caught.join()).toMatch(/^a password in the line: .*"request failed"/);
  });

  test("The watcher finds a secret in any column.", async () => {
    const planted = { api_keys: "name", users: "first_name", files: "idempotency_key", team_usage: "team_id" };
    const team = await newTeam(quiet);
    await team.call("POST", "/auth/v1/users", { json: { email: EMAIL, password: PASSWORD } });
    await team.call("POST", "/docs/v1/uploads", {
      body: form("a.txt", "a"),
      headers: { "Idempotency-Key": "planted" },
    });
    for (const [table, column] of Object.entries(planted)) {
      for (const [what, secret] of [
        ["a token", newToken(realSystem, false)],
        ["a password", PASSWORD],
        ["the master key", env.MASTER_KEY],
      ] as const) {
        const set = (from: string, to: string) =>
          env.DB.prepare(`update ${table} set ${column} = ?2 where team_id = ?3 and ${column} = ?1`)
            .bind(from, to, column === "team_id" && to === team.teamId ? from : team.teamId)
            .run();
        const { results } = await env.DB.prepare(`select ${column} as was from ${table} where team_id = ?`)
          .bind(team.teamId)
          .all<{ was: string }>();
        const was = results[0]?.was ?? "";
        await set(was, secret);
        expect(await leaksInDatabase()).toContain(`${table}.${column}: ${what}`);
        await set(secret, was);
      }
    }
    expect(await leaksInDatabase()).toEqual([]);
  });
});

type Failing = "no trouble" | "D1" | "R2" | "the queue" | "hashing" | "decryption" | "the limiter";

/** A database whose every statement fails with its SQL and values in the message, as Drizzle's errors have them. */
function failingDatabase(): D1Database {
  const told: string[] = [];
  const fail = async () => {
    throw new Error(`D1_ERROR: Failed query: ${told.join("\n")}: SQLITE_ERROR`);
  };
  const statement = (sql: string, values: unknown[]): object => ({
    bind: (...bound: unknown[]) => {
      told.push(JSON.stringify(bound), bound.join());
      return statement(sql, bound);
    },
    sql,
    values,
    all: fail,
    run: fail,
    raw: fail,
    first: fail,
  });
  return { prepare: (sql: string) => statement(sql, []), batch: fail } as unknown as D1Database;
}

/** The deps, with a dependency that fails with everything it was given in its message. */
function breaking(failing: Failing) {
  const fail = async (...values: unknown[]) => {
    throw new Error(`told ${JSON.stringify(values)} ${values.join()}`);
  };
  return (deps: Deps): Deps => {
    if (failing === "D1") return { ...deps, db: createDb(failingDatabase()) };
    if (failing === "R2") return { ...deps, bytes: { ...deps.bytes, put: fail, remove: fail, head: fail, read: fail } };
    if (failing === "the queue") return { ...deps, jobs: { send: fail, sendAll: fail } };
    if (failing === "the limiter")
      return { ...deps, limiter: { ...deps.limiter, token: fail, address: fail, login: fail } };
    if (failing === "decryption") {
      const decrypt = () => {
        throw new Error("can't be decrypted");
      };
      return { ...deps, secrets: { ...deps.secrets, decrypt } };
    }
    if (failing === "hashing") {
      const broken = async () => {
        throw new Error("no memory");
      };
      return { ...deps, secrets: { ...deps.secrets, hashPassword: broken, verifyPassword: broken } };
    }
    return deps;
  };
}

describe("Log lines and failures", () => {
  test.each<Failing>(["no trouble", "D1", "R2", "the queue", "hashing", "decryption", "the limiter"])(
    "No log line and no failure tells a secret on any route, with %s.",
    async (failing) => {
      const team = await newTeam(quiet);
      const email = `${crypto.randomUUID()}@canary.example`;
      const credentials = { teamId: team.teamId, email, password: PASSWORD };
      const user = await team.call("POST", "/auth/v1/users", { json: { email, password: PASSWORD } });
      const upload = await team.call("POST", "/docs/v1/uploads", { body: form(`${email}.txt`, "canary") });
      const page = await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } });
      const login = await team.call("POST", "/auth/v1/login", { json: credentials });
      const ids: Record<string, string> = {
        apikeys: login.body.data.id,
        users: user.body.data._id,
        uploads: upload.headers.get("Location")?.split("/").at(-1) ?? "",
      };
      const bodies: Record<string, CallOptions> = {
        "POST /auth/v1/login": { json: credentials },
        "POST /auth/v1/apikeys": { json: { name: email } },
        "POST /auth/v1/users": { json: { email, password: PASSWORD } },
        "PATCH /auth/v1/users/{id}": { json: { email, password: `${PASSWORD}-new` }, headers: { "If-Match": '"0"' } },
        "POST /docs/v1/uploads": { body: form(`${email}.txt`, email), headers: { "Idempotency-Key": email } },
      };
      const worker = startWorker((deps) => breaking(failing)(withoutJobs(deps)));
      const lines = watcher.lines;
      // Deletions last. Each with the team's key, a public one, a stranger's, the operator's, and secrets in the query.
      for (const { name: route, method, path } of deletionsLast) {
        const id = ids[path.split("/")[3] ?? ""] ?? "";
        const query = `?token=${team.token}&email=${email}&password=${PASSWORD}`;
        for (const token of [newToken(realSystem, false), page.body.data.key, OPERATOR, team.token]) {
          const options = { ...bodies[route], token };
          // A form is read once: each call needs one of its own.
          if (options.body) options.body = form(`${email}.txt`, email);
          const target = path.replace("{id}", token === page.body.data.key ? team.token : id) + query;
          const { status, text } = await worker.call(method, target, options);
          if (status >= 400) expect(leaksInLine(text), `${route} answered ${text}`).toEqual([]);
          if (status >= 500) expect(failing, `${route} answered ${text}`).not.toBe("no trouble");
        }
      }
      expect(watcher.lines).toBeGreaterThan(lines + deletionsLast.length * 4 - 1);
    },
  );

  test("An error of Drizzle's is logged by its name, since its message holds SQL and values.", async () => {
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

  test("A recovery without a database tells no secret.", async () => {
    const ran: Promise<unknown>[] = [];
    const worker = startWorker((deps) => {
      ran.push(recover({ ...deps, db: createDb(failingDatabase()) }));
      return deps;
    });
    await worker.call("GET", "/docs/v1/usage");
    await Promise.all(ran);
    expect(ran).toHaveLength(1);
  });

  test("A Worker that is set up wrongly tells no secret.", async () => {
    const { createApp } = await import("../../src/app.ts");
    const { readDeps } = await import("../../src/deps.ts");
    for (const wrong of [
      { MASTER_KEY: `x${env.MASTER_KEY}` },
      { MASTER_KEY: OPERATOR.slice(1) },
      { OPERATOR_TOKEN: "canary-password" },
      { S3_ENDPOINT: env.S3_SECRET_ACCESS_KEY },
      { MAX_UPLOAD_BYTES: OPERATOR },
    ]) {
      const app = createApp((bindings, ctx) => readDeps({ ...bindings, ...wrong } as Env, ctx));
      const response = await app.fetch(
        new Request("https://stowage.test/docs/v1/usage", { headers: { Authorization: `Bearer ${OPERATOR}` } }),
        env,
        { waitUntil: () => {}, passThroughOnException: () => {}, props: {} } as unknown as ExecutionContext,
      );
      expect(response.status).toBe(503);
      expect(leaksInLine(await response.text())).toEqual([]);
    }
  });
});
