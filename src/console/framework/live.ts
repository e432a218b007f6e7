import { computed, effect, signal } from "@preact/signals";
import type { Event } from "../../client/index.ts";
import { can, isExpired, me, noteFailure, refreshMe, session } from "./session.ts";

type Listener = (event: Event) => void;

const listeners = new Set<Listener>();
const RETRY_MILLISECONDS = 5000;
/** After a longer absence, reloading the page is cheaper than replaying every event in between. */
const MAX_CATCH_UP_MILLISECONDS = 3_600_000;
/** A page that cannot learn its place in the event log loads without it, and reloads once it is known. */
const MAX_POSITION_WAIT_MILLISECONDS = 3000;

/** Whether events are arriving: false until the position in the event log is known, and while offline. */
export const isLive = signal(false);
/** Whether the connection was lost after events had been followed. */
export const isLost = signal(false);
/** Incremented when events may have been missed: whatever was loaded before is loaded again. */
export const gaps = signal(0);
/** Incremented when the connection returns: whatever failed to load is loaded again. */
export const reconnects = signal(0);

/** Whether the session can read events. Otherwise pages poll. */
export const canFollow = computed(() => session.value?.team != null && can("events:read"));

/** Before the first event of an empty log. */
const START_OF_LOG = new Date(0).toISOString();

/** The last event that was received, or the start of the log. */
let position: { teamId: string; eventId: string } | undefined;
/** Whether something was loaded before the position was known. */
let hasGap = false;
let waiting: (() => void)[] = [];

/** A failing listener must not affect other listeners or the connection. */
function notify(listener: Listener, event: Event): void {
  try {
    listener(event);
  } catch (error) {
    reportError(error);
  }
}

/** Calls the listener with each event of the team from now on. @returns a function that unsubscribes */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Waits until the position in the event log is known. What is loaded after that needs no second load: every later change
 * arrives as an event.
 */
export async function waitForPosition(): Promise<void> {
  const teamId = session.peek()?.team?.id;
  if (!teamId || !canFollow.peek() || position?.teamId === teamId) return;
  await new Promise<void>((resolve) => {
    waiting.push(resolve);
    setTimeout(resolve, MAX_POSITION_WAIT_MILLISECONDS);
  });
  hasGap ||= position?.teamId !== teamId;
}

/** Whether the user was updated, perhaps with another role. It stays true until the scopes have been read again. */
let isRoleStale = false;

async function refreshRole(): Promise<void> {
  if (isRoleStale) await refreshMe();
  isRoleStale = false;
}

function release(): void {
  for (const resolve of waiting) resolve();
  waiting = [];
}

/** Follows the event log for all pages while the tab is visible, and resumes after the last event it received. */
export function followEvents(): void {
  const isVisible = signal(!document.hidden);
  let hiddenAt = 0;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = Date.now();
    else if (position && Date.now() - hiddenAt > MAX_CATCH_UP_MILLISECONDS) {
      position = undefined;
      hasGap = true;
    }
    isVisible.value = !document.hidden;
  });
  effect(() => {
    const current = session.value;
    if (!current?.team || !canFollow.value || isExpired.value || !isVisible.value) return;
    const { client, team } = current;
    if (position?.teamId !== team.id) position = undefined;
    const stop = new AbortController();
    const { signal } = stop;
    /** Shows that the connection works, and finds the position in the event log if it is unknown. */
    const connect = async () => {
      const { items } = await client.events.list({ limit: 1 }, { signal });
      if (position) return;
      position = { teamId: team.id, eventId: items[0]?._id ?? START_OF_LOG };
      release();
      if (hasGap) gaps.value = gaps.peek() + 1;
      hasGap = false;
    };
    const follow = async () => {
      while (!signal.aborted) {
        try {
          await connect();
          await refreshRole();
          if (isLost.peek()) reconnects.value = reconnects.peek() + 1;
          isLive.value = true;
          isLost.value = false;
          for await (const event of client.events.follow({ after: position?.eventId }, { signal })) {
            position = { teamId: team.id, eventId: event._id };
            for (const listener of listeners) notify(listener, event);
            isRoleStale ||= event.type === "user.updated" && event.subject.id === me.peek()?.userId;
            await refreshRole();
          }
        } catch (error) {
          if (signal.aborted) return;
          noteFailure(error, client);
          release();
          isLost.value ||= isLive.peek();
          isLive.value = false;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
        }
      }
    };
    void follow();
    return () => {
      stop.abort();
      isLive.value = false;
      // The next session may not follow events, and would never find the connection again.
      if (!session.peek() || !canFollow.peek()) isLost.value = false;
    };
  });
}
