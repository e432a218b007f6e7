import { describe, expect } from "vitest";
import { MOMENTS, outageOf, ProxiedBindings } from "../support/bindings.ts";
import type { Answer } from "../support/client.ts";
import { ALL_DATABASES } from "../support/databases.ts";
import { type Change, compose, withDatabases, withoutHashing } from "../support/deps.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { dataOf, expectNoFiles, newUser, type Team } from "../support/harness.ts";
import { newEmail, newRecord, PASSWORD, pathTo, type Route, requestFor, routes, tokenFor } from "../support/routes.ts";
import {
  AFTER_PERMANENT_FAILURE,
  encodeForm,
  expectSettled,
  expectSound,
  must,
  rowsOf,
  UNAVAILABLE,
  World,
} from "../support/world.ts";

/*
 * Outages of D1, R2 and the Queue, on every route. A transient failure is hidden by a retry or returned as 503
 * `unavailable` with `Retry-After`. A 500 after a transient failure fails every call that goes through `World`.
 */

/** Writes that must not be repeated. A second attempt would return `email_taken` or `not_found`. */
const UNREPEATABLE = [
  ...["PATCH /auth/v1/apikeys/{id}", "DELETE /auth/v1/apikeys/{id}", "DELETE /auth/v1/sessions/{id}"],
  ...["PATCH /auth/v1/webhooks/{id}", "DELETE /auth/v1/webhooks/{id}", "POST /auth/v1/webhooks/{id}/replay"],
  ...[
    "PATCH /auth/v1/users/{id}",
    "DELETE /auth/v1/users/{id}",
    "PATCH /auth/v1/teams/{id}",
    "DELETE /docs/v1/links/{id}",
    "POST /docs/v1/trash/{id}/restore",
    "PUT /docs/v1/retention",
  ],
];

const unlimited = compose(withoutHashing, (deps) => ({
  ...deps,
  limiter: { ...deps.limiter, countExpensiveCall: async () => true },
}));

const FORGOT = "POST /auth/v1/password/forgot";

async function newInvitation(team: Team): Promise<string> {
  const { _id } = await newUser(team, { email: newEmail() });
  return (await dataOf(team.call("POST", `/auth/v1/users/${_id}/invitations`))).token;
}

/** The input of a route whose example no user or invitation matches, for a new user each time. */
const newInput: Record<string, (team: Team) => Promise<object>> = {
  [FORGOT]: async (team) => {
    const { email, teamId } = await newUser(team, { email: newEmail() });
    return { teamId, email };
  },
  "POST /auth/v1/invitations/describe": async (team) => ({ token: await newInvitation(team) }),
  "POST /auth/v1/invitations/accept": async (team) => ({ token: await newInvitation(team), password: PASSWORD }),
};

const isLogin = ({ name }: Route) => name === "POST /auth/v1/login";

/** Sends a valid request of the route, each time for another record. */
async function sender(route: Route) {
  const world = new World();
  const team = await world.newTeam();
  const login = { teamId: team.teamId, email: "ada@example.com", password: PASSWORD };
  if (isLogin(route)) await team.call("POST", "/auth/v1/users", { json: { email: login.email, password: PASSWORD } });
  // Creating the record is not under test, so skip hashing.
  const quick = {
    ...team,
    call: (...[method, path, options]: Parameters<typeof team.call>) =>
      must(world.ask(method, path, { token: team.token, ...options }, { change: withoutHashing })),
  };

  // From now on, the isolate knows the token.
  await quick.call("GET", "/docs/v1/usage");
  return {
    world,
    team,
    async send(bindings?: ProxiedBindings): Promise<Answer> {
      const path = route.path.includes("{id}") ? pathTo(route, await newRecord(quick, route)) : route.path;
      const input = await newInput[route.name]?.(quick);
      const options = isLogin(route)
        ? { json: login }
        : input
          ? { json: input }
          : { ...requestFor(route), token: tokenFor(route, team) };
      return must(world.ask(route.method, path, options, { bindings, change: isLogin(route) ? undefined : unlimited }));
    },
  };
}

function expectUnavailable({ status, code, headers }: Answer): void {
  expect([status, code]).toEqual(UNAVAILABLE);
  expect(headers.get("Retry-After")).toBe("2");
}

function expectPermanentFailure({ status, code }: Answer): void {
  expect([status, code]).toEqual(AFTER_PERMANENT_FAILURE);
}

describe.each(routes)("$name", (route) => {
  const at = (call: number, moment: (typeof MOMENTS)[number], failure: "transient" | "permanent" | "outage") =>
    new ProxiedBindings({ call, moment, failure });

  /** A new team first asks each database for its size, and goes to one that responds. */
  const goesElsewhere = (i: number) => route.name === "POST /auth/v1/teams" && i < ALL_DATABASES.length;

  test("responds 503 while D1 is down, and works afterwards", async () => {
    const { send } = await sender(route);
    expectUnavailable(await send(at(1, "before", "outage")));
    const answer = await send(at(1, "before", "permanent"));
    if (!goesElsewhere(0)) expectPermanentFailure(answer);
    expect((await send()).status).toBe(200);
  });

  test("either takes effect or fails, whichever call fails permanently", async () => {
    const { world, team, send } = await sender(route);
    const peace = new ProxiedBindings();
    expect((await send(peace)).status).toBe(200);
    expect(peace.calls.length).toBeGreaterThan(0);
    for (const [i, name] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        for (const failure of ["permanent", "outage"] as const) {
          const sent = send(at(i + 1, moment, failure));
          // Streamed: its body ends early.
          if (route.name === "GET /auth/v1/users/{id}/export" && i > 0) {
            await expect(sent).rejects.toThrow();
            continue;
          }
          const answer = await sent;
          // The recovery job sends the message, and deletes the row of a file whose bytes are deleted. A waveform's last
          // write follows the response, too.
          const isLast = i === peace.calls.length - 1;
          // An email is sent after the response.
          const isUnseen = route.name === FORGOT && i > 0;
          const isLate = isUnseen || name.startsWith("Queue") || (isLast && ["DELETE", "PUT"].includes(route.method));
          if (isLate && answer.status === 200) continue;
          if (failure === "permanent" && goesElsewhere(i)) expect(answer.status).toBe(200);
          else if (failure === "permanent") expectPermanentFailure(answer);
          else expectUnavailable(answer);
        }
      }
    }
    await expectSound(team.teamId);
    await world.recoverAll([team.teamId]);
    await expectSettled(team.teamId);
  });

  const isRepeatable = !UNREPEATABLE.includes(route.name);
  test(`${isRepeatable ? "succeeds" : "succeeds or responds 503"} if any one call fails once`, async () => {
    const { send } = await sender(route);
    const peace = new ProxiedBindings();
    await send(peace);
    for (const [i, name] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        const answer = await send(at(i + 1, moment, "transient"));
        // Some writes are authorized before, by a read. The recovery job sends a message that could not be sent.
        const isWrite = !peace.idle.has(i + 1) && !name.startsWith("Queue");
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

test.each([
  ["D1_ERROR: no such table: files: SQLITE_ERROR", 500],
  ["D1_ERROR: no such column: etag at offset 7: SQLITE_ERROR", 500],
  ["D1_ERROR: too many SQL variables", 500],
  ["Network connection lost.", 503],
  ["D1_ERROR: D1 DB storage operation exceeded timeout which caused object to be reset.", 503],
  ["D1_ERROR: D1 DB reset because its code was updated.", 503],
  ["D1_ERROR: D1 DB is overloaded. Requests queued for too long.", 503],
  ["D1_ERROR: internal error; reference = 0123456789abcdef", 503],
])("a D1 error “%s” results in %i", async (message, status) => {
  const world = new World();
  const team = await world.newTeam();
  const batch = async () => {
    throw new Error(message);
  };
  const failing = (database: D1Database) =>
    ({ prepare: (sql: string) => database.prepare(sql), batch }) as unknown as D1Database;
  const change: Change = (deps) => withDatabases(deps, failing);
  const isBug = status === 500;
  const answer = await must(world.ask("GET", "/docs/v1/usage", { token: team.token }, { change, isBug }));
  expect([answer.status, answer.headers.has("Retry-After")]).toEqual([status, status === 503]);
  expect(answer.text).not.toContain(message);
});
