import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, onTestFinished, vi } from "vitest";
import { teams } from "../../src/accounts/teams.schema.ts";
import { createApp } from "../../src/app.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb, read } from "../../src/platform/db.ts";
import { realSystem } from "../../src/platform/system.ts";
import { MOMENTS, outageOf, ProxiedBindings } from "../support/bindings.ts";
import { type Answer, type Call, createCall, form } from "../support/client.ts";
import { ALL_DATABASES } from "../support/databases.ts";
import { type Change, compose, readDeps, withDatabases, withoutHashing, withoutJobs } from "../support/deps.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { dataOf, expectNoFiles, newTeam, newUser, type Team, upload } from "../support/harness.ts";
import { expectSettled, expectSound } from "../support/invariants.ts";
import { rowsOf } from "../support/queries.ts";
import { newEmail, newRecord, PASSWORD, pathTo, type Route, requestFor, routes, tokenFor } from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";
import { create, locationOf, patch } from "../support/tus.ts";
import { encodeForm, must, UNAVAILABLE, World } from "../support/world.ts";

/*
 * Outages of D1, R2 and the Queue, on every route. A failure of a binding is hidden by a retry or returned as 503
 * `unavailable` with `Retry-After`. A 500 fails every call that goes through `World`.
 */

/** Writes that must not be repeated: a second attempt could find what the first one has changed, and be rejected. */
const UNREPEATABLE = [
  "PATCH /auth/v1/apikeys/{id}",
  "DELETE /auth/v1/apikeys/{id}",
  "DELETE /auth/v1/sessions/{id}",
  "PATCH /auth/v1/webhooks/{id}",
  "DELETE /auth/v1/webhooks/{id}",
  "POST /auth/v1/webhooks/{id}/replay",
  "PATCH /auth/v1/users/{id}",
  "DELETE /auth/v1/users/{id}",
  "PATCH /auth/v1/teams/{id}",
  "DELETE /docs/v1/links/{id}",
  "POST /docs/v1/trash/{id}/restore",
  "PUT /docs/v1/retention",
];

const unlimited = compose(withoutHashing, (deps) => ({
  ...deps,
  limiter: { ...deps.limiter, countRequest: async () => true },
}));

const FORGOT = "POST /auth/v1/password/forgot";

async function newInvitation(team: Team): Promise<string> {
  const { _id } = await newUser(team, { email: newEmail() });
  return (await dataOf(team.call("POST", `/auth/v1/users/${_id}/invitations`))).token;
}

/** The input of a route whose example no user or invitation matches, for a new user each time, or does nothing a second time. */
const newInput: Record<string, (team: Team) => Promise<object>> = {
  [FORGOT]: async (team) => {
    const { email, teamId } = await newUser(team, { email: newEmail() });
    return { teamId, email };
  },
  "POST /auth/v1/invitations/describe": async (team) => ({ token: await newInvitation(team) }),
  "POST /auth/v1/invitations/accept": async (team) => ({ token: await newInvitation(team), password: PASSWORD }),
  "POST /auth/v1/webhooks/{id}/secret": async () => ({ revokeOld: true }),
};

/** Calls that the recovery job repeats if they fail: a message, or a wake of a webhook. */
const isRepeatedLater = (call: string) => call.startsWith("Queue") || call === "Object wake";

const isLogin = ({ name }: Route) => name === "POST /auth/v1/login";

/** Sends a valid request of the route, each time for another record if it changes it. */
async function sender(route: Route) {
  const world = new World();
  const team = await world.newTeam();
  const login = { teamId: team.teamId, email: "ada@example.com", password: PASSWORD };
  if (isLogin(route)) await team.call("POST", "/auth/v1/users", { json: { email: login.email, password: PASSWORD } });
  // Creating the record is not under test, so skip hashing.
  const quick = {
    ...team,
    call: async (...[method, path, options]: Parameters<typeof team.call>) => {
      const answer = await must(world.ask(method, path, { token: team.token, ...options }, { change: withoutHashing }));
      await world.runAlarms();
      return answer;
    },
  };

  // From now on, the isolate knows the token.
  await quick.call("GET", "/auth/v1/me");
  const newPath = async () => (route.path.includes("{id}") ? pathTo(route, await newRecord(quick, route)) : route.path);
  let known: string | undefined;
  return {
    world,
    team,
    async send(bindings?: ProxiedBindings): Promise<Answer> {
      const path = known ?? (await newPath());
      if (route.method === "GET") known = path;
      const input = await newInput[route.name]?.(quick);
      const options = isLogin(route)
        ? { json: login }
        : input
          ? { json: input, ...(route.operation.access !== null && { token: tokenFor(route, team) }) }
          : { ...requestFor(route), token: tokenFor(route, team) };
      return must(world.ask(route.method, path, options, { bindings, change: isLogin(route) ? undefined : unlimited }));
    },
  };
}

function expectUnavailable({ status, code, headers }: Answer): void {
  expect([status, code]).toEqual(UNAVAILABLE);
  expect(headers.get("Retry-After")).toBe("2");
}

describe.each(routes)("$name", (route) => {
  const position = routes.indexOf(route);
  /**
   * `npm test` lets each call fail in one way. Another route and another call take the next one, so that each way meets each
   * kind of call. `npm run test:all` tries them all.
   */
  const chosen = <T>(ways: readonly T[], call: number): readonly T[] =>
    isExhaustive ? ways : ways.filter((_, i) => i === (position + call) % ways.length);
  /** Of the three tests of a route, `npm test` runs one, and for the next route the next one. */
  const inTurn = (turn: 0 | 1 | 2) => test.runIf(isExhaustive || position % 3 === turn);
  const at = (call: number, moment: (typeof MOMENTS)[number], failure: "transient" | "permanent" | "outage") =>
    new ProxiedBindings({ call, moment, failure });

  /** A new team first asks each database for its size, and goes to one that responds. */
  const goesElsewhere = (i: number) => route.name === "POST /auth/v1/teams" && i < ALL_DATABASES.length;

  inTurn(0)("responds 503 while D1 is down, and works afterwards", async () => {
    const { send } = await sender(route);
    expectUnavailable(await send(new ProxiedBindings(outageOf("D1"))));
    const answer = await send(at(1, "before", "permanent"));
    if (!goesElsewhere(0)) expectUnavailable(answer);
    expect((await send()).status).toBe(200);
  });

  inTurn(1)("either takes effect or fails, whichever call fails permanently", async () => {
    const { world, team, send } = await sender(route);
    const peace = new ProxiedBindings();
    expect((await send(peace)).status).toBe(200);
    expect(peace.calls.length).toBeGreaterThan(0);
    const failures = MOMENTS.flatMap((moment) =>
      (["permanent", "outage"] as const).map((one) => [moment, one] as const),
    );
    for (const [i, name] of peace.calls.entries()) {
      for (const [moment, failure] of chosen(failures, i)) {
        const sent = send(at(i + 1, moment, failure));
        // Streamed after three round trips: its body ends early.
        if (route.name === "GET /auth/v1/users/{id}/export" && i > 2) {
          await expect(sent).rejects.toThrow();
          continue;
        }
        const answer = await sent;
        // The recovery job sends the message, wakes the webhook, and deletes the row of a file whose bytes are deleted. A
        // waveform's last write follows the response, too.
        const isLast = i === peace.calls.length - 1;
        // An email is sent after the response.
        const isUnseen = route.name === FORGOT && i > 0;
        const isLate = isUnseen || isRepeatedLater(name) || (isLast && ["DELETE", "PUT"].includes(route.method));
        if (isLate && answer.status === 200) continue;
        if (failure === "permanent" && goesElsewhere(i)) expect(answer.status).toBe(200);
        else expectUnavailable(answer);
      }
    }
    await expectSound(team.teamId);
    await world.recoverAll([team.teamId]);
    await expectSettled(team.teamId);
  });

  const isRepeatable = !UNREPEATABLE.includes(route.name);
  inTurn(2)(`${isRepeatable ? "succeeds" : "succeeds or responds 503"} if any one call fails once`, async () => {
    const { send } = await sender(route);
    const peace = new ProxiedBindings();
    await send(peace);
    for (const [i, name] of peace.calls.entries()) {
      for (const moment of chosen(MOMENTS, i)) {
        const answer = await send(at(i + 1, moment, "transient"));
        // Some writes are authorized before, by a read.
        const isWrite = !peace.idle.has(i + 1) && !isRepeatedLater(name);
        if (!isRepeatable && isWrite) expectUnavailable(answer);
        else expect(answer.status).toBe(200);
      }
    }
  });
});

describe("After a transient failure", () => {
  const usage = async (dice: number): Promise<{ calls: string[]; pauses: number[] }> => {
    const world = new World();
    const team = await world.newTeam();
    const pauses: number[] = [];
    const bindings = new ProxiedBindings(outageOf("D1"));
    const change: Change = (deps) => ({
      ...deps,
      system: {
        ...deps.system,
        randomBytes: (count) => new Uint8Array(count).fill(dice),
        sleep: async (milliseconds) => void pauses.push(milliseconds),
      },
    });
    expectUnavailable(await must(world.ask("GET", "/docs/v1/usage", { token: team.token }, { bindings, change })));
    return { calls: bindings.calls, pauses };
  };

  test("a read is attempted three times, with random delays up to a growing bound of 2 s", async () => {
    expect(await usage(0)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [0, 0] });
    expect(await usage(255)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [400, 1600] });
  });

  test("an upload whose commit is retried twice stores one file", async ({ world, team }) => {
    // An upload authorizes its caller, reserves its bytes, and commits.
    const bindings = new ProxiedBindings(
      { binding: "D1", call: 3, moment: "after", failure: "transient" },
      { binding: "D1", call: 4, moment: "after", failure: "transient" },
    );
    const { status, id } = await must(world.upload(team, await encodeForm("note.txt", "note"), {}, { bindings }));
    expect(status).toBe(200);
    expect(bindings.calls.filter((call) => call === "D1 batch")).toHaveLength(5);
    expect(await expectSound(team.teamId)).toMatchObject([{ id, status: "pending" }]);
  });
});

test("the recovery job processes files uploaded or reprocessed while the queue is down", async ({ world, team }) => {
  const reprocessed = await world.store(team, "note.txt", "note");
  await world.drain();
  const queueDown = () => ({ bindings: new ProxiedBindings(outageOf("Queue")) });
  const { status, id } = await must(world.upload(team, await encodeForm("note.txt", "note"), {}, queueDown()));
  const path = `/docs/v1/uploads/${reprocessed}/reprocess`;
  const reprocessing = await must(world.ask("POST", path, { token: team.token }, queueDown()));
  expect([status, reprocessing.status, world.messages]).toEqual([200, 200, []]);
  // The clock of a `World` is stopped, so the ids are in random order.
  const files = (state: string) => [reprocessed, id].sort().map((file) => ({ id: file, status: state }));
  expect(await rowsOf(team.teamId)).toMatchObject(files("pending"));
  await world.recoverAll([team.teamId]);
  expect(await expectSettled(team.teamId)).toMatchObject(files("completed"));
});

test("an upload while R2 is down responds 503 and leaves nothing listed", async ({ world, team }) => {
  const bindings = new ProxiedBindings(outageOf("R2"));
  expectUnavailable(await must(world.upload(team, await encodeForm("note.txt", "note"), {}, { bindings })));
  expect((await team.call("GET", "/docs/v1/uploads")).body.data).toEqual([]);
  await world.recoverAll([team.teamId]);
  expect(await expectSettled(team.teamId)).toEqual([]);
  await expectNoFiles(team);
});

/** Sends a request whose every call to D1 fails with this error. */
async function askWith(
  error: string | Error,
  {
    isBug = false,
    method = "GET",
    path = "/docs/v1/usage",
    json,
  }: { isBug?: boolean; method?: string; path?: string; json?: object } = {},
) {
  const world = new World();
  const team = await world.newTeam();
  const thrown = typeof error === "string" ? new Error(error) : error;
  let calls = 0;
  const batch = async () => {
    calls += 1;
    throw thrown;
  };
  const failing = (database: D1Database) =>
    ({ prepare: (sql: string) => database.prepare(sql), batch }) as unknown as D1Database;
  const change: Change = (deps) => withDatabases(deps, failing);
  const answer = await must(world.ask(method, path, { token: team.token, ...(json && { json }) }, { change, isBug }));
  expect(answer.text).not.toContain(thrown.message);
  return { answer, calls };
}

/** Cloudflare's list of D1's errors, and those that others have met. A text that says to retry is attempted three times. */
const D1_ERRORS: [message: string, attempts: number, isKnown?: boolean][] = [
  ["D1_ERROR: D1 DB reset because its code was updated.", 3],
  ["D1_ERROR: Internal error while starting up D1 DB storage caused object to be reset.", 3],
  ["Network connection lost.", 3],
  ["D1_ERROR: Network connection lost.", 3],
  ["D1_ERROR: Internal error in D1 DB storage caused object to be reset.", 3],
  ["D1_ERROR: Cannot resolve D1 DB due to transient issue on remote node.", 3],
  ["D1_ERROR: Can't read from request stream because client disconnected.", 3],
  ["D1_ERROR: internal error; reference = 0123456789abcdef", 3],
  ["D1_ERROR: D1 DB storage operation exceeded timeout which caused object to be reset.", 1],
  ["D1_ERROR: D1 DB is overloaded. Requests queued for too long.", 1],
  ["D1_ERROR: D1 DB is overloaded. Too many requests queued.", 1],
  ["D1_ERROR: D1 DB's isolate exceeded its memory limit and was reset.", 1],
  ["D1_ERROR: D1 DB exceeded its CPU time limit and was reset.", 1],
  ["D1_ERROR: Currently processing a long-running export.", 1],
  [
    "D1_ERROR: Your account has exceeded D1's free tier daily row read limit. Upgrade to a paid plan or wait until tomorrow (midnight UTC) to continue.",
    1,
  ],
  ["D1_ERROR: Your account has exceeded D1's free tier daily row write limit.", 1],
  ["D1_ERROR: The database has been deleted.", 1, false],
  ["D1_ERROR: database is locked: SQLITE_BUSY", 1, false],
  ["D1_ERROR: disk I/O error: SQLITE_IOERR", 1, false],
];

describe("An error of D1", () => {
  const linesWith = (text: string) => {
    const printed = vi.spyOn(console, "error");
    onTestFinished(() => printed.mockRestore());
    return () =>
      printed.mock.calls
        .map(([line]) => String(line))
        .filter((line) => line.includes("binding_error_unknown") && line.includes(text));
  };

  test.each(D1_ERRORS)("“%s” is 503 after %i attempts", async (message, attempts, isKnown = true) => {
    const lines = linesWith(message);
    const { answer, calls } = await askWith(message);
    expectUnavailable(answer);
    expect(calls).toBe(attempts);
    // A known error is not logged in full. An unknown one may be logged before.
    if (isKnown) expect(lines()).toEqual([]);
  });

  test.each([
    "D1_ERROR: Exceeded maximum DB size.",
    "D1_ERROR: Your account has exceeded D1's maximum account storage limit, please contact Cloudflare to raise your limit.",
    "D1_ERROR: database or disk is full: SQLITE_FULL",
  ])("“%s” is 507", async (message) => {
    const { answer } = await askWith(message, { method: "POST", path: "/docs/v1/folders", json: { name: "new" } });
    expect([answer.status, answer.code]).toEqual([507, "storage_full"]);
  });

  test.each([
    "D1_ERROR: no such table: files: SQLITE_ERROR",
    "D1_ERROR: no such column: etag at offset 7: SQLITE_ERROR",
    'D1_ERROR: near "selct": syntax error at offset 0: SQLITE_ERROR',
    "D1_ERROR: too many SQL variables at offset 3: SQLITE_ERROR",
    "D1_ERROR: NOT NULL constraint failed: files.team_id: SQLITE_CONSTRAINT",
    "D1_ERROR: CHECK constraint failed: positive: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_CHECK)",
    "D1_ERROR: string or blob too big: SQLITE_TOOBIG",
    "D1_ERROR: Wrong number of parameter bindings for SQL query.",
    "D1_EXEC_ERROR: Error in line 1: SELCT: syntax error",
    "D1_TYPE_ERROR: Type 'undefined' not supported for value 'undefined'",
    "D1_COLUMN_NOTFOUND: Column not found (size)",
  ])("“%s” is our own bug, and stays 500", async (message) => {
    const { answer, calls } = await askWith(message, { isBug: true });
    expect([answer.status, answer.code, answer.headers.has("Retry-After")]).toEqual([500, "internal", false]);
    expect(calls).toBe(1);
  });

  test("is 503 also if it is a TypeError, as workerd throws for a connection that ended", async () => {
    const error = new TypeError("Can't read from request stream because client disconnected.");
    expectUnavailable((await askWith(error)).answer);
  });

  test.each([
    ["TypeError", TypeError],
    ["RangeError", RangeError],
    ["ReferenceError", ReferenceError],
  ])("is our own bug if it is a %s of no such text", async (_, Mistake) => {
    const error = new Mistake("Cannot read properties of undefined (reading 'id')");
    const { answer } = await askWith(error, { isBug: true });
    expect([answer.status, answer.code]).toEqual([500, "internal"]);
  });

  test("is logged in full once if no list has its text", async () => {
    const text = "D1_ERROR: The moon is in the wrong phase.";
    const lines = linesWith(text);
    for (let i = 0; i < 3; i++) await askWith(text);
    expect(lines()).toHaveLength(1);
  });
});

describe("An error of R2", () => {
  /** Uploads while every call to `put` fails with this error. */
  const uploadWith = async (message: string, isBug = false) => {
    const world = new World();
    const team = await world.newTeam();
    let puts = 0;
    const bucket = new Proxy(env.BUCKET, {
      get: (target, name) => {
        if (name === "put") {
          return async () => {
            puts += 1;
            throw new Error(message);
          };
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const change: Change = (deps) => ({ ...deps, bytes: createByteStore(bucket, deps.system) });
    const form = await encodeForm("note.txt", "note");
    const answer = await must(world.upload(team, form, {}, { change, isBug }));
    await expectSound(team.teamId);
    return { answer, puts };
  };

  test.each([
    ["put: We encountered an internal error. Please try again. (10001)", 3],
    ["put: The request body terminated unexpectedly. (10013)", 3],
    ["put: Service is temporarily unavailable. (10043)", 3],
    ["put: Client disconnected. (10054)", 3],
    ["put: Reduce your concurrent request rate for the same object. (10058)", 3],
    ["Network connection lost.", 3],
    ["put: Unauthorized (10002)", 1],
    ["put: Access Denied (10003)", 1],
    ["put: The specified bucket does not exist. (10006)", 1],
    ["put: The SHA-256 checksum you specified did not match what we received. (10037)", 1],
    ["put: Please enable R2 through the Cloudflare Dashboard. (10042)", 1],
    ["put: The object is locked by the bucket policy. (10069)", 1],
    ["put: Something that nobody has documented. (19999)", 1],
  ])("“%s” is 503 after %i attempts", async (message, attempts) => {
    const { answer, puts } = await uploadWith(message);
    expectUnavailable(answer);
    expect(puts).toBe(attempts);
  });

  test.each([
    "put: Your proposed upload is smaller than the minimum allowed object size. (10011)",
    "put: Your metadata headers exceed the maximum allowed metadata size. (10012)",
    "put: The specified digest is not valid. (10014)",
    "put: The specified object name is not valid. (10020)",
    "put: All non-trailing parts must have the same length. (10048)",
    "put: Your proposed upload exceeds the maximum allowed object size. (100100)",
  ])("“%s” is our own bug, and stays 500", async (message) => {
    const { answer, puts } = await uploadWith(message, true);
    expect([answer.status, answer.code, puts]).toEqual([500, "internal", 1]);
  });
});

describe("A database that stalls", () => {
  test.each([
    ["a read", "GET", "/docs/v1/usage", undefined],
    ["a write", "POST", "/docs/v1/folders", { name: "new" }],
  ])("ends %s after 8 s with 503, and is not asked again", async (_, method, path, json) => {
    const world = new World();
    const team = await world.newTeam();
    const asked = Promise.withResolvers<void>();
    let calls = 0;
    const batch = () => {
      calls += 1;
      asked.resolve();
      return new Promise<never>(() => undefined);
    };
    const hanging = (database: D1Database) =>
      ({ prepare: (sql: string) => database.prepare(sql), batch }) as unknown as D1Database;
    const change: Change = (deps) => withDatabases(deps, hanging);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      let answer: Answer | undefined;
      const sent = must(world.ask(method, path, { token: team.token, json }, { change })).then((got) => {
        answer = got;
      });
      await asked.promise;
      await vi.advanceTimersByTimeAsync(7999);
      expect(answer).toBeUndefined();
      await vi.advanceTimersByTimeAsync(1);
      await sent;
      expectUnavailable(answer as unknown as Answer);
      expect(calls).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test("does not end a job, whose batches may take longer", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const slow = Promise.withResolvers<D1Result[]>();
      const db = createDb({ prepare: env.DB.prepare.bind(env.DB), batch: () => slow.promise } as never, 0);
      const job = read({ db, system: realSystem, requestId: null }, db.select({ id: teams.id }).from(teams));
      await vi.advanceTimersByTimeAsync(60_000);
      slow.resolve([{ results: [] } as never]);
      expect(await job).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });
});

test.each<[string, (team: Team, call: Call) => Promise<Answer>]>([
  ["an upload", (team, call) => call("POST", "/docs/v1/uploads", { token: team.token, body: form("a.txt", "a") })],
  [
    "the last append of a resumable upload",
    async (team, call) => {
      const location = locationOf(await create(team.call, 1));
      return patch(call, location, 0, new Uint8Array(1), { token: team.token });
    },
  ],
  [
    "reprocessing",
    async (team, call) => {
      const id = await upload(team, "a.txt", "a");
      return call("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    },
  ],
])("the response of %s doesn't wait for a queue that hangs", async (_, act) => {
  const team = await newTeam();
  const hangs = Promise.withResolvers<void>();
  let sent = 0;
  const hanging = {
    check: async () => undefined,
    sendAll: () => {
      sent += 1;
      return hangs.promise;
    },
  };
  const app = createApp((bindings, ctx) => ({ ...withoutJobs(readDeps(bindings, ctx)), jobs: hanging }));
  const contexts: ExecutionContext[] = [];
  const call = createCall(async (request) => {
    const ctx = createExecutionContext();
    contexts.push(ctx);
    return app.fetch(request, env, ctx);
  });
  const { status } = await act(team, call);
  expect([status < 300, sent]).toEqual([true, 1]);
  hangs.resolve();
  for (const ctx of contexts) await waitOnExecutionContext(ctx);
});
