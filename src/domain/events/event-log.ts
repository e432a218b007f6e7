import { and, asc, desc, eq, gt, lt, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import type { Db, Param } from "../../platform/db.ts";
import { events } from "../../platform/event-schema.ts";
import { authorizeRead, type Credential, refuseNamedTeam, teamRead } from "../accounts/authorization.ts";
import { decodeCursor, encodeCursor, type Page, type ScanValues, scan, splitScan } from "../paging.ts";
import { ABOVE_ALL, type Event, type EventType, eventId, isEventId, renderEvent, seqOf } from "./events.ts";

/* Reads a team's event log, in both orders and from any event on. */

export interface EventsRequest {
  limit: number;
  order: "asc" | "desc";
  type?: EventType | undefined;
  /** Only events of the record with this id. */
  subject?: string | undefined;
  cursor?: string | undefined;
  /** Only events later than `after` and earlier than `before`, in either order. */
  after?: string | undefined;
  before?: string | undefined;
  /** Required for the operator, not allowed for others. */
  teamId?: string | undefined;
}

/** `type` and `subject` are empty if they filter nothing. */
type PageValues = ScanValues & { after: number; before: number; type: string; subject: string };

const eventsInRange = (order: typeof asc) => (db: Db, param: Param<PageValues>) => ({
  query: db.select().from(events).orderBy(order(events.seq)).$dynamic(),
  where: and(gt(events.seq, param("after")), lt(events.seq, param("before"))),
});
type Rows = ReturnType<ReturnType<typeof eventsInRange>>["query"];

const all = (rows: Rows, _: Db, param: Param<PageValues>) => rows.limit(param("limit"));

const filtered = (rows: Rows, db: Db, param: Param<PageValues>) =>
  scan(rows, db, param, (row) =>
    and(sql`${param("type")} in ('', ${row.type})`, sql`${param("subject")} in ('', ${row.subjectId})`),
  );

const readsInOrder = (order: typeof asc) => ({
  all: teamRead(events.teamId, eventsInRange(order), all),
  filtered: teamRead(events.teamId, eventsInRange(order), filtered),
});
const READS = { asc: readsInOrder(asc), desc: readsInOrder(desc) };

/**
 * Lists a page of events. With `type` or `subject`, a page may be short or empty although more pages follow.
 * @throws `forbidden` if a team key names a team; `invalid_input` if the operator names none
 */
export async function listEvents(
  deps: Deps,
  credential: Credential<"events:read or operator">,
  { limit, order, type, subject, cursor, after, before, teamId }: EventsRequest,
): Promise<Page<Event>> {
  await checkNamedTeam(deps, credential, teamId);
  const list = ["events", order, type, subject].filter(Boolean).join("-");
  const last = cursor === undefined ? undefined : decodeCursor(list, cursor).id;
  const lower = [after, order === "asc" ? last : undefined].map((id) => (id === undefined ? 0 : seqOf(id)));
  const upper = [before, order === "desc" ? last : undefined].map((id) => (id === undefined ? ABOVE_ALL : seqOf(id)));
  const values = {
    after: Math.max(...lower),
    before: Math.min(...upper),
    type: type ?? "",
    subject: subject ?? "",
    limit: limit + 1,
    offset: 0,
  };
  const isFiltered = type !== undefined || subject !== undefined;
  const { matching, end } = isFiltered
    ? splitScan(await authorizeRead(deps, credential, READS[order].filtered(values), teamId))
    : { matching: await authorizeRead(deps, credential, READS[order].all(values), teamId), end: undefined };
  const items = matching.slice(0, limit).map(renderEvent);
  const lastId = matching.length > limit ? items.at(-1)?._id : end && eventId(end.teamId, end.seq);
  return { items, next: lastId === undefined ? null : encodeCursor(list, lastId) };
}

const eventBySeq = teamRead(events.teamId, (db, param: Param<{ seq: number }>) => ({
  query: db.select().from(events).$dynamic(),
  where: eq(events.seq, param("seq")),
}));

/** @throws `not_found`, and the errors of `listEvents` */
export async function fetchEvent(
  deps: Deps,
  credential: Credential<"events:read or operator">,
  id: string,
  teamId?: string,
): Promise<Event> {
  await checkNamedTeam(deps, credential, teamId);
  const [row] = await authorizeRead(deps, credential, eventBySeq({ seq: isEventId(id) ? seqOf(id) : 0 }), teamId);
  if (!row || eventId(row.teamId, row.seq) !== id) throw new AppError("not_found");
  return renderEvent(row);
}

async function checkNamedTeam(deps: Deps, credential: Credential, teamId: string | undefined): Promise<void> {
  await refuseNamedTeam(deps, credential, teamId);
  if (credential.tokenHash !== null || teamId !== undefined) return;
  throw invalidField("teamId", "Required for the operator.");
}
