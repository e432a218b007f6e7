import type { SQL } from "drizzle-orm";
import { sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type BoundQuery, type Db, type Param, preparedQuery, type RowsOf, write } from "../../platform/db.ts";
import type { WebhookJob } from "../../platform/jobs.ts";
import { EVENT_TYPES, events } from "../../platform/schema.ts";
import type { Actor } from "../accounts/authorization.ts";
import { enqueueWebhooks, insertDeliveries } from "./deliveries.ts";

/*
 * What happened in a team. An event is written in the batch of the change that it tells of, where that changed a row:
 * both or neither, and nothing new where a batch is repeated because its answer was lost. Its number, `seq`, is given
 * in that batch, by the one writer that a database has; so numbers ascend as the changes were committed, and who reads
 * on behind the last event misses none. An id that was made before the commit could not promise that.
 */

export { EVENT_TYPES };
export type EventType = (typeof EVENT_TYPES)[number];
export type EventRow = typeof events.$inferSelect;

/** Who did it: a caller, a user who logged in, or the service itself in a job or in recovery. */
export type Initiator = Actor | { kind: "user"; keyId: string; userId: string } | { kind: "system" };

export const SYSTEM: Initiator = { kind: "system" };

export interface EventActor {
  kind: Initiator["kind"];
  keyId: string | null;
  /** Of a key that a login made, and of the login. */
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

const SEQ_DIGITS = 14;

/** 24 hex digits: the event's number, which orders them, and the end of its team's id, which tells teams apart. */
export const eventId = (teamId: string, seq: number): string =>
  seq.toString(16).padStart(SEQ_DIGITS, "0") + teamId.slice(SEQ_DIGITS);

/** Whether it may be the id of an event, or of a delivery, which is made alike. */
export const isEventId = (text: string): boolean => /^[0-9a-f]{24}$/.test(text);

/** Above the number of any event. */
export const ABOVE_ALL = Number.MAX_SAFE_INTEGER;

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
    teamId,
    type,
    createdAt: new Date(createdAt).toISOString(),
    actor: JSON.parse(actor),
    subject: { kind: type.slice(0, type.indexOf(".")), id: subjectId, version: subjectVersion },
    data: JSON.parse(data),
  };
}

export type EventValues = Omit<EventRow, "seq" | "position">;

/** Where the query before, in the same batch, has changed a row. */
const WHERE_CHANGED = sql`where changes() > 0`;

/** The insert of an event; `source`, a FROM and WHERE, may also give its data and the version of its subject. */
export function insertEvent<V extends Omit<EventValues, "data" | "subjectVersion">>(
  db: Db,
  param: Param<V>,
  row: { subjectVersion: SQL; data: SQL },
  source = WHERE_CHANGED,
) {
  const given = param as Param<Omit<EventValues, "data" | "subjectVersion">>;
  const last = sql`(select max(seq) from events where team_id = ${given("teamId")})`;
  // Microseconds, so that a team has room for a thousand events in a millisecond.
  const seq = sql`max(coalesce(${last}, 0) + 1, ${given("createdAt")} * 1000)`;
  const lastPosition = sql`(select position from events where team_id = ${given("teamId")} order by seq desc limit 1)`;
  const facts = sql`${given("type")}, ${given("createdAt")}, ${given("actor")}, ${given("subjectId")}`;
  return db
    .insert(events)
    .select(
      sql`select ${given("teamId")}, ${seq}, ${facts}, ${row.subjectVersion}, ${row.data}, coalesce(${lastPosition}, 0) + 1 ${source}`,
    );
}

const insertGivenEvent = preparedQuery((db, param: Param<EventValues>) =>
  insertEvent(db, param, { subjectVersion: sql`${param("subjectVersion")}`, data: sql`${param("data")}` }),
);

/** The insert of an event that tells of a change. */
export interface NewEvent {
  teamId: string;
  insert: BoundQuery<unknown>;
  /** It stands in front of the change, to tell what was, with a condition of its own. */
  isBefore?: boolean;
}

/** The columns that every event has. */
export function eventValues(
  { system, requestId }: Deps,
  type: EventType,
  initiator: Initiator,
  subject: { teamId: string; id: string },
): Omit<EventValues, "data" | "subjectVersion"> {
  const { keyId = null, userId = null } = initiator as Partial<EventActor>;
  const actor: EventActor = { kind: initiator.kind, keyId, userId, requestId };
  return {
    teamId: subject.teamId,
    type,
    createdAt: system.now(),
    actor: JSON.stringify(actor),
    subjectId: subject.id,
  };
}

/** An event whose facts are known beforehand. `data` never holds personal data, a token, or a secret. */
export function newEvent(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  subject: { teamId: string; id: string; version?: number },
  data: Record<string, unknown> = {},
): NewEvent {
  const { teamId, id, version = null } = subject;
  const values = { subjectVersion: version, data: JSON.stringify({ _id: id, ...data }) };
  return { teamId, insert: insertGivenEvent({ ...eventValues(deps, type, initiator, subject), ...values }) };
}

/**
 * Runs a change, and what goes with it, in one transaction with the event that tells of it, and with the event's
 * deliveries. The change is the first query: the event is there where it changed a row, and nowhere else.
 */
export async function writeWithEvent<const Q extends readonly BoundQuery<unknown>[]>(
  deps: Deps,
  { teamId, insert, isBefore = false }: NewEvent,
  queries: Q,
  options: { isIdempotent: boolean },
): Promise<RowsOf<Q>> {
  const at = isBefore ? 0 : 1;
  const added = [insert, insertDeliveries({ teamId, now: deps.system.now() })];
  const rows = await write(deps, [...queries.slice(0, at), ...added, ...queries.slice(at)], options);
  const jobs = rows[at + 1] as WebhookJob[];
  if (jobs.length > 0) deps.after(enqueueWebhooks(deps, jobs));
  return [...rows.slice(0, at), ...rows.slice(at + added.length)] as unknown as RowsOf<Q>;
}
