import { createHmac, randomBytes } from "node:crypto";
import type { Event, EventType } from "../index.ts";
import { asSent } from "../internal.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";

/** The service waits as long for an endpoint. */
const TIMEOUT_MILLISECONDS = 15_000;
const PREFIX = "whsec_";

/** Signs as the service does: Standard Webhooks 1.0. */
function headersOf(secret: string, id: string, body: string): Record<string, string> {
  const timestamp = Math.floor(Date.now() / 1000);
  const key = Buffer.from(secret.slice(PREFIX.length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  return {
    "Content-Type": "application/json",
    "User-Agent": "Stowage-Webhooks/1.0",
    "webhook-id": id,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": `v1,${signature}`,
  };
}

/** Posts an event to an endpoint. @returns the HTTP status, or why there is none */
async function forward(event: Event, url: string, secret: string, { signal }: Context): Promise<number | string> {
  const { _id: id, createdAt: timestamp, type, teamId, subject, data } = event;
  // The event log also names the actor.
  const { kind, keyId, userId, requestId } = event.actor;
  const actor = { kind, keyId, userId, requestId };
  const body = JSON.stringify({ id, type, timestamp, teamId, actor, subject, data: asSent(data) });
  const timeout = AbortSignal.timeout(TIMEOUT_MILLISECONDS);
  try {
    const response = await fetch(url, {
      method: "POST",
      headers: headersOf(secret, id, body),
      body,
      redirect: "manual",
      signal: AbortSignal.any([signal, timeout]),
    });
    await response.body?.cancel();
    return response.status;
  } catch (error) {
    signal.throwIfAborted();
    const { cause, message } = error as Error & { cause?: NodeJS.ErrnoException };
    return timeout.aborted
      ? `no response for ${TIMEOUT_MILLISECONDS / 1000} s`
      : (cause?.code ?? cause?.message ?? message);
  }
}

export interface ListenOptions {
  forwardTo: string;
  types?: EventType[];
  after?: string;
  limit?: number;
}

/** Forwards each event to an endpoint as a webhook would, once and in order. An endpoint that fails misses the event. */
export async function listen(context: Context, { forwardTo, types, after, limit }: ListenOptions): Promise<void> {
  const { STOWAGE_WEBHOOK_SECRET: given } = context.io.env;
  if (given && !/^whsec_[A-Za-z0-9+/]+=*$/.test(given))
    throw new Failure("usage", "STOWAGE_WEBHOOK_SECRET must be `whsec_` and base64.");
  const secret = given || PREFIX + randomBytes(32).toString("base64");
  // Without it, the recipient could not verify the messages.
  context.complain(`Forwarding events to ${forwardTo}. Signing secret: ${given ? "STOWAGE_WEBHOOK_SECRET" : secret}`);
  let left = limit ?? Number.POSITIVE_INFINITY;
  const { events } = context.stowage;
  // The event log has no filter for several types.
  const type = types?.length === 1 ? types[0] : undefined;
  for await (const event of left > 0 ? events.follow({ after, type }, context.call) : []) {
    const { _id: id, type, subject } = event;
    if (types && !types.includes(type)) continue;
    const result = await forward(event, forwardTo, secret, context);
    const row = { id, type, subjectId: subject.id, result };
    context.results.print(row, [id, type, subject.id, String(result)], [24, 17, 24]);
    left -= 1;
    if (left === 0) return;
  }
}
