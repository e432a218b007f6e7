import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { and, eq } from "drizzle-orm";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../../src/domain/accounts/authorization.ts";
import { SCOPES } from "../../src/domain/accounts/scopes.ts";
import worker from "../../src/index.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb, type Param, preparedQuery, read, rowOf, type StoredRow, write } from "../../src/platform/db.ts";
import { createLimiter, type Limiter, REQUESTS_PER_PERMIT } from "../../src/platform/limiter.ts";
import { Lru } from "../../src/platform/lru.ts";
import { isUniqueViolation } from "../../src/platform/retry.ts";
import { users } from "../../src/platform/schema.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { createSender } from "../../src/platform/sender.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { buildRequest, randomAddress } from "../support/client.ts";
import { newTeam, type Team, withinOneMinute } from "../support/harness.ts";

/* The code between the domain and the bindings (D1, R2, the limiter), in cases that no test over HTTP can cause. */

const deps = { db: createDb(env.DB), system: realSystem, identities: new Lru<TeamActor>(1) };

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
    const [one, another] = [await newTeam(), await newTeam()];
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
    const team = await newTeam();
    const id = await newUser(team);
    const other = { ...deps, db: createDb(env.DB) };
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
    const team = await newTeam();
    const id = await newUser(team);
    const rename = preparedQuery((db, param: Param<{ id: string }>) =>
      db
        .update(users)
        .set({ firstName: "Ada" })
        .where(eq(users.id, param("id"))),
    );
    const insert = preparedQuery((db, param: Param<StoredRow<typeof users>>) =>
      db.insert(users).values(rowOf(users, param)),
    );
    const names = { firstName: "", lastName: "", email: "", emailKey: "", password: "", role: "admin" as const };
    const row = { id, teamId: team.teamId, ...names, createdAt: 1, updatedAt: 1, version: 0 };
    const error = await write(deps, [rename({ id }), insert(row)], { isIdempotent: true }).catch((thrown) => thrown);
    expect(isUniqueViolation(error)).toBe(true);
    expect((await team.call("GET", `/auth/v1/users/${id}`)).body.data.firstName).toBe("");
  });
});

describe("A team read", () => {
  const credentialOf = (team: Team): Credential => ({
    access: "users:read",
    needed: SCOPES["users:read"],
    graceMilliseconds: 0,
    tokenHash: fingerprint(team.token),
    actor: null,
    scopes: 0,
  });
  const ids = (team: Team, wanted: Parameters<typeof authorizeRead<{ id: string }[]>>[2]) =>
    authorizeRead(deps as never, credentialOf(team), wanted);

  test("takes the team from the caller's key, not from its values", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const id = await newUser(other);
    const byId = teamRead(users.teamId, (db, param: Param<{ id: string; tokenHash?: string; now?: number }>) => ({
      query: db.select({ id: users.id }).from(users).$dynamic(),
      where: eq(users.id, param("id")),
    }));
    const values = { id, tokenHash: fingerprint(other.token), now: 0 };
    expect(await ids(other, byId(values))).toEqual([{ id }]);
    expect(await ids(team, byId(values))).toEqual([]);
  });

  test("finds only rows of the caller's team if it has no condition", async () => {
    const all = teamRead(users.teamId, (db) => ({ query: db.select({ id: users.id }).from(users).$dynamic() }));
    const [team, other] = [await newTeam(), await newTeam()];
    const id = await newUser(team);
    await newUser(other);
    expect(await ids(team, all({}))).toEqual([{ id }]);
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
const MINUTE = 60_000;

/** A rate limit binding that grants `PERMITS` permits per key and minute, and records the keys. */
class Permits implements RateLimit {
  readonly keys: string[] = [];
  #left = new Map<string, number>();

  async limit({ key }: { key: string }): Promise<{ success: boolean }> {
    this.keys.push(key);
    const left = this.#left.get(key) ?? PERMITS;
    this.#left.set(key, Math.max(0, left - 1));
    return { success: left > 0 };
  }

  startNextMinute(): void {
    this.#left.clear();
  }
}

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
  permits = new Permits();
  now = 1_795_000_000_000;
  limiter = isolate();
});

async function granted(requests: number, by = limiter): Promise<number> {
  let count = 0;
  for (let i = 0; i < requests; i++) if (await by.token("token")) count += 1;
  return count;
}

describe("The limit of a token", () => {
  test("allows ten requests per permit, and others for another token", async () => {
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
    // The last one was refused, which is remembered.
    expect(permits.keys).toHaveLength(PERMITS + 1);
    expect(await limiter.token("another")).toBe(true);
  });

  test("counts a request that does the work of several as that many", async () => {
    expect(await limiter.token("token", 25)).toBe(true);
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT - 25);
    expect(await limiter.token("another", PERMITS * REQUESTS_PER_PERMIT + 1)).toBe(false);
    expect(await granted(1)).toBe(0);
  });

  test.each([20, 50, 200])("allows the same number if %i requests arrive at once", async (requests) => {
    const answers = await Promise.all(Array.from({ length: requests }, () => limiter.token("token")));
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
    await Promise.all(Array.from({ length: PERMITS }, () => limiter.token("token")));
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
    for (let i = 0; i < 9999; i++) await limiter.token(`made up ${i}`);
    await granted(REQUESTS_PER_PERMIT);
    await limiter.token("one more");
    permits.keys.length = 0;
    for (const token of ["made up 0", "made up 9998", "token"]) await limiter.token(token);
    expect(permits.keys).toEqual(["made up 0"]);
  });

  test("is not reduced by a response from the previous minute", async () => {
    const { promise, resolve } = Promise.withResolvers<{ success: boolean }>();
    const slow = vi.spyOn(permits, "limit").mockImplementationOnce(() => promise);
    const late = limiter.token("token");
    now += MINUTE;
    await granted(1);
    resolve({ success: true });
    expect(await late).toBe(true);
    await granted(REQUESTS_PER_PERMIT - 1);
    expect(slow).toHaveBeenCalledTimes(2);
  });
});

test.each([
  ["a client IP", "clientIp", "192.0.2.1", "192.0.2.1"],
  ["a login", "login", "ada@example.com", expect.stringMatching(/^[0-9a-f]{64}$/)],
] as const)("the limit of %s asks the binding each time", async (_, kind, subject, key) => {
  const answers = [];
  for (let i = 0; i <= PERMITS; i++) answers.push(await limiter[kind](subject));
  expect(answers).toEqual([...Array(PERMITS).fill(true), false]);
  expect(permits.keys).toEqual(Array(PERMITS + 1).fill(key));
});

test("the configured limit of a token is 6,000 requests a minute", async () => {
  const real = createLimiter(env, realSystem, () => undefined);
  const count = await withinOneMinute(async () => {
    const token = crypto.randomUUID();
    let passed = 0;
    while (await real.token(token)) passed += 1;
    return passed;
  });
  expect(count).toBe(6000);
});

test("the requests of one isolate share a permit", async () => {
  const bindings = { ...env, TOKEN_LIMIT: permits, CLIENT_IP_LIMIT: new Permits() };
  const newCaller = async () => {
    const headers = { Authorization: `Bearer ${newToken(realSystem, false)}` };
    const request = new Request("https://stowage.test/docs/v1/usage", { headers });
    return () => worker.fetch(request, bindings, createExecutionContext());
  };
  const [one, another] = [await newCaller(), await newCaller()];
  for (const send of [one, one, another, one]) expect((await send()).status).toBe(401);
  expect(permits.keys).toHaveLength(2);
});

test("a rejected subject is rejected without asking the binding until the minute ends", async () => {
  for (const subject of ["token", "clientIp", "login"] as const) {
    while (await limiter[subject](subject));
    permits.keys.length = 0;
    for (let i = 0; i < 100; i++) expect(await limiter[subject](subject)).toBe(false);
    expect(permits.keys).toEqual([]);
  }
  expect(limiter.isBlocked("clientIp", "another token")).toBe(true);
  expect(limiter.isBlocked("another client IP", "another token")).toBe(false);
  now += MINUTE;
  permits.startNextMinute();
  expect(limiter.isBlocked("clientIp", "another token")).toBe(false);
  expect(await limiter.clientIp("clientIp")).toBe(true);
});

test("the tokens of a team share its limit from their authentication until they are rejected", async () => {
  limiter.authenticated("token", "team");
  limiter.authenticated("another", "team");
  expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  expect(await limiter.token("another")).toBe(false);
  expect(await limiter.token("not authenticated yet")).toBe(true);
  limiter.authenticated("not authenticated yet", "team");
  expect(await limiter.token("not authenticated yet")).toBe(false);
  limiter.rejected("another");
  expect(await limiter.token("another")).toBe(true);
});

test("a token that was authenticated in the last 15 minutes works from a blocked client IP", async () => {
  limiter.authenticated("valid", "team");
  now += 14 * MINUTE;
  while (await limiter.clientIp("shared"));
  expect([limiter.isBlocked("shared", "valid"), limiter.isBlocked("shared", "made up")]).toEqual([false, true]);
  now += MINUTE;
  permits.startNextMinute();
  expect(limiter.isBlocked("shared", "made up")).toBe(false);
  while (await limiter.clientIp("shared"));
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
  expect([await open.token("a"), await open.clientIp("b"), await open.login("c")]).toEqual([true, true, true]);
  expect(lines).toEqual(Array(3).fill("warn rate_limit_failed"));
});

test("a flood of made-up tokens costs a round trip each until its client IP is blocked, and then none", async () => {
  await withinOneMinute(async () => {
    const proxied = new ProxiedBindings();
    const environment = { ...proxied.wrap(env), CLIENT_IP_LIMIT: new Permits() };
    const address = randomAddress();
    const send = async (token: string) => {
      const request = buildRequest("GET", "/docs/v1/usage", { token, address });
      const context = createExecutionContext();
      const { status } = await worker.fetch(request, environment, context);
      // The last use of a key is stored after the response.
      await waitOnExecutionContext(context);
      return status;
    };
    const { token } = await newTeam();
    expect(await send(token)).toBe(200);
    const before = proxied.effects.trips;
    const statuses = [];
    for (let i = 0; i < 100; i++) statuses.push(await send(newToken(realSystem, false)));
    expect(statuses).toEqual([...Array(PERMITS).fill(401), ...Array(100 - PERMITS).fill(429)]);
    // The request that exceeded the limit also asked the database.
    expect(proxied.effects.trips - before).toBe(PERMITS + 1);
    expect(await send(token)).toBe(200);
  });
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

describe("The response of a webhook endpoint", () => {
  const reply = (body: string | ReadableStream<Uint8Array>) =>
    createSender(realSystem, async () => new Response(body)).post("https://hooks.example.com", {}, "{}");

  test("is complete once its first KiB has arrived", async () => {
    const open = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new Uint8Array(1024).fill(97));
      },
    });
    expect(await reply(open)).toMatchObject({ httpStatus: 200, error: null, body: "a".repeat(1024) });
  });

  test("takes no more space with control characters than with letters", async () => {
    const { body } = await reply("\u0000\u0001\n".repeat(500));
    expect(JSON.stringify(body).length).toBeLessThan(2048);
  });
});
