import { is, SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { Actor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Batch, type Guard, type Query, queriesIn, type RowsOf, write } from "../platform/db.ts";
import { isRaised, isStorageFull } from "../platform/retry.ts";
import { DAY, databaseOf, SECOND, zeroId } from "../platform/system.ts";
import type { EventType } from "./event-type.ts";
import { events } from "./events.schema.ts";
import { followersOf, wake } from "./followers.ts";

/*
 * The events of a team. An event is written in the batch of the change that it records: both are committed, or neither. If
 * the batch is retried after a lost response and changes nothing, it writes no event. The batch also assigns the event's
 * number, `seq`. A database has one writer, so numbers ascend in commit order, and a client that continues from the last
 * event misses none. An id assigned before the commit could not guarantee that.
 */

/**
 * Account events a day of a team, and of those the ones that one of its users causes, who so can't use up those of the team. The
 * trigger `events_limited` holds both. They keep a database small, in which each such event stays for `EVENT_DAYS`.
 */
export const MAX_DAILY_ACCOUNT_EVENTS = 20_000;
export const MAX_DAILY_USER_EVENTS = 2000;
/** The text with which the trigger rejects a batch. */
const TOO_MANY_EVENTS = "Too many account events.";
/** Until the user has a place again. */
const EVENT_RETRY_SECONDS = Math.ceil(DAY / MAX_DAILY_USER_EVENTS / SECOND);

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
  type: string;
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
    subject: { kind: kindOf(type), id: subjectId, version: subjectVersion },
    data: JSON.parse(data),
  };
}

/** The kind of record that a type of event is about. */
export const kindOf = (type: string): string => type.slice(0, type.indexOf("."));

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
    sql`select ${teamId}, ${seq}, ${type.name}, ${createdAt}, ${actor}, ${id}, ${subjectVersion}, ${data},
        coalesce(${lastPosition}, 0) + ${type.kind.isCounted ? 1 : 0} ${source}`,
  );
}

/** The version of the subject of an event. */
const versionOf = (type: EventType, { version, ...subject }: Subject & { version?: number }): SQL =>
  type.version?.(subject) ?? sql`${version ?? null}`;

/** The names of the fields that an update changes, for its event. */
export const fieldsOf = (changes: object): string[] =>
  Object.entries(changes).flatMap(([name, value]) => (value === undefined ? [] : [name]));

/**
 * The insert of an event. Its place in a batch says what it records: one of `newEvent` directly follows the query that makes
 * the change, and one that has its own condition precedes it, to record the previous state.
 */
export type NewEvent = Query & { event: { teamId: string; type: EventType } };

const asEvent = (teamId: string, type: EventType, insert: Query): NewEvent =>
  Object.assign(insert, { event: { teamId, type } });

/**
 * An event whose data is known before the change. It is written if the previous query of the batch changes a row. `data` never
 * contains personal data, a token, or a secret.
 */
export function newEvent(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  subject: Subject & { version?: number },
  data: Record<string, unknown> = {},
): NewEvent {
  const { teamId, id } = subject;
  const columns = { subjectVersion: versionOf(type, subject), data: sql`${JSON.stringify({ _id: id, ...data })}` };
  return asEvent(teamId, type, insertEvent(deps, type, initiator, subject, columns));
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
  return asEvent(subject.teamId, type, insertEvent(deps, type, initiator, subject, row, source));
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
    sql`select ${teamId}, ${seq}, ${type.name}, ${createdAt}, ${actor}, ${subjectId}, ${subjectVersion},
        ${data}, ${last(sql`position`)} + ${type.kind.isCounted ? number : 0} ${source}`,
  );
  return asEvent(teamId, type, insert);
}

/**
 * The two events of a team's creation or deletion: one in its own log, one in that of the operator. They precede the change
 * in its batch, and are written if `source`, a WHERE, finds that it is still to be made.
 */
export function newTeamEvents(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  teamId: string,
  source: SQL,
): NewEvent[] {
  const data = { subjectVersion: sql`null`, data: sql`${JSON.stringify({ _id: teamId })}` };
  return [teamId, operatorLogOf(deps)].map((log) =>
    newEventFrom(deps, type, initiator, { teamId: log, id: teamId }, data, source),
  );
}

const isEvent = (query: Query): query is NewEvent => "event" in query;
/**
 * Runs changes in one transaction with their events, and wakes the followers of these. A deletion in a full database
 * continues without its events and all other inserts, which need space, and this is logged. One that `needsInserts` does not.
 * @returns the rows of each query, under its name
 * @throws `storage_full`; `rate_limited` above the account events of a day
 */
export async function writeWithEvent<const B extends Batch>(
  deps: Deps,
  batch: B,
  { needsInserts = false, ...options }: { isIdempotent: boolean; caller: Guard | null; needsInserts?: boolean },
): Promise<RowsOf<B>> {
  const events = queriesIn(batch).filter(isEvent);
  // A batch has up to a hundred events of one type.
  const distinct = new Map(events.map((one) => [`${one.event.teamId}/${one.event.type.name}`, one]));
  const all = {
    batch,
    followers: [...distinct.values()].map(({ event }) => followersOf(deps, event.teamId, event.type)),
  };
  const { batch: rows, followers } = await write(deps, all, options).catch(async (error) => {
    if (isRaised(error, TOO_MANY_EVENTS)) {
      const message = "The user or the team has reached its number of logins and account changes a day. Retry later.";
      throw new AppError("rate_limited", { message, retryAfterSeconds: EVENT_RETRY_SECONDS });
    }
    if (!isStorageFull(error) || needsInserts || !events.every(({ event }) => event.type.isOmittable)) throw error;
    const found = await write(deps, all, { ...options, omitsInserts: true });
    for (const { event } of events)
      deps.log("warn", "event_omitted", { teamId: event.teamId, outcome: event.type.name });
    return found;
  });
  const keys = new Map(followers.flat().map((key) => [`${key.kind}/${key.id}`, key]));
  if (keys.size > 0) deps.after(wake(deps, [...keys.values()], false));
  return rows;
}
