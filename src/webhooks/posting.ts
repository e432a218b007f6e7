import type { TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import type { Event } from "../events/events.ts";
import { DAY, newId, SECOND } from "../platform/system.ts";
import { type Attempt, unsent } from "./attempts.ts";
import { currentSecrets, messageHeaders } from "./signing.ts";
import type { WebhookRow } from "./webhook-rows.ts";
import { validateWebhookUrl } from "./webhook-url.ts";
import { findWebhook } from "./webhooks.ts";

/** A longer `Retry-After` is clamped to this, the longest wait between two attempts. */
const MAX_RETRY_AFTER_MILLISECONDS = DAY;

/** Parses seconds or a date (RFC 9110, section 10.2.3). @returns 0 if the value is neither */
function retryAfterMilliseconds(value: string | null, now: number): number {
  if (value === null) return 0;
  const wait = /^\d+$/.test(value) ? Number(value) * SECOND : Date.parse(value) - now;
  return Math.min(Math.max(wait || 0, 0), MAX_RETRY_AFTER_MILLISECONDS);
}

export interface PostResult {
  attempt: Attempt;
  isSuccess: boolean;
  /** How long the endpoint asked us to wait. */
  retryAfterMilliseconds: number;
}

/** Posts an event to a webhook endpoint. Validates the URL again, because the rules may have changed since it was saved. */
export async function postEvent(
  deps: Deps,
  webhook: WebhookRow,
  { _id: id, type, createdAt, teamId, actor, subject, data }: Omit<Event, "type"> & { type: string },
): Promise<PostResult> {
  const at = deps.system.now();
  const notSent = (error: Attempt["error"]): PostResult => ({
    attempt: unsent(at, error),
    isSuccess: false,
    retryAfterMilliseconds: 0,
  });
  const validated = validateWebhookUrl(webhook.url, deps.settings.isInsecureWebhookAllowed);
  if ("problem" in validated) return notSent("address_refused");
  const body = JSON.stringify({ id, type, timestamp: createdAt, teamId, actor, subject, data });
  const secrets = currentSecrets(deps, webhook, at);
  if (secrets === null) return notSent("secret_unreadable");
  const headers = messageHeaders(secrets, id, at, body);
  const reply = await deps.sender.post(validated.url, headers, body);
  const { httpStatus, error, retryAfter, durationMilliseconds } = reply;
  const isBusy = httpStatus === 429 || httpStatus === 503;
  return {
    attempt: { at, httpStatus, error, durationMilliseconds, responseBody: reply.body },
    isSuccess: error === null && httpStatus !== null && httpStatus >= 200 && httpStatus < 300,
    retryAfterMilliseconds: isBusy ? retryAfterMilliseconds(retryAfter, deps.system.now()) : 0,
  };
}

/** Sends a `webhook.test` event now. The event is not in the event log. @throws `not_found` */
export async function sendTestEvent(deps: Deps, actor: TeamActor, id: string): Promise<Attempt> {
  const webhook = await findWebhook(deps, actor, id);
  const { teamId, keyId, userId, kind } = actor;
  const event = {
    // Not the id of an event, because endpoints ignore ids that they have already received.
    _id: newId(deps.system, deps.db.number),
    teamId,
    type: "webhook.test",
    createdAt: new Date(deps.system.now()).toISOString(),
    actor: { kind, keyId, userId, requestId: deps.requestId },
    subject: { kind: "webhook" as const, id, version: webhook.version },
    data: { _id: id },
  };
  return (await postEvent(deps, webhook, event)).attempt;
}
