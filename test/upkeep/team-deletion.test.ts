import { expect } from "vitest";
import { ALL_DATABASES } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { newUser, OPERATOR, openSession } from "../support/harness.ts";
import { tablesOfTeams } from "../support/stores.ts";

/* When the recovery job deletes the row of a team. all/crash-points shows that nothing else is left of one. */

/** What a team can have that outlasts other rows: a condition of the rows of a table, which are deleted by themselves. */
const KINDS = {
  files: ["files"],
  "deleted files": ["removed"],
  "objects beside files": ["file_objects"],
  uploads: ["uploads"],
  keys: ["api_keys", "kind <> 'session'"],
  sessions: ["api_keys", "kind = 'session'"],
  users: ["users"],
  folders: ["folders"],
  "folder changes": ["folder_changes"],
  visitors: ["visitors"],
  events: ["events"],
  webhooks: ["webhooks"],
  followers: ["followers"],
} satisfies Record<string, [table: string, condition?: string]>;

/** They go with their files. An email is remembered for an hour, whatever its team does. */
const DEPENDENT = ["file_tags", "links", "measurements", "sent_mails"];

test("every table of teams is one of them, or goes with files", async () => {
  const tables = Object.values(KINDS).map(([table]) => table);
  expect((await tablesOfTeams()).sort()).toEqual([...new Set([...tables, ...DEPENDENT])].sort());
});

test.for(Object.entries(KINDS))(
  "a deleted team stays until it has no %s",
  async ([, [table, condition = "1"]], { world, team }) => {
    const { teamId } = team;
    const run = (sql: string) => ALL_DATABASES[world.database]!.prepare(sql.replaceAll("TEAM", `'${teamId}'`)).all();
    const id = await world.store(team, "note.txt", "note");
    const headers = { "Content-Type": "text/vtt" };
    const body = "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n";
    expect((await team.call("PUT", `/docs/v1/uploads/${id}/transcript`, { headers, body })).status).toBe(200);
    for (const state of ["receiving", "deleting"]) await world.storeInterrupted(team, state, 0);
    await openSession(team.token);
    await newUser(team);
    await team.call("POST", "/docs/v1/folders", { json: { folder: "a" } });
    await team.call("POST", "/auth/v1/webhooks", { json: { url: "https://hooks.example.com/in" } });
    await run(
      "insert into folder_changes (team_id, id, owner_id, folder, initiator, requested_by, created_at, due_at) values (TEAM, 'x', '', 'a', '{}', '{}', 1, 9e15)",
    );
    await run("insert into visitors values (TEAM, 'x', 'key', 0, 0, 9e15)");

    await team.call("DELETE", `/auth/v1/teams/${teamId}`, { token: OPERATOR });
    for (const name of await tablesOfTeams()) {
      await run(`delete from ${name} where team_id = TEAM${name === table ? ` and not (${condition})` : ""}`);
    }
    const rows = `from ${table} where team_id = TEAM and ${condition}`;
    const statusOfTeam = async () => (await run("select status from teams where id = TEAM")).results;
    expect((await run(`select 1 ${rows}`)).results, "is left").not.toEqual([]);
    // The recovery job can't delete the rows.
    await run(`create trigger kept before delete on ${table} begin select raise(ignore); end`);
    await world.recover();
    await run("drop trigger kept");
    expect(await statusOfTeam()).toEqual([{ status: "deleting" }]);
    await run(`delete ${rows}`);
    await world.recover();
    expect(await statusOfTeam()).toEqual([]);
  },
);
