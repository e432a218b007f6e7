import { env } from "cloudflare:workers";
import { beforeEach, describe, expect } from "vitest";
import { databaseOf } from "../../src/platform/system.ts";
import { MAX_INDEX, TeamIndex } from "../../src/search/team-index.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import type { Change } from "../support/deps.ts";
import { runEveryFault } from "../support/faults.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { newMember, OPERATOR, type Team } from "../support/harness.ts";
import { inObject, storageWith } from "../support/objects.ts";
import { runEveryOrder } from "../support/orders.ts";
import { insertMany } from "../support/rows.ts";
import { inIndex, isEmptyIndex, SEARCH_OBJECTS, storedIndex } from "../support/search-objects.ts";
import { emptyStores } from "../support/stores.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../support/time.ts";
import { must, type World } from "../support/world.ts";

/* How the index of a team follows its log, and what it does when something fails. */

const VTT = { "Content-Type": "text/vtt" };
const vttOf = (text: string) => `WEBVTT\n\n00:00.000 --> 00:05.000\n${text}\n`;
const pathOf = (id: string) => `/docs/v1/uploads/${id}/transcript`;

type Place = { world: World; team: Team };

const rebuildPathOf = ({ team }: Place) => `/auth/v1/teams/${team.teamId}/search/rebuild`;
const outcomeOf = (answer: Awaited<ReturnType<World["ask"]>>) =>
  answer === "dead" ? answer : (answer.code ?? answer.status);

async function say({ world, team }: Place, id: string, text: string, bindings?: ProxiedBindings) {
  const options = { token: team.token, body: vttOf(text), headers: VTT };
  return world.ask("PUT", pathOf(id), options, bindings && { bindings });
}

/** A file with a transcript that the index does not have yet. */
async function spoken(place: Place, text = "lock"): Promise<string> {
  // Ids are ordered by their time.
  place.world.aheadMilliseconds += 1;
  const id = await place.world.store(place.team, "talk.txt", "talk");
  expect(await say(place, id, text)).toMatchObject({ status: 200 });
  return id;
}

async function search(
  { world, team }: Place,
  words = "lock",
): Promise<{ ids: string[]; isComplete: boolean; isFull: boolean }> {
  const { status, body, text } = await world.call("GET", `/docs/v1/transcripts?search=${words}`, { token: team.token });
  expect(status, text).toBe(200);
  const { data, isComplete, isFull } = body;
  return { ids: data.map(({ file }: { file: { _id: string } }) => file._id), isComplete, isFull };
}
const runIndex = ({ world, team }: Place, bindings?: ProxiedBindings) =>
  world.runAlarm(SEARCH_OBJECTS, team.teamId, bindings);
const versionsIn = async (teamId: string) => (await storedIndex(teamId))?.transcripts.map(({ fileId }) => fileId) ?? [];

/** @returns a function that sets the events and transcripts in the database of the team back to now */
async function rememberDatabase({ team: { teamId } }: Place): Promise<() => Promise<void>> {
  const tables = ["events", "file_objects"];
  const rowsOf = async (table: string) =>
    (await DB.prepare(`select * from ${table} where team_id = ?`).bind(teamId).all()).results;
  const rows = await Promise.all(tables.map(rowsOf));
  return async () => {
    for (const [i, table] of tables.entries()) {
      await DB.prepare(`delete from ${table} where team_id = ?`).bind(teamId).run();
      for (const row of rows[i] ?? []) {
        const names = Object.keys(row);
        await DB.prepare(`insert into ${table} (${names.join()}) values (${names.map(() => "?").join()})`)
          .bind(...Object.values(row))
          .run();
      }
    }
  };
}

describe("An index", () => {
  test("follows each change of a transcript and of its file", async ({ world, team }) => {
    const place = { world, team };
    world.settings = { trashDays: 7 };
    const id = await spoken(place);
    await world.runAlarms();
    expect(await search(place)).toEqual({ ids: [id], isComplete: true, isFull: false });
    const change = async (method: string, path: string) => {
      expect((await world.call(method, path, { token: team.token })).status).toBe(200);
      await world.runAlarms();
      return versionsIn(team.teamId);
    };
    expect(await change("DELETE", `/docs/v1/uploads/${id}`)).toEqual([]);
    expect(await change("POST", `/docs/v1/trash/${id}/restore`)).toEqual([id]);
    expect((await search(place)).ids).toEqual([id]);
    await say(place, id, "gate");
    await world.runAlarms();
    expect([(await search(place)).ids, (await search(place, "gate")).ids]).toEqual([[], [id]]);
    expect(await change("DELETE", pathOf(id))).toEqual([]);
  });

  test("reads more events than one query returns before it waits", async ({ world, team }) => {
    const place = { world, team };
    const before = await spoken(place);
    await world.runAlarms();
    await insertMany(
      500,
      `insert into events select team_id, seq + i, 'apikey.created', created_at, actor, subject_id, subject_version, data, position + i
       from n, (select * from events where team_id = ?2 order by seq desc limit 1)`,
      team.teamId,
    );
    const after = await spoken(place);
    await world.runAlarms();
    expect((await search(place)).ids).toEqual([after, before]);
  });

  test("is woken by no upload, and before it has a transcript by no deletion", async ({ world, team }) => {
    const id = await world.store(team, "talk.txt", "talk");
    await world.call("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });
    await world.drainAll();
    expect(world.objects.has(team.teamId)).toBe(false);
  });

  test("that stores nothing is built by the first search, and says until then that it is not complete", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    const ids = [await spoken(place), await spoken(place)];
    await inIndex(team.teamId, ({ storage }) => storage.deleteAll());
    world.objects.delete(team.teamId);
    expect(await search(place)).toEqual({ ids: [], isComplete: false, isFull: false });
    await world.runAlarms();
    expect(await search(place)).toEqual({ ids: ids.reverse(), isComplete: true, isFull: false });
  });

  test("of another format is built again", async ({ world, team }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    await inIndex(team.teamId, ({ storage: { sql } }) => {
      sql.exec("update state set json = json_set(json, '$.format', 0)");
      sql.exec("update parts set version = 'old'");
    });
    expect((await search(place)).isComplete).toBe(false);
    await world.runAlarms();
    expect(await search(place)).toEqual({ ids: [id], isComplete: true, isFull: false });
  });

  test("that missed events, because they were purged, compares all transcripts", async ({ world, team }) => {
    const place = { world, team };
    const [kept, gone] = [await spoken(place), await spoken(place)];
    await world.runAlarms();
    const added = await spoken(place);
    await world.call("DELETE", pathOf(gone), { token: team.token });
    await DB.prepare("delete from events where team_id = ?").bind(team.teamId).run();
    await say(place, kept, "lock again");
    await world.runAlarms();
    expect(await versionsIn(team.teamId)).toEqual([kept, added].sort());
    expect((await search(place)).isComplete).toBe(true);
  });

  test("shows the transcripts of a database that was set back, and finds what it has lost", async ({ world, team }) => {
    const place = { world, team };
    const [id, later] = [await spoken(place), await world.store(team, "b.txt", "b")];
    await world.runAlarms();
    const setBack = await rememberDatabase(place);
    await say(place, later, "lock");
    await say(place, id, "gate");
    await world.runAlarms();
    expect((await search(place)).ids).toEqual([later]);
    await setBack();
    // It shows no word of a version that the database doesn't have.
    expect([(await search(place)).ids, (await search(place, "gate")).ids]).toEqual([[], []]);
    await world.runAlarms(DAY);
    expect(await versionsIn(team.teamId)).toEqual([id]);
  });

  test("shows no word of a transcript that it reads while the database is set back", async ({ world, team }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    const setBack = await rememberDatabase(place);
    await say(place, id, "gate");
    const bindings = new ProxiedBindings();
    let isBack = false;
    bindings.sendInTurn = async ({ name }, send) => {
      const result = await send();
      if (name === "R2 get" && !isBack) {
        isBack = true;
        await setBack();
      }
      return result;
    };
    await must(runIndex(place, bindings));
    expect([isBack, (await search(place)).ids, (await search(place, "gate")).ids]).toEqual([true, [], []]);
    await world.runAlarms(DAY);
    expect((await search(place)).ids).toEqual([id]);
  });

  test("drops within a day what left without an event", async ({ world, team }) => {
    const place = { world, team };
    const [id, gone] = [await spoken(place), await spoken(place)];
    await world.runAlarms();
    await DB.prepare("update file_objects set state = 'replaced', due_at = 1 where file_id = ?").bind(gone).run();
    expect((await search(place)).ids).toEqual([id]);
    await world.runAlarms();
    expect((await versionsIn(team.teamId)).length).toBe(2);
    await world.runAlarms(DAY);
    expect(await versionsIn(team.teamId)).toEqual([id]);
  });

  test("whose wake was lost is woken by the recovery job", async ({ world, team }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    const object = world.objects.get(team.teamId);
    await say(place, id, "gate");
    if (object) object.at = null;
    await world.recover();
    await world.runAlarms();
    expect((await search(place, "gate")).ids).toEqual([id]);
    const [row] = (
      await DB.prepare("select kind, id, cursor, since from followers where team_id = ?").bind(team.teamId).all()
    ).results;
    expect(row).toMatchObject({ kind: "search", id: team.teamId });
  });

  test("of a deleted team empties itself, also if the wake is lost, and an unknown team has none", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    await spoken(place);
    await world.runAlarms();
    const object = world.objects.get(team.teamId);
    await world.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    if (object) object.at = world.system.now() + DAY;
    await world.runAlarms(DAY);
    expect([await isEmptyIndex(team.teamId), object?.at]).toEqual([true, null]);
    await world.recoverAll([team.teamId]);
    const unknown = `0${team.teamId.slice(1)}`;
    await must(world.runAlarm(SEARCH_OBJECTS, unknown));
    expect([await isEmptyIndex(unknown), world.objects.get(unknown)?.at]).toEqual([true, null]);
  });

  test("leaves out a transcript whose bytes are lost, and says so in the log", async ({ world, team }) => {
    const place = { world, team };
    const [lost, id] = [await spoken(place), await spoken(place)];
    const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/${lost}/` });
    await env.BUCKET.delete(objects.map(({ key }) => key));
    await world.runAlarms();
    expect((await search(place)).ids).toEqual([id]);
    expect(world.lines.filter(({ event }) => event === "transcript_missing")).toMatchObject([{ fileId: lost }]);
  });

  test("is built again if the operator asks for it", async ({ world, team }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    await inIndex(team.teamId, ({ storage: { sql } }) => sql.exec("delete from indexed"));
    expect((await search(place)).ids).toEqual([]);
    const rebuild = () => world.call("POST", rebuildPathOf(place), { token: OPERATOR });
    expect((await rebuild()).status).toBe(200);
    expect(await search(place)).toEqual({ ids: [], isComplete: false, isFull: false });
    await world.runAlarms();
    expect(await search(place)).toEqual({ ids: [id], isComplete: true, isFull: false });
    // Not of a team that is being deleted.
    await world.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    expect([(await rebuild()).status, await isEmptyIndex(team.teamId)]).toEqual([404, false]);
  });
});

describe("An index that is behind", () => {
  // The other teams of its database may be behind, too.
  beforeEach(emptyStores);

  test("has not read an event for more than 15 minutes, and /health shows the operator since when", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    await world.recover();
    const databases = [...world.deps().databases.keys()].map((number) => ({ number, bytes: 1, recoveredAt: null }));
    const change: Change = (deps) => ({ ...deps, health: { check: async () => ({ failing: [], databases }) } });
    const sinceIn = async (token?: string) => {
      const { body } = await must(world.ask("GET", "/health", token === undefined ? {} : { token }, { change }));
      return body.databases?.map((one: { searchBehindSince: string | null }) => one.searchBehindSince);
    };
    const none = databases.map((): string | null => null);
    world.aheadMilliseconds += HOUR;
    expect(await sinceIn(OPERATOR)).toEqual(none);
    const at = new Date(world.system.now()).toISOString();
    await say(place, id, "gate");
    await say(place, id, "lock and gate");
    world.aheadMilliseconds += 15 * MINUTE;
    expect(await sinceIn(OPERATOR)).toEqual(none);
    world.aheadMilliseconds += 1;
    expect(await sinceIn(OPERATOR)).toEqual(none.with(databaseOf(team.teamId), at));
    for (const token of [undefined, team.token]) expect(await sinceIn(token)).toBeUndefined();
    await world.runAlarms();
    await world.recover();
    expect(await sinceIn(OPERATOR)).toEqual(none);
  });
});

describe("An index that is full", () => {
  test("has the transcripts of the newest files, says so, and has room again after deletions", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    const ids: string[] = [];
    for (let i = 0; i < 4; i++) ids.push(await spoken(place, `lock ${i}`));
    const limits = { ...MAX_INDEX, transcripts: 2 };
    const run = () =>
      inObject(SEARCH_OBJECTS, team.teamId, async ({ id, storage }) => {
        const object = new TeamIndex(world.deps(), { id, storage: storageWith(storage, { at: null }) }, limits);
        await object.run();
        return object.status();
      });
    expect(await run()).toMatchObject({ transcripts: 2, isComplete: false, isFull: true });
    const logged = () => world.lines.filter(({ event }) => event === "search_index_full");
    expect(logged()).toMatchObject([{ level: "warn", teamId: team.teamId }]);
    expect(await versionsIn(team.teamId)).toEqual(ids.slice(2));
    // An older one has no place, a newer one has.
    await say(place, ids[0] ?? "", "lock");
    ids.push(await spoken(place));
    await run();
    expect(await versionsIn(team.teamId)).toEqual(ids.slice(3));
    for (const id of ids.slice(2)) await world.call("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });
    await run();
    world.aheadMilliseconds += DAY;
    expect(await run()).toMatchObject({ transcripts: 2, isComplete: true, isFull: false });
    // Once, when it became full.
    expect(logged()).toHaveLength(1);
  });
});

describe("An index step", () => {
  test("that dies or fails at any call is repeated", async () => {
    const { calls } = await runEveryFault<string[], unknown>({
      async prepare(place) {
        const ids = [await spoken(place), await spoken(place)];
        await runIndex(place);
        await say(place, ids[0] ?? "", "gate");
        await place.world.call("DELETE", `/docs/v1/uploads/${ids[1]}`, { token: place.team.token });
        return ids;
      },
      act: (_, bindings, place) => runIndex(place, bindings),
      async verify(_, { state: [id], ...place }) {
        expect([(await search(place, "gate")).ids, (await search(place)).ids]).toEqual([[id], []]);
      },
    });
    expect(calls).toContain("R2 get");
  });

  test("that builds the index and dies or fails at any call is repeated", async () => {
    await runEveryFault<string, unknown>({
      prepare: (place) => spoken(place),
      act: (_, bindings, place) => runIndex(place, bindings),
      async verify(_, { state, ...place }) {
        expect(await search(place)).toEqual({ ids: [state], isComplete: true, isFull: false });
      },
    });
  });

  test("that compares the index and dies or fails at any call is repeated", async () => {
    await runEveryFault<string[], unknown>({
      async prepare(place) {
        const ids = [await spoken(place), await spoken(place)];
        await runIndex(place);
        // Without an event.
        await DB.batch([
          DB.prepare("update file_objects set state = 'replaced', due_at = 1 where file_id = ?").bind(ids[1]),
          DB.prepare("update files set has_transcript = 0 where id = ?").bind(ids[1]),
        ]);
        place.world.aheadMilliseconds += DAY;
        return ids;
      },
      act: (_, bindings, place) => runIndex(place, bindings),
      async verify(_, { state: [id, gone], ...place }) {
        expect((await search(place)).ids).toEqual([id]);
        expect(await versionsIn(place.team.teamId)).not.toContain(gone);
      },
    });
  });

  test("that empties the index of a deleted team and dies or fails at any call is repeated", async () => {
    const { calls } = await runEveryFault<void, unknown>({
      async prepare(place) {
        await spoken(place);
        await runIndex(place);
        await place.world.call("DELETE", `/auth/v1/teams/${place.team.teamId}`, { token: OPERATOR });
      },
      act: (_, bindings, place) => runIndex(place, bindings),
      isTeamDeleted: true,
      async verify(_, { team }) {
        expect(await isEmptyIndex(team.teamId)).toBe(true);
      },
    });
    expect(calls).toContain("D1 batch");
  });

  test("leaves a complete index, whatever call of a rebuild and of the step after it dies or fails", async () => {
    await runEveryFault<string, unknown>({
      async prepare(place) {
        const id = await spoken(place);
        await runIndex(place);
        return id;
      },
      async act(_, bindings, place) {
        const rebuilt = await place.world.ask("POST", rebuildPathOf(place), { token: OPERATOR }, { bindings });
        if (rebuilt !== "dead") await runIndex(place, bindings);
      },
      async verify(_, { state, ...place }) {
        expect(await search(place)).toEqual({ ids: [state], isComplete: true, isFull: false });
      },
    });
  });

  const indexing = async (_: unknown, bindings: ProxiedBindings, place: Place) => {
    await runIndex(place, bindings);
    return "indexed";
  };
  const asking =
    (method: string, pathFor: (id: string, place: Place) => string, token?: string) =>
    async (id: string, bindings: ProxiedBindings, place: Place) => {
      const options = { token: token ?? place.team.token };
      return outcomeOf(await place.world.ask(method, pathFor(id, place), options, { bindings }));
    };
  const fileOf = (id: string) => `/docs/v1/uploads/${id}`;
  const writing = (text: string) => async (id: string, bindings: ProxiedBindings, place: Place) =>
    outcomeOf(await say(place, id, text, bindings));
  const indexed = async (place: Place) => {
    const id = await spoken(place);
    await runIndex(place);
    return id;
  };
  const inTrash = async (place: Place) => {
    place.world.settings = { trashDays: 7 };
    const id = await indexed(place);
    await place.world.call("DELETE", fileOf(id), { token: place.team.token });
    return id;
  };

  type Act = (id: string, bindings: ProxiedBindings, place: Place) => Promise<string | number>;
  test.each<[string, Act, ((place: Place) => Promise<string>)?]>([
    ["a write of the transcript", writing("gate")],
    ["a write of another transcript in its place", writing("gate"), indexed],
    ["a deletion of the file", asking("DELETE", fileOf)],
    ["a deletion of the transcript", asking("DELETE", pathOf)],
    ["a restoration of the file", asking("POST", (id) => `/docs/v1/trash/${id}/restore`), inTrash],
    ["a rebuild", asking("POST", (_, place) => rebuildPathOf(place), OPERATOR), indexed],
  ])("at the same time as %s leaves the index right in every order of their calls", async (_, change, prepare) => {
    // The invariants compare the index with the database.
    await runEveryOrder<string>({
      prepare: prepare ?? ((place) => spoken(place)),
      acts: [indexing, change],
      outcomes: ["indexed 200"],
    });
  });

  test("at the same time as the deletion of the team leaves nothing in every order of their calls", async () => {
    await runEveryOrder<string>({
      prepare: (place) => spoken(place),
      acts: [indexing, asking("DELETE", (_, { team }) => `/auth/v1/teams/${team.teamId}`, OPERATOR)],
      outcomes: ["indexed 200"],
      isTeamDeleted: true,
    });
  });

  test("after two writes of a transcript at once finds the one that the file has, in every order of their calls", async () => {
    await runEveryOrder<string>({
      prepare: indexed,
      acts: [writing("gate"), writing("door")],
      outcomes: ["200 200"],
      isSymmetric: true,
      async verifySettled(_, { state: id, ...place }) {
        const { text } = await place.world.call("GET", pathOf(id), { token: place.team.token });
        const said = ["gate", "door"].filter((word) => text.includes(word));
        const found = [];
        for (const word of ["lock", "gate", "door"]) if ((await search(place, word)).ids.includes(id)) found.push(word);
        expect([found, found.length]).toEqual([said, 1]);
      },
    });
  });
});

describe("A search", () => {
  test("at the same time as its caller becomes a contributor finds all, or the own files, in every order of their calls", async () => {
    await runEveryOrder<{ id: string; token: string }>({
      async prepare(place) {
        const member = await newMember(place.team, "member");
        await spoken(place);
        await spoken({ ...place, team: { ...place.team, token: member.token } });
        await runIndex(place);
        return member;
      },
      acts: [
        async ({ token }, bindings, { world }) => {
          const answer = await must(world.ask("GET", "/docs/v1/transcripts?search=lock", { token }, { bindings }));
          return answer.status === 200 ? `found ${answer.body.data.length}` : outcomeOf(answer);
        },
        async ({ id }, bindings, { world, team }) => {
          const options = { token: team.token, json: { role: "contributor" } };
          return outcomeOf(await world.ask("PATCH", `/auth/v1/users/${id}`, options, { bindings }));
        },
      ],
      outcomes: ["found 2 200", "found 1 200"],
    });
  });

  test("that waited 2 s for the thread of the object gets 503, and nothing else does", async ({ world, team }) => {
    const place = { world, team };
    const id = await spoken(place);
    await world.runAlarms();
    const after =
      (milliseconds: number): Change =>
      (deps) => ({
        ...deps,
        searchIndexes: (teamId) => ({
          ...deps.searchIndexes(teamId),
          search: async (request) => {
            world.aheadMilliseconds += milliseconds;
            return deps.searchIndexes(teamId).search(request);
          },
        }),
      });
    const statusOf = async (path: string, milliseconds: number) => {
      const { status, code } = await must(
        world.ask("GET", path, { token: team.token }, { change: after(milliseconds) }),
      );
      return code ?? status;
    };
    const path = "/docs/v1/transcripts?search=lock";
    expect([await statusOf(path, 2 * SECOND), await statusOf(path, 2 * SECOND + 1)]).toEqual([200, "unavailable"]);
    expect(await statusOf(pathOf(id), MINUTE)).toBe(200);
  });
});
