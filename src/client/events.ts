import type {
  Event as AnyEvent,
  WebhookMessage as AnyMessage,
  RecordedEvent as AnyRecord,
  AudioMetadata,
  EventType,
  FileEventField,
  FileMetadata,
  SubjectKind,
} from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, type Filters, Resource } from "./connection.ts";
import { sleep } from "./retrying.ts";

const MIN_POLL_MILLISECONDS = 500;
const MAX_POLL_MILLISECONDS = 5000;

export type EventFilters = Filters<"GET /auth/v1/events">;

/** Picks from each member of a union, so that `status` says whether there is a `failure`. */
type PickOfEach<T, K extends keyof T> = T extends unknown ? Pick<T, K> : never;

/** The file's metadata at the time of an event, without URLs and tags, and of what a team sets only the reference. */
export type FileEventData = PickOfEach<FileMetadata, Exclude<FileEventField, "audio" | "uploadedBy"> | "id"> & {
  audio: Omit<AudioMetadata, "tags"> | null;
  uploadedBy: Omit<FileMetadata["uploadedBy"], "name">;
  /** The changed fields of `file.updated`. */
  fields?: string[];
  /** The upload token of `file.uploaded`, if there was one. */
  uploadTokenId?: string;
};

/** The IDs of a link and of its file. */
export interface LinkEventData {
  /** The `id`, as the API calls it. */
  _id: string;
  /** The id of the link. */
  id: string;
  /** The id of its file. */
  fileId: string;
}

/** The ID of any other record, the names of changed fields, and IDs of records that took part. */
export interface RecordEventData {
  /** The `id`, as the API calls it. */
  _id: string;
  /** The id of the record. */
  id: string;
  /** The changed fields. */
  fields?: string[];
  /** When the key of `apikey.expiring` expires. */
  expiresAt?: string;
  [name: string]: unknown;
}

type DataOf<T extends string> = T extends `file.${string}`
  ? FileEventData
  : T extends `link.${string}`
    ? LinkEventData
    : RecordEventData;

/** The kind of record that a type of event is about, which is the first part of its name. */
type KindOf<T extends string> = T extends `${infer K extends SubjectKind}.${string}` ? K : SubjectKind;

/** A record with the type, the kind of subject and the data of one type of event. */
type WithData<R extends { subject: unknown }, T extends string> = T extends unknown
  ? Omit<R, "type" | "data" | "subject"> & {
      type: T;
      subject: Omit<R["subject"], "kind"> & { kind: KindOf<T> };
      data: DataOf<T>;
    }
  : never;

/** An event of a team. `type` determines `data`. */
export type Event = WithData<AnyEvent, EventType>;
/** An event without the name of its actor, as in a webhook message. */
export type RecordedEvent = WithData<AnyRecord, EventType>;
/** The body of a webhook message. `type` determines `data`. */
export type WebhookMessage = WithData<AnyMessage, AnyMessage["type"]>;
export type FileEvent = Extract<Event, { data: FileEventData }>;
export type FileMessage = Extract<WebhookMessage, { data: FileEventData }>;

/** Whether an event, or a webhook message, is about a file. Its `data` is then the file's metadata. */
export function isFileEvent(message: WebhookMessage): message is FileMessage;
export function isFileEvent(event: RecordedEvent): event is Extract<RecordedEvent, { data: FileEventData }>;
export function isFileEvent(event: Event): event is FileEvent;
export function isFileEvent({ subject }: RecordedEvent | WebhookMessage): boolean {
  return subject.kind === "file";
}

/** The event log of a team. */
export class Events extends Resource {
  /**
   * Lists the team's events, newest first, or oldest first with `order: "asc"`.
   * @example const { items } = await stowage.events.list({ type: "file", limit: 20 });
   */
  list(filters?: EventFilters, options?: CallOptions): List<Event> {
    return this.connection.list("GET /auth/v1/events", { query: filters }, options) as List<Event>;
  }

  /** Returns an event. The operator names the team by `teamId`. */
  get(id: string, params?: { teamId?: string | undefined }, options?: CallOptions): Call<Event> {
    const input = { id, query: params };
    return this.connection.json("GET /auth/v1/events/{id}", input, options) as Call<Event>;
  }

  /** Yields each new event once, or each event after `after`, the ID of an event or an instant, until the signal aborts. */
  async *follow(
    filters?: Pick<EventFilters, "type" | "teamId"> & { after?: string | Date | undefined },
    options?: CallOptions,
  ): AsyncGenerator<Event, void, undefined> {
    const { after, ...others } = filters ?? {};
    const newest = async () => (await this.list({ teamId: others.teamId, limit: 1 }, options)).items[0];
    let last = (after instanceof Date ? after.toISOString() : after) ?? (await newest())?._id;
    for (let delay = MIN_POLL_MILLISECONDS; ; delay = Math.min(delay * 1.5, MAX_POLL_MILLISECONDS)) {
      // IDs have no hyphens.
      const start = last?.includes("-") ? { createdAfter: last } : { after: last };
      for await (const event of this.list({ ...others, order: "asc", ...start }, options)) {
        last = event._id;
        delay = MIN_POLL_MILLISECONDS;
        yield event;
      }
      await sleep(delay, options?.signal);
    }
  }
}
