import { and, eq, isNotNull, max, min, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Db, read, write } from "../platform/db.ts";
import type { WebhookJob } from "../platform/messages.ts";
import type { Batch } from "../platform/recovery-step.ts";
import { MINUTE } from "../platform/system.ts";
import { deliveries, webhooks } from "./webhooks.schema.ts";

/*
 * Part of the recovery job: sends a message for each webhook with overdue deliveries, because a message was lost, a consumer
 * died, or the wait was too long for a message.
 */

/** Messages get this time to arrive before they are sent again. */
const GRACE_MILLISECONDS = 2 * MINUTE;
/** Wait between two messages for a webhook. The first may still be in a long queue, which a second would lengthen. */
const RESEND_MILLISECONDS = 15 * MINUTE;
/** Webhooks that one query returns. */
const PAGE_WEBHOOKS = 500;
/** The first or last webhook with pending deliveries. */
const edgeOf = (db: Db, edge: typeof min) =>
  db
    .select({ id: edge(deliveries.webhookId) })
    .from(deliveries)
    .where(isNotNull(deliveries.dueAt));

/** Webhooks after this id with pending deliveries, with the oldest delivery of each. Each costs one index lookup. */
function pendingWebhooks(db: Db, after: string) {
  const next = sql`select min(webhook_id) from deliveries where due_at is not null and webhook_id >`;
  const ids = sql`with recursive one(id) as
    (${next} ${after} union all select (${next} one.id) from one where one.id is not null limit ${PAGE_WEBHOOKS})
    select one.id, (select seq from deliveries where webhook_id = one.id and due_at is not null order by due_at, seq limit 1)
    from one where one.id is not null`;
  return db
    .select({
      teamId: deliveries.teamId,
      webhookId: deliveries.webhookId,
      dueAt: deliveries.dueAt,
      status: webhooks.status,
      resumeAt: webhooks.resumeAt,
      leaseId: webhooks.leaseId,
      leaseEndsAt: webhooks.leaseEndsAt,
    })
    .from(deliveries)
    .leftJoin(webhooks, and(eq(webhooks.teamId, deliveries.teamId), eq(webhooks.id, deliveries.webhookId)))
    .where(and(isNotNull(deliveries.dueAt), sql`(webhook_id, seq) in (${ids})`));
}
type PendingWebhook = Awaited<ReturnType<typeof pendingWebhooks>>[number];

function isOverdue({ dueAt, status, resumeAt, leaseId, leaseEndsAt }: PendingWebhook, now: number): boolean {
  // The webhook is deleted or disabled, and its deliveries must be ended.
  if (status !== "enabled") return (dueAt ?? 0) <= now - GRACE_MILLISECONDS;
  const freeFor = leaseId === null ? RESEND_MILLISECONDS : GRACE_MILLISECONDS;
  const isFree = (leaseEndsAt ?? 0) <= now - freeFor;
  return isFree && Math.max(dueAt ?? 0, resumeAt ?? 0) <= now - GRACE_MILLISECONDS;
}

/** Releases expired leases, and starts the wait until the next message. */
const markWoken = (db: Db, jobs: WebhookJob[], now: number) =>
  db
    .update(webhooks)
    .set({ leaseId: null, leaseEndsAt: now })
    .where(
      sql`(team_id, id) in (select value ->> 'teamId', value ->> 'webhookId' from json_each(${JSON.stringify(jobs)}))
        and ${webhooks.leaseEndsAt} <= ${now}`,
    );

/** @returns a value between two ids, by their leading milliseconds */
function randomBetween(deps: Deps, first: string, last: string): string {
  const [low, high] = [first, last].map((id) => Number.parseInt(id.slice(0, 12), 16)) as [number, number];
  const [fraction = 0] = deps.system.randomBytes(1);
  return Math.floor(low + ((high - low) * fraction) / 256)
    .toString(16)
    .padStart(12, "0");
}

/**
 * Starts at a random webhook, so that runs reach all of them even if a run has no time for all. Each batch reads a page of
 * webhooks and sends a message for each overdue one.
 */
export function wakeWebhooks(deps: Deps): () => Promise<Batch> {
  const { db } = deps;
  const now = deps.system.now();
  let start: string | undefined;
  let after = "";
  let hasWrapped = false;
  return async () => {
    if (start === undefined) {
      const [[first], [last]] = await read(deps, [edgeOf(db, min), edgeOf(db, max)]);
      if (!first?.id || !last?.id) return { rows: 0, isLast: true };
      start = randomBetween(deps, first.id, last.id);
      after = start;
    }
    const [page] = await read(deps, [pendingWebhooks(db, after)]);
    const overdue = page.filter((webhook) => isOverdue(webhook, now));
    const jobs = overdue.map(({ teamId, webhookId }) => ({ teamId, webhookId }));
    if (jobs.length > 0) {
      await deps.webhookJobs.sendAll(jobs);
      await write(deps, [markWoken(db, jobs, now)], { isIdempotent: true });
    }
    for (const { webhookId } of page) if (webhookId > after) after = webhookId;
    const isEnd = page.length < PAGE_WEBHOOKS;
    const isLast = hasWrapped && (isEnd || after > start);
    if (isEnd && !hasWrapped) {
      hasWrapped = true;
      after = "";
    }
    return { rows: jobs.length, isLast };
  };
}
