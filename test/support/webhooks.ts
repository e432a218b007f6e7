import { env } from "cloudflare:workers";
import { afterEach, expect } from "vitest";
import type { Reply } from "../../src/platform/sender.ts";
import type { Team } from "./client.ts";
import { type Post, World } from "./world.ts";

/* A team with webhooks in a world of its own: what happens in it, what is sent of it, and the time that goes by. */

export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
export const HOOK_URL = "https://hooks.canary.example/in?token=canary-query";

export interface Hook {
  _id: string;
  secret: string;
  status: string;
}

const founded: Team[] = [];
afterEach(async () => {
  for (const { teamId } of founded.splice(0)) {
    const tables = ["deliveries", "webhooks", "events", "api_keys"];
    await env.DB.batch(tables.map((name) => env.DB.prepare(`delete from ${name} where team_id = ?`).bind(teamId)));
  }
});

export async function begin(
  hooks = 1,
  world = new World(),
): Promise<{ world: World; team: Team; hook: Hook; hooks: Hook[] }> {
  const team = await world.newTeam();
  founded.push(team);
  const made: Hook[] = [];
  for (let i = 0; i < hooks; i++) made.push(await newHook(team));
  return { world, team, hook: made[0]!, hooks: made };
}

export async function newHook(team: Team, json: object = {}): Promise<Hook> {
  const wish = { url: HOOK_URL, types: ["apikey.created"], ...json };
  const { status, text, body } = await team.call("POST", "/auth/v1/webhooks", { json: wish });
  expect(status, text).toBe(200);
  return body.data;
}

/** Something that the webhooks want to hear of. */
export async function happen(team: Team): Promise<void> {
  expect((await team.call("POST", "/auth/v1/apikeys", { json: { name: "key" } })).status).toBe(200);
}

export const hookOf = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/webhooks/${id}`)).body.data;
export const deliveriesOf = async (team: Team, id: string) =>
  (await team.call("GET", `/auth/v1/webhooks/${id}/deliveries?limit=100`)).body.data;
export const eventsOf = async (team: Team, type: string) =>
  (await team.call("GET", `/auth/v1/events?type=${type}`)).body.data;

export const answer = (reply: Partial<Reply>) => () => reply;
export const status = (httpStatus: number, retryAfter: string | null = null) => answer({ httpStatus, retryAfter });
export const idOf = (post: Post) => post.headers["webhook-id"];

/** When something can be sent; null once nothing is due any more. */
async function firstDue(teamId: string): Promise<number | null> {
  return env.DB.prepare(
    `select min(max(d.due_at, coalesce(w.resume_at, 0))) as due from deliveries d
     left join webhooks w on w.id = d.webhook_id and w.status = 'enabled' where d.team_id = ?`,
  )
    .bind(teamId)
    .first("due");
}

/** Lets time pass, with recovery at work, until nothing is due any more. */
export async function settle(world: World, team: Team, rounds = 200): Promise<void> {
  await world.drainDeliveries();
  for (let round = 0; round < rounds; round++) {
    const due = await firstDue(team.teamId);
    if (due === null) return;
    world.aheadMilliseconds += Math.max(0, due - world.system.now()) + 2 * MINUTE + SECOND;
    await world.recover();
    await world.drainDeliveries();
  }
  expect(await firstDue(team.teamId), "a delivery without an end").toBeNull();
}
