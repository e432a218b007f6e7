import { afterEach, expect } from "vitest";
import type { Reply } from "../../src/platform/sender.ts";
import type { WebhookKey } from "../../src/webhooks/webhooks.schema.ts";
import type { ProxiedBindings } from "./bindings.ts";
import type { Team } from "./client.ts";
import { DB } from "./databases.ts";
import { nameOf, storedDeliveries, WEBHOOK_OBJECTS } from "./webhook-objects.ts";
import { type Post, World } from "./world.ts";

/* Creates teams with webhooks and events. Each team has its own world, which controls responses and time. */

export const HOOK_URL = "https://hooks.canary.example/in?token=canary-query";

export interface Hook {
  _id: string;
  teamId: string;
  secret: string;
  status: string;
}

const createdTeams: Team[] = [];
afterEach(async () => {
  for (const { teamId } of createdTeams.splice(0)) {
    const tables = ["webhooks", "followers", "events", "api_keys"];
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

/** Copies the team's newest event, as the operator's, whose events have no daily limit. Wakes no webhook. */
export async function copyEvent({ teamId }: Team, count: number): Promise<void> {
  await DB.prepare(
    `insert into events with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
     select team_id, seq + i, 'apikey.created', created_at, json_set(actor, '$.kind', 'operator'), subject_id, subject_version, data, position + i
     from n, (select * from events where team_id = ?1 order by seq desc limit 1)`,
  )
    .bind(teamId, count)
    .run();
}

export const keyOf = ({ teamId, _id }: Hook): WebhookKey => ({ teamId, id: _id });

/** Runs the alarm of a webhook's object. */
export const runAlarmOf = (world: World, hook: Hook, bindings?: ProxiedBindings) =>
  world.runAlarm(WEBHOOK_OBJECTS, nameOf(keyOf(hook)), bindings);

/** Counts the deliveries of a webhook by status. */
export async function statusesOf(hook: Hook): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { status } of await storedDeliveries<{ status: string }>(keyOf(hook), "status")) {
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

export const hookOf = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/webhooks/${id}`)).body.data;
export const deliveriesOf = async (team: Team, id: string) =>
  (await team.call("GET", `/auth/v1/webhooks/${id}/deliveries?limit=100`)).body.data;
export const eventsOf = async (team: Team, type: string) =>
  (await team.call("GET", `/auth/v1/events?type=${type}`)).body.data;

export const respondWith = (reply: Partial<Reply>) => () => reply;
export const status = (httpStatus: number, retryAfter: string | null = null) => respondWith({ httpStatus, retryAfter });
export const idOf = (post: Post) => post.headers["webhook-id"];

const pendingOf = (hook: Hook) => storedDeliveries(keyOf(hook), "seq", "due_at is not null");

/** Lets time pass until every delivery has ended. */
export async function settle(world: World, hooks: Hook[], rounds = 1000): Promise<void> {
  await world.runAlarms();
  for (let round = 0; round < rounds; round++) {
    const pending = await Promise.all(hooks.map(pendingOf));
    if (pending.flat().length === 0) return;
    await world.runAlarms(Math.max(0, (world.nextAlarm?.at ?? 0) - world.system.now()));
  }
  expect.unreachable("a delivery that never ends");
}
