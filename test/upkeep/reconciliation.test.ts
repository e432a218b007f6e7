import { env } from "cloudflare:workers";
import fc from "fast-check";
import { afterEach, expect, test } from "vitest";
import { sha256, vttOf } from "../support/bytes.ts";
import type { Team } from "../support/client.ts";
import { databaseWith } from "../support/databases.ts";
import { worldTest } from "../support/fixtures.ts";
import { OPERATOR } from "../support/harness.ts";
import { expectSound } from "../support/invariants.ts";
import { objectBeside } from "../support/rows.ts";
import { emptyStores, tableNames } from "../support/stores.ts";
import { isExhaustive } from "../support/tiers.ts";
import { DAY, HOUR, MINUTE } from "../support/time.ts";
import { encodeForm, must, World } from "../support/world.ts";

/*
 * Restoring the database to an earlier moment, as with D1's Time Travel. Random sequences of uploads, deletions, restored
 * files, and days, in which the database is put back at random: with a trash of as many days, every file that was listed
 * then opens, byte for byte. Reconciling then finds exactly the bytes without a row.
 */

const RUNS = isExhaustive ? 60 : 5;
const TRASH_DAYS = 5;

afterEach(emptyStores);

/** The rows of a database, as SQL that puts them back. */
class Snapshot {
  readonly takenAt: number;
  readonly listed: Map<string, string>;
  readonly #rows: { table: string; row: Record<string, unknown> }[];

  constructor(takenAt: number, listed: Map<string, string>, rows: { table: string; row: Record<string, unknown> }[]) {
    this.takenAt = takenAt;
    this.listed = listed;
    this.#rows = rows;
  }

  static async take(database: D1Database, takenAt: number, listed: Map<string, string>): Promise<Snapshot> {
    const rows: { table: string; row: Record<string, unknown> }[] = [];
    for (const table of await tableNames()) {
      const { results } = await database
        .prepare("select name from pragma_table_xinfo(?) where hidden = 0")
        .bind(table)
        .all<{ name: string }>();
      const columns = results.map(({ name }) => `"${name}"`).join();
      const found = await database.prepare(`select ${columns} from "${table}"`).all();
      rows.push(...found.results.map((row) => ({ table, row })));
    }
    return new Snapshot(takenAt, new Map(listed), rows);
  }

  /** Puts the rows back without their triggers, which would count them twice. */
  async putBack(database: D1Database): Promise<void> {
    const triggers = await database
      .prepare("select name, sql from sqlite_schema where type = 'trigger'")
      .all<{ name: string; sql: string }>();
    const tables = await tableNames();
    await database.batch([
      ...triggers.results.map(({ name }) => database.prepare(`drop trigger "${name}"`)),
      ...tables.map((table) => database.prepare(`delete from "${table}"`)),
      ...this.#rows.map(({ table, row }) => {
        const names = Object.keys(row);
        const marks = names.map(() => "?").join();
        return database
          .prepare(`insert into "${table}" (${names.map((name) => `"${name}"`).join()}) values (${marks})`)
          .bind(...Object.values(row));
      }),
      ...triggers.results.map(({ sql }) => database.prepare(sql)),
    ]);
  }
}

const keysOf = async (team: Team) =>
  (await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects.map(({ key }) => key).sort();

async function reconcile(world: World, json: object = {}) {
  const found = { objects: [] as { key: string; isRemoved: boolean }[], files: [] as { _id: string }[] };
  for (let after: string | undefined; ; ) {
    const { status, body, text } = await world.call("POST", "/auth/v1/reconciliation", {
      token: OPERATOR,
      json: { ...json, ...(after && { after }) },
    });
    expect(status, text).toBe(200);
    found.objects.push(...body.data.objects);
    found.files.push(...body.data.files);
    if (body.data.next === null) return found;
    after = body.data.next;
  }
}

class Stage {
  readonly world = new World();
  readonly team: Team;
  /** The digest of each listed file, by its id. */
  listed = new Map<string, string>();
  trashed = new Map<string, string>();
  /** Erased by `permanent`: no snapshot finds their bytes. */
  readonly erased = new Set<string>();
  snapshots: Snapshot[] = [];
  #count = 0;

  constructor(world: World, team: Team) {
    this.world = world;
    this.team = team;
  }

  get database(): D1Database {
    return databaseWith(this.team.teamId);
  }

  pick(files: Map<string, string>, at: number): string | undefined {
    return [...files.keys()][at % Math.max(1, files.size)];
  }

  async upload(isProcessed: boolean): Promise<void> {
    this.#count += 1;
    const text = `bytes of file ${this.#count}`;
    const { id } = await must(this.world.upload(this.team, await encodeForm("file.txt", text)));
    this.listed.set(id, sha256(new TextEncoder().encode(text)));
    if (isProcessed) await this.world.drain();
  }

  move(id: string, from: Map<string, string>, to: Map<string, string> | null): void {
    to?.set(id, from.get(id) ?? "");
    from.delete(id);
  }

  async expectListed(): Promise<void> {
    const { body } = await this.team.call("GET", "/docs/v1/uploads?limit=100");
    const ids = body.data.map(({ _id }: { _id: string }) => _id);
    expect(ids.sort()).toEqual([...this.listed.keys()].sort());
  }

  /** Every listed file opens, except those that were erased since. */
  async expectBytes(): Promise<void> {
    for (const [id, digest] of this.listed) {
      const { body } = await this.team.call("GET", `/docs/v1/uploads/${id}`);
      const { pathname } = new URL(body.signedUrl);
      const { status, text } = await this.world.call("GET", pathname);
      if (this.erased.has(id)) expect([200, 404, 500, 503]).toContain(status);
      else expect([status, sha256(new TextEncoder().encode(text))], id).toEqual([200, digest]);
    }
  }
}

type Step = [text: string, run: (stage: Stage) => Promise<unknown>];
const at = fc.nat(50);
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.boolean().map((is): Step => [`upload ${is}`, (stage) => stage.upload(is)]) },
  {
    weight: 4,
    arbitrary: at.map(
      (n): Step => [
        `delete ${n}`,
        async (stage) => {
          const id = stage.pick(stage.listed, n);
          if (!id) return;
          expect((await stage.team.call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
          stage.move(id, stage.listed, stage.trashed);
        },
      ],
    ),
  },
  {
    weight: 1,
    arbitrary: at.map(
      (n): Step => [
        `erase ${n}`,
        async (stage) => {
          const from = n % 2 === 0 ? stage.listed : stage.trashed;
          const id = stage.pick(from, n);
          if (!id) return;
          const { status } = await stage.team.call("DELETE", `/docs/v1/uploads/${id}?permanent=true`);
          // A file that is due may have been erased.
          expect(from === stage.listed ? [200] : [200, 404]).toContain(status);
          stage.move(id, from, null);
          stage.erased.add(id);
        },
      ],
    ),
  },
  {
    weight: 3,
    arbitrary: at.map(
      (n): Step => [
        `restore ${n}`,
        async (stage) => {
          const id = stage.pick(stage.trashed, n);
          if (!id) return;
          const { status } = await stage.team.call("POST", `/docs/v1/trash/${id}/restore`);
          expect([200, 404]).toContain(status);
          stage.move(id, stage.trashed, status === 200 ? stage.listed : null);
        },
      ],
    ),
  },
  {
    weight: 3,
    arbitrary: fc.nat(3 * 24).map(
      (hours): Step => [
        `wait ${hours} h`,
        async ({ world }) => {
          world.aheadMilliseconds += hours * HOUR;
          for (const wait of [0, 2 * MINUTE]) {
            world.aheadMilliseconds += wait;
            await must(world.recover());
            await world.drain();
          }
        },
      ],
    ),
  },
  {
    weight: 3,
    arbitrary: fc.constant<Step>([
      "snapshot",
      async (stage) => {
        await stage.expectListed();
        stage.snapshots.push(await Snapshot.take(stage.database, stage.world.system.now(), stage.listed));
      },
    ]),
  },
  {
    weight: 2,
    arbitrary: at.map(
      (n): Step => [
        `put back ${n}`,
        async (stage) => {
          const { world, team } = stage;
          const oldest = world.system.now() - TRASH_DAYS * DAY;
          const recent = stage.snapshots.filter(({ takenAt }) => takenAt >= oldest);
          const snapshot = recent[n % Math.max(1, recent.length)];
          if (!snapshot) return;
          await snapshot.putBack(stage.database);
          stage.listed = new Map(snapshot.listed);
          stage.trashed = new Map();
          // Two may be of the same millisecond. What came after this one may lose its bytes below.
          stage.snapshots = stage.snapshots.slice(0, stage.snapshots.indexOf(snapshot) + 1);
          await stage.expectListed();
          await stage.expectBytes();
          const { objects } = await reconcile(world);
          const rows = (
            await stage.database
              .prepare(
                "select team_id || '/' || id as file from files union all select team_id || '/' || id from removed",
              )
              .all<{ file: string }>()
          ).results;
          const known = new Set(rows.map(({ file }) => file));
          const extra = (await keysOf(team)).filter((key) => !known.has(key.slice(0, 49)));
          expect(objects.map(({ key }) => key).sort()).toEqual(extra);
          if (n % 2 === 0) {
            // R2's clock is not the world's.
            world.aheadMilliseconds += DAY + HOUR;
            await reconcile(world, { remove: true });
            expect((await reconcile(world)).objects).toEqual([]);
            await stage.expectBytes();
          }
        },
      ],
    ),
  },
);

test(`${RUNS} random histories of a team whose database is put back`, async () => {
  let putBacks = 0;
  const property = fc.asyncProperty(fc.array(steps, { minLength: 8, maxLength: 25 }), async (sequence) => {
    const world = new World();
    world.settings = { trashDays: TRASH_DAYS };
    const stage = new Stage(world, await world.newTeam());
    for (const [text, run] of sequence) {
      await run(stage);
      if (text.startsWith("put back")) putBacks += 1;
    }
    await stage.expectBytes();
    await emptyStores();
  });
  await fc.assert(property, { numRuns: RUNS, seed: Number((env as { STOWAGE_SEED?: string }).STOWAGE_SEED ?? 1) });
  expect(putBacks).toBeGreaterThan(RUNS / 2);
});

worldTest(
  "reconciling spares waveforms and unfinished uploads, but not what no row names, and reports rows without bytes",
  async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    const lost = await world.store(team, "lost.txt", "b");
    const { token, teamId } = team;
    const json = { channels: [Array(16).fill(0)] };
    await must(world.ask("PUT", `/docs/v1/uploads/${id}/waveform`, { token, json }));
    await world.storeInterrupted(team, "receiving", DAY);
    await env.BUCKET.delete(`${teamId}/${lost}-lost.txt`);
    const headers = { "Content-Type": "text/vtt" };
    await must(world.ask("PUT", `/docs/v1/uploads/${id}/transcript`, { token, body: vttOf("a"), headers }));
    const { key: text = "" } = (await objectBeside(teamId, id, "transcript")) ?? {};
    await env.BUCKET.delete(text);
    const orphan = id.replace(/^./, "f");
    const keys = [`${teamId}/${id}/waveform/0`, `${teamId}/${orphan}-x`, `${teamId}/${orphan}/waveform/1`];
    for (const key of [...keys, `${teamId}/${orphan}.1`, "foreign"]) await env.BUCKET.put(key, "x");
    const young = await reconcile(world, { remove: true });
    expect(young.files).toEqual([
      { _id: lost, teamId, key: `${teamId}/${lost}-lost.txt` },
      { _id: id, teamId, key: text },
    ]);
    expect(young.objects.map(({ key, isRemoved }) => [key, isRemoved])).toEqual([
      [`${teamId}/${id}/waveform/0`, false],
      ...["-x", ".1", "/waveform/1"].map((end) => [`${teamId}/${orphan}${end}`, false]),
      ["foreign", false],
    ]);
    world.aheadMilliseconds += 25 * HOUR;
    const old = await reconcile(world, { remove: true });
    expect(old.objects.map(({ isRemoved }) => isRemoved)).toEqual([true, true, true, true, false]);
    expect((await reconcile(world)).objects.map(({ key }) => key)).toEqual(["foreign"]);
    await env.BUCKET.delete("foreign");
    await expectSound(teamId, { bytesLost: true });
  },
);

worldTest("reconciling finds everything in pages, in all databases", async ({ world, team }) => {
  const other = await world.newTeam((world.database + 1) % 3);
  const stored = [await world.store(team, "a.txt", "a"), await world.store(other, "b.txt", "b")];
  const lost = await world.store(other, "lost.txt", "c");
  await env.BUCKET.delete(`${other.teamId}/${lost}-lost.txt`);
  // More objects of one file, and more files, than a page has.
  const [many, unbound] = [stored[0]?.replace(/^./, "e"), `${"0".repeat(21)}0ff`];
  await Promise.all(Array.from({ length: 600 }, (_, i) => env.BUCKET.put(`${team.teamId}/${many}.${i}`, "x")));
  await env.BUCKET.put(`${unbound}/${unbound}-x`, "x");
  await databaseWith(team.teamId)
    .prepare(
      `with recursive n(i) as (select 1 union all select i + 1 from n where i < 1100)
       insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, created_at, updated_at)
       select 'x', 'audio/mpeg', 'audio file', printf('%024x', i), ?1, ?1, 'lost', 'completed', 1, 1, 1, 1 from n`,
    )
    .bind(team.teamId)
    .run();
  world.aheadMilliseconds += 25 * HOUR;
  const { objects, files } = await reconcile(world, { remove: true });
  expect(files).toHaveLength(1101);
  expect(objects.filter(({ isRemoved }) => isRemoved)).toHaveLength(600);
  expect(objects.filter(({ isRemoved }) => !isRemoved).map(({ key }) => key)).toEqual([`${unbound}/${unbound}-x`]);
  for (const [i, { teamId }] of [team, other].entries()) {
    expect(await keysOf({ teamId } as Team)).toEqual([`${teamId}/${stored[i]}-${i === 0 ? "a" : "b"}.txt`]);
  }
});
