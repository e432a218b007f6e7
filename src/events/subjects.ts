import { type SQLWrapper, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { type Access, type Actor, admitsOperator, scopeOf } from "../access/authorization.ts";
import { type Identified, nameOfActor, nameOfKey, nameOfUser } from "../access/names.ts";
import { SCOPES } from "../access/scopes.ts";
import { apiKeys } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { links } from "../links/links.schema.ts";
import { webhooks } from "../webhooks/webhooks.schema.ts";
import type { EventKind } from "./events.ts";

/* The current names of the records that events are about. An event stores none. */

const sessions = alias(apiKeys, "sessions");

const nameOfFile = ({ teamId, id }: Identified) =>
  sql`(select coalesce(${files.name}, ${files.originalName}) from ${files} where ${teamOfFile} = ${teamId} and ${files.id} = ${id})`;

/** Without the path of the URL, which may contain a secret. A stored URL always has one. */
const shownUrl = sql`substr(${webhooks.url}, instr(${webhooks.url}, '://') + 3)`;
const nameOfWebhook = sql`iif(${webhooks.description} <> '', ${webhooks.description}, substr(${shownUrl}, 1, instr(${shownUrl}, '/') - 1))`;

/** How each kind of record finds its name. Null once the record is gone. It reads one row, or two of a session and of a link. */
const NAMES: Record<EventKind, (subject: Identified) => SQLWrapper> = {
  file: nameOfFile,
  link: ({ teamId, id }) =>
    sql`(select coalesce(${links.name}, ${nameOfFile({ teamId: links.teamId, id: links.fileId })}) from ${links} where ${links.id} = ${id} and ${links.teamId} = ${teamId})`,
  user: nameOfUser,
  apikey: nameOfKey,
  session: ({ teamId, id }) =>
    sql`(select ${nameOfActor({ ...sessions, keyId: sessions.createdByKeyId })} from ${apiKeys} ${sessions} where ${sessions.id} = ${id} and ${sessions.teamId} = ${teamId})`,
  // The team of an event in the operator's log is its subject.
  team: ({ id }) => sql`(select ${teams.name} from ${teams} where ${teams.id} = ${id})`,
  webhook: ({ teamId, id }) =>
    sql`(select ${nameOfWebhook} from ${webhooks} where ${webhooks.teamId} = ${teamId} and ${webhooks.id} = ${id})`,
};

/** The name of the subject of an event, by the kind of its type. */
export function nameOfSubject({ type, ...subject }: Identified & Record<"type", SQLWrapper>) {
  const cases = Object.entries(NAMES).map(([kind, name]) => sql`when ${kind} then ${name(subject)}`);
  return sql<string | null>`case substr(${type}, 1, instr(${type}, '.') - 1) ${sql.join(cases, sql` `)} end`;
}

/** Who gets the names elsewhere. All who read events get those of users and keys, because these are actors, too. */
const ACCESS: { [Kind in EventKind]?: Access } = {
  file: "files:read",
  link: "files:download",
  team: "files:read or operator",
  webhook: "webhooks:read",
};

/** Whether the caller gets the names of subjects of this kind. */
export function mayNameSubject({ kind: caller, scopes }: Pick<Actor, "kind" | "scopes">, kind: EventKind): boolean {
  const access = ACCESS[kind];
  const scope = access && scopeOf(access);
  if (!access || !scope) return true;
  return caller === "operator" ? admitsOperator(access) : (scopes & SCOPES[scope]) !== 0;
}
