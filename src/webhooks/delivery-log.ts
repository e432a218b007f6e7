import { and, eq, sql } from "drizzle-orm";
import { type Credential, readAs, stillAllowed, type TeamActor } from "../access/authorization.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { ABOVE_ALL, type Event, eventId, isEventId, lastSeqOf, ownerEndOf, seqOf } from "../events/events.ts";
import { read } from "../platform/db.ts";
import { cutPage, decodeCursor, listName, type Page, type PageRequest } from "../platform/paging.ts";
import { newId } from "../platform/system.ts";
import type { Attempt } from "./attempts.ts";
import type { DeliveryFilter, DeliveryStatus, StoredDelivery } from "./outboxes.ts";
import { isEnabled, webhookByKey } from "./webhook-rows.ts";
import type { WebhookKey } from "./webhooks.schema.ts";
import { webhooks } from "./webhooks.schema.ts";

export const webhookDisabled = errorCode("webhook_disabled", 409, "The webhook is disabled. Enable it and retry.");

/** A delivery as its team sees it. Times are milliseconds since the epoch. */
export interface Delivery {
  id: string;
  eventId: string;
  type: string;
  /** Null if the caller can't read events. */
  event: Event | null;
  status: DeliveryStatus;
  /** The latest ten attempts. */
  attempts: Attempt[];
  nextAttemptAt: number | null;
}

function toDelivery(
  { scopes }: Pick<TeamActor, "scopes">,
  { teamId, id }: WebhookKey,
  { seq, type, event, ...delivery }: StoredDelivery,
): Delivery {
  return {
    ...delivery,
    // Has the form of an event id: the number of the event and the end of the webhook's id.
    id: eventId(id, seq),
    eventId: eventId(teamId, seq),
    type,
    event: (scopes & SCOPES["events:read"]) === 0 ? null : JSON.parse(event),
  };
}

/** Newest event first. @throws `not_found`; `invalid_input` for a cursor of another list */
export async function listDeliveries(
  deps: Deps,
  credential: Credential<"webhooks:read">,
  webhookId: string,
  { limit, cursor, filter }: Omit<PageRequest, "page"> & { filter?: DeliveryFilter | undefined },
): Promise<Page<Delivery>> {
  const list = listName("deliveries", { webhookId, filter });
  const before = cursor === undefined ? ABOVE_ALL : seqOf(decodeCursor(list, cursor).id);
  const { actor, rows } = await readAs(deps, credential, ({ teamId }) =>
    deps.db
      .select({ teamId: webhooks.teamId, id: webhooks.id })
      .from(webhooks)
      .where(and(eq(webhooks.teamId, teamId), eq(webhooks.id, webhookId))),
  );
  const [webhook] = rows;
  if (!webhook) throw new AppError("not_found");
  const found = await deps.outboxes(webhook).list({ before, limit: limit + 1, filter });
  return cutPage(
    list,
    { limit },
    found.map((delivery) => toDelivery(actor, webhook, delivery)),
  );
}

/** A delivery, and the attempt that was requested. Null if there was none in time: it follows. */
export type Redelivery = Delivery & { attempt: Attempt | null };

/**
 * Makes one more attempt now, whatever else is due, and waits for its result.
 * @throws `not_found`, `webhook_disabled`
 */
export async function redeliverEvent(deps: Deps, actor: TeamActor, id: string): Promise<Redelivery> {
  if (!isEventId(id)) throw new AppError("not_found");
  // A team has at most ten webhooks.
  const end = ownerEndOf(id);
  const isOfId = and(eq(webhooks.teamId, actor.teamId), sql`substr(${webhooks.id}, ${-end.length}) = ${end}`);
  const [webhook] = await read(deps, deps.db.select().from(webhooks).where(isOfId), stillAllowed(deps, actor));
  if (!webhook) throw new AppError("not_found");
  const outbox = deps.outboxes(webhook);
  if (!isEnabled(webhook)) {
    const [known] = await outbox.list({ before: seqOf(id) + 1, limit: 1, filter: undefined });
    throw new AppError(known?.seq === seqOf(id) ? webhookDisabled : "not_found");
  }
  const resent = await outbox.redeliver(seqOf(id), newId(deps.system, deps.db.number));
  if (!resent) throw new AppError("not_found");
  return { ...toDelivery(actor, webhook, resent.delivery), attempt: resent.attempt };
}

/**
 * Makes deliveries of the events after `after`, an event or an instant, due. They keep their ids. Pending deliveries stay as
 * they are. With `failedOnly`, only those become due whose latest attempt failed, also if they wait for a retry.
 * @returns the number of deliveries, and the event to continue after if there may be more
 * @throws `not_found`, `webhook_disabled`
 */
export async function replayEvents(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { after, failedOnly }: { after: string | number; failedOnly: boolean },
): Promise<{ deliveries: number; next: string | null }> {
  const { teamId } = actor;
  const [webhook] = await read(deps, webhookByKey(deps.db, { teamId, id }), stillAllowed(deps, actor));
  if (!webhook) throw new AppError("not_found");
  if (!isEnabled(webhook)) throw new AppError(webhookDisabled);
  const afterSeq = typeof after === "number" ? lastSeqOf(after) : seqOf(after);
  const { deliveries, next } = await deps.outboxes(webhook).replay({ after: afterSeq, failedOnly });
  return { deliveries, next: next === null ? null : eventId(teamId, next) };
}
