import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { MAX_INDEX, TeamIndex } from "../../src/search/team-index.ts";
import type { ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import { runEveryFault } from "../support/faults.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { OPERATOR, type Team } from "../support/harness.ts";
import { inObject, storageWith } from "../support/objects.ts";
import { runEveryOrder } from "../support/orders.ts";
import { inIndex, isEmptyIndex, SEARCH_OBJECTS, storedIndex } from "../support/search-objects.ts";
import { DAY } from "../support/time.ts";
import { must, type World } from "../support/world.ts";

/* How the index of a team follows its log, and what it does when something fails. */

const VTT = { "Content-Type": "text/vtt" };
const vttOf = (text: string) => `WEBVTT\n\n00:00.000 --> 00:05.000\n${text}\n`;
const pathOf = (id: string) => `/docs/v1/uploads/${id}/transcript`;

type Place = { world: World; team: Team };

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
    const tables = ["events", "file_objects"];
    const rows = await Promise.all(
      tables.map(
        async (table) => (await DB.prepare(`select * from ${table} where team_id = ?`).bind(team.teamId).all()).results,
      ),
    );
    await say(place, later, "lock");
    await say(place, id, "gate");
    await world.runAlarms();
    expect((await search(place)).ids).toEqual([later]);
    for (const [i, table] of tables.entries()) {
      await DB.prepare(`delete from ${table} where team_id = ?`).bind(team.teamId).run();
      for (const row of rows[i] ?? []) {
        const names = Object.keys(row);
        await DB.prepare(`insert into ${table} (${names.join()}) values (${names.map(() => "?").join()})`)
          .bind(...Object.values(row))
          .run();
      }
    }
    // It shows no word of a version that the database doesn't have.
    expect([(await search(place)).ids, (await search(place, "gate")).ids]).toEqual([[], []]);
    await world.runAlarms(DAY);
    expect(await versionsIn(team.teamId)).toEqual([id]);
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
    await world.deps().searchIndexes(team.teamId).rebuild();
    await world.runAlarms();
    expect((await search(place)).ids).toEqual([id]);
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

  const indexing = async (_: unknown, bindings: ProxiedBindings, place: Place) => {
    await runIndex(place, bindings);
    return "indexed";
  };
  const outcomeOf = (answer: Awaited<ReturnType<typeof say>>) =>
    answer === "dead" ? answer : (answer.code ?? answer.status);

  test.each<[string, (id: string, bindings: ProxiedBindings, place: Place) => Promise<string | number>]>([
    ["a write of the transcript", async (id, bindings, place) => outcomeOf(await say(place, id, "gate", bindings))],
    [
      "a deletion of the file",
      async (id, bindings, { world, team }) =>
        outcomeOf(await world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings })),
    ],
    [
      "a deletion of the transcript",
      async (id, bindings, { world, team }) =>
        outcomeOf(await world.ask("DELETE", pathOf(id), { token: team.token }, { bindings })),
    ],
  ])("at the same time as %s leaves the index right in every order of their calls", async (_, change) => {
    // The invariants compare the index with the database.
    await runEveryOrder<string>({
      prepare: (place) => spoken(place),
      acts: [indexing, change],
      outcomes: ["indexed 200"],
    });
  });
});
