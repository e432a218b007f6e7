import { and, is, SQL, type SQLWrapper, sql } from "drizzle-orm";
import { type Actor, stillAllowed } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Batch, type NamedBatch, type Query, queriesIn, type RowsOf, resultsIn, write } from "../platform/db.ts";
import { isRaised, isStorageFull } from "../platform/retry.ts";
import { DAY, databaseOf, SECOND, zeroId } from "../platform/system.ts";
import { MAX_DAILY_USER_EVENTS } from "../rate-limits.ts";
import type { About, EventType } from "./event-type.ts";
import { events } from "./events.schema.ts";
import { followersAbout, followersOf, wake } from "./followers.ts";

/*
 * The events of a team. An event is written in the batch of the change that it records: both are committed, or neither. If
 * the batch is retried after a lost response and changes nothing, it writes no event. The batch also assigns the event's
 * number, `seq`. A database has one writer, so numbers ascend in commit order, and a client that continues from the last
 * event misses none. An id assigned before the commit could not guarantee that.
 */

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

/** The names of the fields that an update changes, for its event. */
export const fieldsOf = (changes: object): string[] =>
  Object.entries(changes).flatMap(([name, value]) => (value === undefined ? [] : [name]));

/** The insert of an event. */
type NewEvent = Query & { event: { teamId: string; type: EventType; about: About[] } };

interface NewRow {
  type: EventType;
  about?: About[] | undefined;
  actor: string | SQL;
  teamId: string;
  subjectId: string | SQL;
  version: SQL;
  data: SQL;
  createdAt: number;
  seq: SQL;
  /** How many counted events the row adds to the last position. */
  counted: SQL | number;
  from: SQL | undefined;
  where: SQL | undefined;
}

function insertEvent({ db }: Deps, { type, about = [], teamId, from, where, ...row }: NewRow): NewEvent {
  const lastPosition = sql`(select position from events where team_id = ${teamId} order by seq desc limit 1)`;
  const insert = db.insert(events).select(
    sql`select ${teamId}, ${row.seq}, ${type.name}, ${row.createdAt}, ${row.actor}, ${row.subjectId}, ${row.version}, ${row.data},
        coalesce(${lastPosition}, 0) + ${type.kind.isCounted ? row.counted : 0}
        ${from ? sql`from ${from} ` : sql``}where ${where ?? sql`true`}`,
  );
  return Object.assign(insert, { event: { teamId, type, about } });
}

/** Queries of a batch run in the order of their names. */
const inOrder = <C extends Batch>(
  event: NewEvent,
  change: C,
  reads: "before" | "after" = "after",
): { change: C; event: NewEvent } => (reads === "before" ? { event, change } : { change, event });

/** The content of an event, without its time and number. */
export interface Recorded {
  type: EventType;
  initiator: Initiator;
  /** The team of the log, and the id of the changed record. A number as version counts only if the type finds no version itself. */
  subject: Subject & { version?: number | SQL };
  /** Added to the id of the subject; an expression is all of the data. It never contains personal data, a token, or a secret. */
  data?: Record<string, unknown> | SQL;
  /** The parts of the subject that it changes, for followers of every team. */
  about?: About[] | undefined;
  /** The source of a row for the expressions of version, data and `where`. */
  from?: SQL;
}

/** By default, the event reads what the change has left. One that reads `before` has the condition of the change. */
type When = { reads?: "after"; where?: SQL | undefined } | { reads: "before"; where: SQL | undefined };

/**
 * A change and its event, as a part of a batch. The event is written if the change, or the last statement of several, has changed
 * a row, and `where` holds. If it describes what the change removes, it `reads: "before"` the change, and is written if `where` holds.
 *
 * ```ts
 * const subject = { teamId, id: row.id };
 * const batch = { insert: recorded(deps, { type: LINK_EVENTS.created, initiator: actor, subject, data: { fileId } }, insert) };
 * await writeWithEvent(deps, batch, options); // → { insert: { change, event } }
 * ```
 */
export function recorded<C extends Batch>(deps: Deps, what: Recorded & When, change: C) {
  const { type, initiator, subject, data = {}, about, from, where, reads } = what;
  const { teamId, id, version } = subject;
  const createdAt = deps.system.now();
  const last = sql`(select max(seq) from events where team_id = ${teamId})`;
  const row = {
    type,
    about,
    actor: actorOf(initiator, deps.requestId),
    teamId,
    subjectId: id,
    version: is(version, SQL) ? version : (type.version?.({ teamId, id }) ?? sql`${version ?? null}`),
    data: is(data, SQL) ? data : sql`${JSON.stringify({ _id: id, ...data })}`,
    createdAt,
    // Microseconds, so that a team can have a thousand events per millisecond.
    seq: sql`max(coalesce(${last}, 0) + 1, ${createdAt * 1000})`,
    counted: 1,
    from,
    where: reads === "before" ? where : and(where, sql`changes() > 0`),
  };
  return inOrder(insertEvent(deps, row), change, reads);
}

/** As `Recorded`, for each row of `from` for which `where` holds. */
interface RecordedEach {
  type: EventType;
  /** An expression is the actor as `actorOf` renders it. */
  initiator: Initiator | SQL;
  subject: { teamId: string; id: SQL; version: SQL };
  data: SQL;
  from: SQL;
  where: SQL | undefined;
  reads: "before" | "after";
}

/**
 * A change of many rows, and an event for each row that `from` and `where` find: before the change, or after it. Unlike that of
 * `recorded`, `where` alone decides: it names the team, and after a change it finds only what this change has changed.
 *
 * ```ts
 * const subject = { teamId, id: sql`${links.id}`, version: sql`null` };
 * const what = { type, initiator, subject, data, from: sql`${links}`, where: isExpired, reads: "before" };
 * const batch = { expire: recordedEach(deps, what, deps.db.delete(links).where(isExpired)) };
 * ```
 */
export function recordedEach<C extends Batch>(deps: Deps, what: RecordedEach, change: C) {
  const { initiator, subject, reads, ...rest } = what;
  const { teamId } = subject;
  const createdAt = deps.system.now();
  const last = sql`coalesce((select seq from events where team_id = ${teamId} order by seq desc limit 1), 0)`;
  const number = sql`row_number() over ()`;
  const row = {
    ...rest,
    actor: is(initiator, SQL) ? initiator : actorOf(initiator, deps.requestId),
    teamId,
    subjectId: subject.id,
    version: subject.version,
    createdAt,
    seq: sql`max(${last}, ${createdAt * 1000 - 1}) + ${number}`,
    counted: number,
  };
  return inOrder(insertEvent(deps, row), change, reads);
}

const isEvent = (query: Query): query is NewEvent => "event" in query;
/** Whether the insert of an event has written it: the change may have changed nothing. */
const isWritten = (result: unknown): boolean => ((result as Partial<D1Result>).meta?.changes ?? 0) > 0;

interface WriteWithEventOptions {
  isIdempotent: boolean;
  /** The first statement of the batch is `stillAllowed` for this caller. Null if the service writes for itself. */
  caller: Actor | null;
  /** Scopes that the caller must still have besides that of the operation: what it grants, or what its target has. */
  granted?: number;
  needsInserts?: boolean;
}

/**
 * Runs changes in one transaction with their events, and wakes the followers of these. A deletion in a full database
 * continues without its events and all other inserts, which need space, and this is logged. One that `needsInserts` does not.
 * @returns the rows of each query, under its name
 * @throws `storage_full`; `rate_limited` above the account events of a day
 */
export async function writeWithEvent<const B extends NamedBatch>(
  deps: Deps,
  batch: B,
  { isIdempotent, caller, granted = 0, needsInserts = false }: WriteWithEventOptions,
): Promise<RowsOf<B>> {
  const guard = caller && stillAllowed(deps, caller, { granted });
  const options = { isIdempotent, caller: guard };
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
  const found = [
    ...followers.flat(),
    ...resultsIn(batch, rows).flatMap(([query, result]) =>
      isEvent(query) && isWritten(result) ? followersAbout(deps, query.event.teamId, query.event.about) : [],
    ),
  ];
  const keys = new Map(found.map((key) => [`${key.kind}/${key.id}`, key]));
  if (keys.size > 0) deps.after(wake(deps, [...keys.values()], false));
  return rows;
}
