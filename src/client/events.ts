import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";
import { sleep } from "./retrying.ts";
import { verifyMessage } from "./signatures.ts";

const FIRST_LOOK_MILLISECONDS = 500;
const MAX_LOOK_MILLISECONDS = 5000;

export type EventFilters = Omit<NonNullable<Api["GET /auth/v1/events"]["query"]>, "cursor">;
type Event = Schemas["Event"];

export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** What happened in the team, newest first; oldest first with `order: "asc"`. */
  list(filters: EventFilters = {}, { signal }: CallOptions = {}): List<Event> {
    return this.#connection.list("GET /auth/v1/events", { query: filters, signal });
  }

  async get(id: string, { teamId, signal }: CallOptions & { teamId?: string } = {}): Promise<Event> {
    return (await this.#connection.call("GET /auth/v1/events/{id}", { id, query: { teamId }, signal })).data;
  }

  /** What happens from now on, or since the event `after`, each event once, until the signal aborts. */
  async *follow(
    { after, ...filters }: Pick<EventFilters, "after" | "type" | "teamId"> = {},
    { signal }: CallOptions = {},
  ): AsyncGenerator<Event, void, undefined> {
    let last = after ?? (await this.list({ teamId: filters.teamId, limit: 1 }, { signal }).next()).value?._id;
    for (let delay = FIRST_LOOK_MILLISECONDS; ; delay = Math.min(delay * 1.5, MAX_LOOK_MILLISECONDS)) {
      for await (const event of this.list({ ...filters, order: "asc", after: last }, { signal })) {
        last = event._id;
        delay = FIRST_LOOK_MILLISECONDS;
        yield event;
      }
      await sleep(delay, signal);
    }
  }
}

type NewWebhook = Schemas["NewWebhook"];
type Webhook = Schemas["Webhook"];
type Delivery = Schemas["Delivery"];

export class Webhooks {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The only answer with the secret, besides `rotateSecret`. */
  async create(webhook: Api["POST /auth/v1/webhooks"]["body"], { signal }: CallOptions = {}): Promise<NewWebhook> {
    return (await this.#connection.call("POST /auth/v1/webhooks", { body: webhook, signal })).data;
  }

  /** All of the team's, oldest first. */
  async list({ signal }: CallOptions = {}): Promise<Webhook[]> {
    return (await this.#connection.call("GET /auth/v1/webhooks", { signal })).data;
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Webhook> {
    return (await this.#connection.call("GET /auth/v1/webhooks/{id}", { id, signal })).data;
  }

  async update(
    id: string,
    changes: Api["PATCH /auth/v1/webhooks/{id}"]["body"],
    { signal }: CallOptions = {},
  ): Promise<Webhook> {
    return (await this.#connection.call("PATCH /auth/v1/webhooks/{id}", { id, body: changes, signal })).data;
  }

  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /auth/v1/webhooks/{id}", { id, signal });
  }

  /** A new secret; the old one signs too for 24 hours, unless it is revoked. */
  async rotateSecret(
    id: string,
    { revokeOld = false, signal }: CallOptions & { revokeOld?: boolean } = {},
  ): Promise<NewWebhook> {
    const body = { revokeOld };
    return (await this.#connection.call("POST /auth/v1/webhooks/{id}/secret", { id, body, signal })).data;
  }

  /** Sends a `webhook.test` event now. @returns what came back */
  async test(id: string, { signal }: CallOptions = {}): Promise<Schemas["Attempt"]> {
    return (await this.#connection.call("POST /auth/v1/webhooks/{id}/test", { id, signal })).data;
  }

  /** What was sent to the webhook, newest first. */
  deliveries(id: string, { limit, signal }: CallOptions & { limit?: number } = {}): List<Delivery> {
    return this.#connection.list("GET /auth/v1/webhooks/{id}/deliveries", { id, query: { limit }, signal });
  }

  /** One more try of a delivery, under the same message id. */
  async redeliver(deliveryId: string, { signal }: CallOptions = {}): Promise<Delivery> {
    const route = "POST /auth/v1/deliveries/{id}/redeliver";
    return (await this.#connection.call(route, { id: deliveryId, signal })).data;
  }

  /** Sends again what happened since the event `after`. @returns how many deliveries; `next` to go on after, if any */
  async replay(
    id: string,
    { signal, ...body }: CallOptions & Api["POST /auth/v1/webhooks/{id}/replay"]["body"],
  ): Promise<{ deliveries: number; next: string | null }> {
    return (await this.#connection.call("POST /auth/v1/webhooks/{id}/replay", { id, body, signal })).data;
  }

  /** Proves that a message is the service's; what receivers call. */
  readonly verify = verifyMessage;
}
