import type { Deps } from "../../deps.ts";
import { DecryptionError } from "../../platform/secrets.ts";
import { newId } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { judgeAddress, surroundingsOf } from "./addresses.ts";
import { type Attempt, unsent, type WebhookRow } from "./deliveries.ts";
import type { Event } from "./events.ts";
import { messageHeaders, secretsOf } from "./signing.ts";
import { findWebhook } from "./webhooks.ts";

const SECOND = 1000;
/** What `Retry-After` may ask for. */
const MAX_RETRY_AFTER_MILLISECONDS = 24 * 60 * 60 * SECOND;

/** Seconds or a date (RFC 9110, section 10.2.3); 0 where it is neither. */
function retryAfterMilliseconds(value: string | null, now: number): number {
  if (value === null) return 0;
  const wanted = /^\d+$/.test(value) ? Number(value) * SECOND : Date.parse(value) - now;
  return Math.min(Math.max(wanted || 0, 0), MAX_RETRY_AFTER_MILLISECONDS);
}

/** What came of a try. */
export interface Try {
  attempt: Attempt;
  isSuccess: boolean;
  /** How long the receiver wants to be left alone. */
  waitMilliseconds: number;
}

/** Sends an event to a webhook and says what came of it. The address is judged again: the rules may have changed. */
export async function post(
  deps: Deps,
  webhook: WebhookRow,
  id: string,
  event: Omit<Event, "type"> & { type: string },
): Promise<Try> {
  const at = deps.system.now();
  const refused = (error: Attempt["error"]): Try => ({
    attempt: unsent(at, error),
    isSuccess: false,
    waitMilliseconds: 0,
  });
  const judged = judgeAddress(webhook.url, surroundingsOf(deps, webhook.ownHost));
  if ("refusal" in judged) return refused("address_refused");
  const body = JSON.stringify({ id, type: event.type, timestamp: event.createdAt, data: event });
  let headers: Record<string, string>;
  try {
    headers = messageHeaders(secretsOf(deps, webhook, at), id, at, body);
  } catch (cause) {
    if (!(cause instanceof DecryptionError)) throw cause;
    deps.log("error", "webhook's secret can't be decrypted", { webhookId: webhook.id, teamId: webhook.teamId, cause });
    return refused("secret_unreadable");
  }
  const {
    httpStatus,
    error,
    retryAfter,
    durationMilliseconds,
    body: responseBody,
  } = await deps.sender.post(judged.url, headers, body);
  const isSuccess = error === null && httpStatus !== null && httpStatus >= 200 && httpStatus < 300;
  const isBusy = httpStatus === 429 || httpStatus === 503;
  return {
    attempt: { at, httpStatus, error, durationMilliseconds, responseBody },
    isSuccess,
    waitMilliseconds: isBusy ? retryAfterMilliseconds(retryAfter, deps.system.now()) : 0,
  };
}

/** Sends a `webhook.test` event, which is in no trail, at once. @returns what came back @throws `not_found` */
export async function sendTestEvent(deps: Deps, actor: TeamActor, id: string): Promise<Attempt> {
  const webhook = await findWebhook(deps, actor, id);
  const now = deps.system.now();
  const { teamId, keyId, kind } = actor;
  // Its first digits are not those of an event's id: receivers drop what they have seen.
  const testId = newId(deps.system);
  const event = {
    _id: testId,
    teamId,
    type: "webhook.test",
    createdAt: new Date(now).toISOString(),
    actor: { kind, keyId, userId: null, requestId: null },
    subject: { kind: "webhook", id, version: webhook.version },
    data: { _id: id },
  };
  return (await post(deps, webhook, testId, event)).attempt;
}
