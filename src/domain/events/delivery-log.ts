import { and, desc, eq, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Param, preparedQuery, write } from "../../platform/db.ts";
import { deliveries, events, webhooks } from "../../platform/event-schema.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../accounts/authorization.ts";
import { cutPage, decodeCursor, listName, type Page, type PageRequest } from "../paging.ts";
import { type Attempt, parseAttempts } from "./attempts.ts";
import {
  type DeliveryRow,
  enqueueWebhooks,
  isReceived,
  isWebhook,
  newDelivery,
  type WebhookRow,
} from "./deliveries.ts";
import { ABOVE_ALL, type EventType, eventId, isEventId, seqOf } from "./events.ts";
import { MAX_DELIVERY_ATTEMPTS } from "./retries.ts";

/**
 * Events that one replay reads. Each costs up to six rows read: 3 × event (the bound, the insert, and the lookup of the
 * last one) + 3 × delivery. No request may read more than 1,000 rows.
 */
export const MAX_REPLAYED_EVENTS = 150;

/** A delivery as its team sees it. Times are milliseconds since the epoch. */
export interface Delivery {
  id: string;
  eventId: string;
  type: EventType;
  status: DeliveryRow["status"];
  /** The latest ten attempts. */
  attempts: Attempt[];
  nextAttemptAt: number | null;
}

/** Has the form of an event id: the number of the event and the end of the webhook's id. */
const deliveryId = ({ webhookId, seq }: Pick<DeliveryRow, "webhookId" | "seq">) => eventId(webhookId, seq);

/** `resumeAt` is the end of the webhook's pause, `failureBody` the response body of the latest attempt. */
function toDelivery(row: DeliveryRow, resumeAt: number | null, failureBody: string | null): Delivery {
  const { teamId, seq, type, status, attemptLog, dueAt } = row;
  return {
    id: deliveryId(row),
    eventId: eventId(teamId, seq),
    type,
    status,
    attempts: parseAttempts(attemptLog, failureBody),
    nextAttemptAt: dueAt && Math.max(dueAt, resumeAt ?? 0),
  };
}

type PageValues = { webhookId: string; before: number; limit: number };
/** Returns one row without a delivery if the webhook exists but has none. */
const deliveriesPage = teamRead(webhooks.teamId, (db, param: Param<PageValues>) => {
  const isBefore = sql`${deliveries.webhookId} = ${webhooks.id} and ${deliveries.seq} < ${param("before")}`;
  const failureBody = sql<string | null>`(select value ->> 'body' from json_each(${webhooks.failureBodies})
    where value ->> 'seq' = ${deliveries.seq})`.as("failure_body");
  const query = db
    .select({ delivery: deliveries, resumeAt: webhooks.resumeAt, failureBody })
    .from(webhooks)
    .leftJoin(deliveries, isBefore)
    .orderBy(desc(deliveries.seq))
    .limit(param("limit"))
    .$dynamic();
  return { query, where: eq(webhooks.id, param("webhookId")) };
});

/** Newest event first. @throws `not_found`; `invalid_input` for a cursor of another list */
export async function listDeliveries(
  deps: Deps,
  credential: Credential<"webhooks:read">,
  webhookId: string,
  { limit, cursor }: Omit<PageRequest, "page">,
): Promise<Page<Delivery>> {
  const list = listName("deliveries", { webhookId });
  const before = cursor === undefined ? ABOVE_ALL : seqOf(decodeCursor(list, cursor).id);
  const values = { webhookId, before, limit: limit + 1 };
  const rows = await authorizeRead(deps, credential, deliveriesPage(values));
  if (rows.length === 0) throw new AppError("not_found");
  const found = rows.flatMap(({ delivery, resumeAt, failureBody }) =>
    delivery ? [toDelivery(delivery, resumeAt, failureBody)] : [],
  );
  return cutPage(list, { limit }, found);
}

type RedeliveryValues = { teamId: string; idEnd: string; seq: number; now: number };
/** Finds the webhook by the end of its id, among the ten of its team. */
const webhookByEnd = (param: Param<RedeliveryValues>, condition = sql`1`) =>
  sql`(select id from ${webhooks} where team_id = ${param("teamId")} and substr(id, 15) = ${param("idEnd")} and ${condition})`;

const isRedelivered = (param: Param<RedeliveryValues>, condition?: SQL) =>
  and(
    eq(deliveries.webhookId, webhookByEnd(param, condition)),
    eq(deliveries.seq, param("seq")),
    eq(deliveries.teamId, param("teamId")),
  );

/** Makes one more attempt due if the delivery has ended. A pending delivery becomes due now. */
const makeDue = preparedQuery((db, param: Param<RedeliveryValues>) =>
  db
    .update(deliveries)
    .set({
      status: "pending",
      attemptCount: sql`case ${deliveries.status} when 'pending' then ${deliveries.attemptCount} else ${MAX_DELIVERY_ATTEMPTS - 1} end`,
      dueAt: sql`${param("now")}`,
    })
    .where(isRedelivered(param, sql`status = 'enabled'`))
    .returning(),
);
const deliveryByEnd = preparedQuery((db, param: Param<RedeliveryValues>) =>
  db.select({ seq: deliveries.seq }).from(deliveries).where(isRedelivered(param)),
);
/** Ends a pause, because a user who redelivers or replays wants it now. */
const resume = preparedQuery((db, param: Param<{ teamId: string; id: string }>) =>
  db.update(webhooks).set({ resumeAt: null }).where(isWebhook(param)),
);
const resumeByEnd = preparedQuery((db, param: Param<RedeliveryValues>) =>
  db
    .update(webhooks)
    .set({ resumeAt: null })
    .where(and(eq(webhooks.teamId, param("teamId")), eq(webhooks.id, webhookByEnd(param)))),
);

/** @throws `not_found`, `webhook_disabled` */
export async function redeliverEvent(deps: Deps, { teamId }: TeamActor, id: string): Promise<Delivery> {
  if (!isEventId(id)) throw new AppError("not_found");
  const values = { teamId, idEnd: id.slice(14), seq: seqOf(id), now: deps.system.now() };
  const queries = [deliveryByEnd(values), makeDue(values), resumeByEnd(values)] as const;
  const [[before], [row]] = await write(deps, queries, { isIdempotent: true });
  if (!before) throw new AppError("not_found");
  if (!row) throw new AppError("webhook_disabled");
  deps.after(enqueueWebhooks(deps, [{ teamId, webhookId: row.webhookId }]));
  return toDelivery(row, null, null);
}

type ReplayValues = { teamId: string; id: string; after: number; failedOnly: number; now: number };
/** The number of the last event that this replay reads. Null if it reads all events. */
const lastOf = (param: Param<ReplayValues>) =>
  sql`(select seq from ${events} where team_id = ${param("teamId")} and seq > ${param("after")}
    order by seq limit 1 offset ${MAX_REPLAYED_EVENTS - 1})`;
const insertReplayed = preparedQuery((db, param: Param<ReplayValues>) => {
  const hasFailed = sql`exists (select 1 from ${deliveries} d
    where d.webhook_id = w.id and d.seq = e.seq and d.status = 'failed')`;
  return db
    .insert(deliveries)
    .select(
      sql`select ${newDelivery(sql`${param("now")}`)} from ${webhooks} w cross join ${events} e
          on e.team_id = w.team_id and e.seq > ${param("after")} and e.seq <= ifnull(${lastOf(param)}, ${ABOVE_ALL})
        where w.team_id = ${param("teamId")} and w.id = ${param("id")} and w.status = 'enabled'
        and ${isReceived} and (${param("failedOnly")} = 0 or ${hasFailed})`,
    )
    .onConflictDoUpdate({
      target: [deliveries.webhookId, deliveries.seq],
      set: { status: "pending", attemptCount: 0, dueAt: sql`excluded.due_at` },
      setWhere: sql`${deliveries.status} <> 'pending'`,
    })
    .returning({ seq: deliveries.seq });
});
const lastReplayed = preparedQuery((db, param: Param<ReplayValues>) =>
  db
    .select({ seq: events.seq })
    .from(events)
    .where(and(eq(events.teamId, param("teamId")), sql`${events.seq} = ${lastOf(param)}`)),
);
const webhookStatus = preparedQuery((db, param: Param<{ teamId: string; id: string }>) =>
  db.select({ status: webhooks.status }).from(webhooks).where(isWebhook(param)),
);

/**
 * Makes deliveries of the events after `after` due, or only the failed ones. They keep their ids. Pending deliveries stay
 * as they are.
 * @returns the number of deliveries, and the event to continue after if there may be more
 * @throws `not_found`, `webhook_disabled`
 */
export async function replayEvents(
  deps: Deps,
  { teamId }: TeamActor,
  id: string,
  { after, failedOnly }: { after: string; failedOnly: boolean },
): Promise<{ deliveries: number; next: string | null }> {
  const values = { teamId, id, after: seqOf(after), failedOnly: failedOnly ? 1 : 0, now: deps.system.now() };
  const queries = [insertReplayed(values), webhookStatus(values), resume(values), lastReplayed(values)] as const;
  const [rows, [webhook], , [last]] = await write(deps, queries, { isIdempotent: false });
  if (!webhook) throw new AppError("not_found");
  if (webhook.status === ("disabled" satisfies WebhookRow["status"])) throw new AppError("webhook_disabled");
  if (rows.length > 0) deps.after(enqueueWebhooks(deps, [{ teamId, webhookId: id }]));
  return { deliveries: rows.length, next: last ? eventId(teamId, last.seq) : null };
}
