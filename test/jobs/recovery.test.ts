import { createExecutionContext, createScheduledController, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test } from "vitest";
import { recover } from "../../src/domain/recovery.ts";
import worker from "../../src/index.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { newToken, newUuid, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import type { Team } from "../support/client.ts";
import type { Deps } from "../support/deps.ts";
import { expectSettled, expectSound, forget, rowsOf, World } from "../support/world.ts";

/*
 * What the cron trigger finds unfinished, and finishes. Recovery works on every team's rows, so each test takes its own
 * away when it ends.
 */

const MINUTE = 60_000;
/** What one run takes of each kind at most. */
const BOUND = 5000;

type State = "receiving" | "pending" | "processing" | "deleting";
const STATES: State[] = ["receiving", "pending", "processing", "deleting"];

const founded: Team[] = [];
afterEach(async () => {
  for (const { teamId } of founded.splice(0)) await forget(teamId);
});

async function begin(): Promise<{ world: World; team: Team }> {
  const world = new World();
  const team = await world.newTeam();
  founded.push(team);
  return { world, team };
}

/** Rows without bytes, all overdue. Ids begin so that they are due before any other. */
async function insertMany(team: Team, state: State, count: number): Promise<void> {
  await env.DB.prepare(
    `with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)
     insert into files (id, team_id, original_name, status, reserved_bytes, size_bytes, due_at, created_at, updated_at)
     select lower(hex(randomblob(12))), ?, 'many', ?, 1, 1, i, 1, 1 from n`,
  )
    .bind(count, team.teamId, state)
    .run();
}

const countOf = async (team: Team, where: string) =>
  (await env.DB.prepare(`select count(*) as n from files where team_id = ? and ${where}`)
    .bind(team.teamId)
    .first<number>("n")) ?? 0;

describe("An overdue file", () => {
  test.each(["receiving", "deleting"] as const)(
    "An overdue file that is %s is removed, bytes and row.",
    async (state) => {
      const { world, team } = await begin();
      await world.leave(team, state, -1);
      await world.recover();
      expect(await expectSettled(team.teamId)).toEqual([]);
      expect(world.messages).toEqual([]);
    },
  );

  test.each(["pending", "processing"] as const)(
    "An overdue file that is %s has its message enqueued again.",
    async (state) => {
      const { world, team } = await begin();
      const id = await world.leave(team, state, -1);
      await world.recover();
      expect(world.messages).toEqual([id]);
      const [row] = await rowsOf(team.teamId);
      expect(row).toMatchObject({ status: "pending" });
      expect(row?.due_at).toBeGreaterThan(world.system.now());
      await world.drain();
      expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
    },
  );

  test.each(STATES)("A file that is %s, and not due yet, is left as it is.", async (state) => {
    const { world, team } = await begin();
    await world.leave(team, state, MINUTE);
    const before = await rowsOf(team.teamId);
    await world.recover();
    expect(await rowsOf(team.teamId)).toEqual(before);
    expect(await expectSound(team.teamId)).toHaveLength(1);
    expect(world.messages).toEqual([]);
  });

  test("An upload is due after a day, a message after two minutes, a lease after five.", async () => {
    const { world, team } = await begin();
    const id = await world.store(team, "note.txt", "never enqueued");
    world.messages = [];
    world.aheadMilliseconds += 1.9 * MINUTE;
    await world.recover();
    expect(world.messages).toEqual([]);
    world.aheadMilliseconds += 0.2 * MINUTE;
    await world.recover();
    expect(world.messages).toEqual([id]);

    await world.deliver(id, new ProxiedBindings({ call: 2, moment: "before", failure: "death" }));
    world.messages = [];
    world.aheadMilliseconds += 4.9 * MINUTE;
    await world.recover();
    expect(world.messages).toEqual([]);
    world.aheadMilliseconds += 0.2 * MINUTE;
    await world.recover();
    expect(world.messages).toEqual([id]);
  });

  test("An overdue file is found by the cron trigger of the Worker as it is deployed.", async () => {
    const { world, team } = await begin();
    await world.leave(team, "deleting", -1);
    const ctx = createExecutionContext();
    await worker.scheduled(createScheduledController(), env, ctx);
    await waitOnExecutionContext(ctx);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});

describe("A run", () => {
  test("A run finds nothing to do after another.", async () => {
    const { world, team } = await begin();
    for (const state of STATES) await world.leave(team, state, -1);
    expect(await world.recover()).toMatchObject({ sent: 2, erased: 2 });
    const rows = await rowsOf(team.teamId);
    const nothing = { sent: 0, erased: 0, loginsRemoved: 0, keysRemoved: 0, deliveries: 0, purged: 0, reencrypted: 0 };
    expect(await world.recover()).toEqual(nothing);
    expect(await rowsOf(team.teamId)).toEqual(rows);
  });

  test("A run shares the work with another at the same time.", async () => {
    const { world, team } = await begin();
    const left: string[] = [];
    for (const state of [...STATES, ...STATES]) left.push(await world.leave(team, state, -1));
    await Promise.all([world.recover(), world.recover()]);
    expect(world.messages.sort()).toEqual(left.filter((_, i) => i % 4 === 1 || i % 4 === 2).sort());
    await world.drain();
    expect((await expectSettled(team.teamId)).map(({ status }) => status)).toEqual(Array(4).fill("completed"));
  });

  test("A run writes one line, of counts.", async () => {
    const { world, team } = await begin();
    for (const state of STATES) await world.leave(team, state, -1);
    await world.recover();
    expect(world.lines.filter(({ event }) => event === "recovery")).toEqual([
      {
        level: "info",
        event: "recovery",
        counts: { sent: 2, erased: 2, loginsRemoved: 0, keysRemoved: 0, deliveries: 0, purged: 0, reencrypted: 0 },
      },
    ]);
  });

  test.each([
    ["the bucket", (deps: Deps): Deps => ({ ...deps, bytes: { ...deps.bytes, remove: broken } }), ["erase", "erase"]],
    ["the queue", (deps: Deps): Deps => ({ ...deps, jobs: { ...deps.jobs, sendAll: broken } }), ["send", "send"]],
  ])("A run does all else while %s is away, and the rest once it is back.", async (_, change, failed) => {
    const { world, team } = await begin();
    for (const state of STATES) await world.leave(team, state, -1);
    const counts = await recover(change(world.deps()));
    const steps = world.lines.filter(({ event }) => event === "recovery step failed").map(({ outcome }) => outcome);
    expect(steps).toEqual(failed);
    expect(counts).toMatchObject(failed.includes("erase") ? { sent: 2, erased: 0 } : { sent: 0, erased: 2 });
    world.aheadMilliseconds += 3 * MINUTE;
    await world.recover();
    await world.drain();
    expect((await expectSettled(team.teamId)).map(({ status }) => status)).toEqual(["completed", "completed"]);
  });
});

async function broken(): Promise<never> {
  throw new Error("It is away.");
}

describe("Thousands of overdue files", () => {
  test.each(["pending", "deleting"] as const)(
    "Thousands of files that are %s are taken in bounded runs, and no other kind waits for them.",
    async (state) => {
      const { world, team } = await begin();
      await insertMany(team, state, BOUND + 700);
      const { team: other } = await begin();
      for (const one of STATES.filter((one) => one !== state)) await world.leave(other, one, -1);

      const isOpen = `status = '${state}' and due_at < 1000000`;
      await world.recover();
      expect(await countOf(team, isOpen)).toBe(700);
      expect(await countOf(other, "status = 'pending'")).toBe(state === "pending" ? 1 : 2);
      expect(await countOf(other, "1")).toBe(state === "pending" ? 1 : 2);
      if (state === "pending") expect(world.messages).toHaveLength(BOUND + 1);

      await world.recover();
      expect(await countOf(team, isOpen)).toBe(0);
      if (state === "pending") expect(new Set(world.messages).size).toBe(BOUND + 701);
      else expect(await countOf(team, "1")).toBe(0);
    },
  );
});

/** Inserts encrypted keys of the team, or login keys if they have a user. */
async function insertKey(team: Team, { userId = null as string | null, expiresAt = 4e12 } = {}, count = 1) {
  const { secrets } = new World().deps();
  const keys = Array.from({ length: count }, () => {
    const id = Buffer.from(realSystem.randomBytes(12)).toString("hex");
    return { id, token: newToken(realSystem, false) };
  });
  const insert = env.DB.prepare(
    "insert into api_keys values (?, ?, ?, 'key', 0, lower(hex(randomblob(32))), ?, ?, ?, 1, ?)",
  );
  await env.DB.batch(
    keys.map(({ id, token }) =>
      insert.bind(
        id,
        team.teamId,
        newUuid(realSystem),
        userId === null ? secrets.encrypt(token, `api-key/${id}/${team.teamId}`) : null,
        userId === null ? secrets.currentKeyId : null,
        userId,
        expiresAt,
      ),
    ),
  );
  return keys;
}

const keyIds = async ({ teamId }: Team) =>
  (await env.DB.prepare("select id from api_keys where team_id = ?").bind(teamId).all<{ id: string }>()).results.map(
    ({ id }) => id,
  );

describe("Keys", () => {
  test("removes login keys once they expire, and API keys 30 days after", async () => {
    const { world, team } = await begin();
    const now = world.system.now();
    const [gone] = await insertKey(team, { userId: "user", expiresAt: now - 1 });
    const [live] = await insertKey(team, { userId: "user", expiresAt: now + MINUTE });
    const [expired] = await insertKey(team, { expiresAt: now - 30 * 24 * 60 * MINUTE + 1 });
    const [old] = await insertKey(team, { expiresAt: now - 30 * 24 * 60 * MINUTE - 1 });
    expect(await world.recover()).toMatchObject({ loginsRemoved: 1, keysRemoved: 1 });
    const left = await keyIds(team);
    expect(left).toEqual(expect.arrayContaining([live?.id, expired?.id]));
    for (const key of [gone, old]) expect(left).not.toContain(key?.id);
  });

  test("Keys are encrypted anew after the master key has changed, some in each run, until the old one can go.", async () => {
    const { world, team } = await begin();
    const keys = await insertKey(team, {}, 450);
    const sealedWith = async (id: string) =>
      env.DB.prepare("select count(*) as n from api_keys where team_id = ? and sealed_with = ?")
        .bind(team.teamId, id)
        .first<number>("n");
    const next = btoa("fedcba9876543210fedcba9876543210");
    world.secrets = loadSecrets(`${next},${env.MASTER_KEY}`, realSystem);
    const [old = ""] = world.secrets.olderKeyIds;

    const left = [await sealedWith(old)];
    for (let run = 0; run < 10 && left.at(-1) !== 0; run++) {
      await world.recover();
      left.push(await sealedWith(old));
    }
    expect(left[0]).toBe(451);
    expect(left.length, "more than one run").toBeGreaterThan(2);
    expect(left.at(-1)).toBe(0);

    world.secrets = loadSecrets(next, realSystem);
    const { body } = await team.call("GET", `/auth/v1/apikeys/${keys[0]?.id}`);
    expect(body.data.key).toBe(keys[0]?.token);
  });

  test("Keys that can't be decrypted are named in the log once and left out from then on, and the others are encrypted anew.", async () => {
    const { world, team } = await begin();
    const [spoilt, sound] = await insertKey(team, {}, 2);
    await env.DB.prepare("update api_keys set sealed_token = substr(sealed_token, 1, 20) where id = ?")
      .bind(spoilt?.id)
      .run();
    world.secrets = loadSecrets(`${btoa("fedcba9876543210fedcba9876543210")},${env.MASTER_KEY}`, realSystem);
    await world.recover();
    await world.recover();
    const sealed = await env.DB.prepare("select id, sealed_with from api_keys where id in (?, ?)")
      .bind(spoilt?.id, sound?.id)
      .all<{ id: string; sealed_with: string }>();
    expect(Object.fromEntries(sealed.results.map((row) => [row.id, row.sealed_with]))).toEqual({
      [spoilt?.id ?? ""]: "unreadable",
      [sound?.id ?? ""]: world.secrets.currentKeyId,
    });
    const named = world.lines.filter(({ level }) => level === "error").map(({ keyId }) => keyId);
    expect(named).toEqual([spoilt?.id]);
  });
});

describe("a file that waits", () => {
  const waiting = async (world: World) => {
    const team = await world.newTeam();
    const id = await world.store(team, "a.txt", "text");
    world.messages = [];
    const row = () =>
      env.DB.prepare("select status, version, created_at, updated_at from files where id = ?").bind(id).first();
    return { team, id, row };
  };

  test("Recovery sends the message of a waiting file again and changes nothing that shows.", async () => {
    const world = new World();
    const { team, id, row } = await waiting(world);
    const [before, shown] = [await row(), await team.call("GET", `/docs/v1/uploads/${id}/metadata`)];
    world.aheadMilliseconds += 3 * 60_000;
    await world.recover();
    expect(world.messages).toContain(id);
    expect(await row()).toEqual(before);
    expect((await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).text).toBe(shown.text);
  });

  test("A message that is merely late is sent again ever less often, four times an hour at most.", async () => {
    const world = new World();
    const { id } = await waiting(world);
    const sentIn = async (minutes: number) => {
      world.messages = [];
      for (let i = 0; i < minutes; i++) {
        world.aheadMilliseconds += 60_000;
        await world.recover();
      }
      return world.messages.filter((message) => message === id).length;
    };
    expect(await sentIn(60)).toBeLessThanOrEqual(7);
    for (let hour = 0; hour < 3; hour++) expect(await sentIn(60)).toBe(4);
  });
});
