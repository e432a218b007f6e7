import { expect, test } from "vitest";
import { ProxiedBindings } from "../support/bindings.ts";
import type { CallOptions, Team } from "../support/client.ts";
import { expectDelivered, expectOneEventPerChange, readEventLog } from "../support/event-log.ts";
import { newEmail, PASSWORD } from "../support/routes.ts";
import { World } from "../support/world.ts";

/*
 * Every crash point of changes to users, keys and webhooks: each call of a request fails, or its Worker dies, before and
 * after the call took effect. Exactly one event records and delivers each change that took place.
 */

interface Change {
  method: string;
  /** Creates what the request needs. @returns its path and body */
  prepare(world: World, team: Team): Promise<{ path: string; options?: CallOptions }>;
}

const USERS = "/auth/v1/users";
const KEYS = "/auth/v1/apikeys";
const SESSIONS = "/auth/v1/sessions";
const LOGIN = "/auth/v1/login";
const WEBHOOKS = "/auth/v1/webhooks";
const webhook = { url: "https://hooks.example.com/in" };

async function create(world: World, team: Team, path: string, json: object) {
  const { status, text, body } = await world.call("POST", path, { token: team.token, json });
  expect(status, text).toBe(200);
  return body.data;
}
const newUser = (world: World, team: Team) => create(world, team, USERS, { email: newEmail(), password: PASSWORD });
const newWebhook = (world: World, team: Team) => create(world, team, WEBHOOKS, webhook);

const changes: Record<string, Change> = {
  "creates a key": { method: "POST", prepare: async () => ({ path: KEYS, options: { json: { name: "key" } } }) },
  "revokes a key with a session": {
    method: "DELETE",
    async prepare(world, team) {
      const { _id, key: token } = await create(world, team, KEYS, { name: "key" });
      await world.call("POST", SESSIONS, { token });
      return { path: `${KEYS}/${_id}` };
    },
  },
  "rotates a key": {
    method: "POST",
    prepare: async (_, { keyId }) => ({ path: `${KEYS}/${keyId}/rotate`, options: { json: {} } }),
  },
  "creates a session": { method: "POST", prepare: async () => ({ path: SESSIONS }) },
  "ends a session": {
    method: "DELETE",
    prepare: async (world, { token }) => {
      const { body } = await world.call("POST", SESSIONS, { token });
      return { path: `${SESSIONS}/${body.data.id}` };
    },
  },
  "creates a user": {
    method: "POST",
    prepare: async () => ({ path: USERS, options: { json: { email: newEmail(), password: PASSWORD } } }),
  },
  "updates a user": {
    method: "PATCH",
    prepare: async (world, team) => ({
      path: `${USERS}/${(await newUser(world, team))._id}`,
      options: { json: { firstName: "Ada", password: `${PASSWORD}!` } },
    }),
  },
  "deletes a user with a key that their login created": {
    method: "DELETE",
    async prepare(world, team) {
      const { _id, email } = await newUser(world, team);
      const { key: token } = await create(world, team, LOGIN, { teamId: team.teamId, email, password: PASSWORD });
      await create(world, { ...team, token }, KEYS, { name: "key" });
      return { path: `${USERS}/${_id}` };
    },
  },
  "logs in": {
    method: "POST",
    async prepare(world, team) {
      const { email } = await newUser(world, team);
      return { path: LOGIN, options: { json: { teamId: team.teamId, email, password: PASSWORD } } };
    },
  },
  "creates a webhook": { method: "POST", prepare: async () => ({ path: WEBHOOKS, options: { json: webhook } }) },
  "updates a webhook": {
    method: "PATCH",
    prepare: async (world, team) => ({
      path: `${WEBHOOKS}/${(await newWebhook(world, team))._id}`,
      options: { json: { description: "new" } },
    }),
  },
  "rotates a webhook's secret": {
    method: "POST",
    prepare: async (world, team) => ({
      path: `${WEBHOOKS}/${(await newWebhook(world, team))._id}/secret`,
      options: { json: {} },
    }),
  },
  "deletes a webhook": {
    method: "DELETE",
    prepare: async (world, team) => ({ path: `${WEBHOOKS}/${(await newWebhook(world, team))._id}` }),
  },
};

test.each(Object.entries(changes))(
  "a request that %s is recorded once if it took place, whichever call fails",
  async (_, { method, prepare }) => {
    const runOnce = async (bindings: ProxiedBindings) => {
      const world = new World();
      const team = await world.newTeam();
      await newWebhook(world, team);
      const { path, options } = await prepare(world, team);
      await world.ask(method, path, { token: team.token, ...options }, { bindings });
      expectOneEventPerChange([], await readEventLog(team.teamId));
      await world.recoverAll([team.teamId]);
      const events = await readEventLog(team.teamId);
      expectOneEventPerChange([], events);
      expectDelivered(events);
    };
    const faultless = new ProxiedBindings();
    await runOnce(faultless);
    expect(faultless.calls.length).toBeGreaterThan(1);
    for (const fault of faultless.everyFault()) await runOnce(new ProxiedBindings(fault));
  },
);
