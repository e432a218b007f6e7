import { once, retrying } from "../platform/retry.ts";
import type { System } from "../platform/system.ts";
import type { Attempt } from "./attempts.ts";
import type { WebhookKey } from "./webhooks.schema.ts";

/* How the Worker reaches the Durable Objects of webhooks. Each webhook has one, which sends its deliveries (outbox.ts). */

export type DeliveryStatus = "pending" | "succeeded" | "failed";
/** `waiting`: pending, and not attempted since it was last requested. `failing`: the latest attempt failed. */
export type DeliveryFilter = DeliveryStatus | "failing" | "waiting";

/** A delivery: one event that one webhook receives. Times are milliseconds since the epoch. */
export interface StoredDelivery {
  /** The number of the event. */
  seq: number;
  type: string;
  /** The event as its team sees it, JSON. */
  event: string;
  status: DeliveryStatus;
  /** The latest ten attempts. */
  attempts: Attempt[];
  nextAttemptAt: number | null;
}

/** The attempts of one hour. */
export type HourCounts = [startsAt: number, succeeded: number, failed: number];

/** The latest results of the endpoint. */
export interface WebhookHealth {
  /** Consecutive failed attempts, and when the first of them was. */
  failures: number;
  failingSince: number | null;
  /** The last day by hour, oldest first. Hours without an attempt are left out. */
  hours: HourCounts[];
  /** Its response body is kept if it failed. Null before the first attempt. */
  lastResult: Attempt | null;
}

export interface ListRequest {
  before: number;
  limit: number;
  filter: DeliveryFilter | undefined;
}

export interface ReplayRequest {
  after: number;
  failedOnly: boolean;
}

/** The calls of an object. It doesn't authorize: the Worker has found the webhook in the caller's team. */
export interface Outbox {
  /**
   * Has it read the new events soon, and if the webhook or its team `isChanged`, this before it sends another message.
   * @returns the number of the last event that it has read
   */
  wake(isChanged: boolean): Promise<number>;
  health(): Promise<WebhookHealth>;
  /** Newest first, of events with a number below `before`. */
  list(request: ListRequest): Promise<StoredDelivery[]>;
  /**
   * Makes one more attempt now, in addition to the delivery's schedule, and waits for its result. A call while it is requested waits for
   * the same attempt, and one that is repeated with its `requestId` returns it.
   * @returns null if there is no such delivery; `attempt` is null if there was none in time
   */
  redeliver(seq: number, requestId: string): Promise<{ delivery: StoredDelivery; attempt: Attempt | null } | null>;
  /**
   * Makes deliveries of the events after `after` due. With `failedOnly`, those whose latest attempt failed.
   * @returns how many, and the number of the event to continue after if there may be more
   */
  replay(request: ReplayRequest): Promise<{ deliveries: number; next: number | null }>;
}

/** Returns the object of a webhook. */
export type Outboxes = (key: WebhookKey) => Outbox;

/** An object's name is that of the team and the webhook, so that no id reaches an object of another team. */
const nameOf = ({ teamId, id }: WebhookKey): string => `${teamId}/${id}`;

export function keyOf(name = ""): WebhookKey {
  const [teamId, id] = name.split("/");
  if (!teamId || !id) throw new Error("The object was not reached by its name.");
  return { teamId, id };
}

/** Repeats what does the same if it is repeated. */
export function createOutboxes(namespace: DurableObjectNamespace, system: System): Outboxes {
  return (key) => {
    const stub = namespace.getByName(nameOf(key)) as unknown as Outbox;
    return {
      wake: (isChanged) => retrying(system, () => stub.wake(isChanged)),
      health: () => retrying(system, () => stub.health()),
      list: (request) => retrying(system, () => stub.list(request)),
      redeliver: (seq, requestId) => retrying(system, () => stub.redeliver(seq, requestId)),
      replay: (request) => once(() => stub.replay(request)),
    };
  };
}
