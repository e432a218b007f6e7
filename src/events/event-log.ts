import { and, asc, desc, eq, gt, lt, lte, or, type SQLWrapper, sql } from "drizzle-orm";
import type { SQLiteSelect } from "drizzle-orm/sqlite-core";
import { type Actor, type Credential, readAs, refuseNamedTeam } from "../access/authorization.ts";
import { databaseOf, inEveryDatabase } from "../access/databases.ts";
import { nameOfActor } from "../access/names.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Builder, type Db, type Query, read } from "../platform/db.ts";
import { decodeCursor, encodeCursor, listName, type Page, scan, splitScan } from "../platform/paging.ts";
import { events } from "./events.schema.ts";
import {
  ABOVE_ALL,
  type Event,
  type EventRow,
  eventId,
  idsOfActor,
  isEventId,
  lastSeqOf,
  operatorLogOf,
  renderEvent,
  seqOf,
} from "./events.ts";
import { mayNameSubject, nameOfSubject } from "./kinds.ts";

/* Reads a team's event log, in both orders and from any event on. */

/** An event with the names of its actor and its subject. Webhook messages have none, because they are stored elsewhere. */
export type LoggedEvent = Event & Record<"actor" | "subject", { name: string | null }>;

type NamedRow<Row = EventRow> = Row & Record<"actorName" | "subjectName", string | null>;

/** Only with the names that the caller may know. */
const withKnownNames = <Row extends NamedRow>(caller: Actor, row: Row): Row =>
  mayNameSubject(caller, row.type) ? row : { ...row, subjectName: null };

/** The event of a file also states its original name, which it keeps if the other one is unknown. */
function renderLogged({ actorName, subjectName, ...row }: NamedRow): LoggedEvent {
  const event = renderEvent(row);
  const stated = event.subject.kind === "file" ? (event.data as { originalName?: string }).originalName : undefined;
  return {
    ...event,
    actor: { ...event.actor, name: actorName },
    subject: { ...event.subject, name: subjectName ?? stated ?? null },
  };
}

/** Adds the names of the actors and subjects to the rows of a page. It reads up to three rows for each, so the page comes first. */
function withNames<Row extends EventRow>(db: Db, page: PromiseLike<Row[]>): Builder<NamedRow<Row>[]> {
  const rows = (page as unknown as SQLiteSelect).as("page");
  const columns = rows._.selectedFields as typeof events._.columns;
  const { teamId, type, subjectId: id } = columns;
  const actorName = nameOfActor({ ...idsOfActor(columns.actor), teamId }).as("actor_name");
  const subjectName = nameOfSubject({ type, teamId, id }).as("subject_name");
  return db.select({ ...columns, actorName, subjectName }).from(rows) as unknown as Builder<NamedRow<Row>[]>;
}

interface EventsRequest {
  limit: number;
  order: "asc" | "desc";
  /** A type, or a kind of record such as `file` for all of its types. */
  type?: string | undefined;
  /** Only events of the record with this id. */
  subject?: string | undefined;
  /** Only events caused by the user or the key with this id. */
  actor?: string | undefined;
  cursor?: string | undefined;
  /** Only events later than `after` and earlier than `before`, in either order. */
  after?: string | undefined;
  before?: string | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
  /** Only for the operator. Without it, the operator reads when teams were created and deleted. */
  teamId?: string | undefined;
}

/**
 * Lists a page of events. With `type`, `subject` or `actor`, a page may be short or empty although more pages follow.
 * @throws `forbidden` if a team key names a team
 */
export async function listEvents(
  deps: Deps,
  credential: Credential<{ scope: "events:read"; also: "operator" }>,
  { limit, order, type, subject, actor, cursor, after, before, createdAfter, createdBefore, teamId }: EventsRequest,
): Promise<Page<LoggedEvent>> {
  await refuseNamedTeam(deps, credential, teamId);
  const list = listName("events", { order, type, subject, actor });
  const last = cursor === undefined ? undefined : decodeCursor(list, cursor).id;
  const lower = [after, order === "asc" ? last : undefined].filter((id) => id !== undefined);
  const upper = [before, order === "desc" ? last : undefined].filter((id) => id !== undefined);
  const [isMatch, page] = [eventFilter({ type, subject, actor }), { limit: limit + 1, offset: 0 }];
  const readIn = async (deps: Deps, log: string): Promise<ExaminedEvent[]> => {
    const { actor, rows } = await readAs(
      deps,
      credential,
      (viewer): Query<ExaminedEvent[]> => {
        const above = lower.map((id) => (isBehind(log, id) ? seqOf(id) - 1 : seqOf(id)));
        const below = upper.map((id) => (isBehind(id, log) ? seqOf(id) + 1 : seqOf(id)));
        if (createdAfter !== undefined) above.push(lastSeqOf(createdAfter));
        if (createdBefore !== undefined) below.push(Math.ceil(createdBefore) * 1000);
        const range = [gt(events.seq, Math.max(0, ...above)), lt(events.seq, Math.min(ABOVE_ALL, ...below))];
        const inRange = deps.db
          .select()
          .from(events)
          .where(and(eq(events.teamId, viewer.teamId), ...range))
          .orderBy((order === "asc" ? asc : desc)(events.seq))
          .$dynamic();
        return withNames(deps.db, isMatch ? scan(deps.db, inRange, isMatch, page) : inRange.limit(page.limit));
      },
      log,
    );
    return rows.map((row) => withKnownNames(actor, row));
  };
  const isOfOperator = credential.tokenHash === null && teamId === undefined;
  const rows = isOfOperator
    ? mergeLogs(await inEveryDatabase(deps, (deps) => readIn(deps, operatorLogOf(deps))), order)
    : await readIn(deps, teamId ?? operatorLogOf(deps));
  const { matching, end } = splitScan(rows);
  const items = matching.slice(0, limit).map(renderLogged);
  const lastId = matching.length > limit ? items.at(-1)?._id : end && idOf(end);
  return { items, next: lastId === undefined ? null : encodeCursor(list, lastId) };
}

type ExaminedEvent = NamedRow & { isEnd?: 0 | 1 };

const idOf = ({ teamId, seq }: EventRow): string => eventId(teamId, seq);

/** Whether the second log comes before the first among events with the same number. Only logs of the operator are merged. */
const isBehind = (log: string, other: string): boolean => databaseOf(log) > databaseOf(other);

/** Merges the logs that the databases keep for the operator. What lies beyond the end of a scan is not known yet. */
function mergeLogs(logs: ExaminedEvent[][], order: "asc" | "desc"): ExaminedEvent[] {
  const inOrder = (a: ExaminedEvent, b: ExaminedEvent) => (idOf(a) < idOf(b) === (order === "asc") ? -1 : 1);
  const merged = logs.flat().sort(inOrder);
  const end = merged.findIndex(({ isEnd }) => isEnd === 1);
  return end === -1 ? merged : merged.slice(0, end + 1);
}

/** The condition of the filters. Undefined without filters: then no event has to be examined. */
function eventFilter({ type, subject, actor }: Pick<EventsRequest, "type" | "subject" | "actor">) {
  if (type === undefined && subject === undefined && actor === undefined) return undefined;
  return (row: { type: SQLWrapper; subjectId: SQLWrapper; actor: SQLWrapper }) =>
    and(
      type === undefined ? undefined : sql`${row.type} glob ${type.includes(".") ? type : `${type}.*`}`,
      subject === undefined ? undefined : sql`${row.subjectId} = ${subject}`,
      actor === undefined
        ? undefined
        : sql`${actor} in (${idsOfActor(row.actor).userId}, ${idsOfActor(row.actor).keyId})`,
    );
}

/** @throws `not_found`, and the errors of `listEvents` */
export async function fetchEvent(
  deps: Deps,
  credential: Credential<{ scope: "events:read"; also: "operator" }>,
  id: string,
  teamId?: string,
): Promise<LoggedEvent> {
  await refuseNamedTeam(deps, credential, teamId);
  const seq = isEventId(id) ? seqOf(id) : 0;
  const { actor, rows } = await readAs(
    deps,
    credential,
    (viewer) => {
      const isEvent = and(eq(events.teamId, viewer.teamId), eq(events.seq, seq));
      return withNames(deps.db, deps.db.select().from(events).where(isEvent));
    },
    teamId ?? operatorLogOf(deps),
  );
  const [row] = rows;
  if (!row || idOf(row) !== id) throw new AppError("not_found");
  return renderLogged(withKnownNames(actor, row));
}

/** Events that one batch of an export examines, in some 10 ms of the database. */
const EXAMINED_EVENTS = 4000;
/** The latest events of a team that an export examines, in two batches: 20,000 rows with those that find where these begin. */
export const EXPORTED_EVENTS = 2 * EXAMINED_EVENTS;

interface Named {
  id: string;
  teamId: string;
  createdAt: number;
}

/** Where the batches of an export begin: after the events with these numbers. Null if the user has no event before. */
interface ExportStarts {
  first: number | null;
  second: number | null;
}

export async function findExportStarts(deps: Deps, { teamId, createdAt }: Named): Promise<ExportStarts> {
  const beforeLast = (count: number) =>
    deps.db
      .select({ seq: events.seq })
      .from(events)
      .where(and(eq(events.teamId, teamId), gt(events.seq, createdAt * 1000 - 1)))
      .orderBy(desc(events.seq))
      .limit(1)
      .offset(count);
  const { first, second } = await read(deps, {
    first: beforeLast(EXPORTED_EVENTS),
    second: beforeLast(EXAMINED_EVENTS),
  });
  return { first: first[0]?.seq ?? null, second: second[0]?.seq ?? null };
}

/**
 * The events by a user, or about the user's record, oldest first. Without the names of actors, because the person who gets them
 * may not know those of others.
 */
export async function* eventsNaming(
  deps: Deps,
  { id, teamId, createdAt }: Named,
  { first, second }: ExportStarts,
): AsyncGenerator<Event> {
  const isNamed = or(eq(events.subjectId, id), sql`${idsOfActor(events.actor).userId} = ${id}`);
  const start = first ?? createdAt * 1000 - 1;
  for (const [after, last] of second === null
    ? [[start, ABOVE_ALL]]
    : ([
        [start, second],
        [second, ABOVE_ALL],
      ] as const)) {
    const isExamined = and(eq(events.teamId, teamId), gt(events.seq, after), lte(events.seq, last));
    const rows: EventRow[] = await read(
      deps,
      deps.db.select().from(events).where(and(isExamined, isNamed)).orderBy(asc(events.seq)),
    );
    yield* rows.map(renderEvent);
  }
}
