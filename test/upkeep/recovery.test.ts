import {
  createExecutionContext,
  createMessageBatch,
  createScheduledController,
  waitOnExecutionContext,
} from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect } from "vitest";
import { TEAMS_PER_CHECK } from "../../src/events/purge.ts";
import worker from "../../src/index.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { databaseOf, newId, newToken, newUuid, realSystem } from "../../src/platform/system.ts";
import * as service from "../../src/service.ts";
import { recover } from "../../src/upkeep/recovery.ts";
import { deathAt, ProxiedBindings } from "../support/bindings.ts";
import { patternOf } from "../support/bytes.ts";
import type { Team } from "../support/client.ts";
import { DB, databaseWith } from "../support/databases.ts";
import { type Deps, sink } from "../support/deps.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { expectSettled, expectSound } from "../support/invariants.ts";
import { rowsOf } from "../support/queries.ts";
import { insertMany } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { isExhaustive } from "../support/tiers.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { Uploader } from "../support/uploader.ts";
import { must, World } from "../support/world.ts";

/* The recovery job works on the rows of every team, so each test starts with none. */

type State = "receiving" | "pending" | "processing" | "deleting";
const STATES: State[] = ["receiving", "pending", "processing", "deleting"];
const COUNTS =
  "sent assemblies followers uploadsExpired uploadsRemoved filesDeleted teamFilesRemoved teamsDeleted sessionsRemoved";
const MORE_COUNTS =
  "waveforms objectsDeleted folderSteps teamRowsRemoved trashEmptied expiriesAnnounced keysRemoved linksRemoved visitorsRemoved mailsRemoved purged reencrypted filesAged filesExpired";
const NOTHING = Object.fromEntries(`${COUNTS} ${MORE_COUNTS}`.split(" ").map((name) => [name, 0]));

afterEach(emptyStores);

async function setUp(): Promise<{ world: World; team: Team }> {
  const world = new World();
  return { world, team: await world.newTeam() };
}

const insertFiles = ({ teamId }: Team, state: State, count: number) =>
  insertMany(
    count,
    `insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, due_at, created_at, updated_at)
     select 'x', 'audio/mpeg', 'audio file', lower(hex(randomblob(12))), ?2, ?2, 'many', ?3, 1, 1, i, 1, 1 from n`,
    teamId,
    state,
  );
const insertRemoved = ({ teamId }: Team, count: number) =>
  insertMany(
    count,
    `insert into removed (id, team_id, original_name, reserved_bytes, size_bytes, due_at)
     select lower(hex(randomblob(12))), ?2, 'many', 1, 1, i from n`,
    teamId,
  );
const insertEvents = (teamId: string, count: number, after = 0) =>
  insertMany(
    count,
    `insert into events select ?2, ?3 + i, 'file.updated', 1, '{}', 'x', 0, '{}',
     i + ifnull((select max(position) from events where team_id = ?2 and seq < ?3), 0) from n`,
    teamId,
    after,
  );
const insertFinishedUploads = (teamId: string, count: number) =>
  insertMany(
    count,
    `insert into uploads (file_id, team_id, key_id, is_public, original_name, size_bytes, status, created_at, updated_at, due_at)
     select printf('%024x', i), ?2, 'key', 0, 'many', 0, 'committed', 1, 1, i from n`,
    teamId,
  );

const countOf = async (table: string, where: string, ...values: unknown[]) =>
  (
    await DB.prepare(`select count(*) as n from ${table} where ${where}`)
      .bind(...values)
      .all<{ n: number }>()
  ).results.reduce((sum, { n }) => sum + n, 0);

const stepsThatFailed = ({ lines }: World) =>
  lines.filter(({ event }) => event === "recovery_step_failed").map(({ outcome }) => outcome);

describe("an overdue file", () => {
  test("stays unchanged until it is due, in any state", async ({ world, team }) => {
    for (const state of STATES) await world.storeInterrupted(team, state, MINUTE);
    const before = await rowsOf(team.teamId);
    await world.recover();
    expect(await rowsOf(team.teamId)).toEqual(before);
    expect(await expectSound(team.teamId)).toHaveLength(STATES.length);
    expect(world.messages).toEqual([]);
  });

  test("is due two minutes after its message was lost, and five after its worker died", async ({ world, team }) => {
    const id = await world.store(team, "note.txt", "never enqueued");
    const sentAfter = async (minutes: number) => {
      world.messages = [];
      world.aheadMilliseconds += minutes * MINUTE;
      await world.recover();
      return world.messages;
    };
    expect(await sentAfter(1.9)).toEqual([]);
    expect(await sentAfter(0.2)).toEqual([id]);
    await world.deliver(id, deathAt("R2", "head", "before"));
    expect(await sentAfter(4.9)).toEqual([]);
    expect(await sentAfter(0.2)).toEqual([id]);
  });

  test("is found by the cron trigger of the deployed Worker", async ({ world, team }) => {
    await world.storeInterrupted(team, "deleting", -1);
    const ctx = createExecutionContext();
    const bodies: unknown[] = [];
    const sendBatch = async (batch: Iterable<MessageSendRequest>) =>
      void bodies.push(...[...batch].map((one) => one.body));
    await worker.scheduled(
      createScheduledController(),
      { ...env, RECOVERY: { ...sink, sendBatch } as unknown as Queue },
      ctx,
    );
    expect(bodies).toEqual([{ database: 0 }, { database: 1 }, { database: 2 }]);
    const messages = bodies.map((body, i) => ({ id: `${i}`, timestamp: new Date(), attempts: 1, body }));
    await worker.queue(createMessageBatch("stowage-recovery", messages) as never, env, ctx);
    await waitOnExecutionContext(ctx);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});

describe("a run", () => {
  test("leaves nothing to do for the next run, and logs one line of counts", async ({ world, team }) => {
    for (const state of STATES) await world.storeInterrupted(team, state, -1);
    const counts = { ...NOTHING, sent: 2, uploadsExpired: 1, uploadsRemoved: 1, filesDeleted: 1 };
    expect(await world.recover()).toEqual(counts);
    const rows = await rowsOf(team.teamId);
    expect(await world.recover()).toEqual(NOTHING);
    expect(await rowsOf(team.teamId)).toEqual(rows);
    const line = { level: "info", event: "recovery_finished", database: world.database };
    expect(world.lines.filter(({ event }) => event.startsWith("recovery"))).toEqual([
      { ...line, counts },
      { ...line, counts: NOTHING },
    ]);
  });

  test("shares the work with a concurrent run", async ({ world, team }) => {
    const left: string[] = [];
    for (const state of [...STATES, ...STATES]) left.push(await world.storeInterrupted(team, state, -1));
    await Promise.all([world.recover(), world.recover()]);
    expect(world.messages.sort()).toEqual(left.filter((_, i) => i % 4 === 1 || i % 4 === 2).sort());
    await world.drain();
    expect((await expectSettled(team.teamId)).map(({ status }) => status)).toEqual(Array(4).fill("completed"));
  });

  test.each([
    [
      "the bucket",
      (deps: Deps): Deps => ({ ...deps, bytes: { ...deps.bytes, remove: fail } }),
      ["leftovers", "removed"],
    ],
    ["the queue", (deps: Deps): Deps => ({ ...deps, jobs: { ...deps.jobs, sendAll: fail } }), ["files"]],
  ])("does everything else while %s is unavailable, and the rest later", async (_, change, failed) => {
    const { world, team } = await setUp();
    for (const state of STATES) await world.storeInterrupted(team, state, -1);
    const counts = await recover(change(world.deps()));
    expect(stepsThatFailed(world)).toEqual(expect.arrayContaining(failed));
    expect(counts).toMatchObject(
      failed.includes("removed")
        ? { sent: 2, uploadsExpired: 1, uploadsRemoved: 0, filesDeleted: 0 }
        : { sent: 0, uploadsExpired: 1, uploadsRemoved: 1, filesDeleted: 1 },
    );
    world.aheadMilliseconds += 6 * MINUTE;
    await world.recover();
    await world.drain();
    expect((await expectSettled(team.teamId)).map(({ status }) => status)).toEqual(["completed", "completed"]);
  });

  test("asks D1 for fewer queries than an invocation may, whatever is due, and continues in another run", async ({
    world,
    team,
  }) => {
    expect(service.recoverySteps.reduce((sum, { maxBatches, queries }) => sum + maxBatches * queries, 0)).toBeLessThan(
      980,
    );
    await insertFiles(team, "pending", 12_000);
    await insertRemoved(team, 1200);
    const bindings = new ProxiedBindings();
    expect(await must(world.recover(bindings))).toMatchObject({ sent: 10_000, filesDeleted: 1200 });
    expect(bindings.calls.filter((call) => call.startsWith("D1")).length).toBeLessThan(980);
    expect(world.recoveryMessages).toEqual([{ database: world.database }]);
    expect(await must(world.recover())).toMatchObject({ sent: 2000 });
    expect(world.recoveryMessages).toHaveLength(1);
    expect(new Set(world.messages).size).toBe(12_000);
  });

  test("is not continued if another one ended in the meantime, which is", async ({ world, team }) => {
    await insertFiles(team, "pending", 24_000);
    let isFirst = true;
    const interrupted = (deps: Deps): Deps => ({
      ...deps,
      bulkJobs: {
        ...deps.bulkJobs,
        sendAll: async (jobs) => {
          await deps.bulkJobs.sendAll(jobs);
          if (!isFirst) return;
          isFirst = false;
          world.aheadMilliseconds++;
          await recover(deps);
        },
      },
    });
    await recover(interrupted(world.deps()));
    expect(world.recoveryMessages).toEqual([{ database: world.database }]);
  });

  test("is not continued because of a step that fails, however much it had to do", async ({ world, team }) => {
    await insertFiles(team, "pending", 12_000);
    const failing = (deps: Deps): Deps => ({
      ...deps,
      bulkJobs: { ...deps.bulkJobs, sendAll: (jobs) => (jobs.length > 0 ? fail() : deps.bulkJobs.sendAll(jobs)) },
    });
    expect(await recover(failing(world.deps()))).toMatchObject({ sent: 0 });
    expect(stepsThatFailed(world)).toEqual(["files"]);
    expect(world.recoveryMessages).toEqual([]);
  });
});

async function fail(): Promise<never> {
  throw new Error("The binding is unavailable.");
}

describe("a resumable upload", () => {
  const small = patternOf(1000);
  const beginUpload = async (world: World, team: Team) => {
    const client = new Uploader(world, team, small);
    await must(client.create());
    return client;
  };
  const uploadRows = ({ teamId }: Team) => countOf("uploads", "team_id = ?", teamId);
  const r2Calls = async (world: World) => {
    const bindings = new ProxiedBindings();
    await world.recover(bindings);
    return bindings.calls.filter((call) => call.startsWith("R2"));
  };

  test("is deleted after two days without a call to R2 if one request finished it", async ({ world, team }) => {
    const client = await beginUpload(world, team);
    await must(client.send(0, small.length));
    await world.drain();
    expect(await r2Calls(world)).toEqual([]);
    expect(await uploadRows(team)).toBe(1);
    world.aheadMilliseconds += 2 * DAY;
    expect(await r2Calls(world)).toEqual([]);
    expect(await uploadRows(team)).toBe(0);
    expect(await expectSettled(team.teamId)).toMatchObject([{ status: "completed" }]);
  });

  test.each(["was interrupted", "lost a Worker"])("is deleted after its leftovers if it %s", async (how) => {
    const { world, team } = await setUp();
    const client = await beginUpload(world, team);
    if (how === "was interrupted") await must(client.send(0, 500));
    else {
      client.hasNoMemory = true;
      expect(await client.send(0, 500, deathAt("R2", "put", "after"))).toBe("dead");
      client.hasNoMemory = false;
    }
    await must(client.send(client.reportedOffset, small.length));
    await env.BUCKET.put(`${team.teamId}/${client.id}.9`, "a chunk that was left behind");
    await world.drain();
    world.aheadMilliseconds += 2 * DAY;
    await world.recover();
    expect(await uploadRows(team)).toBe(0);
    expect((await expectSettled(team.teamId)).length).toBe(1);
  });

  test("is listed once if its processing failed, and is still compared with its stated SHA-256", async () => {
    const world = new World();
    const team = await world.newTeam();
    const client = new Uploader(world, team, small);
    const metadata = `filename ${btoa("a")},sha256 ${btoa("0".repeat(64))}`;
    const created = await must(client.ask("POST", { "Upload-Length": "1000", "Upload-Metadata": metadata }));
    client.path = created.headers.get("Location") ?? "";
    await must(client.send(0, small.length));
    await world.drain();
    world.aheadMilliseconds += 2 * DAY;
    expect(await must(world.recover())).toMatchObject({ uploadsRemoved: 1 });
    world.aheadMilliseconds += 2 * DAY;
    expect(await must(world.recover())).toMatchObject({ uploadsRemoved: 0 });
    const [row] = await rowsOf(team.teamId);
    expect((await world.call("POST", `/docs/v1/uploads/${row?.id}/reprocess`, { token: team.token })).status).toBe(200);
    await world.drain();
    expect(await rowsOf(team.teamId)).toMatchObject([{ status: "failed", failure_code: "bytes_altered" }]);
  });

  test("releases its quota without a call to R2 if it expires without a byte", async ({ world, team }) => {
    await beginUpload(world, team);
    world.aheadMilliseconds += DAY + 1;
    const bindings = new ProxiedBindings();
    expect(await must(world.recover(bindings))).toMatchObject({ uploadsExpired: 1, uploadsRemoved: 1 });
    expect(bindings.calls.filter((call) => call.startsWith("R2"))).toEqual(["R2 delete"]);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });

  test("expires six days after its creation even if it still receives bytes, before R2 drops its parts", async () => {
    const world = new World();
    const team = await world.newTeam();
    const createdAt = world.system.now();
    const client = await beginUpload(world, team);
    for (let sent = 0; sent < 7; sent++) {
      world.aheadMilliseconds = sent * 23 * 60 * MINUTE;
      await world.recover();
      const { headers } = await must(client.send(sent, sent + 1));
      const expiry = Math.min(world.system.now() + DAY, createdAt + 6 * DAY);
      expect(headers.get("Upload-Expires")).toBe(new Date(expiry).toUTCString());
    }
    world.aheadMilliseconds = 6 * DAY;
    expect((await must(client.send(7, 8))).code).toBe("upload_expired");
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });

  test("ends after six days if it cannot be assembled", async ({ world, team }) => {
    const { id } = await beginUpload(world, team);
    const [file] = await rowsOf(team.teamId);
    const dropped = await env.BUCKET.createMultipartUpload(`${team.teamId}/${id}-${file?.original_name}`);
    await dropped.abort();
    await DB.batch([
      DB.prepare("update uploads set offset_bytes = size_bytes, multipart_id = ? where file_id = ?").bind(
        dropped.uploadId,
        id,
      ),
      DB.prepare("insert into upload_parts values (?, 1, 'etag', 'md5')").bind(id),
    ]);
    for (let days = 0; days < 9; days++) {
      world.aheadMilliseconds += DAY;
      await world.recover();
      await world.deliver(world.messages.pop() ?? "");
    }
    world.aheadMilliseconds += 20 * MINUTE;
    await world.recover();
    expect(await uploadRows(team)).toBe(0);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});

describe("a backlog", () => {
  test.runIf(isExhaustive)(
    "of 920,000 rows is cleared in six runs, and urgent work is done in the first",
    {
      timeout: 300_000,
    },
    async () => {
      const { world, team } = await setUp();
      // A third of 120,000 uploads and 800,000 events, in a third of the runs. Half of the events are too old, and the others too many.
      await insertFinishedUploads(team.teamId, 40_000);
      await insertEvents(team.teamId, 134_000);
      await insertEvents(team.teamId, 134_000, world.system.now() * 1000 + 1000);
      const run = () => {
        const deps = world.deps();
        return recover({ ...deps, settings: { ...deps.settings, maxTeamEvents: 1 } });
      };
      const id = await world.storeInterrupted(team, "pending", -1);
      const client = new Uploader(world, team, patternOf(1000));
      await must(client.create());
      await DB.prepare("update uploads set offset_bytes = size_bytes, due_at = ? where file_id = ?")
        .bind(world.system.now() - 1, client.id)
        .run();

      expect(await run()).toMatchObject({ sent: 1, assemblies: 1 });
      expect(world.messages.sort()).toEqual([id, client.id].sort());
      expect(world.recoveryMessages).toEqual([{ database: world.database }]);
      await run();
      expect(await countOf("uploads", "status = 'committed' and team_id = ?", team.teamId)).toBe(0);
      expect(await countOf("events", "type glob 'file.*' and team_id = ?", team.teamId)).toBe(1);
      // The last one was full, too, and the next finds nothing.
      world.recoveryMessages = [];
      expect(await run()).toEqual(NOTHING);
      expect(world.recoveryMessages).toEqual([]);
    },
  );

  test("events above a team's limit are deleted, oldest first", async ({ world, team }) => {
    // After the two events of the team's creation, which are account events.
    const recent = world.system.now() * 1000 + 1000;
    await insertEvents(team.teamId, 1500, recent);
    const limited = (maxTeamEvents: number) => {
      const deps = world.deps();
      return recover({ ...deps, settings: { ...deps.settings, maxTeamEvents } });
    };
    expect(await limited(1500)).toMatchObject({ purged: 0 });
    expect(await limited(300)).toMatchObject({ purged: 1200 });
    const { data } = (await team.call("GET", "/docs/v1/usage")).body;
    expect(data.events).toBe(await countOf("events", "type = 'file.updated' and team_id = ?", team.teamId));
    expect(data.events).toBe(300);
  });

  test("above a team's limit of events stays while a webhook has not read it, up to twice the limit", async ({
    world,
    team,
  }) => {
    const json = { url: "https://hooks.canary.example/" };
    expect((await team.call("POST", "/auth/v1/webhooks", { json })).status).toBe(200);
    await insertEvents(team.teamId, 500, world.system.now() * 1000 + 1000);
    const purge = async (maxTeamEvents: number) => {
      const deps = world.deps();
      await recover({ ...deps, settings: { ...deps.settings, maxTeamEvents } });
      return countOf("events", "type = 'file.updated' and team_id = ?", team.teamId);
    };
    expect(await purge(300)).toBe(500);
    expect(await purge(100)).toBe(200);
    await world.runAlarms();
    // The next run stores the new cursor.
    await purge(100);
    expect(await purge(100)).toBe(100);
  });

  test("above a team's limit of events spares those of accounts, however many files have events", async ({
    world,
    team,
  }) => {
    const recent = world.system.now() * 1000 + 1000;
    await insertEvents(team.teamId, 3000, recent);
    // Every third is an account event, among them the oldest 30.
    await DB.prepare(
      `update events set type = 'apikey.revealed' where team_id = ?1 and seq > ?2 and (seq <= ?2 + 30 or seq % 3 = 0)`,
    )
      .bind(team.teamId, recent)
      .run();
    const isLimited = "type glob 'file.*' and team_id = ?";
    await DB.prepare(
      `update events set position = (select count(*) from events e where e.team_id = ?1 and e.seq <= events.seq and e.type glob 'file.*')
       where team_id = ?1`,
    )
      .bind(team.teamId)
      .run();
    const accounts = await countOf("events", "not (type glob 'file.*') and team_id = ?", team.teamId);
    const deps = world.deps();
    const run = (maxTeamEvents: number) => recover({ ...deps, settings: { ...deps.settings, maxTeamEvents } });
    const limited = await countOf("events", isLimited, team.teamId);
    expect(await run(100)).toMatchObject({ purged: limited - 100 });
    expect(await countOf("events", isLimited, team.teamId)).toBe(100);
    expect(await countOf("events", "not (type glob 'file.*') and team_id = ?", team.teamId)).toBe(accounts);
    expect((await team.call("GET", "/docs/v1/usage")).body.data.events).toBe(100);
    await world.store(team, "a.txt", "a");
    expect((await team.call("GET", "/docs/v1/usage")).body.data.events).toBe(101);
    expect(await run(50)).toMatchObject({ purged: 51 });
    expect(await countOf("events", "not (type glob 'file.*') and team_id = ?", team.teamId)).toBe(accounts);
  });

  test("one team's backlog does not delay the purge of others", async ({ world, team }) => {
    const others = Array.from({ length: TEAMS_PER_CHECK + 10 }, (_, i) => `ffff${i.toString(16).padStart(20, "0")}`);
    await insertEvents(team.teamId, 100_000);
    await databaseWith(team.teamId)
      .prepare("insert into events select value, 1, 'user.created', 1, '{}', 'x', 0, '{}', 1 from json_each(?)")
      .bind(JSON.stringify(others))
      .run();
    await must(world.recover());
    expect(await countOf("events", "team_id like 'ffff%'")).toBe(0);
    expect(await countOf("events", "seq <= 100000 and team_id = ?", team.teamId)).toBeGreaterThan(0);
  });
});

/** API keys of the team; session keys if `userId` is given. */
async function insertKey({ teamId }: Team, { userId = null as string | null, expiresAt = 4e12 } = {}, count = 1) {
  const { secrets } = new World().deps();
  const keys = Array.from({ length: count }, () => ({
    id: newId(realSystem, databaseOf(teamId)),
    token: newToken(realSystem, "secret", databaseOf(teamId)),
  }));
  const insert = DB.prepare(
    `insert into api_keys (id, team_id, uuid, name, token_hash, kind, encrypted_token, encrypted_with, user_id, expires_at,
       created_at, lifetime_milliseconds)
     values (?, ?, ?, 'key', lower(hex(randomblob(32))), ?, ?, ?, ?, ?, 1, 1)`,
  );
  const kindOf = ({ id, token }: { id: string; token: string }) =>
    userId === null
      ? ["secret", secrets.encrypt(token, `api-key/${id}/${teamId}`), secrets.currentKeyId]
      : ["session", null, null];
  await DB.batch(
    keys.map((key) => insert.bind(key.id, teamId, newUuid(realSystem), ...kindOf(key), userId, expiresAt)),
  );
  return keys;
}

describe("keys", () => {
  test("are removed a day after they expire if they are sessions, and 30 days after otherwise", async ({
    world,
    team,
  }) => {
    const now = world.system.now();
    const [gone] = await insertKey(team, { userId: "user", expiresAt: now - 24 * 60 * MINUTE - 1 });
    const [live] = await insertKey(team, { userId: "user", expiresAt: now - 24 * 60 * MINUTE + 1 });
    const [expired] = await insertKey(team, { expiresAt: now - 30 * 24 * 60 * MINUTE + 1 });
    const [old] = await insertKey(team, { expiresAt: now - 30 * 24 * 60 * MINUTE - 1 });
    expect(await world.recover()).toMatchObject({ sessionsRemoved: 1, keysRemoved: 1 });
    const { results } = await DB.prepare("select id from api_keys where team_id = ?").bind(team.teamId).all();
    const left = results.map(({ id }) => id);
    expect(left).toEqual(expect.arrayContaining([live?.id, expired?.id]));
    for (const key of [gone, old]) expect(left).not.toContain(key?.id);
  });

  test("are re-encrypted after a change of the master key, over several runs, until the old one can be removed", async () => {
    const world = new World();
    const team = await world.newTeam();
    const keys = await insertKey(team, {}, 450);
    const countEncryptedWith = (id: string) =>
      countOf("api_keys", "team_id = ? and encrypted_with = ?", team.teamId, id);
    const next = btoa("fedcba9876543210fedcba9876543210");
    world.secrets = loadSecrets(`${next},${env.MASTER_KEY}`, realSystem);
    const [old = ""] = world.secrets.olderKeyIds;

    const left = [await countEncryptedWith(old)];
    for (let run = 0; run < 10 && left.at(-1) !== 0; run++) {
      await must(world.recover());
      left.push(await countEncryptedWith(old));
    }
    expect(left[0]).toBe(451);
    expect(left.length, "the number of runs").toBeGreaterThan(2);
    expect(left.at(-1)).toBe(0);

    world.secrets = loadSecrets(next, realSystem);
    const { body } = await team.call("GET", `/auth/v1/apikeys/${keys[0]?.id}`);
    expect(body.data.key).toBe(keys[0]?.token);
  });

  test("keys and signing secrets are re-encrypted if there are four older master keys", async ({ world, team }) => {
    const [key] = await insertKey(team);
    const { body } = await team.call("POST", "/auth/v1/webhooks", { json: { url: "https://example.com/hook" } });
    const older = ["b", "c", "d"].map((fill) => btoa(fill.repeat(32)));
    world.secrets = loadSecrets([btoa("a".repeat(32)), ...older, env.MASTER_KEY].join(), realSystem);
    await world.recover();
    const encryptedWith = (table: string, id: string) =>
      DB.prepare(`select encrypted_with from ${table} where id = ?`).bind(id).first("encrypted_with");
    expect(await encryptedWith("api_keys", key?.id ?? "")).toBe(world.secrets.currentKeyId);
    expect(await encryptedWith("webhooks", body.data._id)).toBe(world.secrets.currentKeyId);
  });

  test("keys that can't be decrypted are logged once and then skipped, and the others are re-encrypted", async () => {
    const world = new World();
    const team = await world.newTeam();
    const [damaged, intact] = await insertKey(team, {}, 2);
    await DB.prepare("update api_keys set encrypted_token = substr(encrypted_token, 1, 20) where id = ?")
      .bind(damaged?.id)
      .run();
    world.secrets = loadSecrets(`${btoa("fedcba9876543210fedcba9876543210")},${env.MASTER_KEY}`, realSystem);
    await world.recover();
    await world.recover();
    const keys = await DB.prepare("select id, encrypted_with from api_keys where id in (?, ?)")
      .bind(damaged?.id, intact?.id)
      .all<{ id: string; encrypted_with: string }>();
    expect(Object.fromEntries(keys.results.map((row) => [row.id, row.encrypted_with]))).toEqual({
      [damaged?.id ?? ""]: "unreadable",
      [intact?.id ?? ""]: world.secrets.currentKeyId,
    });
    const named = world.lines.filter(({ level }) => level === "error").map(({ keyId }) => keyId);
    expect(named).toEqual([damaged?.id]);
  });
});

describe("a file whose message is late", () => {
  const waiting = async () => {
    const { world, team } = await setUp();
    const id = await world.store(team, "a.txt", "text");
    world.messages = [];
    return { world, team, id };
  };

  test("changes nothing that its team can see when it is sent again", async () => {
    const { world, team, id } = await waiting();
    const row = () =>
      DB.prepare("select status, version, created_at, updated_at from files where id = ?").bind(id).first();
    const [before, shown] = [await row(), await team.call("GET", `/docs/v1/uploads/${id}/metadata`)];
    world.aheadMilliseconds += 3 * MINUTE;
    await world.recover();
    expect(world.messages).toContain(id);
    expect(await row()).toEqual(before);
    expect((await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).text).toBe(shown.text);
  });

  test("is sent again with backoff, at most four times an hour", async () => {
    const { world, id } = await waiting();
    const sentInAnHour = async () => {
      world.messages = [];
      for (let minutes = 0; minutes < 60; minutes += 5) {
        world.aheadMilliseconds += 5 * MINUTE;
        await world.recover();
      }
      return world.messages.filter((message) => message === id).length;
    };
    expect(await sentInAnHour()).toBeLessThanOrEqual(7);
    for (let hour = 0; hour < 3; hour++) expect(await sentInAnHour()).toBe(4);
  });
});
