import { ObjectTables } from "../platform/object-tables.ts";
import { type Attempt, KEPT_ATTEMPTS } from "./attempts.ts";
import type { DeliveryFilter, DeliveryStatus, StoredDelivery, WebhookHealth } from "./outboxes.ts";

/*
 * The storage of a webhook's object, in its own SQLite: the deliveries of the last weeks, each with its event, and one row of
 * state. Every method is synchronous, so nothing else runs in between. `transaction` makes several writes one.
 */

/** The latest deliveries that are kept. Pending ones are always kept. */
export const MAX_KEPT_DELIVERIES = 10_000;

export interface OutboxState extends WebhookHealth {
  /** The number of the last event that the object has read. */
  cursor: number;
  /** The webhook's `epoch` in which the endpoint has failed. A later one starts without failures. */
  epoch: number;
  /** The end of its pause: nothing is sent before. Null if it is not paused. */
  resumeAt: number | null;
  purgedAt: number;
}

const NEW_STATE: OutboxState = {
  cursor: 0,
  epoch: 0,
  failures: 0,
  failingSince: null,
  resumeAt: null,
  purgedAt: 0,
  hours: [],
  lastResult: null,
};

export interface Delivery extends StoredDelivery {
  /** Attempts of its schedule, which a replay starts again. */
  attemptCount: number;
  /** A resend was requested and has no attempt yet. */
  isRequested: boolean;
  /** The latest request of a resend. Null if there was none. */
  requestId: string | null;
}

type Row = {
  seq: number;
  type: string;
  event: string;
  status: DeliveryStatus;
  attempts: string;
  attempt_count: number;
  due_at: number | null;
  is_requested: number;
  request_id: string | null;
};

const toDelivery = (row: Row): Delivery => ({
  seq: row.seq,
  type: row.type,
  event: row.event,
  status: row.status,
  attempts: JSON.parse(row.attempts),
  attemptCount: row.attempt_count,
  nextAttemptAt: row.due_at,
  isRequested: row.is_requested === 1,
  requestId: row.request_id,
});

const TABLES = [
  `create table if not exists deliveries (seq integer primary key, type text not null, event text not null,
    status text not null, attempts text not null default '[]', attempt_count integer not null default 0, due_at integer,
    is_failing integer not null default 0, created_at integer not null, is_requested integer not null default 0,
    request_id text)`,
  "create index if not exists deliveries_due on deliveries (due_at) where due_at is not null",
  "create index if not exists deliveries_failing on deliveries (seq) where is_failing = 1",
  "create index if not exists deliveries_requested on deliveries (seq) where is_requested = 1",
  "create table if not exists state (id integer primary key check (id = 1), json text not null)",
];

const FILTERS: Record<DeliveryFilter, string> = {
  pending: "and status = 'pending'",
  succeeded: "and status = 'succeeded'",
  failed: "and status = 'failed'",
  failing: "and is_failing = 1",
  waiting: "and status = 'pending' and is_failing = 0",
};

/** Adds an attempt to the latest ones. Only the last one keeps its response body. */
const WITH_ATTEMPT = `json_insert(json_replace(
  iif(json_array_length(attempts) < ${KEPT_ATTEMPTS}, attempts, json_remove(attempts, '$[0]')), '$[#-1].responseBody', ''), '$[#]', json(?))`;

/** The outcome of an attempt: the status of its delivery, the attempts of its schedule, and when the next one is due. */
export interface Outcome {
  status: DeliveryStatus;
  attemptCount: number;
  dueAt: number | null;
}

export class OutboxStore {
  readonly #tables: ObjectTables;

  constructor(storage: DurableObjectStorage) {
    this.#tables = new ObjectTables(storage, TABLES);
  }

  get state(): OutboxState {
    const [row] = this.#tables.read<{ json: string }>("select json from state");
    return row ? JSON.parse(row.json) : NEW_STATE;
  }

  update(changes: Partial<OutboxState>): void {
    this.#tables.write("insert or replace into state values (1, ?)", JSON.stringify({ ...this.state, ...changes }));
  }

  transaction(work: () => void): void {
    this.#tables.transaction(work);
  }

  /** Adds a delivery that is due now. One of the same event stays as it is. */
  add({ seq, type, event }: Pick<StoredDelivery, "seq" | "type" | "event">, now: number): void {
    this.#tables.write(
      `insert into deliveries (seq, type, event, status, due_at, created_at) values (?, ?, ?, 'pending', ?4, ?4)
       on conflict do nothing`,
      seq,
      type,
      event,
      now,
    );
  }

  get(seq: number): Delivery | null {
    const [row] = this.#tables.read<Row>("select * from deliveries where seq = ?", seq);
    return row ? toDelivery(row) : null;
  }

  /** Newest first. */
  list(before: number, limit: number, filter: DeliveryFilter | undefined): Delivery[] {
    const condition = filter ? FILTERS[filter] : "";
    const query = `select * from deliveries where seq < ? ${condition} order by seq desc limit ?`;
    return this.#tables.read<Row>(query, before, limit).map(toDelivery);
  }

  /** The delivery that has been due longest, except these. */
  nextDue(now: number, inFlight: Iterable<number>): Delivery | null {
    const [row] = this.#tables.read<Row>(
      `select * from deliveries where due_at <= ? and seq not in (select value from json_each(?)) order by due_at, seq limit 1`,
      now,
      JSON.stringify([...inFlight]),
    );
    return row ? toDelivery(row) : null;
  }

  /** A delivery whose resend was requested, except these. */
  nextRequested(inFlight: Iterable<number>): Delivery | null {
    const [row] = this.#tables.read<Row>(
      "select * from deliveries where is_requested = 1 and seq not in (select value from json_each(?)) order by seq limit 1",
      JSON.stringify([...inFlight]),
    );
    return row ? toDelivery(row) : null;
  }

  /** When the next attempt is due. Null if no delivery is pending. */
  dueAt(): number | null {
    const query = "select due_at from deliveries where due_at is not null order by due_at limit 1";
    return this.#tables.read<{ due_at: number }>(query)[0]?.due_at ?? null;
  }

  /** Without those that wait for a retry. */
  countDue(now: number): number {
    const query = "select count(*) as count from deliveries where due_at <= ?";
    return this.#tables.read<{ count: number }>(query, now)[0]?.count ?? 0;
  }

  /** Adds an attempt, and sets when the next one is due. */
  addAttempt(seq: number, attempt: Attempt, { status, attemptCount, dueAt }: Outcome): void {
    const kept = { ...attempt, responseBody: status === "succeeded" ? "" : attempt.responseBody };
    this.#tables.write(
      `update deliveries set attempts = ${WITH_ATTEMPT}, attempt_count = ?, status = ?, due_at = ?, is_failing = ?, is_requested = 0 where seq = ?`,
      JSON.stringify(kept),
      attemptCount,
      status,
      dueAt,
      Number(status !== "succeeded"),
      seq,
    );
  }

  /** Ends every pending delivery, and every requested resend, unsent. */
  endPending(attempt: Attempt): void {
    this.#tables.write(
      `update deliveries set attempts = ${WITH_ATTEMPT}, status = 'failed', due_at = null, is_failing = 1, is_requested = 0
       where due_at is not null or is_requested = 1`,
      JSON.stringify(attempt),
    );
  }

  /** Makes one delivery due, with a new schedule. */
  makeDue(seq: number, now: number): void {
    this.#tables.write(
      "update deliveries set status = 'pending', attempt_count = 0, due_at = ? where seq = ?",
      now,
      seq,
    );
  }

  /** Marks one delivery for a resend, in addition to its schedule. */
  request(seq: number, requestId: string): void {
    this.#tables.write("update deliveries set is_requested = 1, request_id = ? where seq = ?", requestId, seq);
  }

  /** The deliveries after this event whose latest attempt failed, oldest first. */
  failing(after: number, limit: number): number[] {
    const query = "select seq from deliveries where seq > ? and is_failing = 1 order by seq limit ?";
    return this.#tables.read<{ seq: number }>(query, after, limit).map(({ seq }) => seq);
  }

  /** Deletes ended deliveries that are older, and the oldest above `MAX_KEPT_DELIVERIES`. */
  purge(before: number): void {
    const oldest = "(select seq from deliveries order by seq desc limit 1 offset ?)";
    this.#tables.write(
      `delete from deliveries where due_at is null and (created_at < ? or seq <= ${oldest})`,
      before,
      MAX_KEPT_DELIVERIES,
    );
  }

  /** Deletes everything, the tables and the alarm included. */
  async empty(): Promise<void> {
    await this.#tables.empty();
  }
}
