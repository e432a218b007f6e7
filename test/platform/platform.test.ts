import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { and, eq } from "drizzle-orm";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { createLimiter, type Limiter } from "../../src/access/limiter.ts";
import { teams } from "../../src/accounts/teams.schema.ts";
import { users } from "../../src/accounts/users.schema.ts";
import { AppError } from "../../src/errors.ts";
import { BodyReader, SLOW_READ_BYTES } from "../../src/http/body-reader.ts";
import { BODY_BYTES, Bodies, type BodySender } from "../../src/platform/bodies.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb, type Param, preparedQuery, read, write } from "../../src/platform/db.ts";
import { Lru } from "../../src/platform/lru.ts";
import { createMailer } from "../../src/platform/mailer.ts";
import { FIRST_BYTES, MAX_HELD_BYTES, MemoryBudget } from "../../src/platform/part.ts";
import { isUniqueViolation } from "../../src/platform/retry.ts";
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

describe("A batch", () => {
  const count = (team: Team) => deps.db.select({ users: teams.users }).from(teams).where(eq(teams.id, team.teamId));
  const insert = (team: Team, id: string) =>
    deps.db.insert(users).values({
      id,
      teamId: team.teamId,
      firstName: "",
      lastName: "",
      email: id,
      emailKey: id,
      password: "",
      role: "viewer",
      createdAt: 1,
      updatedAt: 1,
      version: 0,
    });
  const batchOf = (team: Team) => ({
    z: count(team),
    inserts: [insert(team, crypto.randomUUID()), insert(team, crypto.randomUUID())],
    after: { those: [count(team)], last: insert(team, crypto.randomUUID()).returning({ email: users.email }) },
    a: count(team),
  });

  test("runs its queries in the order of their names, and returns the rows of each in its place", async () => {
    const { z, inserts, after, a } = await write(deps, batchOf(await newTeamHere()), {
      isIdempotent: true,
      caller: null,
    });
    expect([z, after.those, a]).toEqual([[{ users: 0 }], [[{ users: 2 }]], [{ users: 3 }]]);
    expect(inserts).toMatchObject([{ success: true }, { success: true }]);
    expect(after.last).toMatchObject([{ email: expect.any(String) }]);
  });

  test("can omit its inserts, which then have no rows", async () => {
    const options = { isIdempotent: true, caller: null, omitsInserts: true };
    const { inserts, after, a } = await write(deps, batchOf(await newTeamHere()), options);
    expect([inserts, after.last, a]).toEqual([[[], []], [], [{ users: 0 }]]);
  });
});

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
    const bound = {
      first: byId({ id: first, teamId: one.teamId }),
      second: byId({ id: second, teamId: another.teamId }),
      none: byId({ id: first, teamId: another.teamId }),
    };
    expect(await read(deps, bound)).toEqual({
      first: [{ id: first, version: 0 }],
      second: [{ id: second, version: 0 }],
      none: [],
    });
    expect(build).toHaveBeenCalledTimes(1);
  });

  test("is built again for another database", async () => {
    const team = await newTeamHere();
    const id = await newUser(team);
    const other = { ...deps, db: createDb(env.DB, 0) };
    const before = build.mock.calls.length;
    for (const database of [other, other]) {
      expect(await read(database, byId({ id, teamId: team.teamId }))).toEqual([{ id, version: 0 }]);
    }
    expect(build).toHaveBeenCalledTimes(before + 1);
  });

  test("throws if one of its values is missing", async () => {
    await expect(async () => read(deps, byId({ id: "x" } as ById))).rejects.toThrow(/teamId/);
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
    const batch = { rename: rename({ id }), insert: deps.db.insert(users).values(row) };
    const error = await write(deps, batch, { isIdempotent: true, caller: null }).catch((thrown) => thrown);
    expect(isUniqueViolation(error)).toBe(true);
    expect((await team.call("GET", `/auth/v1/users/${id}`)).body.data.firstName).toBe("");
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
let heavyPermits: Permits;
let now: number;
let limiter: Limiter;
const isolate = () => {
  const system = { ...realSystem, now: () => now };
  return createLimiter(
    {
      LIGHT_LIMIT: permits,
      HEAVY_LIMIT: heavyPermits,
      VISITORS_LIMIT: heavyPermits,
      UPLOAD_TOKEN_LIMIT: heavyPermits,
      TRANSCRIPT_LIMIT: heavyPermits,
      CONTRIBUTOR_LIGHT_LIMIT: permits,
      CONTRIBUTOR_HEAVY_LIMIT: heavyPermits,
      CLIENT_IP_LIMIT: permits,
      LOGIN_LIMIT: permits,
      HASH_LIMIT: permits,
    },
    system,
    () => undefined,
  );
};
beforeEach(() => {
  permits = new Permits(PERMITS);
  heavyPermits = new Permits(1);
  now = 1_795_000_000_000;
  limiter = isolate();
});

const TEAM = { counter: "team", isContributor: false };
const count = (by = limiter, counter = "team") => by.countRequest({ ...TEAM, counter }, false);

async function granted(requests: number, by = limiter): Promise<number> {
  let allowed = 0;
  for (let i = 0; i < requests; i++) if (await count(by)) allowed += 1;
  return allowed;
}

describe("The limit of a team", () => {
  test("allows a number of requests, and as many of another team", async () => {
    expect(await granted(1000)).toBe(PERMITS);
    // The last one was refused, which is remembered.
    expect(permits.keys).toHaveLength(PERMITS + 1);
    expect(await count(limiter, "another")).toBe(true);
  });

  test("counts heavy requests apart from light ones", async () => {
    expect(await limiter.countRequest(TEAM, true)).toBe(true);
    expect(await limiter.countRequest(TEAM, true)).toBe(false);
    expect(await granted(1000)).toBe(PERMITS);
  });

  test("is shared by several isolates", async () => {
    const isolates = [limiter, isolate(), isolate()];
    let allowed = 0;
    for (let i = 0; i < 300; i++) allowed += await granted(1, isolates[i % 3]);
    expect(allowed).toBe(PERMITS);
  });

  test("allows every request while the binding fails", async () => {
    permits.limit = () => Promise.reject(new Error("unreachable"));
    expect(await granted(1000)).toBe(1000);
  });

  test("forgets the team that was rejected least recently when made-up ones fill its memory", async () => {
    permits.limit = async ({ key }) => ({ success: permits.keys.push(key) < 0 });
    for (let i = 0; i <= 10_000; i++) await count(limiter, `made up ${i}`);
    permits.keys.length = 0;
    for (const counter of ["made up 1", "made up 10000", "made up 0"]) await count(limiter, counter);
    expect(permits.keys).toEqual(["made up 0"]);
  });

  test("is not reached by a rejection from the previous minute", async () => {
    const { promise, resolve } = Promise.withResolvers<{ success: boolean }>();
    vi.spyOn(permits, "limit").mockImplementationOnce(() => promise);
    const late = count();
    now += MINUTE;
    resolve({ success: false });
    expect(await late).toBe(false);
    expect(await granted(1)).toBe(1);
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

test("a rejected subject is rejected without asking the binding until the minute ends", async () => {
  while (await count());
  permits.keys.length = 0;
  expect([await count(), permits.keys]).toEqual([false, []]);
  for (const subject of ["countUnauthenticated", "countGuess"] as const) {
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

test("a token is rejected without a database once its team has used up the limit, until the token is rejected", async () => {
  limiter.noteAuthenticated("token", TEAM);
  limiter.noteAuthenticated("contributor", { counter: "user", isContributor: true });
  expect(limiter.exceededBy("token", () => false)).toBe(null);
  await granted(1000);
  const exceeded = (token: string, isHeavy = false) => limiter.exceededBy(token, () => isHeavy);
  expect([exceeded("token"), exceeded("token", true), exceeded("contributor")]).toEqual(["light", null, null]);
  expect(exceeded("not authenticated yet")).toBe(null);
  limiter.noteRejected("token");
  expect(exceeded("token")).toBe(null);
});

test("a token that was authenticated in the last 15 minutes works from a blocked client IP", async () => {
  limiter.noteAuthenticated("valid", TEAM);
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
  const bindings = {
    LIGHT_LIMIT: failing,
    HEAVY_LIMIT: failing,
    VISITORS_LIMIT: failing,
    UPLOAD_TOKEN_LIMIT: failing,
    TRANSCRIPT_LIMIT: failing,
    CONTRIBUTOR_LIGHT_LIMIT: failing,
    CONTRIBUTOR_HEAVY_LIMIT: failing,
    CLIENT_IP_LIMIT: failing,
    LOGIN_LIMIT: failing,
    HASH_LIMIT: failing,
  };
  const open = createLimiter(bindings, realSystem, (level, event) => void lines.push(`${level} ${event}`));
  expect([await count(open), await open.countUnauthenticated("b"), await open.countGuess("c")]).toEqual([
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

describe("The bodies that an isolate receives", () => {
  const visitor = (clientIp: string | null, teamId: string | null = null) => ({
    isVisitor: true,
    teamId,
    clientIp,
  });
  const member = (clientIp: string | null) => ({ isVisitor: false, teamId: null, clientIp });
  const enter = (bodies: Bodies, count: number, sender: (i: number) => BodySender) =>
    Array.from({ length: count }, (_, i) => bodies.enter(sender(i)));

  test("leave place for those of teams, however many visitors send, and have a place again once one has ended", () => {
    const bodies = new Bodies();
    const slots = enter(bodies, 320, (i) => visitor(`${i}`, `team ${i % 2}`));
    expect(() => bodies.enter(visitor("new"))).toThrow(AppError);
    const others = enter(bodies, 192, (i) => member(`${i}`));
    expect(() => bodies.enter(member("new"))).toThrow(AppError);
    others[0]?.release();
    expect(() => bodies.enter(visitor("new"))).toThrow(AppError);
    slots[0]?.release();
    slots[0]?.release();
    bodies.enter(visitor("new"));
    bodies.enter(member("new"));
    expect(() => bodies.enter(member("new"))).toThrow(AppError);
  });

  test.each([
    ["a client IP", () => visitor("one")],
    ["a client IP with a token", () => member("one")],
    ["the visitors of a team", (i: number) => visitor(`${i}`, "team")],
    ["the other callers of a team", (i: number) => ({ ...member(`${i}`), teamId: "team" })],
  ])("are at most 300 of %s", (_, sender) => {
    const bodies = new Bodies();
    enter(bodies, 300, sender);
    expect(() => bodies.enter(sender(300))).toThrow(
      expect.objectContaining({ code: "unavailable", retryAfterSeconds: 5 }),
    );
    bodies.enter(visitor("two", "other"));
  });
});

describe("The memory budget", () => {
  test("gives visitors at most a quarter", () => {
    const budget = new MemoryBudget(8000);
    const holders = [{}, {}, {}, {}] as const;
    expect(budget.reserve(holders[0], 2000, true)).toBe(true);
    expect(budget.reserve(holders[1], 1, true)).toBe(false);
    expect(budget.reserve(holders[2], 6000)).toBe(true);
    expect(budget.reserve(holders[3], 1)).toBe(false);
    budget.release(holders[0]);
    budget.release(holders[0]);
    expect(budget.reserve(holders[1], 2000, true)).toBe(true);
    expect(budget.reserve(holders[3], 1)).toBe(false);
  });

  test("has room for 300 phones of a team that have sent 64 KiB and go on, and leaves three quarters to others", async () => {
    const [bodies, budget] = [new Bodies(), new MemoryBudget()];
    const discard = async (_: string, body: Uint8Array | ReadableStream) =>
      body instanceof ReadableStream ? body.pipeTo(new WritableStream()) : undefined;
    const bytes = createByteStore({ put: discard } as unknown as R2Bucket, realSystem, budget);
    const sender = (i: number) => ({ isVisitor: true, teamId: "team", clientIp: `${i}` });
    const phones = Array.from({ length: 300 }, (_, i) => {
      let leftBytes = BODY_BYTES;
      const body = new ReadableStream({
        type: "bytes",
        pull({ byobRequest }) {
          const length = Math.min(byobRequest?.view?.byteLength ?? 0, leftBytes);
          leftBytes -= length;
          byobRequest?.respond(length);
        },
      });
      const memory = { slot: bodies.enter(sender(i)), budget, isVisitor: true };
      const reader = new BodyReader(body, memory, 600_000, () => new Error("broken"));
      return { reader, part: bytes.newPart({ bytes: 5e6, maxBytes: 3e5, isVisitor: true, newKey: () => `${i}` }) };
    });
    for (const { reader, part } of phones)
      while (part.sizeBytes < BODY_BYTES) await part.take((await reader.read()) ?? new Uint8Array());
    expect(phones.every(({ part }) => part.sizeBytes === BODY_BYTES)).toBe(true);
    // The first ones are in memory, and R2 holds the others, of which each keeps a read buffer that its place covers.
    const spilled = phones.filter(({ part }) => part.isSpilled).length;
    expect(spilled).toBeGreaterThan(250);
    expect(spilled).toBeLessThan(300);
    expect(SLOW_READ_BYTES + FIRST_BYTES).toBeLessThanOrEqual(BODY_BYTES);
    const others = {};
    expect(budget.reserve(others, 0.75 * MAX_HELD_BYTES)).toBe(true);
    expect(() => bodies.enter(sender(300))).toThrow(AppError);
    budget.release(others);
    for (const { reader, part } of phones) {
      await part.save();
      reader.release();
    }
    expect(budget.reserve(others, MAX_HELD_BYTES), "everything was released").toBe(true);
    bodies.enter(sender(300));
  });
});

describe("The read buffer of a body", () => {
  /** Sends `sizes` bytes in turn, each after as many milliseconds. @returns the size of the buffer at each read */
  async function buffersFor(steps: [bytes: number | "all", milliseconds: number][], budget = new MemoryBudget()) {
    const sizes: number[] = [];
    const now = vi.spyOn(Date, "now");
    let clock = 0;
    now.mockImplementation(() => clock);
    const body = new ReadableStream({
      type: "bytes",
      async pull(controller) {
        // The read has begun to wait.
        await Promise.resolve();
        const request = controller.byobRequest;
        const length = request?.view?.byteLength ?? 0;
        const [bytes, milliseconds] = steps.shift() ?? [];
        if (bytes === undefined) {
          controller.close();
          return request?.respond(0);
        }
        sizes.push(length);
        clock += milliseconds ?? 0;
        request?.respond(bytes === "all" ? length : bytes);
      },
    });
    const slot = { release: () => undefined };
    const reader = new BodyReader(body, { slot, budget, isVisitor: false }, 600_000, () => new Error("broken"));
    while (await reader.read());
    reader.release();
    now.mockRestore();
    return sizes;
  }
  const [SLOW, FAST] = [16 * 1024, 256 * 1024];

  test("is large only while the body fills it, and small again once a read waits a second", async () => {
    const budget = new MemoryBudget();
    const steps: [number | "all", number][] = [
      [100, 0],
      ["all", 1000],
      ["all", 0],
      ["all", 0],
      [100, 0],
      [100, 1000],
      [100, 0],
    ];
    expect(await buffersFor(steps, budget)).toEqual([SLOW, SLOW, SLOW, FAST, FAST, FAST, SLOW]);
    expect(budget.reserve({}, 48 * 1024 * 1024), "everything was released").toBe(true);
  });

  test("stays small without memory", async () => {
    expect(
      await buffersFor(
        [
          ["all", 0],
          ["all", 0],
        ],
        new MemoryBudget(0),
      ),
    ).toEqual([SLOW, SLOW]);
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
