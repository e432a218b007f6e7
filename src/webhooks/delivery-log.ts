import { and, asc, desc, eq, gt, isNull, lt, not, type SQL, sql } from "drizzle-orm";
import { authorizeRead, type Credential, type TeamActor } from "../access/authorization.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import {
  type LoggedEvent,
  NAMED_EVENT_OF_DELIVERY,
  type NamedJoinedEvent,
  renderNamedEvent,
} from "../events/event-log.ts";
import { events } from "../events/events.schema.ts";
import {
  ABOVE_ALL,
  type EventType,
  eventId,
  isEventId,
  isEventOfDelivery,
  lastSeqOf,
  ownerEndOf,
  seqOf,
} from "../events/events.ts";
import { type Db, firstOf, hasRow, write } from "../platform/db.ts";
import { cutPage, decodeCursor, encodeCursor, listName, type Page, type PageRequest } from "../platform/paging.ts";
import { type Attempt, parseAttempts } from "./attempts.ts";
import { type DeliveryRow, enqueueWebhooks, isReceived, isWebhook, newDelivery } from "./deliveries.ts";
import { MAX_DELIVERY_ATTEMPTS } from "./retries.ts";
import { deliveries, webhooks } from "./webhooks.schema.ts";

/**
 * Events or failed deliveries that one replay reads. Each costs up to six rows read: 3 × event or index entry (the bound, the
 * insert, and the lookup of the last one) + 3 × delivery. No request may read more than 1,000 rows.
 */
export const MAX_REPLAYED_EVENTS = 150;

/** A delivery as its team sees it. Times are milliseconds since the epoch. */
export interface Delivery {
  id: string;
  eventId: string;
  type: EventType;
  /** Null if it has been purged, or if the caller can't read events. */
  event: LoggedEvent | null;
  status: DeliveryRow["status"];
  /** The latest ten attempts. */
  attempts: Attempt[];
  nextAttemptAt: number | null;
}

/** Has the form of an event id: the number of the event and the end of the webhook's id. */
const deliveryId = ({ webhookId, seq }: Pick<DeliveryRow, "webhookId" | "seq">) => eventId(webhookId, seq);

/** `resumeAt` is the end of the webhook's pause, `failureBody` the response body of the latest attempt. */
function toDelivery(
  { scopes }: Pick<TeamActor, "scopes">,
  row: DeliveryRow & NamedJoinedEvent,
  { resumeAt, failureBody }: { resumeAt: number | null; failureBody: string | null },
): Delivery {
  const { teamId, seq, type, status, attemptLog, dueAt } = row;
  return {
    id: deliveryId(row),
    eventId: eventId(teamId, seq),
    type,
    event: (scopes & SCOPES["events:read"]) === 0 ? null : renderNamedEvent(row),
    status,
    attempts: parseAttempts(attemptLog, failureBody),
    nextAttemptAt: dueAt && Math.max(dueAt, resumeAt ?? 0),
  };
}

/** No index serves these filters: each page examines a bounded number of deliveries. */
const SCANNED_FILTERS = {
  pending: sql`status = 'pending'`,
  succeeded: sql`status = 'succeeded'`,
  failed: sql`status = 'failed'`,
  waiting: sql`status = 'pending' and is_failing = 0`,
};
export type DeliveryFilter = "failing" | keyof typeof SCANNED_FILTERS;
/** Deliveries that a page with such a filter examines. Each costs two rows read, and one that is returned up to four more. */
export const EXAMINED_DELIVERIES = 290;

/**
 * Newest event first. With a status other than `failing`, a page may be short or empty although more pages follow.
 * @throws `not_found`; `invalid_input` for a cursor of another list
 */
export async function listDeliveries(
  deps: Deps,
  credential: Credential<"webhooks:read">,
  webhookId: string,
  { limit, cursor, status }: Omit<PageRequest, "page"> & { status?: DeliveryFilter | undefined },
): Promise<Page<Delivery>> {
  const list = listName("deliveries", { webhookId, status });
  const before = cursor === undefined ? ABOVE_ALL : seqOf(decodeCursor(list, cursor).id);
  const failureBody = sql<string | null>`(select value ->> 'body' from json_each(${webhooks.failureBodies})
    where value ->> 'seq' = ${deliveries.seq})`.as("failure_body");
  const earlier = sql`from ${deliveries} where webhook_id = ${webhookId} and seq < ${before}`;
  const isScan = status !== undefined && status !== "failing";
  const matching = isScan
    ? sql`(select * ${earlier} order by seq desc limit ${EXAMINED_DELIVERIES}) where ${SCANNED_FILTERS[status]}`
    : sql`(select seq ${earlier} and is_failing = 1)`;
  const isMatch =
    status && sql`${deliveries.seq} in (select seq from ${matching} order by seq desc limit ${limit + 1})`;
  // The last examined delivery, if there may be more.
  const end = sql<number | null>`(select seq ${earlier} order by seq desc limit 1 offset ${EXAMINED_DELIVERIES - 1})`;
  // Finds one row without a delivery if the webhook exists but has none.
  const { actor, rows } = await authorizeRead(deps, credential, (team) =>
    deps.db
      .select({
        delivery: deliveries,
        ...NAMED_EVENT_OF_DELIVERY,
        resumeAt: webhooks.resumeAt,
        failureBody,
        end: (isScan ? end : sql<null>`null`).as("end"),
      })
      .from(webhooks)
      .leftJoin(deliveries, and(eq(deliveries.webhookId, webhooks.id), lt(deliveries.seq, before), isMatch))
      .leftJoin(events, isEventOfDelivery)
      .where(and(eq(webhooks.teamId, team), eq(webhooks.id, webhookId)))
      .orderBy(desc(deliveries.seq))
      .limit(limit + 1),
  );
  if (rows.length === 0) throw new AppError("not_found");
  const found = rows.flatMap(({ delivery, ...row }) =>
    delivery ? [toDelivery(actor, { ...row, ...delivery }, row)] : [],
  );
  const { items, next } = cutPage(list, { limit }, found);
  const last = rows[0]?.end;
  return { items, next: next ?? (last ? encodeCursor(list, deliveryId({ webhookId, seq: last })) : null) };
}

/** Ends the pauses of webhooks, because a user who redelivers or replays wants it now. */
const resume = (db: Db, isSelected: SQL | undefined) => db.update(webhooks).set({ resumeAt: null }).where(isSelected);

/**
 * Makes one more attempt due if the delivery has ended. A pending delivery becomes due now.
 * @throws `not_found`, `webhook_disabled`
 */
export async function redeliverEvent(deps: Deps, actor: TeamActor, id: string): Promise<Delivery> {
  if (!isEventId(id)) throw new AppError("not_found");
  const { db } = deps;
  const { teamId } = actor;
  // A team has at most ten webhooks.
  const end = ownerEndOf(id);
  const isWebhookOfId = and(eq(webhooks.teamId, teamId), sql`substr(${webhooks.id}, ${-end.length}) = ${end}`);
  const webhookId = db.select({ id: webhooks.id }).from(webhooks).where(isWebhookOfId);
  const isTarget = and(
    eq(deliveries.webhookId, sql`${webhookId}`),
    eq(deliveries.seq, seqOf(id)),
    eq(deliveries.teamId, teamId),
  );
  const isDisabled = not(hasRow(webhooks, and(isWebhookOfId, eq(webhooks.status, "enabled"))));
  const refusal = firstOf({ webhook_disabled: isDisabled });
  const attempts = sql`iif(${deliveries.status} = 'pending', ${deliveries.attemptCount}, ${MAX_DELIVERY_ATTEMPTS - 1})`;
  const makeDue = db
    .update(deliveries)
    .set({ status: "pending", attemptCount: attempts, dueAt: deps.system.now() })
    .where(and(isTarget, isNull(refusal)))
    .returning();
  const found = db
    .select({ refusal, ...NAMED_EVENT_OF_DELIVERY })
    .from(deliveries)
    .leftJoin(events, isEventOfDelivery)
    .where(isTarget);
  const queries = [found, makeDue, resume(db, isWebhookOfId)] as const;
  const [[delivery], [row]] = await write(deps, queries, { isIdempotent: true });
  if (!row || !delivery) throw new AppError(delivery?.refusal ?? "not_found");
  deps.after(enqueueWebhooks(deps, [{ teamId, webhookId: row.webhookId }]));
  return toDelivery(actor, { ...delivery, ...row }, { resumeAt: null, failureBody: null });
}

/**
 * Makes deliveries of the events after `after`, an event or an instant, due. They keep their ids. Pending deliveries stay as
 * they are. With `failedOnly`, only those become due whose latest attempt failed, also if they wait for a retry.
 * @returns the number of deliveries, and the event to continue after if there may be more
 * @throws `not_found`, `webhook_disabled`
 */
export async function replayEvents(
  deps: Deps,
  { teamId }: TeamActor,
  id: string,
  { after, failedOnly }: { after: string | number; failedOnly: boolean },
): Promise<{ deliveries: number; next: string | null }> {
  const { db } = deps;
  const afterSeq = typeof after === "number" ? lastSeqOf(after) : seqOf(after);
  const key = { teamId, id };
  const source = failedOnly ? deliveries : events;
  const isOfSource = failedOnly ? and(eq(deliveries.webhookId, id), sql`is_failing = 1`) : eq(events.teamId, teamId);
  // The last event that this replay reads. None if it reads all events.
  const last = db
    .select({ seq: source.seq })
    .from(source)
    .where(and(isOfSource, gt(source.seq, afterSeq)))
    .orderBy(asc(source.seq))
    .limit(1)
    .offset(MAX_REPLAYED_EVENTS - 1);
  const event = sql`cross join ${events} e on e.team_id = w.team_id`;
  const [from, seq] = failedOnly
    ? [
        sql`cross join ${deliveries} f on f.webhook_id = w.id and f.is_failing = 1 ${event} and e.seq = f.seq`,
        sql`f.seq`,
      ]
    : [event, sql`e.seq`];
  const webhook = db.select({ status: webhooks.status }).from(webhooks).where(isWebhook(key));
  const insert = db
    .insert(deliveries)
    .select(
      sql`select ${newDelivery(deps.system.now())} from ${webhooks} w ${from} and ${seq} > ${afterSeq} and ${seq} <= ifnull(${last}, ${ABOVE_ALL})
        where w.team_id = ${teamId} and w.id = ${id} and w.status = 'enabled' and ${isReceived}`,
    )
    .onConflictDoUpdate({
      target: [deliveries.webhookId, deliveries.seq],
      set: { status: "pending", attemptCount: 0, dueAt: sql`excluded.due_at` },
      setWhere: sql`${deliveries.status} <> 'pending' or ${failedOnly}`,
    })
    .returning({ seq: deliveries.seq });
  const queries = [webhook, insert, resume(db, isWebhook(key)), last] as const;
  const [[found], rows, , [lastRead]] = await write(deps, queries, { isIdempotent: false });
  if (!found) throw new AppError("not_found");
  if (found.status === "disabled") throw new AppError("webhook_disabled");
  if (rows.length > 0) deps.after(enqueueWebhooks(deps, [{ teamId, webhookId: id }]));
  return { deliveries: rows.length, next: lastRead ? eventId(teamId, lastRead.seq) : null };
}
