import { beforeEach, describe, expect } from "vitest";
import { createHealth } from "../../src/platform/health.ts";
import { outageOf, ProxiedBindings } from "../support/bindings.ts";
import { ALL_DATABASES } from "../support/databases.ts";
import type { Change } from "../support/deps.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { OPERATOR } from "../support/harness.ts";
import { emptyStores } from "../support/stores.ts";
import { MINUTE } from "../support/time.ts";
import { must, type World } from "../support/world.ts";

/* How a cron trigger that stopped is seen, and replaced by requests. */

beforeEach(emptyStores);

const check = async () => {};

/** An isolate that looks whether the recovery job runs, with a health check whose time limit never ends. */
function newIsolate(): Change {
  const checks = new Map<string, number>();
  return (deps) => {
    const queues = { jobs: { ...deps.jobs, check }, bulkJobs: { ...deps.bulkJobs, check } };
    const others = {
      waveformJobs: { ...deps.waveformJobs, check },
      recoveryJobs: { ...deps.recoveryJobs, check },
    };
    const system = { ...deps.system, sleep: () => new Promise<never>(() => undefined) };
    const watching = { ...deps, ...queues, ...others, system, recoveryChecks: checks };
    return { ...watching, health: createHealth(watching) };
  };
}

const healthOf = async (world: World, token?: string, change = newIsolate()) => {
  const { status, body } = await must(world.ask("GET", "/health", token === undefined ? {} : { token }, { change }));
  return { status, message: body.message as string, databases: body.databases };
};

const askFrom = async (world: World, token: string, change: Change, bindings?: ProxiedBindings) =>
  (await must(world.ask("GET", "/docs/v1/usage", { token }, { change, bindings }))).status;

const eventsOf = ({ lines }: World, name: string) => lines.filter(({ event }) => event === name);

describe("The recovery job", () => {
  test("stores for each database when its last run ended, which the operator sees in /health", async ({ world }) => {
    await world.recoverIn(1);
    const first = world.system.now();
    world.aheadMilliseconds += MINUTE;
    await world.recoverIn(1);
    const { status, databases } = await healthOf(world, OPERATOR);
    expect(status).toBe(200);
    const times = databases.map(({ recoveredAt }: { recoveredAt: string | null }) => recoveredAt);
    expect(times).toEqual([null, new Date(first + MINUTE).toISOString(), null]);
    expect((await healthOf(world)).databases).toBeUndefined();
  });

  test("that ended more than 15 minutes ago makes /health respond 503 and name it", async ({ world }) => {
    await world.recoverIn(1);
    world.aheadMilliseconds += 15 * MINUTE;
    expect(await healthOf(world)).toMatchObject({ status: 200 });
    world.aheadMilliseconds += 1;
    expect(await healthOf(world)).toMatchObject({
      status: 503,
      message: "Not responding: recovery of database 1.",
    });
    await world.recoverIn(1);
    expect(await healthOf(world)).toMatchObject({ status: 200 });
  });

  test("has 15 minutes to end its first run in a new database, from the first request on", async ({ world }) => {
    for (const isLate of [false, true]) {
      expect(await healthOf(world)).toMatchObject({ status: isLate ? 503 : 200 });
      world.aheadMilliseconds += 16 * MINUTE;
    }
    expect((await healthOf(world)).message).toBe(
      `Not responding: ${[...ALL_DATABASES.keys()].map((number) => `recovery of database ${number}`).join(", ")}.`,
    );
    await world.recover();
    expect(eventsOf(world, "recovery_step_failed")).toEqual([]);
  });
});

describe("A request while the cron trigger has stopped", () => {
  test("starts one run of its database after the response, whatever isolates see it, and the log warns", async ({
    world,
    team,
  }) => {
    const database = world.database;
    await world.recoverIn(database);
    expect(await askFrom(world, team.token, newIsolate())).toBe(200);
    expect(world.recoveryMessages).toEqual([]);
    world.aheadMilliseconds += 16 * MINUTE;
    for (let i = 0; i < 3; i++) expect(await askFrom(world, team.token, newIsolate())).toBe(200);
    expect(world.recoveryMessages).toEqual([{ database }]);
    expect(eventsOf(world, "recovery_overdue")).toEqual([
      expect.objectContaining({ level: "warn", event: "recovery_overdue", database }),
    ]);
    // Its message was lost.
    world.aheadMilliseconds += 6 * MINUTE;
    expect(await askFrom(world, team.token, newIsolate())).toBe(200);
    expect(world.recoveryMessages).toHaveLength(2);
    expect(await must(world.deliverRecovery({ database }))).toBeNull();
    world.aheadMilliseconds += 6 * MINUTE;
    expect(await askFrom(world, team.token, newIsolate())).toBe(200);
    expect(world.recoveryMessages).toHaveLength(2);
  });

  test("to /health starts the runs of all databases that need one", async ({ world }) => {
    for (const database of [0, 2]) await world.recoverIn(database);
    world.aheadMilliseconds += 16 * MINUTE;
    await healthOf(world);
    expect(world.recoveryMessages).toEqual([{ database: 0 }, { database: 2 }]);
  });

  test("succeeds also if the run can't be started, which is logged", async ({ world, team }) => {
    await world.recoverIn(world.database);
    world.aheadMilliseconds += 16 * MINUTE;
    const bindings = new ProxiedBindings(outageOf("Queue"));
    expect(await askFrom(world, team.token, newIsolate(), bindings)).toBe(200);
    expect(world.recoveryMessages).toEqual([]);
    expect(eventsOf(world, "recovery_check_failed")).toHaveLength(1);
  });

  test("looks at most once in five minutes in each isolate", async ({ world, team }) => {
    const isolate = newIsolate();
    const looks = async () => {
      const bindings = new ProxiedBindings();
      await askFrom(world, team.token, isolate, bindings);
      return new Set(bindings.queries.flatMap(({ sql }) => (sql.includes("recovery") ? [sql] : []))).size;
    };
    expect([await looks(), await looks()]).toEqual([1, 0]);
    world.aheadMilliseconds += 5 * MINUTE;
    expect([await looks(), await looks()]).toEqual([1, 0]);
  });
});
