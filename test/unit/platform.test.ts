import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { and, eq, type SQL } from "drizzle-orm";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { Deps } from "../../src/deps.ts";
import { type Actor, authorizeRead, type Credential } from "../../src/domain/access/authorization.ts";
import { createLimiter, type Limiter, REQUESTS_PER_PERMIT } from "../../src/domain/access/limiter.ts";
import worker from "../../src/index.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb, type Param, preparedQuery, read, write } from "../../src/platform/db.ts";
import { Lru } from "../../src/platform/lru.ts";
import { createMailer } from "../../src/platform/mailer.ts";
import { isUniqueViolation } from "../../src/platform/retry.ts";
import { users } from "../../src/platform/schema.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { createSender, type Reply } from "../../src/platform/sender.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { randomAddress } from "../support/client.ts";
import { DATABASES } from "../support/databases.ts";
import { sink, withBindings } from "../support/deps.ts";
import { newTeam, type Team } from "../support/harness.ts";
import { Permits, startLimited } from "../support/limits.ts";
import { streamOf } from "../support/streams.ts";
import { MINUTE } from "../support/time.ts";

/* The code between the domain and the bindings (D1, R2, the limiter), in cases that no test over HTTP can cause. */

const deps = { db: createDb(env.DB, 0), system: realSystem };
/** Teams of this file are in the database of `deps`, if they read it directly. */
const newTeamHere = () => newTeam(undefined, 0);

async function newUser(team: Team): Promise<string> {
  const json = { email: `${crypto.randomUUID()}@example.com`, password: "correct horse battery" };
  return (await team.call("POST", "/auth/v1/users", { json })).body.data._id;
}

describe("A prepared query", () => {
  type ById = { id: string; teamId: string };
  const build = vi.fn((db: typeof deps.db, param: Param<ById>) =>
    db
      .select({ id: users.id, version: users.version })
      .from(users)
      .where(and(eq(users.id, param("id")), eq(users.teamId, param("teamId")))),
  );
  const byId = preparedQuery(build);

  test("is built once, and each use has its own values", async () => {
    const [one, another] = [await newTeamHere(), await newTeamHere()];
    const [first, second] = [await newUser(one), await newUser(another)];
    const bound = [
      byId({ id: first, teamId: one.teamId }),
      byId({ id: second, teamId: another.teamId }),
      byId({ id: first, teamId: another.teamId }),
    ] as const;
    expect(await read(deps, bound)).toEqual([[{ id: first, version: 0 }], [{ id: second, version: 0 }], []]);
    expect(build).toHaveBeenCalledTimes(1);
  });

  test("is built again for another database", async () => {
    const team = await newTeamHere();
    const id = await newUser(team);
    const other = { ...deps, db: createDb(env.DB, 0) };
    const before = build.mock.calls.length;
    for (const database of [other, other]) {
      expect(await read(database, [byId({ id, teamId: team.teamId })])).toEqual([[{ id, version: 0 }]]);
    }
    expect(build).toHaveBeenCalledTimes(before + 1);
  });

  test("throws if one of its values is missing", async () => {
    await expect(async () => read(deps, [byId({ id: "x" } as ById)])).rejects.toThrow(/teamId/);
  });

  test("reports a unique violation as such, and its batch is rolled back", async () => {
    const team = await newTeamHere();
    const id = await newUser(team);
    const rename = preparedQuery((db, param: Param<{ id: string }>) =>
      db
        .update(users)
        .set({ firstName: "Ada" })
        .where(eq(users.id, param("id"))),
    );
    const names = { firstName: "", lastName: "", email: "", emailKey: "", password: "", role: "admin" as const };
    const row = { id, teamId: team.teamId, ...names, createdAt: 1, updatedAt: 1, version: 0 };
    const error = await write(deps, [rename({ id }), deps.db.insert(users).values(row)], { isIdempotent: true }).catch(
      (thrown) => thrown,
    );
    expect(isUniqueViolation(error)).toBe(true);
    expect((await team.call("GET", `/auth/v1/users/${id}`)).body.data.firstName).toBe("");
  });
});

describe("A read for a caller", () => {
  const credentialOf = (team: Team): Credential<"users:read"> => ({
    access: "users:read",
    graceMilliseconds: 0,
    tokenHash: fingerprint(team.token),
    database: 0,
  });
  const ids = async (team: Team, condition?: SQL) => {
    const actors: string[] = [];
    const noteCaller = (actor: Actor) => void actors.push(actor.kind);
    const caller = { ...deps, noteCaller } as unknown as Deps;
    const { rows } = await authorizeRead(caller, credentialOf(team), (own) =>
      deps.db
        .select({ id: users.id })
        .from(users)
        .where(and(eq(users.teamId, own), condition)),
    );
    expect(actors).toEqual(["secret"]);
    return rows;
  };

  test("is limited to the team of the caller's token", async () => {
    const [team, other] = [await newTeamHere(), await newTeamHere()];
    const id = await newUser(other);
    const own = await newUser(team);
    expect(await ids(other, eq(users.id, id))).toEqual([{ id }]);
    expect(await ids(team, eq(users.id, id))).toEqual([]);
    expect(await ids(team)).toEqual([{ id: own }]);
  });
});

describe("The memory of callers", () => {
  test("is bounded, and forgets the caller that was used least recently", () => {
    const callers = new Lru<number>(2);
    callers.set("a", 1);
    callers.set("b", 2);
    callers.get("a");
    callers.set("c", 3);
    expect([callers.get("a"), callers.get("b"), callers.get("c")]).toEqual([1, undefined, 3]);
  });
});

const PERMITS = 5;

let permits: Permits;
let now: number;
let limiter: Limiter;
const isolate = () => {
  const system = { ...realSystem, now: () => now };
  return createLimiter(
    {
      TOKEN_LIMIT: permits,
      CLIENT_IP_LIMIT: permits,
      LOGIN_LIMIT: permits,
      HASH_LIMIT: permits,
      SEARCH_LIMIT: permits,
    },
    system,
    () => undefined,
  );
};
beforeEach(() => {
  permits = new Permits(PERMITS);
  now = 1_795_000_000_000;
  limiter = isolate();
});

async function granted(requests: number, by = limiter): Promise<number> {
  let count = 0;
  for (let i = 0; i < requests; i++) if (await by.countRequest("token")) count += 1;
  return count;
}

describe("The limit of a token", () => {
  test("allows ten requests per permit, and others for another token", async () => {
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
    // The last one was refused, which is remembered.
    expect(permits.keys).toHaveLength(PERMITS + 1);
    expect(await limiter.countRequest("another")).toBe(true);
  });

  test("counts a request that does the work of several as that many", async () => {
    expect(await limiter.countRequest("token", 25)).toBe(true);
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT - 25);
    expect(await limiter.countRequest("another", PERMITS * REQUESTS_PER_PERMIT + 1)).toBe(false);
    expect(await granted(1)).toBe(0);
  });

  test.each([20, 50, 200])("allows the same number if %i requests arrive at once", async (requests) => {
    const answers = await Promise.all(Array.from({ length: requests }, () => limiter.countRequest("token")));
    const atOnce = answers.filter(Boolean).length;
    expect(atOnce).toBe(Math.min(requests, PERMITS * REQUESTS_PER_PERMIT));
    expect(atOnce + (await granted(1000))).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("is shared by several isolates", async () => {
    const isolates = [limiter, isolate(), isolate()];
    let count = 0;
    for (let i = 0; i < 300; i++) count += await granted(1, isolates[i % 3]);
    expect(count).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("discards unused requests when the minute ends", async () => {
    await Promise.all(Array.from({ length: PERMITS }, () => limiter.countRequest("token")));
    now += MINUTE - (now % MINUTE);
    permits.startNextMinute();
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("allows every request while the binding fails", async () => {
    permits.limit = () => Promise.reject(new Error("unreachable"));
    expect(await granted(1000)).toBe(1000);
  });

  test("forgets the least recently used token when made-up tokens fill its memory", async () => {
    await granted(1);
    for (let i = 0; i < 9999; i++) await limiter.countRequest(`made up ${i}`);
    await granted(REQUESTS_PER_PERMIT);
    await limiter.countRequest("one more");
    permits.keys.length = 0;
    for (const token of ["made up 0", "made up 9998", "token"]) await limiter.countRequest(token);
    expect(permits.keys).toEqual(["made up 0"]);
  });

  test("is not reduced by a response from the previous minute", async () => {
    const { promise, resolve } = Promise.withResolvers<{ success: boolean }>();
    const slow = vi.spyOn(permits, "limit").mockImplementationOnce(() => promise);
    const late = limiter.countRequest("token");
    now += MINUTE;
    await granted(1);
    resolve({ success: true });
    expect(await late).toBe(true);
    await granted(REQUESTS_PER_PERMIT - 1);
    expect(slow).toHaveBeenCalledTimes(2);
  });
});

test.each([
  ["a client IP", "countUnauthenticated", "192.0.2.1", "192.0.2.1"],
  ["a guess", "countGuess", "ada@example.com", expect.stringMatching(/^[0-9a-f]{64}$/)],
] as const)("the limit of %s asks the binding each time", async (_, kind, subject, key) => {
  const answers = [];
  for (let i = 0; i <= PERMITS; i++) answers.push(await limiter[kind](subject));
  expect(answers).toEqual([...Array(PERMITS).fill(true), false]);
  expect(permits.keys).toEqual(Array(PERMITS + 1).fill(key));
});

test("the requests of one isolate share a permit", async () => {
  const bindings = { ...env, TOKEN_LIMIT: permits, CLIENT_IP_LIMIT: new Permits(PERMITS) };
  const newCaller = async () => {
    const headers = { Authorization: `Bearer ${newToken(realSystem, "secret", 0)}` };
    const request = new Request("https://stowage.test/docs/v1/usage", { headers });
    return () => worker.fetch(request, bindings, createExecutionContext());
  };
  const [one, another] = [await newCaller(), await newCaller()];
  for (const send of [one, one, another, one]) expect((await send()).status).toBe(401);
  expect(permits.keys).toHaveLength(2);
});

test("a rejected subject is rejected without asking the binding until the minute ends", async () => {
  for (const subject of ["countRequest", "countUnauthenticated", "countGuess"] as const) {
    while (await limiter[subject](subject));
    permits.keys.length = 0;
    for (let i = 0; i < 100; i++) expect(await limiter[subject](subject)).toBe(false);
    expect(permits.keys).toEqual([]);
  }
  expect(limiter.isBlocked("countUnauthenticated", "another token")).toBe(true);
  expect(limiter.isBlocked("another client IP", "another token")).toBe(false);
  now += MINUTE;
  permits.startNextMinute();
  expect(limiter.isBlocked("countUnauthenticated", "another token")).toBe(false);
  expect(await limiter.countUnauthenticated("countUnauthenticated")).toBe(true);
});

test("the tokens of a team share its limit from their authentication until they are rejected", async () => {
  limiter.noteAuthenticated("token", "team");
  limiter.noteAuthenticated("another", "team");
  expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  expect(await limiter.countRequest("another")).toBe(false);
  expect(await limiter.countRequest("not authenticated yet")).toBe(true);
  limiter.noteAuthenticated("not authenticated yet", "team");
  expect(await limiter.countRequest("not authenticated yet")).toBe(false);
  limiter.noteRejected("another");
  expect(await limiter.countRequest("another")).toBe(true);
});

test("a token that was authenticated in the last 15 minutes works from a blocked client IP", async () => {
  limiter.noteAuthenticated("valid", "team");
  now += 14 * MINUTE;
  while (await limiter.countUnauthenticated("shared"));
  expect([limiter.isBlocked("shared", "valid"), limiter.isBlocked("shared", "made up")]).toEqual([false, true]);
  now += MINUTE;
  permits.startNextMinute();
  expect(limiter.isBlocked("shared", "made up")).toBe(false);
  while (await limiter.countUnauthenticated("shared"));
  expect(limiter.isBlocked("shared", "valid")).toBe(true);
});

test("a limit whose binding fails allows requests, and logs it", async () => {
  const lines: string[] = [];
  const failing = { limit: () => Promise.reject(new Error("unreachable")) };
  const names = ["TOKEN_LIMIT", "CLIENT_IP_LIMIT", "LOGIN_LIMIT", "HASH_LIMIT", "SEARCH_LIMIT"] as const;
  const bindings = Object.fromEntries(names.map((name) => [name, failing])) as Record<
    (typeof names)[number],
    typeof failing
  >;
  const open = createLimiter(bindings, realSystem, (level, event) => void lines.push(`${level} ${event}`));
  expect([await open.countRequest("a"), await open.countUnauthenticated("b"), await open.countGuess("c")]).toEqual([
    true,
    true,
    true,
  ]);
  expect(lines).toEqual(Array(3).fill("warn rate_limit_failed"));
});

test("a flood of made-up tokens costs a round trip each until its client IP is blocked, and then none", async () => {
  const proxied = new ProxiedBindings();
  const bound = proxied.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
  const { call } = startLimited({ CLIENT_IP_LIMIT: PERMITS }, (deps) => withBindings(deps, bound));
  const address = randomAddress();
  const send = async (token: string) => (await call("GET", "/docs/v1/usage", { token, address })).status;
  const { token } = await newTeam();
  expect(await send(token)).toBe(200);
  const before = proxied.effects.trips;
  const statuses = [];
  for (let i = 0; i < 100; i++) statuses.push(await send(newToken(realSystem, "secret", 0)));
  expect(statuses).toEqual([...Array(PERMITS).fill(401), ...Array(100 - PERMITS).fill(429)]);
  // The request that exceeded the limit also asked the database.
  expect(proxied.effects.trips - before).toBe(PERMITS + 1);
  expect(await send(token)).toBe(200);
});

describe("A part with a chunk that", () => {
  const broken = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.error(new Error("Network connection lost."));
    },
  });
  test.each<[string, ReadableStream<Uint8Array> | null]>([
    ["ends with an error", broken],
    ["is missing", null],
    ["is shorter than it was", new Blob(["12345"]).stream()],
    ["is longer than it was", new Blob(["1234567"]).stream()],
    ["has other bytes", new Blob(["123457"]).stream()],
  ])("%s reports a transient error", async (_, body) => {
    const bucket = { get: async () => body && { body } } as unknown as R2Bucket;
    const chunks = [{ key: "key", sizeBytes: 6, md5: createHash("md5").update("123456").digest("hex") }];
    const part = createByteStore(bucket, realSystem).newPart({ bytes: 9, maxBytes: 9, newKey: () => "other", chunks });
    await expect(part.md5()).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe("The sender of webhooks", () => {
  const post = (respond: (init: RequestInit) => Promise<Response>, timeout = 60_000) =>
    createSender(realSystem, (_, init) => respond(init), timeout).post("https://hooks.canary.example/", {}, "{}");

  test("does not follow redirects", async () => {
    let request: RequestInit = {};
    const { httpStatus } = await post(async (init) => {
      request = init;
      return new Response(null, { status: 302, headers: { Location: "https://127.0.0.1/" } });
    });
    expect([request.redirect, request.method, httpStatus]).toEqual(["manual", "POST", 302]);
  });

  test("keeps up to 1 KiB of a response body, in complete characters, and cancels the rest", async () => {
    let isCanceled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new TextEncoder().encode("ä€".repeat(100))),
      cancel: () => {
        isCanceled = true;
      },
    });
    const { body, error } = await post(async () => new Response(endless));
    expect(error).toBeNull();
    expect(new TextEncoder().encode(body).length).toBeGreaterThan(1020);
    expect(body).toBe("ä€".repeat(300).slice(0, body.length));
    expect(isCanceled).toBe(true);
  });

  test("returns a short body and Retry-After unchanged", async () => {
    const response = new Response(streamOf(new TextEncoder().encode("sh"), new TextEncoder().encode("ort")), {
      status: 503,
      headers: { "Retry-After": "120" },
    });
    expect(await post(async () => response)).toMatchObject({ httpStatus: 503, body: "short", retryAfter: "120" });
  });

  test("times out if an endpoint does not respond or its body does not end, and reports which", async () => {
    const never = ({ signal }: RequestInit) =>
      new Promise<Response>((_, reject) => signal?.addEventListener("abort", reject));
    expect(await post(never, 20)).toMatchObject({ httpStatus: null, error: "timeout" });
    const endless = new ReadableStream({ pull: () => new Promise(() => {}) });
    expect(await post(async () => new Response(endless), 20)).toMatchObject({ httpStatus: 200, error: "timeout" });
  });

  test("reports only that a connection failed, without the error message", async () => {
    const reply = await post(() => Promise.reject(new Error("connect ECONNREFUSED https://x.example/?token=canary")));
    expect(reply).toMatchObject({ httpStatus: null, error: "connection_failed", body: "" });
    expect(JSON.stringify(reply)).not.toContain("canary");
  });

  test("times out after 15 s", async () => {
    vi.useFakeTimers();
    try {
      const hanging = (_: string, { signal }: RequestInit) =>
        new Promise<Response>((_, fail) => signal?.addEventListener("abort", () => fail(new Error("Aborted."))));
      let reply: Reply | undefined;
      const sent = createSender(realSystem, hanging).post("https://hooks.example.com", {}, "{}");
      sent.then((result) => {
        reply = result;
      });
      await vi.advanceTimersByTimeAsync(14_999);
      expect(reply).toBeUndefined();
      await vi.advanceTimersByTimeAsync(1);
      expect(reply).toMatchObject({ httpStatus: null, error: "timeout" });
    } finally {
      vi.useRealTimers();
    }
  });

  test("does not wait for more than the first KiB of a response", async () => {
    const open = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new Uint8Array(1024).fill(97));
      },
    });
    expect(await post(async () => new Response(open))).toMatchObject({
      httpStatus: 200,
      error: null,
      body: "a".repeat(1024),
    });
  });

  test("stores control characters in as little space as letters", async () => {
    const { body } = await post(async () => new Response("\u0000\u0001\n".repeat(500)));
    expect(JSON.stringify(body).length).toBeLessThan(2048);
  });
});

describe("An email", () => {
  const mail = { to: "ada@example.com", subject: "Hello", text: "Hello\n" };

  test("is sent from the configured address", async () => {
    const send = vi.fn(async () => ({ messageId: "1" }));
    await createMailer({ send }, "accounts@example.com").send(mail);
    expect(send.mock.calls).toEqual([[{ from: "accounts@example.com", ...mail }]]);
  });

  test("is reported by only the code, without the recipient, if it can't be sent", async () => {
    for (const [error, code] of [
      [
        Object.assign(new Error("ada@example.com is suppressed"), { code: "E_RECIPIENT_SUPPRESSED" }),
        "E_RECIPIENT_SUPPRESSED",
      ],
      [new Error("ada@example.com failed"), "unknown"],
    ] as const) {
      const sent = createMailer({ send: () => Promise.reject(error) }, "accounts@example.com").send(mail);
      const failure = await sent.catch((thrown: Error) => thrown);
      expect(failure).toEqual(new Error(`The email was not sent: ${code}`));
      expect((failure as Error).cause).toBeUndefined();
    }
  });
});
