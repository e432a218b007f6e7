import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { splitRoute } from "../../src/http/operation.ts";
import { operations, secretPages } from "../../src/service.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { buildRequest } from "../support/client.ts";
import { DATABASES } from "../support/databases.ts";
import { type Deps, readDeps, sink, withBindings } from "../support/deps.ts";
import {
  type Answer,
  atOnce,
  type CallOptions,
  call,
  fieldsOf,
  form,
  newKey,
  newMember,
  newTeam,
  newUser,
  PASSWORD,
  randomAddress,
  rejected,
  startWorker,
  type Team,
  tally,
  upload,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";
import { pathTo, requestFor, routes, tokenFor } from "../support/routes.ts";
import { insertMany } from "../support/rows.ts";
import { newUploadToken } from "../support/visitors.ts";

/* Properties of every response: headers, error shape, limits, and resistance to forged requests. */

let team: Team;
let other: Team;
beforeAll(async () => {
  [team, other] = await Promise.all([newTeam(), newTeam()]);
});

const USERS = "/auth/v1/users";
const RESUMABLE = "/docs/v1/uploads/resumable";
const SECRET = "canary-7f3a";
const PREFLIGHT = { Origin: "https://app.example", "Access-Control-Request-Method": "PATCH" };

/** A Worker with a bug in its limiter, whose error message contains a secret. */
const buggy = startWorker((deps) => {
  const token = () => Promise.reject(new TypeError(`Cannot read properties of ${SECRET}`));
  return { ...deps, limiter: { ...deps.limiter, countRequest: token } };
});
const misconfigured = (change: Record<string, string | undefined>) =>
  startWorker(() => readDeps({ ...env, ...change } as Env, { waitUntil: () => {} }));
const limiting = (limiter: Partial<Deps["limiter"]>) =>
  startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, ...limiter } }));

const listed = ({ headers }: Answer, name: string) => headers.get(name)?.split(/,\s*/).sort();

/** Responses of every kind. */
const answers: [string, number, () => Promise<Answer>][] = [
  ["a success", 200, () => team.call("GET", USERS)],
  ["a response to HEAD", 200, () => team.call("HEAD", USERS)],
  ["the OpenAPI document", 200, () => call("GET", "/openapi.json")],
  ["a preflight", 204, () => call("OPTIONS", USERS, { headers: PREFLIGHT })],
  ["invalid input", 400, () => team.call("GET", `${USERS}?limit=0`)],
  ["a missing token", 401, () => call("GET", USERS)],
  ["the operator token on a team's route", 403, () => call("GET", USERS, { token: env.OPERATOR_TOKEN })],
  ["an unknown id", 404, () => team.call("GET", `${USERS}/x`)],
  ["an unknown path", 404, () => call("GET", "/nothing")],
  ["a wrong method", 405, () => call("PUT", USERS)],
  ["a wrong Content-Type", 415, () => team.call("POST", USERS, { body: "x" })],
  [
    "a rate-limited caller",
    429,
    () => limiting({ countRequest: async () => false }).call("GET", USERS, { token: team.token }),
  ],
  ["a bug", 500, () => buggy.call("GET", USERS, { token: team.token })],
  ["a misconfigured Worker", 503, () => misconfigured({ MASTER_KEY: "x" }).call("GET", USERS)],
];

describe.each(answers)("%s", (_, status, act) => {
  test("has the common headers and its own request id, and the one error shape if it is an error", async () => {
    const [first, second] = [await act(), await act()];
    expect(first.status).toBe(status);
    expect(Object.fromEntries(first.headers)).toMatchObject({
      "access-control-allow-origin": "*",
      "cache-control": expect.stringMatching(/^(no-store|no-cache), no-transform$/),
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
      "referrer-policy": "no-referrer",
      "strict-transport-security": expect.stringMatching(/^max-age=\d{8}/),
      "x-content-type-options": "nosniff",
      "x-request-id": expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    expect(first.headers.has("Access-Control-Allow-Credentials")).toBe(false);
    const exposed = ["ETag", "Link", "Location", "Retry-After", "X-Request-Id"];
    if (status !== 204) expect(listed(first, "Access-Control-Expose-Headers")).toEqual(expect.arrayContaining(exposed));
    expect(first.headers.get("X-Request-Id")).not.toBe(second.headers.get("X-Request-Id"));
    if (status < 400) return;
    const { errors, ...rest } = first.body;
    expect(rest).toEqual({
      status: false,
      message: expect.stringMatching(/\.$/),
      code: expect.stringMatching(/^[a-z_]+$/),
      requestId: first.headers.get("X-Request-Id"),
    });
    if (rest.code === "invalid_input") for (const error of errors) expect(fieldsOf(error)).toEqual(["message", "path"]);
    else expect(first.body).not.toHaveProperty("errors");
    expect(first.headers.get("Content-Type")).toMatch(/^application\/json/);
    expect(first.headers.has("WWW-Authenticate")).toBe(status === 401);
    expect(first.headers.has("Allow")).toBe(status === 405);
  });
});

describe("A web page of another origin", () => {
  test("can send every method and header after a preflight without a token, but no cookies", async () => {
    const preflight = await call("OPTIONS", USERS, {
      headers: { ...PREFLIGHT, "Access-Control-Request-Headers": "X-Evil" },
    });
    expect([preflight.status, preflight.text]).toEqual([204, ""]);
    expect(listed(preflight, "Access-Control-Allow-Methods")).toEqual(["DELETE", "GET", "PATCH", "POST", "PUT"]);
    const headers = ["Authorization", "Content-Type", "Idempotency-Key", "If-Match"];
    expect(listed(preflight, "Access-Control-Allow-Headers")).toEqual(expect.arrayContaining(headers));
    expect(listed(preflight, "Access-Control-Allow-Headers")).not.toContain("X-Evil");
    expect(Number(preflight.headers.get("Access-Control-Max-Age"))).toBeGreaterThan(0);
    const { headers: sent } = await team.call("GET", USERS, { headers: { ...PREFLIGHT, Cookie: "a=b" } });
    expect(sent.has("Set-Cookie")).toBe(false);
  });
});

describe("A bug", () => {
  test("is hidden from the caller, and logged under the request id", async () => {
    const log = vi.spyOn(console, "error");
    const { text, body } = await buggy.call("GET", USERS, { token: team.token });
    expect([body.code, body.message]).toEqual(["internal", "Something went wrong on our side."]);
    expect(text).not.toMatch(new RegExp(`${SECRET}|TypeError|stack|\\.ts`));
    const lines = log.mock.calls.map(([line]) => JSON.parse(line)).filter((line) => line.requestId === body.requestId);
    expect(lines).toEqual([expect.objectContaining({ level: "error", cause: expect.stringContaining(SECRET) })]);
  });
});

describe("The log line of a request", () => {
  test("has its method, route, status, error code, duration, key and team", async () => {
    const log = vi.spyOn(console, "info");
    const lineOf = async (answer: Promise<Answer>) => {
      const requestId = (await answer).headers.get("X-Request-Id");
      const lines = log.mock.calls.map(([line]) => JSON.parse(line));
      return lines.filter((line) => line.event === "request_finished" && line.requestId === requestId);
    };
    const common = { level: "info", event: "request_finished", requestId: expect.any(String), method: "GET" };
    const finished = { ...common, route: "/auth/v1/users/:id", durationMilliseconds: expect.any(Number) };
    const caller = { keyId: team.keyId, teamId: team.teamId };
    const { _id } = await newUser(team, { email: `${crypto.randomUUID()}@example.com` });
    expect(await lineOf(team.call("GET", `${USERS}/${_id}`))).toEqual([{ ...finished, status: 200, ...caller }]);
    const failed = { ...finished, status: 404, code: "not_found" };
    expect(await lineOf(team.call("GET", `${USERS}/${team.keyId}`))).toEqual([{ ...failed, ...caller }]);
    const unknown = { ...finished, status: 401, code: "token_missing" };
    expect(await lineOf(call("GET", `${USERS}/${_id}`))).toEqual([unknown]);
    log.mockRestore();
  });
});

describe("Rate limits", () => {
  /** Starts a Worker that records its expensive steps in order. */
  function recording(allowed: boolean) {
    const steps: string[] = [];
    const recorded = <A extends unknown[], R>(name: string, work: (...values: A) => R) => {
      return (...values: A): R => {
        steps.push(name);
        return work(...values);
      };
    };
    const bindings = new ProxiedBindings();
    bindings.onCall = (call) => steps.push(call.startsWith("D1") ? "database" : call);
    const worker = startWorker((deps) => ({
      ...withBindings(deps, bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink })),
      limiter: {
        ...deps.limiter,
        countRequest: recorded("token limit", async () => allowed),
        countUnauthenticated: recorded("client IP limit", async () => allowed),
        takeLogin: recorded("login limit", async () => (allowed ? { giveBack: () => {} } : null)),
      },
      secrets: {
        ...deps.secrets,
        hashPassword: recorded("scrypt", deps.secrets.hashPassword),
        verifyPassword: recorded("scrypt", deps.secrets.verifyPassword),
      },
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

  function expectLimited({ status, headers, body }: Answer, limit: string, requests: number) {
    expect([status, body.code]).toEqual([429, "rate_limited"]);
    expect(headers.get("Retry-After")).toBe("60");
    expect(headers.get("RateLimit")).toBe(`"${limit}";r=0;t=60`);
    expect(headers.get("RateLimit-Policy")).toBe(`"${limit}";q=${requests};w=60`);
  }

  test("are stated in authenticated responses, also in errors, and in no others", async () => {
    const policyOf = async (answer: Promise<Answer>) => (await answer).headers.get("RateLimit-Policy");
    for (const path of [USERS, `${USERS}/x`]) {
      expect(await policyOf(team.call("GET", path))).toBe('"light";q=6000;w=60');
      expect(await policyOf(call("GET", path))).toBe(null);
    }
  });

  test("check a token before its body, and again after scrypt, which may have waited", async () => {
    const { answer, steps } = await recording(true)(USERS, user(), team.token);
    expect(answer.status).toBe(200);
    expect(steps).toEqual(["database", "token limit", "body", "scrypt", "database"]);
    const limited = await recording(false)(USERS, user(), team.token);
    expectLimited(limited.answer, "light", 6000);
    expect(limited.steps).toEqual(["database", "token limit"]);
  });

  test("check the client IP only of unauthenticated callers, whose bodies are never read", async () => {
    const { answer, steps } = await recording(true)(USERS, user());
    expect([answer.status, steps]).toEqual([401, ["client IP limit"]]);
    const limited = await recording(false)(USERS, user(), "no token of ours");
    expectLimited(limited.answer, "client-ip", 300);
    expect(limited.steps).toEqual(["client IP limit"]);
  });

  test("check a login before the database and scrypt", async () => {
    await newUser(team, { email: "login@example.com" });
    const json = { teamId: team.teamId, email: "login@example.com", password: PASSWORD };
    const { answer, steps } = await recording(true)("/auth/v1/login", json);
    expect(answer.status).toBe(200);
    expect(steps).toEqual(["body", "login limit", "database", "scrypt", "database"]);
    const limited = await recording(false)("/auth/v1/login", json);
    expectLimited(limited.answer, "login", 10);
    expect(limited.steps).toEqual(["body", "login limit"]);
  });

  test("count an IPv6 client by its /64, and an IPv4 client by its address, also if it is written as IPv6", async () => {
    const counted: string[] = [];
    const worker = limiting({ countUnauthenticated: async (clientIp) => counted.push(clientIp) > 0 });
    const clientIps = ["2001:db8:0:1::1", "2001:DB8:0:1:ffff::", "2001:db8:0:2::1", "203.0.113.1", "203.0.113.2"];
    const mapped = ["::ffff:203.0.113.1", "::ffff:203.0.113.2"];
    for (const address of [...clientIps, ...mapped]) await worker.call("GET", USERS, { address });
    expect(counted[0]).toBe(counted[1]);
    expect(new Set(counted).size).toBe(6);
  });

  test("allow a client IP 300 requests a minute without a valid token", async () => {
    const { call } = startLimited();
    const address = randomAddress();
    for (let i = 0; i < 300; i++) expect((await call("GET", USERS, { address })).status).toBe(401);
    expectLimited(await call("GET", USERS, { address }), "client-ip", 300);
  });

  test("reject any token from a blocked client IP, except one that this isolate has authenticated", async () => {
    const { call } = startLimited({ CLIENT_IP_LIMIT: 3 });
    const address = randomAddress();
    const { key: unseen } = await newKey(team);
    expect((await call("GET", USERS, { token: team.token, address })).status).toBe(200);
    for (let i = 0; i < 3; i++) expect((await call("GET", USERS, { token: "a guess", address })).status).toBe(401);
    expectLimited(await call("GET", USERS, { token: "a guess", address }), "client-ip", 300);
    expectLimited(await call("GET", USERS, { token: unseen, address }), "client-ip", 300);
    expect((await call("GET", USERS, { token: team.token, address })).status).toBe(200);
    expect((await call("GET", USERS, { token: unseen })).status).toBe(200);
  });

  test("count the public keys of a team apart from its other tokens", async () => {
    const { call } = startLimited({ LIGHT_LIMIT: 3, VISITORS_LIMIT: 3 });
    const pages = [await newKey(team, { isPublic: true }), await newKey(team, { isPublic: true })];
    const ask = (token: string) => call("GET", "/auth/v1/me", { token });
    for (const page of [0, 1, 0]) expect((await ask(pages[page].key)).status).toBe(200);
    for (const { key } of pages) expectLimited(await ask(key), "visitors", 30_000);
    for (let i = 0; i < 3; i++) expect((await ask(team.token)).status).toBe(200);
    expectLimited(await ask(team.token), "light", 6000);
  });

  test("count each upload token apart, so that one visitor leaves requests to the others", async () => {
    const { call } = startLimited({ UPLOAD_TOKEN_LIMIT: 2, VISITORS_LIMIT: 5 });
    const [one, two, three] = [await newUploadToken(team), await newUploadToken(team), await newUploadToken(team)];
    const ask = ({ token }: { token: string }) =>
      call("GET", "/docs/v1/uploads/0193477c0a5e2b7f4d1c8e90/status", { token });
    for (let i = 0; i < 2; i++) expect((await ask(one)).code).toBe("not_found");
    for (let i = 0; i < 2; i++) expectLimited(await ask(one), "upload-token", 600);
    expect((await ask(two)).code).toBe("not_found");
    expect((await ask(two)).code).toBe("not_found");
    expectLimited(await ask(three), "visitors", 30_000);
  });

  test("allow each contributor a quarter of the team's requests, apart from all others", async () => {
    const { call } = startLimited({ CONTRIBUTOR_LIGHT_LIMIT: 2, CONTRIBUTOR_HEAVY_LIMIT: 1 });
    const [one, another] = [await newMember(team, "contributor"), await newMember(team, "contributor")];
    const ask = (token: string, path = "/auth/v1/me") => call("GET", path, { token });
    for (let i = 0; i < 2; i++) expect((await ask(one.token)).status).toBe(200);
    expectLimited(await ask(one.token), "contributor-light", 1500);
    expect((await ask(one.token, "/docs/v1/usage")).status).toBe(200);
    expectLimited(await ask(one.token, "/docs/v1/usage"), "contributor-heavy", 30);
    for (const { token } of [another, team]) expect((await ask(token)).status).toBe(200);
  });

  test("count transcripts apart from heavy requests, except for a contributor", async () => {
    const { call } = startLimited({ TRANSCRIPT_LIMIT: 2, HEAVY_LIMIT: 1, CONTRIBUTOR_HEAVY_LIMIT: 1 });
    const contributor = await newMember(team, "contributor");
    const set = async (token: string) => {
      const { id } = await call("POST", "/docs/v1/uploads", { token, body: form("a.txt", "text") });
      const headers = { "Content-Type": "text/vtt" };
      const body = "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n";
      return call("PUT", `/docs/v1/uploads/${id}/transcript`, { token, headers, body });
    };
    for (let i = 0; i < 2; i++) expect((await set(team.token)).status).toBe(200);
    expectLimited(await set(team.token), "transcripts", 600);
    expect((await call("GET", "/docs/v1/usage", { token: team.token })).status).toBe(200);
    expect((await set(contributor.token)).status).toBe(200);
    expectLimited(await set(contributor.token), "contributor-heavy", 30);
  });

  test("let no query of a heavy read run beyond them, however many requests arrive at once", async () => {
    const bindings = new ProxiedBindings();
    const bound = bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
    const limits = { HEAVY_LIMIT: 20, CONTRIBUTOR_HEAVY_LIMIT: 5 };
    const { call } = startLimited(limits, (deps) => withBindings(deps, bound));
    const contributor = await newMember(team, "contributor");
    for (const [token, query, index, granted] of [
      [team.token, "search=a", "files_name", 20],
      [contributor.token, "tag=a", "files_owner", 5],
    ] as const) {
      const answers = await atOnce(200, () => call("GET", `/docs/v1/uploads?${query}`, { token }));
      expect(tally(answers)).toEqual({ 200: granted, rate_limited: 200 - granted });
      expect(
        bindings.queries.filter(({ sql, parameters }) => parameters.length > 0 && sql.includes(index)),
      ).toHaveLength(granted);
    }
  });

  test("count each request of the operator once, also the first in an isolate", async () => {
    const { call } = startLimited({ LIGHT_LIMIT: 2 });
    const ask = () => call("GET", "/auth/v1/me", { token: env.OPERATOR_TOKEN });
    for (let i = 0; i < 2; i++) expect((await ask()).status).toBe(200);
    expectLimited(await ask(), "light", 6000);
    expect((await call("GET", "/auth/v1/me", { token: team.token })).status, "a team's own counter").toBe(200);
  });

  test("count each request once for the team, also those that a new token sends at once", async () => {
    const { key: token } = await newKey(team);
    const counted: unknown[] = [];
    const worker = limiting({ countRequest: async (...request) => counted.push(request) > 0 });
    await Promise.all(Array.from({ length: 3 }, () => worker.call("GET", USERS, { token })));
    await worker.call("POST", USERS, { token, json: { email: "a@example.com", password: PASSWORD } });
    expect(counted).toEqual(Array(4).fill([{ counter: team.teamId, isContributor: false }, false]));
  });

  test("reject a team above its limit without asking the database again", async () => {
    const proxied = new ProxiedBindings();
    const bound = proxied.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
    const { call } = startLimited({ LIGHT_LIMIT: 1 }, (deps) => withBindings(deps, bound));
    const ask = () => call("GET", USERS, { token: team.token });
    expect([(await ask()).status, (await ask()).status]).toEqual([200, 429]);
    const before = proxied.effects.trips;
    for (let i = 0; i < 3; i++) expectLimited(await ask(), "light", 6000);
    expect(proxied.effects.trips).toBe(before);
  });

  /** A Worker with limits, and the number of its round trips to the database. */
  function counting(limits: Parameters<typeof startLimited>[0]) {
    const proxied = new ProxiedBindings();
    const bound = proxied.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
    const { call } = startLimited(limits, (deps) => withBindings(deps, bound));
    return { call, trips: () => proxied.effects.trips };
  }

  const FOREIGN = ["GET", "/auth/v1/teams"] as const;
  test.each<[string, string, object, "member" | null]>([
    ["a key without the scope", "insufficient_scope", { scopes: ["files:download"] }, null],
    ["a public key", "insufficient_scope", { isPublic: true }, null],
    ["a session", "insufficient_scope", {}, "member"],
  ])("count what is refused to %s for that token alone", async (_, code, fields, role) => {
    const { call, trips } = counting({ LIGHT_LIMIT: 2, HEAVY_LIMIT: 2 });
    const token = role === null ? (await newKey(team, fields)).key : (await newMember(team, role)).token;
    const refuse = async () => call("GET", `${USERS}/x`, { token });
    for (let i = 0; i < 2; i++) expect((await refuse()).code).toBe(code);
    expectLimited(await refuse(), "light", 6000);
    const before = trips();
    for (let i = 0; i < 3; i++) expectLimited(await refuse(), "light", 6000);
    expect((await call(...FOREIGN, { token })).code, "an operation of the operator").toBe("rate_limited");
    expect(trips()).toBe(before);
    for (let i = 0; i < 2; i++) expect((await call("GET", "/auth/v1/me", { token })).status).toBe(200);
    if (!("isPublic" in fields)) expectLimited(await call("GET", "/auth/v1/me", { token: team.token }), "light", 6000);
  });

  test("leave the searches of a team to others than a key that may not search", async () => {
    const { call } = startLimited({ HEAVY_LIMIT: 2 });
    const { key } = await newKey(team, { scopes: ["files:upload"] });
    const search = (token: string) => call("GET", "/docs/v1/uploads?search=a", { token });
    for (const code of ["insufficient_scope", "insufficient_scope", "rate_limited"]) {
      expect((await search(key)).code).toBe(code);
    }
    expect((await search(team.token)).status).toBe(200);
  });

  test("take a place of the heavy limit for each ten files of a batch, and of a folder that is moved or deleted", async () => {
    const { call } = startLimited({ HEAVY_LIMIT: 10, CONTRIBUTOR_HEAVY_LIMIT: 4 });
    const own = await newTeam();
    const ids = Array.from({ length: 41 }, (_, i) => i.toString(16).padStart(24, "0"));
    const batch = (token: string, count: number) =>
      call("POST", "/docs/v1/uploads/batch", {
        token,
        json: { action: "untag", ids: ids.slice(0, count), tags: ["a"] },
      });
    const contributor = await newMember(own, "contributor");
    expect((await batch(contributor.token, 31)).status).toBe(200);
    expect((await batch(contributor.token, 1)).code).toBe("rate_limited");
    await insertMany(
      21,
      `insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, folder, status, reserved_bytes, size_bytes,
         created_at, updated_at) select '', '', 'text file', printf('%024x', i), ?2, '', 'a.txt', 'a', 'completed', 0, 0, 1, 1 from n`,
      own.teamId,
    );
    const change = (method: string, path: string, json: object) => call(method, path, { token: own.token, json });
    expect((await change("PATCH", "/docs/v1/folders", { folder: "a", to: "b" })).status).toBe(200);
    expect((await batch(own.token, 30)).status).toBe(200);
    expect((await change("PATCH", "/docs/v1/folders", { folder: "b", to: "c" })).status).toBe(200);
    await rejected(own, 429, "rate_limited", () => change("POST", "/docs/v1/folders/delete", { folder: "c" }));
  });

  test("refuse a key once more without the database, and a session, whose user may have another role, with it", async () => {
    const { call, trips } = counting({});
    const { key } = await newKey(team, { scopes: ["files:upload"] });
    const member = await newMember(team, "member");
    const refuse = (token: string) => call("GET", USERS, { token });
    for (const token of [key, member.token]) expect((await refuse(token)).code).toBe("insufficient_scope");
    const before = trips();
    const again = await refuse(key);
    expect([again.code, again.headers.get("RateLimit-Policy"), trips()]).toEqual([
      "insufficient_scope",
      '"light";q=6000;w=60',
      before,
    ]);
    await team.call("PATCH", `${USERS}/${member.id}`, { json: { role: "admin" } });
    expect((await refuse(member.token)).status).toBe(200);
  });

  test("reject an upload token that this isolate has not seen without the database if the team's visitors are blocked", async () => {
    const { call, trips } = counting({ VISITORS_LIMIT: 1 });
    const [seen, fresh] = [await newUploadToken(team), await newUploadToken(team)];
    const upload = ({ token }: { token: string }) =>
      call("POST", "/docs/v1/uploads", { token, body: form("a.txt", "a") });
    expect((await upload(seen)).status).toBe(200);
    expectLimited(await upload(seen), "visitors", 30_000);
    const before = trips();
    expectLimited(await upload(fresh), "visitors", 30_000);
    expect(trips()).toBe(before);
  });

  test("of a client IP do not apply to a Worker that calls through a service binding, whose clients none can tell apart", async () => {
    const { send } = startLimited({ CLIENT_IP_LIMIT: 2, LOGIN_LIMIT: 2, LIGHT_LIMIT: 2 });
    const ask = async (method: string, path: string, json?: object) => {
      const request = buildRequest(method, path, { ...(json && { json }) });
      request.headers.delete("CF-Connecting-IP");
      return (await send(request)).status;
    };
    const link = `/docs/v1/links/${team.teamId}.${"0".repeat(32)}`;
    const login = () => ({ teamId: team.teamId, email: `${crypto.randomUUID()}@example.com`, password: PASSWORD });
    for (let i = 0; i < 5; i++) {
      expect(await ask("GET", USERS)).toBe(401);
      expect(await ask("GET", link)).toBe(404);
      expect(await ask("POST", "/auth/v1/login", login())).toBe(401);
    }
    const account = login();
    for (const status of [401, 401, 429]) expect(await ask("POST", "/auth/v1/login", account)).toBe(status);
  });
});

describe("A request over plain http", () => {
  const send = (host: string, method: string, path: string, headers = {}) =>
    startWorker().send(new Request(`http://${host}${path}`, { method, headers }));
  const Authorization = () => `Bearer ${team.token}`;

  test("is rejected if it has a token or a body, and is not redirected", async () => {
    for (const [method, headers] of [
      ["GET", { Authorization: Authorization() }],
      ["POST", {}],
    ] as const) {
      const response = await send("stowage.example", method, USERS, headers);
      expect(response.status).toBe(403);
      expect(await response.json()).toMatchObject({
        code: "forbidden",
        message: expect.stringContaining("Use https."),
      });
    }
    expect((await send("localhost.example", "GET", USERS, { Authorization: Authorization() })).status).toBe(403);
  });

  test.each(["/console/", "/console/files/x?q=1", "/reference"])("the page %s is redirected to https", async (path) => {
    for (const method of ["GET", "HEAD"]) {
      const response = await send("stowage.example", method, path);
      expect([response.status, response.headers.get("Location")]).toEqual([308, `https://stowage.example${path}`]);
    }
    expect((await send("stowage.example", "GET", path, { Authorization: Authorization() })).status).not.toBe(308);
  });

  test("the home page is redirected to https only for browsers", async () => {
    expect((await send("stowage.example", "GET", "/", { Accept: "text/html" })).status).toBe(308);
    expect((await send("stowage.example", "GET", "/")).status).toBe(404);
  });

  test("a link is rejected over plain http, without its bytes", async () => {
    const file = await upload(team, "bytes", "a.txt");
    const link = await team.call("POST", `/docs/v1/uploads/${file}/links`, { json: {} });
    const path = new URL(link.body.data.url).pathname;
    const response = await send("stowage.example", "GET", path);
    expect(response.status).toBe(403);
    expect(await response.json()).toMatchObject({ code: "forbidden" });
  });

  test("is rejected by each operation that needs only the secret in its path, and by the pages of these", async () => {
    const open = Object.values(operations).filter(({ access, route }) => access === null && route.includes("{"));
    expect(open.filter(({ hasSecretPath }) => !hasSecretPath)).toEqual([]);
    const paths = [
      ...open.map(({ route }) => splitRoute(route)),
      ...secretPages.map(({ path }) => ({ method: "GET", path })),
    ];
    expect(paths.length).toBeGreaterThan(secretPages.length);
    for (const { method, path } of paths) {
      const response = await send("stowage.example", method, path.replaceAll(/\{\w+\}/g, "a"));
      // A browser that opens a page is sent to https.
      expect(response.status, path).toBe(path.startsWith("/docs/") ? 403 : 308);
    }
  });

  test("works without a token, and on this machine", async () => {
    expect((await send("stowage.example", "GET", "/openapi.json")).status).toBe(200);
    for (const host of ["localhost:8787", "app.localhost", "127.0.0.1:8787", "[::1]:8787"])
      expect((await send(host, "GET", USERS, { Authorization: Authorization() })).status).toBe(200);
  });
});

describe("A request with forged routing", () => {
  const keyPath = () => `/auth/v1/apikeys/${team.keyId}`;

  test.each(["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])(
    "cannot override its method by %s",
    async (name) => {
      const headers = { [name]: "DELETE" };
      expect((await team.call("GET", keyPath(), { headers })).body.data.id).toBe(team.keyId);
      await rejected(team, 405, "method_not_allowed", () => team.call("POST", keyPath(), { headers }));
    },
  );

  test("cannot override its method by _method in query or body", async () => {
    const path = `${keyPath()}?_method=DELETE`;
    await rejected(team, 400, "invalid_input", () => team.call("GET", path), ["_method"]);
    await rejected(team, 405, "method_not_allowed", () => team.call("POST", path));
    const json = { name: "a", _method: "DELETE" };
    await rejected(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["_method"]);
  });

  test.each(["PUT", "PROPFIND", "LOCK", "PURGE"])("changes nothing with the method %s", async (method) => {
    await rejected(team, 405, "method_not_allowed", () => team.call(method, keyPath()));
  });

  test("cannot change its path or the URL of the next page by headers or its query", async () => {
    const home = await newTeam();
    const prefix = '>; rel="next", <evil>';
    for (const name of ["a", "b"]) await upload(home, `${prefix}${name}`, name);
    const names = ["X-Forwarded-Host", "X-Host", "X-Original-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix"];
    const headers = {
      ...Object.fromEntries(names.map((name) => [name, "evil.example"])),
      Forwarded: "host=evil.example",
      "X-Original-URL": "/auth/v1/apikeys",
      "X-Rewrite-URL": "/auth/v1/apikeys",
    };
    const path = `/docs/v1/uploads?limit=1&name=${encodeURIComponent(prefix)}`;
    const answer = await home.call("GET", path, { headers });
    expect(answer.body.data[0].originalName).toBe(`${prefix}a`);
    const own = /^<https:\/\/stowage\.test\/docs\/v1\/uploads\?limit=1&[^<>\s"]+>; rel="next"$/;
    expect(answer.headers.get("Link")).toMatch(own);
    expect(JSON.stringify([...answer.headers])).not.toContain("evil.example");
  });

  test("cannot choose its request id", async () => {
    const { headers, body } = await call("GET", "/docs/v1/usage", { headers: { "X-Request-Id": "evil" } });
    expect(headers.get("X-Request-Id")).toMatch(/^[0-9a-f-]{36}$/);
    expect(body.requestId).not.toBe("evil");
  });
});

describe("Path tricks in an id", () => {
  test("an id with dots, slashes, escapes or wildcards responds 404", async () => {
    const ids = [
      ...["%2e%2e%2fapikeys", "..%2f..%2fdocs%2fv1%2fusage", "%252e%252e%252f", "..%5c..%5c", "%2e%2e%5c", "..;%2f"],
      ...["%c0%ae%c0%ae%2f", "%uff0e%uff0e", "a%00.json", "%00", "%0d%0aX-Evil:%201", "null", "undefined", "*", "%25"],
      ...["[object%20Object]", "{id}", ":id", "%F0%9F%92%A9"],
    ];
    for (const id of ids) {
      for (const base of ["/auth/v1/apikeys/", "/auth/v1/users/", "/docs/v1/uploads/"]) {
        for (const method of ["GET", "DELETE"]) {
          const { status, headers } = await team.call(method, base + id);
          expect([status, headers.get("X-Evil")], `${method} ${base}${id}`).toEqual([404, null]);
        }
      }
    }
  });

  test("dots and slashes that the URL resolves lead to no other record", async () => {
    for (const path of [
      `/docs/v1/uploads/../../../auth/v1/apikeys/${other.keyId}`,
      `/docs/v1/uploads/%2e%2e/%2e%2e/%2e%2e/auth/v1/apikeys/${other.keyId}`,
      `//auth/v1/apikeys/${other.keyId}`,
      `/auth/v1/apikeys/./${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId}/../${other.keyId}`,
      `/auth/v1/apikeys\\${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId}%2f..%2f${other.keyId}`,
      `/auth/v1/apikeys/${team.keyId},${other.keyId}`,
      `/auth/v1/apikeys/${other.keyId}?id=${team.keyId}&teamId=${team.teamId}`,
    ]) {
      const { status, text } = await team.call("GET", new URL(`https://stowage.test${path}`).href);
      expect([400, 404], path).toContain(status);
      expect(text).not.toContain(other.token);
    }
  });
});

describe("An unknown query parameter", () => {
  test("is rejected by name on every operation and changes nothing", async () => {
    const tus = { headers: { "Tus-Resumable": "1.0.0", "Upload-Length": "1", "Upload-Offset": "0" } };
    const upload = `${RESUMABLE}/${team.teamId}.${"0".repeat(32)}`;
    const requests: [string, string, CallOptions][] = [
      ...routes.map((route): [string, string, CallOptions] => [
        route.method,
        pathTo(route, team.keyId),
        { token: tokenFor(route, team), ...requestFor(route) },
      ]),
      ["POST", RESUMABLE, tus],
      ["PATCH", upload, tus],
      ["DELETE", upload, tus],
    ];
    for (const [method, path, options] of requests) {
      const { status, code, body } = await team.call(method, `${path}?lim%69t%73=1&lim%69t%73=2&x`, options);
      expect([status, code], `${method} ${path}`).toEqual([400, "invalid_input"]);
      const message = "Unknown query parameter.";
      expect(body.errors, `${method} ${path}`).toEqual([
        { path: "limits", message },
        { path: "x", message },
      ]);
    }
    expect((await team.call("OPTIONS", `${RESUMABLE}?x`)).status).toBe(400);
    expect((await team.call("HEAD", `${upload}?x`, tus)).status).toBe(400);
  });

  test("is rejected only after the token has been checked", async () => {
    expect((await call("GET", `${USERS}?mail=a%40example.com`)).code).toBe("token_missing");
  });
});

describe("A query parameter that is sent twice", () => {
  test("is named as such, unless it is a list", async () => {
    for (const query of ["limit=1&limit=2", "page=1&page=1", "cursor=a&cursor=b", "status=failed&status=failed"]) {
      const [path = ""] = query.split("=");
      const { status, body } = await team.call("GET", `/docs/v1/uploads?${query}`);
      expect([status, body.errors], query).toEqual([400, [{ path, message: "Send this parameter once." }]]);
    }
  });
});

describe("A path", () => {
  test("accepts only its methods and names them", async () => {
    // Other methods on these paths match `/docs/v1/uploads/{id}`.
    const overlapping = [RESUMABLE, "/docs/v1/uploads/batch"];
    for (const path of new Set(routes.map((route) => route.path).filter((one) => !overlapping.includes(one)))) {
      const taken = routes.filter((route) => route.path === path).map(({ method }) => method);
      for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"].filter((one) => !taken.includes(one))) {
        const { code, headers } = await team.call(method, path.replace("{id}", team.keyId));
        expect(code, `${method} ${path}`).toBe("method_not_allowed");
        expect(headers.get("Allow")?.split(", "), path).toEqual(expect.arrayContaining(taken));
      }
    }
  });

  test("returns 404 if it is unknown", async () => {
    const paths = ["/", "/auth/v1", "/docs/v1/uploads/", "/auth/v2/users", "/auth/v1/users/a/b", "/auth/v1//users"];
    for (const path of [...paths, "/AUTH/v1/users", "/auth%2fv1/users", "/auth/v1/users;a=b"]) {
      expect((await team.call("GET", path)).code, path).toBe("route_not_found");
    }
  });
});
