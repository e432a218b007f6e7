import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";
import { sleep } from "./retrying.ts";
import type { verifyMessage } from "./signatures.ts";

const MIN_POLL_MILLISECONDS = 500;
const MAX_POLL_MILLISECONDS = 5000;

export type EventFilters = Omit<NonNullable<Api["GET /auth/v1/events"]["query"]>, "cursor">;
type Event = Schemas["Event"];
type FileMetadata = Schemas["FileMetadata"];

/** Events lack what a team sets on a file, except the reference. */
type Absent = "path" | "hasWaveform" | "audio" | "title" | "artist" | "name" | "folder" | "tags" | "metadata";

/** Its data is the file's metadata at the time of the event, without URLs and tags. */
export interface FileEvent extends Event {
  type: Extract<Event["type"], `file.${string}`>;
  data: Omit<FileMetadata, Absent> & {
    audio: Omit<NonNullable<FileMetadata["audio"]>, "tags"> | null;
    /** The changed fields of `file.updated`. */
    fields?: string[];
  };
}

export const isFileEvent = (event: Event): event is FileEvent => event.subject.kind === "file";

export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Lists the team's events, newest first, or oldest first with `order: "asc"`. */
  list(filters: EventFilters = {}, { signal }: CallOptions = {}): List<Event> {
    return this.#connection.list("GET /auth/v1/events", { query: filters, signal });
  }

  async get(id: string, { teamId, signal }: CallOptions & { teamId?: string } = {}): Promise<Event> {
    return this.#connection.data("GET /auth/v1/events/{id}", { id, query: { teamId }, signal });
  }

  /** Yields each new event once, or each event after `after`, until the signal aborts. */
  async *follow(
    { after, ...filters }: Pick<EventFilters, "after" | "type" | "teamId"> = {},
    { signal }: CallOptions = {},
  ): AsyncGenerator<Event, void, undefined> {
    const newest = async () => (await this.list({ teamId: filters.teamId, limit: 1 }, { signal }).page()).items[0];
    let last = after ?? (await newest())?._id;
    for (let delay = MIN_POLL_MILLISECONDS; ; delay = Math.min(delay * 1.5, MAX_POLL_MILLISECONDS)) {
      for await (const event of this.list({ ...filters, order: "asc", after: last }, { signal })) {
        last = event._id;
        delay = MIN_POLL_MILLISECONDS;
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

  /** Creates a webhook. Only this response and that of `rotateSecret` contain the signing secret. */
  async create(webhook: Api["POST /auth/v1/webhooks"]["body"], { signal }: CallOptions = {}): Promise<NewWebhook> {
    return this.#connection.data("POST /auth/v1/webhooks", { body: webhook, signal });
  }

  /** Lists the team's webhooks, oldest first. */
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

  /** Rotates the signing secret. The old secret stays valid for 24 hours unless `revokeOld` is set. */
  async rotateSecret(
    id: string,
    { revokeOld = false, signal }: CallOptions & { revokeOld?: boolean } = {},
  ): Promise<NewWebhook> {
    const body = { revokeOld };
    return this.#connection.data("POST /auth/v1/webhooks/{id}/secret", { id, body, signal });
  }

  /** Sends a `webhook.test` event now. @returns the result of the attempt */
  async test(id: string, { signal }: CallOptions = {}): Promise<Schemas["Attempt"]> {
    return this.#connection.data("POST /auth/v1/webhooks/{id}/test", { id, signal });
  }

  /** Lists the webhook's deliveries, newest first. */
  deliveries(id: string, { limit, signal }: CallOptions & { limit?: number } = {}): List<Delivery> {
    return this.#connection.list("GET /auth/v1/webhooks/{id}/deliveries", { id, query: { limit }, signal });
  }

  /** Redelivers an event with the same message id. */
  async redeliver(deliveryId: string, { signal }: CallOptions = {}): Promise<Delivery> {
    const route = "POST /auth/v1/deliveries/{id}/redeliver";
    return this.#connection.data(route, { id: deliveryId, signal });
  }

  /** Resends the events after `after`. @returns the number of deliveries, and `next` to continue if there are more */
  async replay(
    id: string,
    { signal, ...body }: CallOptions & Api["POST /auth/v1/webhooks/{id}/replay"]["body"],
  ): Promise<{ deliveries: number; next: string | null }> {
    return this.#connection.data("POST /auth/v1/webhooks/{id}/replay", { id, body, signal });
  }

  /** Verifies the signature of a message that a webhook endpoint received. */
  readonly verify: typeof verifyMessage = async (...message) =>
    // Loaded on demand: most pages never verify messages.
    (await import("./signatures.ts")).verifyMessage(...message);
}
