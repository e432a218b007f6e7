import { afterEach, expect } from "vitest";
import type { Reply } from "../../src/platform/sender.ts";
import type { Team } from "./client.ts";
import { DB } from "./databases.ts";
import { MINUTE, SECOND } from "./time.ts";
import { type Post, World } from "./world.ts";

/* Creates teams with webhooks and events. Each team has its own world, which controls responses and time. */

export const HOOK_URL = "https://hooks.canary.example/in?token=canary-query";

export interface Hook {
  _id: string;
  secret: string;
  status: string;
}

const createdTeams: Team[] = [];
afterEach(async () => {
  for (const { teamId } of createdTeams.splice(0)) {
    const tables = ["deliveries", "webhooks", "events", "api_keys"];
    await DB.batch(tables.map((name) => DB.prepare(`delete from ${name} where team_id = ?`).bind(teamId)));
  }
});

export async function begin(
  hooks = 1,
  world = new World(),
): Promise<{ world: World; team: Team; hook: Hook; hooks: Hook[] }> {
  const team = await world.newTeam();
  createdTeams.push(team);
  const created: Hook[] = [];
  for (let i = 0; i < hooks; i++) created.push(await newHook(team));
  return { world, team, hook: created[0]!, hooks: created };
}

export async function newHook(team: Team, json: object = {}): Promise<Hook> {
  const fields = { url: HOOK_URL, types: ["apikey.created"], ...json };
  const { status, text, body } = await team.call("POST", "/auth/v1/webhooks", { json: fields });
  expect(status, text).toBe(200);
  return body.data;
}

/** Creates a key, which is an event that the webhooks receive. */
export async function createEvent(team: Team): Promise<void> {
  expect((await team.call("POST", "/auth/v1/apikeys", { json: { name: "key" } })).status).toBe(200);
}

/** Copies the team's newest event, with a delivery to each webhook. Sends no message. */
export async function copyEvent(world: World, { teamId }: Team, hooks: Hook[], count: number): Promise<void> {
  const ids = JSON.stringify(hooks.map(({ _id }) => _id));
  const newest = "(select max(seq) from events where team_id = ?1)";
  await DB.batch([
    DB.prepare(
      `insert into deliveries (webhook_id, seq, team_id, type, status, due_at, created_at)
       with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
       select value, ${newest} + i, ?1, 'apikey.created', 'pending', ?4, ?4 from n, json_each(?3)`,
    ).bind(teamId, count, ids, world.system.now()),
    DB.prepare(
      `insert into events with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
       select team_id, seq + i, 'apikey.created', created_at, actor, subject_id, subject_version, data, position + i
       from n, (select * from events where team_id = ?1 order by seq desc limit 1)`,
    ).bind(teamId, count),
  ]);
}

/** Counts the deliveries of a webhook by status. */
export async function statusesOf({ _id }: Hook): Promise<Record<string, number>> {
  const { results } = await DB.prepare(
    "select status, count(*) as count from deliveries where webhook_id = ? group by 1",
  )
    .bind(_id)
    .all<{ status: string; count: number }>();
  return Object.fromEntries(results.map(({ status, count }) => [status, count]));
}

export const hookOf = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/webhooks/${id}`)).body.data;
export const deliveriesOf = async (team: Team, id: string) =>
  (await team.call("GET", `/auth/v1/webhooks/${id}/deliveries?limit=100`)).body.data;
export const eventsOf = async (team: Team, type: string) =>
  (await team.call("GET", `/auth/v1/events?type=${type}`)).body.data;

export const respondWith = (reply: Partial<Reply>) => () => reply;
export const status = (httpStatus: number, retryAfter: string | null = null) => respondWith({ httpStatus, retryAfter });
export const idOf = (post: Post) => post.headers["webhook-id"];

/** When the next attempt is possible. Null once every delivery has ended. */
async function firstDue(teamId: string): Promise<number | null> {
  return DB.prepare(
    `select min(max(d.due_at, coalesce(w.resume_at, 0), coalesce(w.lease_ends_at, 0))) as due from deliveries d
     left join webhooks w on w.id = d.webhook_id and w.status = 'enabled' where d.team_id = ?`,
  )
    .bind(teamId)
    .first("due");
}

/** Lets time pass and the recovery job run until every delivery has ended. */
export async function settle(world: World, team: Team, rounds = 200): Promise<void> {
  await world.drainDeliveries();
  for (let round = 0; round < rounds; round++) {
    const due = await firstDue(team.teamId);
    if (due === null) return;
    world.aheadMilliseconds += Math.max(0, due - world.system.now()) + 2 * MINUTE + SECOND;
    await world.recover();
    await world.drainDeliveries();
  }
  expect(await firstDue(team.teamId), "a delivery that never ends").toBeNull();
}
