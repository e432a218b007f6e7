import { and, eq } from "drizzle-orm";
import type { EventRow } from "../events/events.ts";
import type { Db } from "../platform/db.ts";
import { WEBHOOK_EVENTS } from "./webhook-event-types.ts";
import type { WebhookKey } from "./webhooks.schema.ts";
import { webhooks } from "./webhooks.schema.ts";

export type WebhookRow = typeof webhooks.$inferSelect;

export const isWebhook = ({ teamId, id }: WebhookKey) => and(eq(webhooks.teamId, teamId), eq(webhooks.id, id));
export const webhookByKey = (db: Db, key: WebhookKey) => db.select().from(webhooks).where(isWebhook(key));

/**
 * Whether a webhook receives an event. It is not notified of its creation, because its endpoint does not know the secret yet,
 * nor of its deletion.
 */
export function isReceived(
  { id, types }: WebhookRow,
  { type, subjectId }: Pick<EventRow, "type" | "subjectId">,
): boolean {
  const isOwnEnd = subjectId === id && (type === WEBHOOK_EVENTS.created.name || type === WEBHOOK_EVENTS.deleted.name);
  return !isOwnEnd && (types === null || JSON.parse(types).includes(type));
}
