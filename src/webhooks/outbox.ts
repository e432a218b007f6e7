import { and, asc, eq, getTableColumns, gt, isNull, ne, type SQL, sql } from "drizzle-orm";
import { inDatabaseOf } from "../access/databases.ts";
import { consoleUrl, type Notice, notifyTeams } from "../accounts/mails.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { events } from "../events/events.schema.ts";
import { ABOVE_ALL, type EventRow, recorded, renderEvent, SYSTEM, writeWithEvent } from "../events/events.ts";
import { followers } from "../events/followers.schema.ts";
import { isFollower } from "../events/followers.ts";
import { read } from "../platform/db.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../platform/system.ts";
import { withTimeout } from "../timeout.ts";
import { unsent } from "./attempts.ts";
import { type Delivery, OutboxStore } from "./outbox-store.ts";
import {
  keyOf,
  type ListRequest,
  type Outbox,
  type ReplayRequest,
  type StoredDelivery,
  type WebhookHealth,
} from "./outboxes.ts";
import { postEvent } from "./posting.ts";
import { disabledReasonOf, MAX_FAILURES, outcomeOf, stateAfter } from "./retries.ts";
import { WEBHOOK_EVENTS } from "./webhook-event-types.ts";
import { followerOf, isEnabled, isReceived, isWebhook, unfollowDisabled, type WebhookRow } from "./webhook-rows.ts";
import type { WebhookKey } from "./webhooks.schema.ts";
import { webhooks } from "./webhooks.schema.ts";

/*
 * Sends the events of a team to one webhook, in the Durable Object of that webhook. D1 has the webhook and the events; the
 * object reads the events after its cursor, keeps them as deliveries until they have ended, and a while longer for the
 * delivery log, and sends each until the endpoint accepts it.
 *
 * Only the alarm sends, and the platform runs one alarm of an object at a time. So nothing here needs a lock:
 *
 *   a change is committed    its event is in the log. `wake` sets the alarm to now, or notifies the alarm that runs
 *   the wake is lost         the recovery job compares the log with the cursor that the object last reported, and wakes it
 *   the alarm reads          the deliveries and the new cursor are stored in one transaction
 *   the object dies          the alarm was set again before the work began. A delivery that was sent, but not stored, is
 *                            sent again, with the same `webhook-id`: at least once
 */

/** An invocation has six connections. One is left for a resend that somebody asks for. */
export const MAX_IN_FLIGHT = 5;
/** How long a resend is awaited: an attempt takes up to 15 s, and begins at once unless another resend is in flight. */
const MAX_RESEND_MILLISECONDS = 20 * SECOND;
/** The alarm runs again this long after a death or an error. An attempt takes up to 15 s. */
export const RESTART_MILLISECONDS = MINUTE;
/** An alarm may last 15 minutes. The next one continues. */
const MAX_RUN_MILLISECONDS = 5 * MINUTE;
/** If the wake was lost, a webhook that was updated or disabled, or a suspended team, is noticed after this time. */
const FRESH_MILLISECONDS = 5 * SECOND;
/** If the wake was lost, an object notices within a day that its webhook or team was deleted. */
const IDLE_MILLISECONDS = DAY;
/** Events that one query reads. */
const PAGE_EVENTS = 100;
/** While as many deliveries are due, further events stay in the log. */
export const MAX_DUE = 1000;
/** Events or failed deliveries that one replay makes due. */
export const MAX_REPLAYED_EVENTS = 150;
const MAX_KEPT_MILLISECONDS = 30 * DAY;
const PURGE_MILLISECONDS = HOUR;

type Source = WebhookRow & { teamStatus: "active" | "suspended" | "deleting" };

export class WebhookOutbox implements Outbox {
  readonly #deps: Deps;
  readonly #key: WebhookKey;
  readonly #storage: DurableObjectStorage;
  readonly #store: OutboxStore;
  /** The attempts that have no result yet, by the number of the event. */
  readonly #inFlight = new Map<number, Promise<void>>();
  /** The calls that wait for the attempt of a resend, by the number of the event. */
  readonly #resends = new Map<number, PromiseWithResolvers<void>>();
  #isRunning = false;
  /** There may be events, or changes of the webhook, that the running alarm has not read. */
  #isWoken = false;
  /** The webhook or its team has changed since the running alarm began to read it. */
  #isChanged = false;
  #notify = () => {};

  /** @throws `not_found` if the database of the webhook's team is not bound */
  constructor(deps: Deps, { id, storage }: Pick<DurableObjectState, "id" | "storage">) {
    this.#key = keyOf(id.name);
    this.#deps = inDatabaseOf(deps, this.#key.teamId);
    this.#storage = storage;
    this.#store = new OutboxStore(storage);
  }

  get #now(): number {
    return this.#deps.system.now();
  }

  async wake(isChanged: boolean): Promise<number> {
    this.#isWoken = true;
    this.#isChanged ||= isChanged;
    this.#notify();
    if (!this.#isRunning) {
      const at = await this.#storage.getAlarm();
      if (at === null || at > this.#now) await this.#storage.setAlarm(this.#now);
    }
    return this.#store.state.cursor;
  }

  async health(): Promise<WebhookHealth> {
    const { failures, failingSince, hours, lastResult } = this.#store.state;
    return { failures, failingSince, hours, lastResult };
  }

  async list({ before, limit, filter }: ListRequest): Promise<StoredDelivery[]> {
    return this.#store.list(before, limit, filter).map((delivery) => this.#shown(delivery));
  }

  /** A pause delays every delivery. */
  #shown({ attemptCount: _, isRequested: __, requestId: ___, ...delivery }: Delivery): StoredDelivery {
    const { nextAttemptAt } = delivery;
    return { ...delivery, nextAttemptAt: nextAttemptAt && Math.max(nextAttemptAt, this.#store.state.resumeAt ?? 0) };
  }

  async redeliver(seq: number, requestId: string) {
    const known = this.#store.get(seq);
    if (!known) return null;
    if (!known.isRequested && known.requestId !== requestId) this.#store.request(seq, requestId);
    if (known.isRequested || known.requestId !== requestId) await this.#awaitResend(seq);
    const delivery = this.#store.get(seq);
    if (!delivery) return null;
    const attempt = delivery.isRequested ? null : (delivery.attempts.at(-1) ?? null);
    return { delivery: this.#shown(delivery), attempt };
  }

  /** Only the alarm sends. It may be stopped, such as by the suspension of the team. */
  async #awaitResend(seq: number): Promise<void> {
    const resend = this.#resends.get(seq) ?? Promise.withResolvers<void>();
    this.#resends.set(seq, resend);
    await this.wake(false);
    await withTimeout(MAX_RESEND_MILLISECONDS, resend.promise, () => new Error("Timed out.")).catch(() => undefined);
  }

  /** Answers the calls whose resend has its attempt. */
  #answerResends(): void {
    for (const [seq, { resolve }] of this.#resends) {
      if (this.#store.get(seq)?.isRequested) continue;
      this.#resends.delete(seq);
      resolve();
    }
  }

  async replay({ after, failedOnly }: ReplayRequest) {
    const found = failedOnly ? this.#replayFailures(after) : await this.#replayEvents(after);
    if (found.deliveries > 0) await this.#resume();
    return found;
  }

  /** Ends the pause, because a user who replays wants it now. */
  async #resume(): Promise<void> {
    this.#store.update({ resumeAt: null });
    await this.wake(false);
  }

  #replayFailures(after: number) {
    const failing = this.#store.failing(after, MAX_REPLAYED_EVENTS);
    this.#store.transaction(() => {
      for (const seq of failing) this.#store.makeDue(seq, this.#now);
    });
    return { deliveries: failing.length, next: failing[MAX_REPLAYED_EVENTS - 1] ?? null };
  }

  async #replayEvents(after: number) {
    const batch = { webhook: this.#source(), page: this.#eventsAfter(sql`${after}`, MAX_REPLAYED_EVENTS) };
    const {
      webhook: [webhook],
      page,
    } = await read(this.#deps, batch);
    const received = webhook ? page.filter((event) => isReceived(webhook, event)) : [];
    let deliveries = 0;
    this.#store.transaction(() => {
      for (const event of received) {
        const known = this.#store.get(event.seq);
        if (known?.status === "pending") continue;
        if (known) this.#store.makeDue(event.seq, this.#now);
        else this.#store.add(toDelivery(event), this.#now);
        deliveries++;
      }
    });
    return { deliveries, next: page[MAX_REPLAYED_EVENTS - 1]?.seq ?? null };
  }

  /** The handler of the alarm. After an error, the alarm runs again. */
  async run(): Promise<void> {
    await this.#storage.setAlarm(this.#now + RESTART_MILLISECONDS);
    this.#isRunning = true;
    const next = await this.#work().finally(async () => {
      await Promise.allSettled(this.#inFlight.values());
      this.#isRunning = false;
    });
    if (next !== null) await this.#storage.setAlarm(this.#isWoken ? this.#now : next);
  }

  /** @returns when there is more to do. Null if the webhook is gone */
  async #work(): Promise<number | null> {
    const stopAt = this.#now + MAX_RUN_MILLISECONDS;
    for (;;) {
      const source = await this.#takeEvents();
      if (!source) {
        // The results that they store must not outlive the webhook.
        await Promise.allSettled(this.#inFlight.values());
        await this.#store.empty();
        this.#answerResends();
        return null;
      }
      if (this.#isChanged) continue;
      const { webhook, hasMore } = source;
      if (!isEnabled(webhook)) {
        this.#store.endPending(unsent(this.#now, "webhook_disabled"));
        this.#answerResends();
      }
      // Activating the team is an event, so the recovery job wakes the object.
      if (webhook.teamStatus === "suspended") return this.#now + IDLE_MILLISECONDS;
      await this.#sendDue(webhook, Math.min(this.#now + FRESH_MILLISECONDS, stopAt));
      if (this.#now >= stopAt) return this.#now;
      const isBusy = this.#isWoken || this.#inFlight.size > 0 || this.#isSendable();
      if (!isBusy && !(hasMore && this.#hasRoom())) break;
    }
    if (this.#now >= this.#store.state.purgedAt + PURGE_MILLISECONDS) {
      const kept = Math.min(MAX_KEPT_MILLISECONDS, this.#deps.settings.eventDays * DAY);
      this.#store.purge(this.#now - kept);
      this.#store.update({ purgedAt: this.#now });
    }
    return Math.min(this.#sendableAt(), this.#now + IDLE_MILLISECONDS);
  }

  /** When the next delivery is due, and no pause forbids it. A resend that somebody asks for is always due. */
  #sendableAt(): number {
    if (this.#store.nextRequested(this.#inFlight.keys())) return this.#now;
    return Math.max(this.#store.dueAt() ?? ABOVE_ALL, this.#store.state.resumeAt ?? 0);
  }

  #isSendable(): boolean {
    return this.#sendableAt() <= this.#now;
  }

  #source() {
    const { db } = this.#deps;
    return db
      .select({
        ...getTableColumns(webhooks),
        teamStatus: sql<Source["teamStatus"]>`${teams.status}`.as("team_status"),
      })
      .from(webhooks)
      .innerJoin(teams, and(eq(teams.id, webhooks.teamId), ne(teams.status, "deleting")))
      .where(isWebhook(this.#key));
  }

  #eventsAfter(seq: SQL, limit: number) {
    return this.#deps.db
      .select()
      .from(events)
      .where(and(eq(events.teamId, this.#key.teamId), gt(events.seq, seq)))
      .orderBy(asc(events.seq))
      .limit(limit);
  }

  /** Reads the webhook, and adds a delivery for each of the next events that it receives. @returns null if the webhook is gone */
  async #takeEvents(): Promise<{ webhook: Source; hasMore: boolean } | null> {
    this.#isWoken = false;
    this.#isChanged = false;
    const limit = this.#hasRoom() ? PAGE_EVENTS : 0;
    // Events that occurred while the webhook was disabled are never sent.
    const since = sql`(select ${followers.since} from ${followers} where ${isFollower(followerOf(this.#key))})`;
    const after = sql`max(${this.#store.state.cursor}, coalesce(${since}, 0))`;
    const batch = { webhook: this.#source(), page: this.#eventsAfter(after, limit) };
    const {
      webhook: [webhook],
      page,
    } = await read(this.#deps, batch);
    if (!webhook) return null;
    this.#store.transaction(() => {
      const { epoch, cursor } = this.#store.state;
      if (webhook.epoch !== epoch) {
        this.#store.update({ epoch: webhook.epoch, failures: 0, failingSince: null, resumeAt: null });
      }
      const received = isEnabled(webhook) ? page.filter((event) => isReceived(webhook, event)) : [];
      for (const event of received) this.#store.add(toDelivery(event), this.#now);
      const last = page.at(-1)?.seq ?? cursor;
      if (last !== cursor) this.#store.update({ cursor: last });
    });
    return { webhook, hasMore: page.length === limit };
  }

  #hasRoom(): boolean {
    return this.#store.countDue(this.#now) < MAX_DUE;
  }

  /** Sends due deliveries until none is in flight, or the webhook and its events must be read again. */
  async #sendDue(webhook: Source, until: number): Promise<void> {
    do {
      // An endpoint that keeps failing gets one delivery at a time.
      const limit = this.#store.state.failures >= MAX_FAILURES ? 1 : MAX_IN_FLIGHT;
      for (let delivery = this.#next(limit); delivery; delivery = this.#next(limit)) {
        const { seq } = delivery;
        const sent = this.#send(webhook, delivery).finally(() => this.#inFlight.delete(seq));
        this.#inFlight.set(seq, sent);
      }
      if (this.#inFlight.size === 0 || this.#isWoken) return;
      const woken = new Promise<void>((resolve) => {
        this.#notify = resolve;
      });
      await Promise.race([...this.#inFlight.values(), woken]);
    } while (!this.#isWoken && this.#now < until);
  }

  /** The next delivery to send while up to `limit` are in flight. A resend that somebody asks for comes first, as one more. */
  #next(limit: number): Delivery | null {
    const inFlight = [...this.#inFlight.keys()];
    const requested = inFlight.length <= limit ? this.#store.nextRequested(inFlight) : null;
    if (requested || inFlight.length >= limit || !this.#isSendable()) return requested;
    return this.#store.nextDue(this.#now, inFlight);
  }

  async #send(webhook: Source, delivery: Delivery): Promise<void> {
    const result = await postEvent(this.#deps, webhook, JSON.parse(delivery.event));
    const reason = disabledReasonOf(this.#store.state, result, this.#now);
    const isDisabled = reason !== null && (await this.#disable(webhook, reason));
    this.#store.transaction(() => {
      const current = this.#store.get(delivery.seq);
      const isRequested = current?.isRequested ?? delivery.isRequested;
      // A user who replayed it meanwhile gets a new attempt, unless this one was received.
      const isUnchanged = current?.status === "pending" && current.attemptCount === delivery.attemptCount;
      if (current && (result.isSuccess || isRequested || isUnchanged)) {
        this.#store.addAttempt(current.seq, result.attempt, outcomeOf(this.#deps.system, current, result, isDisabled));
      }
      const { state } = this.#store;
      // A failure of the previous URL does not count.
      if (state.epoch === webhook.epoch) this.#store.update(stateAfter(state, result, this.#now, isRequested));
    });
    this.#answerResends();
  }

  /** @returns whether it is disabled now. False if its team has updated the webhook meanwhile */
  async #disable({ version }: Source, reason: "gone" | "failing"): Promise<boolean> {
    const deps = this.#deps;
    const disable = deps.db
      .update(webhooks)
      .set({ disabledReason: reason, updatedAt: this.#now, version: version + 1 })
      .where(and(isWebhook(this.#key), eq(webhooks.version, version), isNull(webhooks.disabledReason)))
      .returning({ id: webhooks.id });
    const subject = { ...this.#key, version: version + 1 };
    const what = { type: WEBHOOK_EVENTS.disabled, initiator: SYSTEM, subject, data: { reason } };
    const unfollow = unfollowDisabled(deps, this.#key.teamId, isWebhook(this.#key));
    const batch = { disabled: recorded(deps, what, disable), unfollow };
    const { disabled } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
    await this.wake(true);
    const isDisabled = disabled.change.length > 0;
    if (isDisabled) deps.after(notifyTeams(deps, [disabledNotice(deps, this.#key, reason)]));
    return isDisabled;
  }
}

function disabledNotice(deps: Deps, { teamId, id }: WebhookKey, reason: "gone" | "failing"): Notice {
  const why = reason === "gone" ? "its endpoint responded 410 Gone" : "its endpoint has failed for too long";
  return {
    teamId,
    subject: "a webhook was disabled",
    text: `The webhook gets no more messages, because ${why}: ${consoleUrl(deps, `/webhooks/${id}`)}`,
  };
}

const toDelivery = (row: EventRow) => ({
  seq: row.seq,
  type: row.type,
  event: JSON.stringify(renderEvent(row)),
});
