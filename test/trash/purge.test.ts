import { env } from "cloudflare:workers";
import { afterEach, describe, expect } from "vitest";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { patternOf } from "../support/bytes.ts";
import type { Team } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import { beforeWrite, type Change, withBatch, withDatabases } from "../support/deps.ts";
import { worldTest } from "../support/fixtures.ts";
import { dataOf, eventsOf, idsIn, metadataOf, newMember, OPERATOR, read, usageOf } from "../support/harness.ts";
import { expectErased, expectSettled, expectSound } from "../support/invariants.ts";
import { rowsOf } from "../support/queries.ts";
import { insertMany } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { isExhaustive } from "../support/tiers.ts";
import { DAY, HOUR, MINUTE } from "../support/time.ts";
import { Uploader } from "../support/uploader.ts";
import { encodeForm, must, World } from "../support/world.ts";

/* The recovery job's work on the trash, retention and holds; and deletions during other work. */

afterEach(emptyStores);

const UPLOADS = "/docs/v1/uploads";
const TRASH = "/docs/v1/trash";
/** Moves the files of a team to the trash. Each is due at the time that the expression gives. */
const trashAll = (team: Team, dueAt: string) =>
  DB.batch(
    [
      `insert into removed (team_id, id, user_id, original_name, size_bytes, reserved_bytes, due_at, trashed_at, file)
       select team_id, id, user_id, original_name, size_bytes, reserved_bytes, ${dueAt}, 1,
         json_object('status', 'completed', 'key_id', key_id, 'created_at', created_at, 'updated_at', 1, 'version', 2)
       from files where team_id = ?`,
      "delete from files where team_id = ?",
    ].map((query) => DB.prepare(query).bind(team.teamId)),
  );
const test = worldTest.extend("world", () => Object.assign(new World(), { settings: { trashDays: 7 } }));

const remove = (team: Team, id: string) => dataOf(team.call("DELETE", `${UPLOADS}/${id}`));
const restore = (team: Team, id: string) => dataOf(team.call("POST", `${TRASH}/${id}/restore`));
const typesOf = async (team: Team, id: string) =>
  (await eventsOf(team, `subject=${id}`)).map(({ type }: { type: string }) => type);
const listed = async (team: Team) => idsIn(await read(team, UPLOADS)).sort();
const trashed = async (team: Team) => idsIn(await read(team, TRASH)).sort();
async function pass(world: World, milliseconds: number): Promise<void> {
  world.aheadMilliseconds += milliseconds;
  await must(world.recover());
  // Bytes are erased a minute after they were hidden.
  world.aheadMilliseconds += 2 * MINUTE;
  await must(world.recover());
}

describe("The trash", () => {
  test("keeps the bytes for its days, and then nothing", async ({ world, team }) => {
    const [id, other] = [await world.store(team, "a.txt", "a"), await world.store(team, "b.txt", "b")];
    await world.drain();
    await remove(team, id);
    await pass(world, 7 * DAY - HOUR);
    expect(await trashed(team)).toEqual([id]);
    await restore(team, id);
    await pass(world, 8 * DAY);
    expect(await listed(team)).toEqual([other, id].sort());
    await remove(team, id);
    await pass(world, 7 * DAY);
    expect(await trashed(team)).toEqual([]);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 1, trashFiles: 0, trashBytes: 0 });
    const deleted = ["file.trashed", "file.restored", "file.trashed", "file.deleted"];
    expect((await typesOf(team, id)).slice(2)).toEqual(deleted);
    const [event] = await eventsOf(team, `subject=${id}&type=file.deleted`);
    expect(event).toMatchObject({ actor: { kind: "system" }, data: { status: "completed", fileType: "text file" } });
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toHaveLength(1);
    await expectSettled(team.teamId, { world });
  });

  test("keeps a held file beyond its days, until it is released", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    await world.drain();
    await remove(team, id);
    await dataOf(team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason: "r" } }));
    await pass(world, 8 * DAY);
    expect(await trashed(team)).toEqual([id]);
    expect(await typesOf(team, id)).not.toContain("file.deleted");
    await team.call("DELETE", `${UPLOADS}/${id}/hold`);
    await pass(world, 5 * MINUTE);
    expect(await trashed(team)).toEqual([]);
    expect((await typesOf(team, id)).slice(-3)).toEqual(["file.held", "file.released", "file.deleted"]);
    await expectSettled(team.teamId, { world });
  });

  test("is erased within bounds, by as many runs as it takes", async ({ world, team }) => {
    await insertMany(
      2000,
      `insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, due_at, created_at, updated_at)
       select 'x', 'audio/mpeg', 'audio file', lower(hex(randomblob(12))), ?2, ?2, 'many', 'completed', 1, 1, i, 1, 1 from n`,
      team.teamId,
    );
    await trashAll(team, "due_at");
    const bindings = new ProxiedBindings();
    const runs = await world.recoverFully(bindings);
    expect(runs.length).toBeLessThanOrEqual(3);
    expect(runs.reduce((sum, { filesDeleted = 0 }) => sum + filesDeleted, 0)).toBe(2000);
    const sent = bindings.queries.filter(({ parameters }) => parameters.length > 0);
    expect(sent.length).toBeLessThan(1000);
    expect(bindings.effects.rowsRead, "no step repeatedly reads past these files").toBeLessThan(25 * 2000);
    for (let i = 0; i < 4; i++) await pass(world, 5 * MINUTE);
    expect(await rowsOf(team.teamId)).toEqual([]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });

  test("keeps the receipt of an upload in chunks, so a restored file counts for its upload token", async ({
    world,
    team,
  }) => {
    const json = { maxFiles: 1 };
    const { token } = await dataOf(team.call("POST", "/docs/v1/uploadtokens", { json }));
    const page = { ...team, token };
    const client = new Uploader(world, page, patternOf(10));
    await must(client.create(undefined, 5));
    await must(client.send(5, 10));
    await world.drain();
    await remove(team, client.id);
    await pass(world, MINUTE);
    await restore(team, client.id);
    expect((await must(client.head())).status).toBe(200);
    const another = await must(world.upload(page, await encodeForm("b.txt", "b")));
    expect(another.code).toBe("upload_limit_reached");
  });

  test("is erased with its team at once", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    await world.drain();
    await remove(team, id);
    await must(world.ask("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR }));
    for (let i = 0; i < 3; i++) await pass(world, 5 * MINUTE);
    await expectErased(team.teamId, world);
  });

  test("sends a file to the queue again that was being processed, and fences its worker off", async ({
    world,
    team,
  }) => {
    const id = await world.store(team, "tone.m4a", sample("tone.m4a").bytes);
    const [message] = world.messages.splice(0);
    let isRestored = false;
    const bindings = new ProxiedBindings();
    const wrap = bindings.wrap.bind(bindings);
    bindings.wrap = (given) => {
      const wrapped = wrap(given);
      const { BUCKET } = wrapped as { BUCKET: R2Bucket };
      const head = async (key: string) => {
        if (!isRestored) await remove(team, id).then(() => restore(team, id));
        isRestored = true;
        return BUCKET.head(key);
      };
      return {
        ...wrapped,
        BUCKET: new Proxy(BUCKET, { get: (of, name) => (name === "head" ? head : Reflect.get(of, name)) }),
      };
    };
    await world.deliver(message ?? "", bindings);
    expect(isRestored).toBe(true);
    expect(await metadataOf(team, id)).toMatchObject({ status: "pending", audio: null });
    expect(world.messages).toEqual([id]);
    await world.drain();
    expect(await metadataOf(team, id)).toMatchObject({ status: "completed", fileType: "audio file" });
    await expectSettled(team.teamId, { world });
  });

  test("keeps the bytes that a job stores again, and a waveform, while the file moves there", async ({
    world,
    team,
  }) => {
    const bytes = sample("tone-audio-only.mp4").bytes;
    const id = await world.store(team, "tone.m4a", bytes);
    const [message] = world.messages.splice(0);
    const json = { channels: [Array.from({ length: 16 }, () => 1)] };
    // The file is deleted right before the worker records the outcome, and before the waveform is finished.
    const deleteAt = (method: "put") => {
      const bindings = new ProxiedBindings();
      const wrap = bindings.wrap.bind(bindings);
      bindings.wrap = (given) => {
        const wrapped = wrap(given);
        const { BUCKET } = wrapped as { BUCKET: R2Bucket };
        const put = async (...of: Parameters<R2Bucket["put"]>) => {
          const stored = await BUCKET.put(...(of as [string, string]));
          await remove(team, id);
          return stored;
        };
        return {
          ...wrapped,
          BUCKET: new Proxy(BUCKET, { get: (of, name) => (name === method ? put : Reflect.get(of, name)) }),
        };
      };
      return bindings;
    };
    await world.deliver(message ?? "", deleteAt("put"));
    expect(await trashed(team)).toEqual([id]);
    await restore(team, id);
    await world.drain();
    expect(await metadataOf(team, id)).toMatchObject({ status: "completed" });
    const { token } = team;
    await must(world.ask("PUT", `${UPLOADS}/${id}/waveform`, { token, json }, { bindings: deleteAt("put") }));
    expect(await trashed(team)).toEqual([id]);
    await restore(team, id);
    expect((await read(team, `${UPLOADS}/${id}/waveform`)).channels).toEqual(json.channels);
    await expectSound(team.teamId, { checkBytes: true });
    await remove(team, id);
    await pass(world, 8 * DAY);
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual([]);
  });
});

describe("A file with deleteAfter", () => {
  test("moves to the trash when its time has come, and stays if it is restored", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    await world.drain();
    const deleteAfter = new Date(world.system.now() + DAY).toISOString();
    await dataOf(team.call("PATCH", `${UPLOADS}/${id}`, { json: { deleteAfter } }));
    await pass(world, DAY - 5 * MINUTE);
    expect(await listed(team)).toEqual([id]);
    world.aheadMilliseconds += 5 * MINUTE;
    expect(await world.recover()).toMatchObject({ filesExpired: 1 });
    expect([await listed(team), await trashed(team)]).toEqual([[], [id]]);
    expect((await restore(team, id)).deleteAfter).toBe(null);
    await pass(world, 2 * DAY);
    expect(await listed(team)).toEqual([id]);
  });

  test("is deleted in the name of who set it, at the upload or later, or set the retention", async ({
    world,
    team,
  }) => {
    world.settings = { trashDays: 0 };
    const { id: userId, token } = await newMember(team, "member");
    const { keyId } = await dataOf(team.call("GET", "/auth/v1/me", { token }));
    const aged = await world.store(team, "aged.txt", "a");
    await dataOf(team.call("PUT", "/docs/v1/retention", { json: { days: 1 } }));
    world.aheadMilliseconds += DAY - HOUR;
    const deleteAfter = new Date(world.system.now() + HOUR).toISOString();
    const [updated, kept] = [await world.store(team, "b.txt", "b"), await world.store(team, "c.txt", "c")];
    await world.drain();
    await must(world.ask("PATCH", `${UPLOADS}/${updated}`, { json: { deleteAfter }, token }));
    const parts: [string, string | File][] = [
      ["properties", JSON.stringify({ deleteAfter })],
      ["file", new File(["d"], "d.txt")],
    ];
    const uploaded: string[] = [];
    for (const inOrder of [parts, parts.toReversed()]) {
      const body = new FormData();
      for (const [name, value] of inOrder) body.append(name, value);
      uploaded.push((await must(world.ask("POST", UPLOADS, { body, token }))).id);
    }
    await world.drain();
    await pass(world, HOUR + MINUTE);
    expect(await listed(team)).toEqual([kept]);
    const actorOf = async (id: string) => (await eventsOf(team, `subject=${id}&type=file.deleted`))[0].actor;
    for (const id of [updated, ...uploaded])
      expect(await actorOf(id)).toMatchObject({ kind: "session", keyId, userId });
    expect(await actorOf(aged)).toMatchObject({ kind: "secret", keyId: team.keyId, userId: null });
  });

  test("is erased if there is no trash", async ({ world, team }) => {
    world.settings = { trashDays: 0 };
    const id = await world.store(team, "a.txt", "a");
    await world.drain();
    const deleteAfter = new Date(world.system.now() + HOUR).toISOString();
    await dataOf(team.call("PATCH", `${UPLOADS}/${id}`, { json: { deleteAfter } }));
    await pass(world, HOUR);
    expect(await rowsOf(team.teamId)).toEqual([]);
    expect((await typesOf(team, id)).at(-1)).toBe("file.deleted");
    await expectSettled(team.teamId, { world });
  });

  test("stays while it is held, and goes when it is released", async ({ world, team }) => {
    const [id, free] = [await world.store(team, "a.txt", "a"), await world.store(team, "b.txt", "b")];
    await world.drain();
    const deleteAfter = new Date(world.system.now() + HOUR).toISOString();
    for (const one of [id, free]) await dataOf(team.call("PATCH", `${UPLOADS}/${one}`, { json: { deleteAfter } }));
    await dataOf(team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason: "r" } }));
    await pass(world, DAY);
    expect([await listed(team), await trashed(team)]).toEqual([[id], [free]]);
    await team.call("DELETE", `${UPLOADS}/${id}/hold`);
    await pass(world, 5 * MINUTE);
    expect([await listed(team), await trashed(team)]).toEqual([[], [id, free].sort()]);
  });

  test("can't be deleted by a query that forgets the hold", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    await dataOf(team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason: "r" } }));
    const forgetful = (query: string) => DB.prepare(query).bind(id).run();
    await expect(forgetful("delete from files where id = ?")).rejects.toThrow("The file is held.");
    await DB.prepare("update files set hold = null where id = ?").bind(id).run();
    await dataOf(team.call("DELETE", `${UPLOADS}/${id}`));
    await dataOf(team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason: "r" } }));
    for (const query of ["delete from removed where id = ?", "update removed set trashed_at = null where id = ?"]) {
      await expect(forgetful(query)).rejects.toThrow("The file is held.");
    }
  });
});

describe("A deletion of many files by the recovery job", () => {
  test.for(isExhaustive ? ["deleteAfter", "the trash"] : ["the trash"])(
    "deletes the files of many teams by %s in a few runs, in batches of at most 100 statements",
    async (reason, { world }) => {
      const teams = await Promise.all(Array.from({ length: 45 }, () => world.newTeam()));
      for (const team of teams) await world.store(team, "a.txt", "a");
      await world.drain();
      for (const team of teams) {
        if (reason === "the trash") await trashAll(team, "1");
        else await DB.prepare("update files set delete_after = 1 where team_id = ?").bind(team.teamId).run();
      }
      const sizes: number[] = [];
      const bindings = new ProxiedBindings();
      const database = bindings.database.bind(bindings);
      bindings.database = (real) => {
        const proxied = database(real);
        return withBatch(proxied, (statements) => {
          sizes.push(statements.length);
          return proxied.batch(statements);
        });
      };
      expect((await world.recoverFully(bindings)).length).toBeLessThanOrEqual(4);
      for (const team of teams) {
        expect(await listed(team)).toEqual([]);
        expect(await trashed(team)).toHaveLength(reason === "deleteAfter" ? 1 : 0);
      }
      expect(Math.max(...sizes)).toBeLessThanOrEqual(100);
    },
  );
});

describe("The retention of a team", () => {
  const retain = (team: Team, days: number | null) =>
    dataOf(team.call("PUT", "/docs/v1/retention", { json: { days } }));

  /** Begins an upload that takes more than a day. @returns the file's id, and the end of the upload */
  async function slowUpload(world: World, team: Team) {
    const client = new Uploader(world, team, patternOf(1000));
    await must(client.create());
    // An upload without a byte for a day expires.
    for (const offset of [0, 250]) {
      await must(client.send(offset, offset + 250));
      await pass(world, 15 * HOUR);
    }
    return { id: client.id, finish: () => must(client.send(500, 1000)) };
  }

  test("moves every file of that age to the trash, once, but none that is held", async ({ world, team }) => {
    const other = await world.newTeam();
    const kept = await world.store(other, "other.txt", "b");
    const [old, held] = [await world.store(team, "a.txt", "a"), await world.store(team, "held.txt", "c")];
    await dataOf(team.call("PUT", `${UPLOADS}/${held}/hold`, { json: { reason: "r" } }));
    await world.drain();
    world.aheadMilliseconds += 2 * DAY;
    const young = await world.store(team, "b.txt", "b");
    await world.drain();
    await retain(team, 2);
    await pass(world, 5 * MINUTE);
    expect([await listed(team), await trashed(team)]).toEqual([[young, held].sort(), [old]]);
    await restore(team, old);
    await pass(world, 2 * HOUR);
    expect(await listed(team), "a restored file stays").toEqual([young, held, old].sort());
    await pass(world, 2 * DAY);
    expect([await listed(team), await trashed(team)]).toEqual([[held, old].sort(), [young]]);
    await team.call("DELETE", `${UPLOADS}/${held}/hold`);
    await pass(world, 5 * MINUTE);
    expect(await listed(team)).toEqual([old]);
    await retain(team, 1);
    await pass(world, 5 * MINUTE);
    expect(await listed(team), "a new rule applies to all files").toEqual([]);
    expect(await listed(other)).toEqual([kept]);
  });

  test("raises the version of a file only with the event of its deletion, as a deletion by a user does", async ({
    world,
    team,
  }) => {
    const [old, deleted] = [await world.store(team, "a.txt", "a"), await world.store(team, "b.txt", "b")];
    await world.drain();
    await dataOf(team.call("DELETE", `${UPLOADS}/${deleted}`));
    world.aheadMilliseconds += 2 * DAY;
    await retain(team, 1);
    await pass(world, 5 * MINUTE);
    const versionsOf = async (id: string) =>
      (await eventsOf(team, `subject=${id}`)).map(
        ({ type, subject }: { type: string; subject: { version: number } }) => [type, subject.version],
      );
    expect(await versionsOf(old)).toEqual(await versionsOf(deleted));
    expect((await versionsOf(old)).at(-1)).toEqual(["file.trashed", expect.any(Number)]);
  });

  test("counts from the upload, also for one that takes longer, and ends with the rule", async ({ world, team }) => {
    await retain(team, 1);
    const { id, finish } = await slowUpload(world, team);
    await finish();
    await world.drain();
    await pass(world, 5 * MINUTE);
    expect(await trashed(team)).toEqual([id]);

    const held = await world.store(team, "held.txt", "a");
    await dataOf(team.call("PUT", `${UPLOADS}/${held}/hold`, { json: { reason: "r" } }));
    const spared = await slowUpload(world, team);
    await retain(team, null);
    await spared.finish();
    await world.drain();
    await team.call("DELETE", `${UPLOADS}/${held}/hold`);
    await pass(world, 5 * MINUTE);
    expect(await listed(team), "a rule that has ended deletes nothing").toEqual([spared.id, held].sort());
    await pass(world, 30 * DAY);
    expect(await listed(team)).toEqual([spared.id, held].sort());
  });

  test("reaches many files in bounded statements", async ({ world, team }) => {
    await insertMany(
      1200,
      `insert into files (etag, mime_type, file_type, id, team_id, key_id, original_name, name_key, status, reserved_bytes, size_bytes, processed_at, created_at, updated_at)
       select 'x', 'audio/mpeg', 'audio file', printf('%021x', i) || substr(?2, -3), ?2, ?2, 'many', 'many', 'completed', 1, 1, 1, 1, 1 from n`,
      team.teamId,
    );
    await retain(team, 1);
    for (let i = 0; i < 3; i++) await must(world.recover());
    const marked = DB.prepare(
      `select (select count(*) from files where team_id = ?1 and delete_after is not null)
         + (select count(*) from removed where team_id = ?1) as n`,
    );
    expect(await marked.bind(team.teamId).first("n")).toBe(1200);
    expect((await usageOf(team)).trashFiles).toBeGreaterThan(100);
  });
});

describe("A hold", () => {
  test("is not placed on a file of a team that is being deleted, so the team is erased", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "a");
    await world.drain();
    const deleteTeam = () => world.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    const request = { token: team.token, json: { reason: "too late" } };
    const hold = world.ask("PUT", `${UPLOADS}/${id}/hold`, request, { change: beforeWrite(deleteTeam) });
    expect((await must(hold)).code).toBe("token_invalid");
    await world.recoverAll([team.teamId]);
    await expectErased(team.teamId, world);
  });

  test("keeps the bytes of an upload that it holds before the upload learns that its commit succeeded", async ({
    world,
    team,
  }) => {
    let id: string | undefined;
    const losingCommit: Change = (deps) =>
      withDatabases(deps, (database) =>
        withBatch(database, async (statements) => {
          const results = await database.batch(statements);
          const [committed] = (await rowsOf(team.teamId)).filter(({ status }) => status === "pending");
          if (!committed || id) return results;
          id = committed.id;
          await dataOf(team.call("PUT", `${UPLOADS}/${id}/hold`, { json: { reason: "evidence" } }));
          throw new Error("The response of the commit is lost.");
        }),
      );
    const upload = world.upload(team, await encodeForm("a.txt", "kept"), {}, { change: losingCommit });
    expect((await must(upload)).status).toBe(503);
    expect(await expectSound(team.teamId, { checkBytes: true })).toMatchObject([{ id, status: "pending" }]);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });
});

describe("An upload with an idempotency key whose commit got no response", () => {
  test("keeps its file, which a repetition returned before the upload learns of its failure", async ({
    world,
    team,
  }) => {
    const headers = { "Idempotency-Key": "k" };
    let repeated: Awaited<ReturnType<typeof world.upload>> | undefined;
    const losingCommit: Change = (deps) =>
      withDatabases(deps, (database) =>
        withBatch(database, async (statements) => {
          const results = await database.batch(statements);
          const isCommitted = (await rowsOf(team.teamId)).some(({ status }) => status === "pending");
          if (!isCommitted || repeated) return results;
          repeated = await world.upload(team, await encodeForm("a.txt", "kept"), headers);
          throw new Error("The response of the commit is lost.");
        }),
      );
    const upload = world.upload(team, await encodeForm("a.txt", "kept"), headers, { change: losingCommit });
    expect((await must(upload)).status).toBe(503);
    const { status, id } = await must(Promise.resolve(repeated!));
    expect(status).toBe(200);
    expect(await expectSound(team.teamId, { checkBytes: true })).toMatchObject([{ id, status: "pending" }]);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });
});

describe("An own file", () => {
  test("keeps its owner in the trash and after it", async ({ world, team }) => {
    const { token } = await newMember(team, "contributor");
    const id = await world.store({ ...team, token }, "a.txt", "a");
    await world.drain();
    await remove(team, id);
    expect((await world.call("POST", `${TRASH}/${id}/restore`, { token })).status).toBe(200);
    expect(idsIn((await world.call("GET", UPLOADS, { token })).body.data)).toEqual([id]);
  });
});
