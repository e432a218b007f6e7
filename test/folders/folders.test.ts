import { afterEach, describe, expect } from "vitest";
import type { Team } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { newMember, OPERATOR } from "../support/harness.ts";
import { fill, insertMany } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { MINUTE } from "../support/time.ts";
import { must, type World } from "../support/world.ts";

/* Moving and deleting folders that are too large for one request. The recovery job does the rest. */

afterEach(emptyStores);

const FILES = 1100;
const FOLDERS = 1100;

const call = async (world: World, { token }: Team, method: string, path: string, json?: object) =>
  must(world.ask(method, path, { token, ...(json && { json }) }));
const move = (world: World, team: Team, folder: string, to: string) =>
  call(world, team, "PATCH", "/docs/v1/folders", { folder, to });
const erase = (world: World, team: Team, folder: string) =>
  call(world, team, "POST", "/docs/v1/folders/delete", { folder });

/** Fills a folder with files and created folders, at several depths. */
async function fillFolder(team: Team, folder: string, files = FILES): Promise<void> {
  await fill(team, "files", files);
  await DB.batch([
    DB.prepare(
      `update files set folder = ?2 || iif(length(name_key) % 2, '', '/sub/' || name_key),
         search_keys = json_object('folder', lower(?2)) where team_id = ?1`,
    ).bind(team.teamId, folder),
    DB.prepare(
      `insert into folders with recursive n(i) as (select 1 union all select i + 1 from n where i < ?3)
       select ?1, '', ?2 || char(1) || 'empty' || i, 1 from n`,
    ).bind(team.teamId, folder.replaceAll("/", "\u0001"), FOLDERS),
  ]);
}

/** How many files and created folders are in each top-level folder. */
async function countsOf({ teamId }: Team): Promise<Record<string, [files: number, folders: number]>> {
  const top = (column: string) => `substr(${column}, 1, instr(${column} || char(1), char(1)) - 1)`;
  const { results } = await DB.prepare(
    `select top, sum(file) as files, sum(not file) as folders from (
       select ${top("folder_key")} as top, 1 as file from files where team_id = ?1
       union all select ${top("folder_key")}, 0 from folders where team_id = ?1) group by 1`,
  )
    .bind(teamId)
    .all<{ top: string; files: number; folders: number }>();
  return Object.fromEntries(results.map(({ top, files, folders }) => [top, [files, folders]]));
}
const changesLeft = async () => (await DB.prepare("select id from folder_changes").all()).results.length;
const eventsOfType = ({ teamId }: Team, type: string) =>
  DB.prepare("select count(*) as n, count(distinct subject_id) as files from events where team_id = ? and type = ?")
    .bind(teamId, type)
    .first();

async function finish(world: World): Promise<void> {
  world.aheadMilliseconds += 2 * MINUTE;
  await world.recover();
  expect(await changesLeft()).toBe(0);
}

describe("A folder of many files", () => {
  test("is moved with its folders, in steps, with an event for each file", async ({ world, team }) => {
    await fillFolder(team, "Old");
    const { body } = await move(world, team, "Old", "New/Here");
    expect(body.data).toEqual({ folder: "New/Here", isComplete: false });
    const [moved = [], left = []] = [(await countsOf(team)).New, (await countsOf(team)).Old];
    expect([moved[0], left[0]], "the first step").toEqual([500, FILES - 500]);
    await finish(world);
    expect(await countsOf(team)).toEqual({ New: [FILES, FOLDERS] });
    expect(await eventsOfType(team, "file.updated")).toEqual({ n: FILES, files: FILES });
    const odd = await DB.prepare(
      `select count(*) as n from files where team_id = ? and folder = 'New/Here' and search_keys ->> 'folder' = 'new/here'
       and version = 1`,
    )
      .bind(team.teamId)
      .first("n");
    expect(odd).toBeGreaterThan(0);
    const { actor, data, subject } = (await call(world, team, "GET", "/auth/v1/events?limit=1")).body.data[0];
    expect([actor.kind, data.fields, data.__v, subject.version]).toEqual(["secret", ["folder"], 1, 1]);
    expect((await call(world, team, "GET", "/docs/v1/uploads?search=new/here&limit=100")).body.data).toHaveLength(100);
    expect((await call(world, team, "GET", "/docs/v1/uploads?search=old")).body.data).toEqual([]);
  });

  test("is deleted with its folders, in steps, with an event for each file", async ({ world, team }) => {
    await fillFolder(team, "Old");
    await fill(team, "files", 3, FILES + 1);
    const { body } = await erase(world, team, "Old");
    expect(body.data).toEqual({ folder: "Old", isComplete: false, held: 0 });
    await finish(world);
    expect(await countsOf(team)).toEqual({ "": [3, 0] });
    expect(await eventsOfType(team, "file.deleted")).toEqual({ n: FILES, files: FILES });
    expect((await call(world, team, "GET", "/docs/v1/folders")).body.data).toEqual([]);
    const { folders } = (await DB.prepare("select folders from teams where id = ?").bind(team.teamId).first()) ?? {};
    expect(folders).toBe(0);
  });

  const ENDINGS = [
    "its key is deleted",
    "its key loses the scope",
    "its caller is demoted",
    "its caller logs out and becomes a viewer",
    "its caller is deleted",
    "its team is suspended",
  ] as const;
  test.for(ENDINGS)(
    "stops being deleted once %s, and then another change can begin",
    async (ending, { world, team }) => {
      await fillFolder(team, "Old");
      const { body: created } = await call(world, team, "POST", "/auth/v1/apikeys", { name: "leaked" });
      const member = await newMember(team, "member");
      const caller = { ...team, token: ending.startsWith("its caller") ? member.token : created.data.key };
      expect((await erase(world, caller, "Old")).body.data).toEqual({ folder: "Old", isComplete: false, held: 0 });
      const before = await countsOf(team);
      const operator = { ...team, token: OPERATOR };
      const suspend = (status: string) => call(world, operator, "PATCH", `/auth/v1/teams/${team.teamId}`, { status });
      const key = `/auth/v1/apikeys/${created.data.id}`;
      if (ending === "its team is suspended") await suspend("suspended");
      if (ending === "its key is deleted") await call(world, team, "DELETE", key);
      if (ending === "its key loses the scope") await call(world, team, "PATCH", key, { scopes: ["files:read"] });
      // A contributor deletes only the own files, and has the scope.
      const demotion = { role: "contributor" };
      if (ending === "its caller is demoted") await call(world, team, "PATCH", `/auth/v1/users/${member.id}`, demotion);
      if (ending === "its caller is deleted") await call(world, team, "DELETE", `/auth/v1/users/${member.id}`);
      if (ending === "its caller logs out and becomes a viewer") {
        await call(world, caller, "POST", "/auth/v1/logout");
        await call(world, team, "PATCH", `/auth/v1/users/${member.id}`, { role: "viewer" });
      }
      await finish(world);
      expect(await countsOf(team)).toEqual(before);
      if (ending === "its team is suspended") await suspend("active");
      expect((await move(world, team, "Old", "New")).status).toBe(200);
      await finish(world);
      expect((await countsOf(team)).New).toEqual(before.Old);
    },
  );

  type Going = [string, (caller: Caller) => Promise<unknown>, "user" | "key" | "session of a key"];
  interface Caller {
    world: World;
    team: Team;
    token: string;
    keyId: string;
  }
  const overlap = { overlapSeconds: 0 };
  test.for<Going>([
    ["its user logs out", ({ world, token }) => must(world.ask("POST", "/auth/v1/logout", { token })), "user"],
    ["its user's session expires", async ({ world }) => (world.aheadMilliseconds += 13 * 60 * MINUTE), "user"],
    [
      "its key is rotated",
      ({ world, team, keyId }) => call(world, team, "POST", `/auth/v1/apikeys/${keyId}/rotate`, overlap),
      "key",
    ],
    [
      "its key's session logs out",
      ({ world, token }) => must(world.ask("POST", "/auth/v1/logout", { token })),
      "session of a key",
    ],
  ])("goes on when %s", async ([, change, by], { world, team }) => {
    await fillFolder(team, "Old");
    const { body: created } = await call(world, team, "POST", "/auth/v1/apikeys", { name: "a" });
    const { key, id: keyId } = created.data;
    const tokenOf = {
      user: async () => (await newMember(team, "member")).token,
      key: async () => key,
      "session of a key": async () =>
        (await must(world.ask("POST", "/auth/v1/sessions", { token: key }))).body.data.key,
    };
    const token = await tokenOf[by]();
    expect((await erase(world, { ...team, token }, "Old")).body.data.isComplete).toBe(false);
    await change({ world, team, token, keyId });
    await finish(world);
    expect(await countsOf(team)).toEqual({});
  });

  test("of a contributor doesn't hold up the changes of others", async ({ world, team }) => {
    const contributor = await newMember(team, "contributor");
    await fillFolder(team, "Old");
    await DB.prepare("update files set user_id = ?2 where team_id = ?1").bind(team.teamId, contributor.id).run();
    const own = { ...team, token: contributor.token };
    expect((await move(world, own, "Old", "New")).body.data.isComplete).toBe(false);
    const again = await world.ask("PATCH", "/docs/v1/folders", { token: own.token, json: { folder: "Old", to: "x" } });
    expect(again).toMatchObject({ status: 409, code: "folder_busy" });
    expect((await move(world, team, "other", "elsewhere")).body.data.isComplete).toBe(true);
    await finish(world);
    expect((await countsOf(team)).New?.[0]).toBe(FILES);
  });

  test.for(["move", "delete"] as const)(
    "keeps files that come into it after the request, uploaded, moved or restored: %s",
    async (kind, { world, team }) => {
      world.settings = { trashDays: 7 };
      await fillFolder(team, "Old");
      const trashed = await world.store(team, "trashed.txt", "trashed");
      await call(world, team, "PATCH", `/docs/v1/uploads/${trashed}`, { folder: "Old/zzz" });
      await call(world, team, "DELETE", `/docs/v1/uploads/${trashed}`);
      const early = await world.store(team, "early.txt", "early");
      await (kind === "move" ? move(world, team, "Old", "New") : erase(world, team, "Old"));
      world.aheadMilliseconds += 1000;
      const late = await world.store(team, "late.txt", "late");
      for (const id of [early, late]) {
        await call(world, team, "PATCH", `/docs/v1/uploads/${id}`, { folder: "Old/zzz" });
      }
      await call(world, team, "POST", "/docs/v1/folders", { folder: "Old/zzzz" });
      expect((await call(world, team, "POST", `/docs/v1/trash/${trashed}/restore`)).status).toBe(200);
      await finish(world);
      const stayed: Record<string, number[]> = { Old: [3, 1] };
      expect(await countsOf(team)).toEqual({ ...(kind === "move" && { New: [FILES, FOLDERS] }), ...stayed });
    },
  );

  test("can't get a longer path if it has 1,500 folders, because each path is checked", async ({ world, team }) => {
    const { teamId } = team;
    await insertMany(1499, "insert into folders select ?2, '', 'Old' || char(1) || 'empty' || i, 1 from n", teamId);
    const create = (folder: string) => call(world, team, "POST", "/docs/v1/folders", { folder });
    expect((await move(world, team, "Old", "Older")).status).toBe(200);
    await finish(world);
    expect((await create("Older/one more")).status).toBe(200);
    const before = await countsOf(team);
    const refused = await move(world, team, "Older", "Oldest");
    expect([refused.status, refused.code, refused.body.errors[0].path]).toEqual([400, "invalid_input", "to"]);
    expect(refused.body.errors[0].message).toContain("less than 1500 folders");
    expect([await countsOf(team), await changesLeft()]).toEqual([before, 0]);
    expect((await move(world, team, "Older", "Young")).status, "a path of the same length").toBe(200);
  });

  test("is changed by one request at a time, and the next is 409 until it is complete", async ({ world, team }) => {
    // More than one step moves, but so few that the heavy limit has room for all four requests: each 10 files take a place of it.
    await fillFolder(team, "Old", 550);
    await move(world, team, "Old", "New");
    for (const change of [() => move(world, team, "Old", "Other"), () => erase(world, team, "Unrelated")]) {
      const { status, code } = await change();
      expect([status, code]).toEqual([409, "folder_busy"]);
    }
    await finish(world);
    expect((await erase(world, team, "New")).status).toBe(200);
  });

  test("is changed completely, whichever steps run twice or at once", async ({ world, team }) => {
    await fillFolder(team, "Old");
    await move(world, team, "Old", "New");
    world.aheadMilliseconds += 2 * MINUTE;
    await Promise.all([world.recover(), world.recover(), world.recover()]);
    expect(await changesLeft()).toBe(0);
    expect(await countsOf(team)).toEqual({ New: [FILES, FOLDERS] });
    expect(await eventsOfType(team, "file.updated")).toEqual({ n: FILES, files: FILES });
  });
});
