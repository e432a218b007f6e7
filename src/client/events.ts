import type { AudioMetadata, Event, EventType, FileMetadata, WebhookMessage } from "./api.ts";
import type { Call, CallOptions, Connection, Filters, List } from "./connection.ts";
import { sleep } from "./retrying.ts";

const MIN_POLL_MILLISECONDS = 500;
const MAX_POLL_MILLISECONDS = 5000;

export type EventFilters = Filters<"GET /auth/v1/events">;

/** Events lack what a team sets on a file, except the reference. */
type Absent =
  | "uploadedBy"
  | "path"
  | "hasWaveform"
  | "audio"
  | "title"
  | "artist"
  | "peaks"
  | "name"
  | "folder"
  | "tags"
  | "metadata";

/** The file's metadata at the time of an event, without URLs and tags. */
export type FileEventData = Omit<FileMetadata, Absent> & {
  audio: Omit<AudioMetadata, "tags"> | null;
  uploadedBy: Omit<FileMetadata["uploadedBy"], "name">;
  /** The changed fields of `file.updated`. */
  fields?: string[];
};

type FileEventType = Extract<EventType, `file.${string}`>;

export interface FileEvent extends Event {
  type: FileEventType;
  data: FileEventData;
}

export interface FileMessage extends WebhookMessage {
  type: FileEventType;
  data: FileEventData;
}

/** Whether an event, or a webhook message, is about a file. Its `data` is then the file's metadata. */
export function isFileEvent(message: WebhookMessage): message is FileMessage;
export function isFileEvent(event: Event): event is FileEvent;
export function isFileEvent({ subject }: Event | WebhookMessage): boolean {
  return subject.kind === "file";
}

export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Lists the team's events, newest first, or oldest first with `order: "asc"`. */
  list(filters: EventFilters = {}, options?: CallOptions): List<Event> {
    return this.#connection.list("GET /auth/v1/events", { query: filters, ...options });
  }

  get(id: string, params?: { teamId?: string | undefined }, options?: CallOptions): Call<Event> {
    return this.#connection.data("GET /auth/v1/events/{id}", { id, query: { teamId: params?.teamId }, ...options });
  }

  /** Yields each new event once, or each event after `after`, until the signal aborts. */
  async *follow(
    { after, ...filters }: Pick<EventFilters, "after" | "type" | "teamId"> = {},
    options?: CallOptions,
  ): AsyncGenerator<Event, void, undefined> {
    const newest = async () => (await this.list({ teamId: filters.teamId, limit: 1 }, options).page()).items[0];
    let last = after ?? (await newest())?._id;
    for (let delay = MIN_POLL_MILLISECONDS; ; delay = Math.min(delay * 1.5, MAX_POLL_MILLISECONDS)) {
      for await (const event of this.list({ ...filters, order: "asc", after: last }, options)) {
        last = event._id;
        delay = MIN_POLL_MILLISECONDS;
        yield event;
      }
      await sleep(delay, options?.signal);
    }
  }
}
