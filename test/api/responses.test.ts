import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { type Deps, readDeps } from "../../src/deps.ts";
import {
  type Answer,
  type CallOptions,
  call,
  fieldsOf,
  newTeam,
  newUser,
  PASSWORD,
  randomAddress,
  startWorker,
  type Team,
  withinOneMinute,
} from "../support/harness.ts";

/*
 * What holds of every answer, whatever it answers.
 */

let team: Team;
beforeAll(async () => {
  team = await newTeam();
});

const USERS = "/auth/v1/users";
const SECRET = "canary-7f3a";
const PREFLIGHT = { Origin: "https://app.example", "Access-Control-Request-Method": "PATCH" };

/** A Worker whose limiter fails in a way that nobody thought of, telling a secret. */
const buggy = startWorker((deps) => {
  const token = () => Promise.reject(new TypeError(`Cannot read properties of ${SECRET}`));
  return { ...deps, limiter: { ...deps.limiter, token } };
});
const misconfigured = (change: Record<string, string | undefined>) =>
  startWorker(() => readDeps({ ...env, ...change } as Env, { waitUntil: () => {} }));
const limiting = (limiter: Partial<Deps["limiter"]>) =>
  startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, ...limiter } }));

/** Answers of every kind; `token` is left out where it is to be missing. */
const answers: [string, number, () => Promise<Answer>][] = [
  ["a success", 200, () => team.call("GET", USERS)],
  ["an answer to HEAD", 200, () => team.call("HEAD", USERS)],
  ["the OpenAPI document", 200, () => call("GET", "/openapi.json")],
  ["a preflight", 204, () => call("OPTIONS", USERS, { headers: PREFLIGHT })],
  ["invalid input", 400, () => team.call("GET", `${USERS}?limit=0`)],
  ["a missing token", 401, () => call("GET", USERS)],
  ["the operator where a team is needed", 403, () => call("GET", USERS, { token: env.OPERATOR_TOKEN })],
  ["an unknown id", 404, () => team.call("GET", `${USERS}/x`)],
  ["an unknown path", 404, () => call("GET", "/nothing")],
  ["a wrong method", 405, () => call("PUT", USERS)],
  ["a wrong Content-Type", 415, () => team.call("POST", USERS, { body: "x" })],
  ["a limited caller", 429, () => limiting({ token: async () => false }).call("GET", USERS, { token: team.token })],
  ["a bug", 500, () => buggy.call("GET", USERS, { token: team.token })],
  ["a Worker set up wrongly", 503, () => misconfigured({ MASTER_KEY: "x" }).call("GET", USERS)],
];

describe.each(answers)("%s", (_, status, act) => {
  test("has the headers of every answer, and a request id of its own", async () => {
    const [first, second] = [await act(), await act()];
    expect(first.status).toBe(status);
    expect(Object.fromEntries(first.headers)).toMatchObject({
      "access-control-allow-origin": "*",
      "cache-control": "no-store",
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
      "referrer-policy": "no-referrer",
      "strict-transport-security": expect.stringMatching(/^max-age=\d{8}/),
      "x-content-type-options": "nosniff",
      "x-request-id": expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    expect(first.headers.has("Access-Control-Allow-Credentials")).toBe(false);
    expect(first.headers.get("X-Request-Id")).not.toBe(second.headers.get("X-Request-Id"));
  });

  test("where it is a failure, has the one shape, with the request id of the header", async () => {
    const { headers, body } = await act();
    if (status < 400) return;
    const { errors, ...rest } = body;
    expect(rest).toEqual({
      status: false,
      message: expect.stringMatching(/\.$/),
      code: expect.stringMatching(/^[a-z_]+$/),
      requestId: headers.get("X-Request-Id"),
    });
    if (rest.code === "invalid_input") for (const error of errors) expect(fieldsOf(error)).toEqual(["message", "path"]);
    else expect(body).not.toHaveProperty("errors");
    expect(headers.get("Content-Type")).toMatch(/^application\/json/);
    expect(headers.has("WWW-Authenticate")).toBe(status === 401);
    expect(headers.has("Allow")).toBe(status === 405);
  });
});

describe("a web page of any origin", () => {
  const listed = ({ headers }: Answer, name: string) => headers.get(name)?.split(/,\s*/).sort();

  test("may send every method and header that the service knows, after a preflight without a token", async () => {
    const preflight = await call("OPTIONS", USERS, { headers: PREFLIGHT });
    expect([preflight.status, preflight.text]).toEqual([204, ""]);
    expect(preflight.headers.get("Access-Control-Allow-Origin")).toBe("*");
    expect(listed(preflight, "Access-Control-Allow-Methods")).toEqual(["DELETE", "GET", "PATCH", "POST"]);
    const headers = ["Authorization", "Content-Type", "Idempotency-Key", "If-Match"];
    expect(listed(preflight, "Access-Control-Allow-Headers")).toEqual(expect.arrayContaining(headers));
    expect(Number(preflight.headers.get("Access-Control-Max-Age"))).toBeGreaterThan(0);
  });

  test.each(answers.filter(([, status]) => status !== 204))("may read the headers of %s", async (_, __, act) => {
    const exposed = ["ETag", "Link", "Location", "Retry-After", "X-Request-Id"];
    expect(listed(await act(), "Access-Control-Expose-Headers")).toEqual(expect.arrayContaining(exposed));
  });
});

describe("a bug", () => {
  test("tells the caller nothing; the log has it under the request id", async () => {
    const log = vi.spyOn(console, "error");
    const { text, body } = await buggy.call("GET", USERS, { token: team.token });
    expect([body.code, body.message]).toEqual(["internal", "Something went wrong on our side."]);
    expect(text).not.toMatch(new RegExp(`${SECRET}|TypeError|stack|\\.ts`));
    const lines = log.mock.calls.map(([line]) => JSON.parse(line)).filter((line) => line.requestId === body.requestId);
    expect(lines).toEqual([expect.objectContaining({ level: "error", cause: expect.stringContaining(SECRET) })]);
  });
});

describe("a Worker", () => {
  const wrong: [string, Record<string, string | undefined>][] = [
    ["no master key", { MASTER_KEY: undefined }],
    ["an empty master key", { MASTER_KEY: "" }],
    ["a master key that is too short", { MASTER_KEY: btoa("short") }],
    ["an operator's token of 31 characters", { OPERATOR_TOKEN: "x".repeat(31) }],
    ["no storage credentials", { S3_ACCESS_KEY_ID: undefined }],
    ["a storage address that is none", { S3_ENDPOINT: "nowhere" }],
    ["an upload limit that is no number", { MAX_UPLOAD_BYTES: "many" }],
  ];
  test.each(wrong)("with %s answers 503 and does not say why; the log does", async (_, change) => {
    const log = vi.spyOn(console, "error");
    const { status, body } = await misconfigured(change).call("GET", USERS, { token: team.token });
    expect([status, body.code]).toEqual([503, "unavailable"]);
    expect(body.message).toBe("The service can't do this right now. Try again shortly.");
    const lines = log.mock.calls.map(([line]) => JSON.parse(line)).filter((line) => line.requestId === body.requestId);
    expect(lines).toEqual([
      expect.objectContaining({ cause: expect.stringMatching(new RegExp(Object.keys(change)[0]!)) }),
    ]);
  });

  test("without an operator's token serves everyone but the operator", async () => {
    const worker = misconfigured({ OPERATOR_TOKEN: undefined });
    expect((await worker.call("GET", USERS, { token: team.token })).status).toBe(200);
    expect((await worker.call("GET", "/auth/v1/apikeys", { token: env.OPERATOR_TOKEN })).status).toBe(401);
  });
});

describe("rate limits", () => {
  /** A Worker that writes down, in order, what it does that costs something. */
  function recording(allowed: boolean) {
    const steps: string[] = [];
    const note = <A extends unknown[], R>(name: string, work: (...values: A) => R) => {
      return (...values: A): R => {
        steps.push(name);
        return work(...values);
      };
    };
    const worker = startWorker((deps) => ({
      ...deps,
      limiter: {
        ...deps.limiter,
        token: note("token limit", async () => allowed),
        address: note("address limit", async () => allowed),
        login: note("login limit", async () => allowed),
      },
      secrets: {
        ...deps.secrets,
        hashPassword: note("scrypt", deps.secrets.hashPassword),
        verifyPassword: note("scrypt", deps.secrets.verifyPassword),
      },
      db: new Proxy(deps.db, {
        get(db, name) {
          if (name === "$client" || name === "batch" || name === "select" || name === "insert") steps.push("database");
          return Reflect.get(db, name);
        },
      }),
    }));
    const bodyOf = (json: object) =>
      new ReadableStream<Uint8Array>(
        {
          pull(controller) {
            steps.push("body");
            controller.enqueue(new TextEncoder().encode(JSON.stringify(json)));
            controller.close();
          },
        },
        { highWaterMark: 0 },
      );
    const post = async (path: string, json: object, token?: string) => {
      const options: CallOptions = { token, body: bodyOf(json), headers: { "Content-Type": "application/json" } };
      const answer = await worker.call("POST", path, options);
      return { answer, steps: steps.filter((step, i) => step !== steps[i - 1]) };
    };
    return post;
  }
  const user = () => ({ email: `${crypto.randomUUID()}@example.com`, password: PASSWORD });

  function expectLimited({ status, headers, body }: Answer) {
    expect([status, body.code]).toEqual([429, "rate_limited"]);
    expect(headers.get("Retry-After")).toMatch(/^[1-9]\d*$/);
  }

  test("of a token are asked before the database, the body and scrypt", async () => {
    const { answer, steps } = await recording(true)(USERS, user(), team.token);
    expect(answer.status).toBe(200);
    expect(steps).toEqual(["token limit", "database", "body", "scrypt", "database"]);
    const limited = await recording(false)(USERS, user(), team.token);
    expectLimited(limited.answer);
    expect(limited.steps).toEqual(["token limit"]);
  });

  test("of an address are asked only for a caller who proved nothing, whose body is never read", async () => {
    const { answer, steps } = await recording(true)(USERS, user());
    expect([answer.status, steps]).toEqual([401, ["address limit"]]);
    const limited = await recording(false)(USERS, user(), "no token of ours");
    expectLimited(limited.answer);
    expect(limited.steps).toEqual(["address limit"]);
  });

  test("of logins are asked before the database and scrypt", async () => {
    await newUser(team, { email: "login@example.com" });
    const json = { teamId: team.teamId, email: "login@example.com", password: PASSWORD };
    const { answer, steps } = await recording(true)("/auth/v1/login", json);
    expect(answer.status).toBe(200);
    expect(steps).toEqual(["body", "login limit", "database", "scrypt", "database"]);
    const limited = await recording(false)("/auth/v1/login", json);
    expectLimited(limited.answer);
    expect(limited.steps).toEqual(["body", "login limit"]);
  });

  test("count an IPv6 client by its /64, an IPv4 client by its address", async () => {
    const asked: string[] = [];
    const worker = limiting({ address: async (address) => asked.push(address) > 0 });
    const networks = ["2001:db8:0:1::1", "2001:DB8:0:1:ffff::", "2001:db8:0:2::1", "203.0.113.1", "203.0.113.2"];
    for (const address of networks) await worker.call("GET", USERS, { address });
    expect(asked[0]).toBe(asked[1]);
    expect(new Set(asked).size).toBe(4);
  });

  test("let 300 requests a minute without a valid token pass from one address", async () => {
    const passed = await withinOneMinute(async () => {
      const address = randomAddress();
      let count = 0;
      let answer = await call("GET", USERS, { address });
      for (; answer.status === 401; answer = await call("GET", USERS, { address })) count += 1;
      expectLimited(answer);
      expect((await team.call("GET", USERS, { address })).status).toBe(200);
      return count;
    });
    expect(passed).toBe(300);
  });
});
