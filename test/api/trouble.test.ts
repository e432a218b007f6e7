import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Deps } from "../../src/deps.ts";
import { splitRoute } from "../../src/http/operation.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { realSystem } from "../../src/platform/system.ts";
import { operations as api } from "../support/contract.ts";
import {
  type Answered,
  type Ask,
  encodeForm,
  expectSettled,
  expectSound,
  type Founded,
  MOMENTS,
  rowsOf,
  Wire,
  World,
} from "../support/faults.ts";

/*
 * What a client sees of trouble with D1, R2 and the Queue, on every route of the table: `unavailable` with `Retry-After`,
 * or nothing at all. (A 500 fails any call that goes through `World`.)
 */

const routes = Object.entries(api).map(([route, operation]) => ({ route, ...splitRoute(route), operation }));
type Route = (typeof routes)[number];

/** Their write may not be repeated: done twice it would say that the email is taken, or that there is no such record. */
const UNREPEATABLE = [
  "POST /auth/v1/users",
  "PATCH /auth/v1/users/{id}",
  "DELETE /auth/v1/users/{id}",
  "DELETE /auth/v1/apikeys/{id}",
];

const PASSWORD = "correct horse battery";
const newIdentifier = () => Buffer.from(realSystem.randomBytes(12)).toString("hex");

/** Sends the route's request, right in every way, each time about another record. */
async function sender({ route, method, path, operation }: Route) {
  const world = new World();
  const team = await world.foundTeam();
  const email = "ada@example.com";
  if (route === "POST /auth/v1/login") {
    await world.ask("POST", "/auth/v1/users", { token: team.token, json: { email, password: PASSWORD } });
  }

  async function record(): Promise<string> {
    if (path.startsWith("/docs")) return world.store(team, "note.txt", "note");
    if (path.includes("apikeys")) {
      const { body } = await world.must(
        world.ask("POST", "/auth/v1/apikeys", { token: team.token, json: { name: "key" } }),
      );
      return body.data.id;
    }
    const id = newIdentifier();
    await env.DB.prepare("insert into users values (?, ?, 'Ada', 'L', ?, ?, 'none', 1, 1, 0)")
      .bind(id, team.teamId, `${id}@example.com`, `${id}@example.com`)
      .run();
    return id;
  }
  async function input(): Promise<Ask> {
    if (route === "POST /auth/v1/login") return { json: { teamId: team.teamId, email, password: PASSWORD } };
    if (operation.takesFile) return { form: await encodeForm("note.txt", "note") };
    if (operation.bodyExample === undefined) return {};
    const isNew = route === "POST /auth/v1/users";
    return {
      json: { ...(operation.bodyExample as object), ...(isNew && { email: `${newIdentifier()}@example.com` }) },
    };
  }

  return {
    world,
    team,
    async send(wire?: Wire, change?: (deps: Deps) => Deps): Promise<Answered> {
      const target = path.includes("{id}") ? path.replace("{id}", await record()) : path;
      const token = operation.access === "public" ? {} : { token: team.token };
      return world.must(world.ask(method, target, { ...token, ...(await input()) }, wire, change));
    },
  };
}

function expectUnavailable({ status, code, headers }: Answered): void {
  expect([status, code]).toEqual([503, "unavailable"]);
  expect(headers.get("Retry-After")).toMatch(/^[1-9]\d*$/);
}

describe.each(routes)("$route", (route) => {
  test("is unavailable while D1 is away", async () => {
    const { send } = await sender(route);
    expectUnavailable(await send(new Wire({ call: 1, moment: "before", trouble: "outage" })));
    expectUnavailable(await send(new Wire({ call: 1, moment: "before", trouble: "lasting" })));
    expect((await send()).status).toBe(200);
  });

  test("is done, or unavailable, whichever of its calls fails for good", async () => {
    const { world, team, send } = await sender(route);
    const peace = new Wire();
    expect((await send(peace)).status).toBe(200);
    expect(peace.calls.length).toBeGreaterThan(0);
    for (const [i, name] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        for (const trouble of ["lasting", "outage"] as const) {
          const answer = await send(new Wire({ call: i + 1, moment, trouble }));
          // The message, and the row of a file whose bytes are gone, recovery sees to.
          const isLate = name.startsWith("Queue") || (route.method === "DELETE" && i === peace.calls.length - 1);
          if (!isLate || answer.status !== 200) expectUnavailable(answer);
        }
      }
    }
    await expectSound(team.teamId);
    await world.heal([team.teamId]);
    await expectSettled(team.teamId);
  });

  test(`${UNREPEATABLE.includes(route.route) ? "is done or unavailable" : "is done"} when one of its calls fails once`, async () => {
    const { send } = await sender(route);
    const peace = new Wire();
    await send(peace);
    for (const [i] of peace.calls.entries()) {
      for (const moment of MOMENTS) {
        const answer = await send(new Wire({ call: i + 1, moment, trouble: "passing" }));
        // Proving the caller is a read, and comes first.
        if (UNREPEATABLE.includes(route.route) && i > 0) expectUnavailable(answer);
        else expect(answer.status).toBe(200);
      }
    }
  });
});

describe("an error that passes", () => {
  const usage = async (dice: number): Promise<{ calls: string[]; pauses: number[] }> => {
    const world = new World();
    const team: Founded = await world.foundTeam();
    const pauses: number[] = [];
    const wire = new Wire({ call: 1, moment: "before", trouble: "outage" });
    const answer = await world.must(
      world.ask("GET", "/docs/v1/usage", { token: team.token }, wire, (deps) => ({
        ...deps,
        system: {
          ...deps.system,
          randomBytes: (count) => new Uint8Array(count).fill(dice),
          sleep: async (milliseconds) => void pauses.push(milliseconds),
        },
      })),
    );
    expectUnavailable(answer);
    return { calls: wire.calls, pauses };
  };

  test("is tried three times, with a pause between that is random up to a growing bound, at most 2 s", async () => {
    expect(await usage(0)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [0, 0] });
    expect(await usage(255)).toEqual({ calls: Array(3).fill("D1 batch"), pauses: [400, 1600] });
  });

  test("does not hide that an answer was lost: an upload that took three tries is one file", async () => {
    const world = new World();
    const team = await world.foundTeam();
    const wire = new Wire(
      { call: 2, moment: "after", trouble: "passing" },
      { call: 3, moment: "after", trouble: "passing" },
    );
    const { status, id } = await world.must(world.upload(team, await encodeForm("note.txt", "note"), {}, wire));
    expect(status).toBe(200);
    expect(await expectSound(team.teamId)).toMatchObject([{ id, status: "pending" }]);
  });
});

describe("while the queue is away", () => {
  const change = (deps: Deps): Deps => ({
    ...deps,
    jobs: {
      send: async () => {
        throw new Error("The queue is away.");
      },
      sendAll: deps.jobs.sendAll,
    },
  });

  test("an upload has happened all the same, and recovery has it processed", async () => {
    const world = new World();
    const team = await world.foundTeam();
    const form = await encodeForm("note.txt", "note");
    const { status, id } = await world.must(world.upload(team, form, {}, undefined, change));
    expect(status).toBe(200);
    expect(world.messages).toEqual([]);
    expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "pending" }]);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });

  test("a reprocess has happened all the same", async () => {
    const world = new World();
    const team = await world.foundTeam();
    const id = await world.store(team, "note.txt", "note");
    await world.drain();
    const path = `/docs/v1/uploads/${id}/reprocess`;
    const { status } = await world.must(world.ask("POST", path, { token: team.token }, undefined, change));
    expect(status).toBe(200);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });
});

describe("while the bucket is away", () => {
  test("an upload is unavailable and leaves nothing that is listed", async () => {
    const world = new World();
    const team = await world.foundTeam();
    const away = new Wire({ call: 1, moment: "before", trouble: "outage" }).bucket(env.BUCKET);
    const answer = await world.must(
      world.upload(team, await encodeForm("note.txt", "note"), {}, undefined, (deps) => ({
        ...deps,
        bytes: createByteStore(away, deps.system),
      })),
    );
    expectUnavailable(answer);
    const { body } = await world.get("/docs/v1/uploads", team);
    expect(body.data).toEqual([]);
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});
