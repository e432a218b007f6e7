import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { createDb } from "../../src/platform/db.ts";
import { MOMENTS, outageOf, ProxiedBindings } from "../support/bindings.ts";
import type { Answer } from "../support/client.ts";
import { type Change, withoutHashing } from "../support/deps.ts";
import { newRecord, PASSWORD, pathTo, type Route, requestFor, routes } from "../support/routes.ts";
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
 * What a client sees while D1, R2 or the Queue fails, on every route. A transient failure is hidden by a retry or answered
 * with 503 `unavailable` and `Retry-After`; a 500 after one fails any call that goes through `World`.
 */

/** Their write may not be repeated: done twice it would say that the email is taken, or that there is no such record. */
const UNREPEATABLE = [
  "PATCH /auth/v1/webhooks/{id}",
  "DELETE /auth/v1/webhooks/{id}",
  "POST /auth/v1/webhooks/{id}/replay",
  "PATCH /auth/v1/users/{id}",
  "DELETE /auth/v1/users/{id}",
  "DELETE /auth/v1/apikeys/{id}",
];

const isLogin = ({ name }: Route) => name === "POST /auth/v1/login";

/** Sends the route's request, right in every way, each time about another record. */
async function sender(route: Route) {
  const world = new World();
  const team = await world.newTeam();
  const login = { teamId: team.teamId, email: "ada@example.com", password: PASSWORD };
  if (isLogin(route)) await team.call("POST", "/auth/v1/users", { json: { email: login.email, password: PASSWORD } });
  // What is asked of the record is tested elsewhere; without hashing it is made at once.
  const quick = {
    ...team,
    call: (...[method, path, options]: Parameters<typeof team.call>) =>
      must(world.ask(method, path, { token: team.token, ...options }, { change: withoutHashing })),
  };

  return {
    world,
    team,
    async send(bindings?: ProxiedBindings): Promise<Answer> {
      const path = route.path.includes("{id}") ? pathTo(route, await newRecord(quick, route)) : route.path;
      const options = isLogin(route) ? { json: login } : { ...requestFor(route), token: team.token };
      return must(
        world.ask(route.method, path, options, { bindings, change: isLogin(route) ? undefined : withoutHashing }),
      );
    },
  };
}

function expectUnavailable({ status, code, headers }: Answer): void {
  expect([status, code]).toEqual(UNAVAILABLE);
  expect(headers.get("Retry-After")).toMatch(/^[1-9]\d*$/);
}

function expectPermanentFailure({ status, code }: Answer): void {
  expect([status, code]).toEqual(AFTER_PERMANENT_FAILURE);
}

describe.each(routes)("$name", (route) => {
  const at = (call: number, moment: (typeof MOMENTS)[number], failure: "transient" | "permanent" | "outage") =>
    new ProxiedBindings({ call, moment, failure });

  test("The operation is unavailable while D1 is away, and works once it is back.", async () => {
    const { send } = await sender(route);
    expectUnavailable(await send(at(1, "before", "outage")));
    expectPermanentFailure(await send(at(1, "before", "permanent")));
    expect((await send()).status).toBe(200);
  });

  test("The operation is done or refused, whichever of its calls fails for good.", async () => {
    const { world, team, send } = await sender(route);
    const peace = new ProxiedBindings();
    expect((await send(peace)).status).toBe(200);
    expect(peace.calls.length).toBeGreaterThan(0);
    for (const [i, name] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        for (const failure of ["permanent", "outage"] as const) {
          const answer = await send(at(i + 1, moment, failure));
          // Recovery sees to the message, and to the row of a file whose bytes are gone.
          const isLate = name.startsWith("Queue") || (route.method === "DELETE" && i === peace.calls.length - 1);
          if (isLate && answer.status === 200) continue;
          if (failure === "permanent") expectPermanentFailure(answer);
          else expectUnavailable(answer);
        }
      }
    }
    await expectSound(team.teamId);
    await world.heal([team.teamId]);
    await expectSettled(team.teamId);
  });

  const isRepeatable = !UNREPEATABLE.includes(route.name);
  test(`The operation ${isRepeatable ? "is done" : "is done or unavailable"} when one of its calls fails once.`, async () => {
    const { send } = await sender(route);
    const peace = new ProxiedBindings();
    await send(peace);
    for (const [i] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        const answer = await send(at(i + 1, moment, "transient"));
        // Authenticating the caller is a read, and comes first.
        if (!isRepeatable && i > 0) expectUnavailable(answer);
        else expect(answer.status).toBe(200);
      }
    }
  });
});

describe("A transient failure", () => {
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

  test("A call is tried three times, with a random pause up to a growing bound of at most 2 s between.", async () => {
    expect(await usage(0)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [0, 0] });
    expect(await usage(255)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [400, 1600] });
  });

  test("An upload whose commit is tried three times, since its answers are lost, stores one file.", async () => {
    const world = new World();
    const team = await world.newTeam();
    const bindings = new ProxiedBindings(
      { call: 2, moment: "after", failure: "transient" },
      { call: 3, moment: "after", failure: "transient" },
    );
    const { status, id } = await must(world.upload(team, await encodeForm("note.txt", "note"), {}, { bindings }));
    expect(status).toBe(200);
    expect(await expectSound(team.teamId)).toMatchObject([{ id, status: "pending" }]);
  });
});

describe("While the queue is away", () => {
  const queueAway = () => new ProxiedBindings(outageOf("Queue"));

  test("An upload is stored while the queue is away, and recovery has it processed.", async () => {
    const world = new World();
    const team = await world.newTeam();
    const form = await encodeForm("note.txt", "note");
    const { status, id } = await must(world.upload(team, form, {}, { bindings: queueAway() }));
    expect(status).toBe(200);
    expect(world.messages).toEqual([]);
    expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "pending" }]);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });

  test("A reprocessing is taken while the queue is away, and recovery carries it out.", async () => {
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "note.txt", "note");
    await world.drain();
    const path = `/docs/v1/uploads/${id}/reprocess`;
    const { status } = await must(world.ask("POST", path, { token: team.token }, { bindings: queueAway() }));
    expect(status).toBe(200);
    expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "pending" }]);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });
});

test("An upload while the bucket is away is unavailable, and leaves nothing that is listed.", async () => {
  const world = new World();
  const team = await world.newTeam();
  const bindings = new ProxiedBindings(outageOf("R2"));
  expectUnavailable(await must(world.upload(team, await encodeForm("note.txt", "note"), {}, { bindings })));
  expect((await team.call("GET", "/docs/v1/uploads")).body.data).toEqual([]);
  await world.heal([team.teamId]);
  expect(await expectSettled(team.teamId)).toEqual([]);
  expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual([]);
});

test.each([
  ["D1_ERROR: no such table: files: SQLITE_ERROR", 500],
  ["D1_ERROR: no such column: etag at offset 7: SQLITE_ERROR", 500],
  ["D1_ERROR: too many SQL variables", 500],
  ["Network connection lost.", 503],
  ["D1_ERROR: D1 DB storage operation exceeded timeout which caused object to be reset.", 503],
  ["D1_ERROR: D1 DB reset because its code was updated.", 503],
  ["D1_ERROR: D1 DB is overloaded. Requests queued for too long.", 503],
])("A database that fails with “%s” is answered with %i.", async (message, status) => {
  const world = new World();
  const team = await world.newTeam();
  const batch = async () => {
    throw new Error(message);
  };
  const DB = { prepare: (sql: string) => env.DB.prepare(sql), batch } as unknown as D1Database;
  const change: Change = (deps) => ({ ...deps, db: createDb(DB) });
  const broken = new ProxiedBindings({ call: 1, moment: "before", failure: "permanent" });
  broken.calls.push("D1 batch"); // The proxy is not in the way here, and a 500 is expected.
  const answer = await must(world.ask("GET", "/docs/v1/usage", { token: team.token }, { bindings: broken, change }));
  expect([answer.status, answer.headers.has("Retry-After")]).toEqual([status, status === 503]);
  expect(answer.text).not.toContain(message);
});
