import { and, eq, is, SQL, type SQLWrapper, sql } from "drizzle-orm";
import { SQLiteInsertBase } from "drizzle-orm/sqlite-core";
import type { Actor } from "../access/authorization.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { Deps } from "../deps.ts";
import { type Query, type RowsOf, write } from "../platform/db.ts";
import { isStorageFull } from "../platform/retry.ts";
import { databaseOf, zeroId } from "../platform/system.ts";
import { type WebhookKey, webhooks } from "../webhooks/webhooks.schema.ts";
import { EVENT_TYPES, events } from "./events.schema.ts";

/*
 * The events of a team. An event is written in the batch of the change that it records: both are committed, or neither. If
 * the batch is retried after a lost response and changes nothing, it writes no event. The batch also assigns the event's
 * number, `seq`. A database has one writer, so numbers ascend in commit order, and a client that continues from the last
 * event misses none. An id assigned before the commit could not guarantee that.
 */

export { EVENT_TYPES };
export type EventType = (typeof EVENT_TYPES)[number];

/**
 * Whether `MAX_TEAM_EVENTS` counts the event. It doesn't count those of accounts: else somebody with files could push what they did
 * to keys and users out of the log.
 */
export const isLimited = (type: EventType): boolean => /^(file|link)\./.test(type);
/** The same of an event in SQL. */
export const isLimitedType = (type: SQL) =>
  sql`(${type} >= 'file.' and ${type} < 'file/' or ${type} >= 'link.' and ${type} < 'link/')`;

/** The kinds of records that have events. */
export const EVENT_KINDS = ["file", "link", "user", "apikey", "session", "team", "webhook"] as const;
export type EventKind = (typeof EVENT_KINDS)[number];
export type EventRow = typeof events.$inferSelect;

/** Causes an event: a caller, a user who logs in, or the service itself in a job or in the recovery job. */
export type Initiator = Actor | { kind: "user"; keyId: string; userId: string } | { kind: "system" };

export const SYSTEM: Initiator = { kind: "system" };

interface EventActor {
  kind: Initiator["kind"];
  keyId: string | null;
  /** Set for a login and for actions of its session. */
  userId: string | null;
  requestId: string | null;
}

/** An event as its team sees it. */
export interface Event {
  _id: string;
  teamId: string;
  type: EventType;
  createdAt: string;
  actor: EventActor;
  subject: { kind: string; id: string; version: number | null };
  data: unknown;
}

/**
 * The log of the operator, in place of a team: when the teams of a database were created and deleted. It outlives them. No
 * team has this id, because ids begin with a time.
 */
export const operatorLogOf = ({ db }: Pick<Deps, "db">): string => zeroId(db.number);

const isOperatorLog = (teamId: string): boolean => teamId === zeroId(databaseOf(teamId));

const SEQ_DIGITS = 14;

/** 24 hex digits: the event's number, which gives the order, and the end of its team's id, which differs between teams. */
export const eventId = (teamId: string, seq: number): string =>
  seq.toString(16).padStart(SEQ_DIGITS, "0") + ownerEndOf(teamId);

/** The end of the id of the owner: an event's team, or a delivery's webhook. It is the same in the owner's own id. */
export const ownerEndOf = (id: string): string => id.slice(SEQ_DIGITS);

/** Whether the text has the form of an event id, which delivery ids share. */
export const isEventId = (text: string): boolean => /^[0-9a-f]{24}$/.test(text);

/** Greater than the number of any event. */
export const ABOVE_ALL = Number.MAX_SAFE_INTEGER;

/** The greatest number that an event of this millisecond has, unless its team had more than a thousand in it. */
export const lastSeqOf = (instant: number): number => Math.floor(instant) * 1000 + 999;

export const seqOf = (id: string): number => Number.parseInt(id.slice(0, SEQ_DIGITS), 16);

export function renderEvent({
  teamId,
  seq,
  type,
  createdAt,
  actor,
  subjectId,
  subjectVersion,
  data,
}: Omit<EventRow, "position">): Event {
  return {
    _id: eventId(teamId, seq),
    teamId: isOperatorLog(teamId) ? subjectId : teamId,
    type,
    createdAt: new Date(createdAt).toISOString(),
    actor: JSON.parse(actor),
    subject: { kind: type.slice(0, type.indexOf(".")), id: subjectId, version: subjectVersion },
    data: JSON.parse(data),
  };
}

interface Subject {
  teamId: string;
  id: string;
}

/** The ids in the actor of a row. */
export const idsOfActor = (actor: SQLWrapper) => ({
  keyId: sql`json_extract(${actor}, '$.keyId')`,
  userId: sql`json_extract(${actor}, '$.userId')`,
});

/** The actor of an event as its row has it. */
export function actorOf(initiator: Initiator, requestId: string | null): string {
  const { keyId = null, userId = null } = initiator as Partial<EventActor>;
  const actor: EventActor = { kind: initiator.kind, keyId, userId, requestId };
  return JSON.stringify(actor);
}

/**
 * Inserts an event, by default if the previous query of the batch has changed a row. `source`, a FROM and WHERE, may also
 * provide the version of its subject and its data.
 */
function insertEvent(
  { db, system, requestId }: Deps,
  type: EventType,
  initiator: Initiator,
  { teamId, id }: Subject,
  { subjectVersion, data }: { subjectVersion: SQL; data: SQL },
  source = sql`where changes() > 0`,
) {
  const actor = actorOf(initiator, requestId);
  const createdAt = system.now();
  const last = sql`(select max(seq) from events where team_id = ${teamId})`;
  // Microseconds, so that a team can have a thousand events per millisecond.
  const seq = sql`max(coalesce(${last}, 0) + 1, ${createdAt * 1000})`;
  const lastPosition = sql`(select position from events where team_id = ${teamId} order by seq desc limit 1)`;
  return db.insert(events).select(
    sql`select ${teamId}, ${seq}, ${type}, ${createdAt}, ${actor}, ${id}, ${subjectVersion}, ${data},
        coalesce(${lastPosition}, 0) + ${isLimited(type) ? 1 : 0} ${source}`,
  );
}

const ofUser = { table: users, teamId: users.teamId };
const ofTeam = { table: teams, teamId: teams.id };
const ofWebhook = { table: webhooks, teamId: webhooks.teamId };
/** Where these events find the version of their subject: in its row, after the update. */
const VERSIONED: Partial<Record<EventType, typeof ofUser | typeof ofTeam | typeof ofWebhook>> = {
  "user.updated": ofUser,
  "user.invited": ofUser,
  "team.updated": ofTeam,
  "team.suspended": ofTeam,
  "webhook.updated": ofWebhook,
};

function versionOf(type: EventType, { teamId, id, version }: Subject & { version?: number }) {
  const versioned = VERSIONED[type];
  if (!versioned) return sql`${version ?? null}`;
  const { table } = versioned;
  return sql`(select ${table.version} from ${table} where ${versioned.teamId} = ${teamId} and ${table.id} = ${id})`;
}

/** The names of the fields that an update changes, for its event. */
export const fieldsOf = (changes: object): string[] =>
  Object.entries(changes).flatMap(([name, value]) => (value === undefined ? [] : [name]));

/** The insert of an event that records a change. */
export interface NewEvent {
  teamId: string;
  type: EventType;
  insert: Query;
  /**
   * How many queries of the change precede the insert; by default 1. The last of them makes the change. An insert at 0
   * records the previous state, and has its own condition.
   */
  position?: number;
}

/** An event whose data is known before the change. `data` never contains personal data, a token, or a secret. */
export function newEvent(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  subject: Subject & { version?: number },
  data: Record<string, unknown> = {},
): NewEvent {
  const { teamId, id } = subject;
  const columns = { subjectVersion: versionOf(type, subject), data: sql`${JSON.stringify({ _id: id, ...data })}` };
  return { teamId, type, insert: insertEvent(deps, type, initiator, subject, columns) };
}

/** An event whose version and data `source`, a FROM and WHERE, provides. It is written if that finds a row. */
export function newEventFrom(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  subject: Subject,
  row: { subjectVersion: SQL; data: SQL },
  source: SQL,
): NewEvent {
  return {
    teamId: subject.teamId,
    type,
    position: 0,
    insert: insertEvent(deps, type, initiator, subject, row, source),
  };
}

/**
 * An event for each row that `source`, a FROM and WHERE, finds. The subject is one of its columns, and so may be the actor, as
 * `actorOf` renders it.
 */
export function newEventsFrom(
  { db, system, requestId }: Deps,
  type: EventType,
  initiator: Initiator | SQL,
  teamId: string,
  { subjectId, subjectVersion, data }: { subjectId: SQL; subjectVersion: SQL; data: SQL },
  source: SQL,
): NewEvent {
  const createdAt = system.now();
  const last = (column: SQL) =>
    sql`coalesce((select ${column} from events where team_id = ${teamId} order by seq desc limit 1), 0)`;
  const actor = is(initiator, SQL) ? initiator : actorOf(initiator, requestId);
  const number = sql`row_number() over ()`;
  const seq = sql`max(${last(sql`seq`)}, ${createdAt * 1000 - 1}) + ${number}`;
  const insert = db.insert(events).select(
    sql`select ${teamId}, ${seq}, ${type}, ${createdAt}, ${actor}, ${subjectId}, ${subjectVersion},
        ${data}, ${last(sql`position`)} + ${isLimited(type) ? number : 0} ${source}`,
  );
  return { teamId, type, insert };
}

/**
 * The two events of a team's creation or deletion: one in its own log, one in that of the operator. They precede the change
 * in its batch, and are written if `source`, a WHERE, finds that it is still to be made.
 */
export function newTeamEvents(
  deps: Deps,
  type: "team.created" | "team.deleted",
  initiator: Initiator,
  teamId: string,
  source: SQL,
): Change<Query[]>[] {
  const data = { subjectVersion: sql`null`, data: sql`${JSON.stringify({ _id: teamId })}` };
  return [teamId, operatorLogOf(deps)].map((log) => ({
    event: newEventFrom(deps, type, initiator, { teamId: log, id: teamId }, data, source),
    queries: [],
  }));
}

type Queries = readonly Query[];

/** A change of one record. By default the first query makes the change, and others may follow it. */
export interface Change<Q extends Queries> {
  /** Written only if the change changed a row. */
  event: NewEvent;
  queries: Q;
}

/** Runs a change in one transaction with its event, and wakes the webhooks that receive it. @returns the rows of the queries */
export async function writeWithEvent<const Q extends Queries>(
  deps: Deps,
  event: NewEvent,
  queries: Q,
  options: { isIdempotent: boolean },
): Promise<RowsOf<Q>> {
  const { rows } = await writeWithEvents(deps, [{ event, queries }], [], options);
  return rows[0] as RowsOf<Q>;
}

/** Disabling a webhook is part of the deletion of its user. */
const isDeletion = ({ event }: Change<Queries>): boolean => /\.(deleted|revoked|trashed|disabled)$/.test(event.type);

const isNoInsert = (query: Query): boolean => !is(query, SQLiteInsertBase);
/** The enabled webhooks that receive an event. `instr` finds the type in the JSON array without reading rows, as `json_each` would. */
const receivingWebhooks = ({ db }: Deps, { teamId, type }: NewEvent) =>
  db
    .select({ teamId: webhooks.teamId, id: webhooks.id })
    .from(webhooks)
    .where(
      and(
        eq(webhooks.teamId, teamId),
        eq(webhooks.status, "enabled"),
        sql`(${webhooks.types} is null or instr(${webhooks.types}, json_quote(${type})))`,
      ),
    );

/** Wakes the objects of webhooks. If that fails, the recovery job wakes them. @returns those that are awake, with their cursors */
export async function wakeWebhooks(deps: Deps, keys: WebhookKey[]): Promise<(WebhookKey & { cursor: number })[]> {
  const woken = keys.map(async (key) => ({ ...key, cursor: await deps.outboxes(key).wake() }));
  return (await Promise.allSettled(woken)).flatMap((result) => {
    if (result.status === "fulfilled") return [result.value];
    deps.log("warn", "webhook_wake_failed", { cause: result.reason });
    return [];
  });
}

/**
 * Like `writeWithEvent`, for changes of several records in one transaction. `last` runs after all of them. A deletion in a
 * full database continues without its event and all other inserts, which need space, and this is logged.
 */
export async function writeWithEvents<const Q extends Queries, const L extends Queries>(
  deps: Deps,
  changes: Change<Q>[],
  last: L,
  options: { isIdempotent: boolean },
): Promise<{ rows: RowsOf<Q>[]; last: RowsOf<L> }> {
  const recorded = changes.flatMap(({ event: { insert, position = 1 }, queries }) =>
    queries.toSpliced(position, 0, insert),
  );
  const all = [...recorded, ...last, ...changes.map(({ event }) => receivingWebhooks(deps, event))];
  const withoutInserts = async (error: unknown): Promise<unknown[]> => {
    if (!isStorageFull(error) || !changes.every(isDeletion)) throw error;
    const results = (await write(deps, all.filter(isNoInsert), options)).values();
    for (const { event } of changes) deps.log("warn", "event_omitted", { teamId: event.teamId, outcome: event.type });
    return all.map((query) => (isNoInsert(query) ? results.next().value : []));
  };
  const found: unknown[] = [...(await write(deps, all, options).catch(withoutInserts))];
  const rows = changes.map(
    ({ event: { position = 1 }, queries }) =>
      found.splice(0, queries.length + 1).toSpliced(position, 1) as unknown as RowsOf<Q>,
  );
  const lastRows = found.splice(0, last.length) as unknown as RowsOf<L>;
  const keys = new Map((found as WebhookKey[][]).flat().map((key) => [key.id, key]));
  if (keys.size > 0) deps.after(wakeWebhooks(deps, [...keys.values()]));
  return { rows, last: lastRows };
}
