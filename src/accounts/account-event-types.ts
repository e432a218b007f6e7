import { sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { nameOfActor, nameOfKey, nameOfUser } from "../access/names.ts";
import { eventTypesOf, versionIn } from "../events/event-type.ts";
import { apiKeys } from "./keys.schema.ts";
import { teams } from "./teams.schema.ts";
import { users } from "./users.schema.ts";

const ofUser = versionIn(users, users.teamId);
const ofTeam = versionIn(teams, teams.id);
const sessions = alias(apiKeys, "sessions");

export const USER_EVENTS = eventTypesOf(
  { name: "user", nameOf: nameOfUser },
  {
    created: { isDaily: true },
    updated: { isDaily: true, version: ofUser },
    deleted: { isOmittable: true },
    invited: { isDaily: true, version: ofUser },
    logged_in: { isDaily: true },
  },
);

export const API_KEY_EVENTS = eventTypesOf(
  { name: "apikey", nameOf: nameOfKey },
  {
    created: { isDaily: true },
    updated: { isDaily: true },
    rotated: { isDaily: true },
    revealed: { isDaily: true },
    expiring: {},
    revoked: { isOmittable: true },
  },
);

export const SESSION_EVENTS = eventTypesOf(
  {
    name: "session",
    nameOf: ({ teamId, id }) =>
      sql`(select ${nameOfActor({ ...sessions, keyId: sessions.createdByKeyId })} from ${apiKeys} ${sessions} where ${sessions.id} = ${id} and ${sessions.teamId} = ${teamId})`,
  },
  { created: { isDaily: true }, revoked: { isOmittable: true } },
);

export const TEAM_EVENTS = eventTypesOf(
  {
    name: "team",
    // The team of an event in the operator's log is its subject.
    nameOf: ({ id }) => sql`(select ${teams.name} from ${teams} where ${teams.id} = ${id})`,
    nameScope: "files:read",
    isNamedToOperator: true,
  },
  {
    created: {},
    updated: { isDaily: true, version: ofTeam },
    suspended: { version: ofTeam },
    deleted: { isOmittable: true },
  },
);
