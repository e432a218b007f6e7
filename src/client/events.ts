import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";
import { sleep } from "./retrying.ts";
import type { verifyMessage } from "./signatures.ts";

const FIRST_LOOK_MILLISECONDS = 500;
const MAX_LOOK_MILLISECONDS = 5000;

export type EventFilters = Omit<NonNullable<Api["GET /auth/v1/events"]["query"]>, "cursor">;
type Event = Schemas["Event"];
type FileMetadata = Schemas["FileMetadata"];

/** It tells the file's metadata as it was then, but for what would be long or is no fact of the file. */
export interface FileEvent extends Event {
  type: Extract<Event["type"], `file.${string}`>;
  data: Omit<FileMetadata, "path" | "hasWaveform" | "audio"> & {
    audio: Omit<NonNullable<FileMetadata["audio"]>, "tags"> | null;
  };
}

export const isFileEvent = (event: Event): event is FileEvent => event.subject.kind === "file";

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
    return this.#connection.data("GET /auth/v1/events/{id}", { id, query: { teamId }, signal });
  }

  /** What happens from now on, or since the event `after`, each event once, until the signal aborts. */
  async *follow(
    { after, ...filters }: Pick<EventFilters, "after" | "type" | "teamId"> = {},
    { signal }: CallOptions = {},
  ): AsyncGenerator<Event, void, undefined> {
    const newest = async () => (await this.list({ teamId: filters.teamId, limit: 1 }, { signal }).page()).items[0];
    let last = after ?? (await newest())?._id;
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
    return this.#connection.data("POST /auth/v1/webhooks", { body: webhook, signal });
  }

  /** All of the team's, oldest first. */
  async list({ signal }: CallOptions = {}): Promise<Webhook[]> {
    return this.#connection.data("GET /auth/v1/webhooks", { signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Webhook> {
    return this.#connection.data("GET /auth/v1/webhooks/{id}", { id, signal });
  }

  async update(
    id: string,
    changes: Api["PATCH /auth/v1/webhooks/{id}"]["body"],
    { signal }: CallOptions = {},
  ): Promise<Webhook> {
    return this.#connection.data("PATCH /auth/v1/webhooks/{id}", { id, body: changes, signal });
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
    return this.#connection.data("POST /auth/v1/webhooks/{id}/secret", { id, body, signal });
  }

  /** Sends a `webhook.test` event now. @returns what came back */
  async test(id: string, { signal }: CallOptions = {}): Promise<Schemas["Attempt"]> {
    return this.#connection.data("POST /auth/v1/webhooks/{id}/test", { id, signal });
  }

  /** What was sent to the webhook, newest first. */
  deliveries(id: string, { limit, signal }: CallOptions & { limit?: number } = {}): List<Delivery> {
    return this.#connection.list("GET /auth/v1/webhooks/{id}/deliveries", { id, query: { limit }, signal });
  }

  /** One more try of a delivery, under the same message id. */
  async redeliver(deliveryId: string, { signal }: CallOptions = {}): Promise<Delivery> {
    const route = "POST /auth/v1/deliveries/{id}/redeliver";
    return this.#connection.data(route, { id: deliveryId, signal });
  }

  /** Sends again what happened since the event `after`. @returns how many deliveries; `next` to go on after, if any */
  async replay(
    id: string,
    { signal, ...body }: CallOptions & Api["POST /auth/v1/webhooks/{id}/replay"]["body"],
  ): Promise<{ deliveries: number; next: string | null }> {
    return this.#connection.data("POST /auth/v1/webhooks/{id}/replay", { id, body, signal });
  }

  /** Proves that a message is the service's; what receivers call. */
  readonly verify: typeof verifyMessage = async (...message) =>
    // Not before it is needed: browsers send messages to nobody, and need it never.
    (await import("./signatures.ts")).verifyMessage(...message);
}
