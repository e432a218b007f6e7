import { effect, signal } from "@preact/signals";
import type { Event } from "../client/stowage.ts";
import { hasEnded, noteFailure, session } from "./session.ts";

type Listener = (event: Event) => void;

const listeners = new Set<Listener>();
const RETRY_MILLISECONDS = 5000;

/** Whether events are being followed: false until the place to begin at is known, and while the service is out of reach. */
export const isLive = signal(false);
/** Whether the service was lost from sight while events were followed, and is not there again. */
export const isLost = signal(false);
/** So often events began to be followed: what was loaded before may be old. */
export const beginnings = signal(0);

/** One listener's mistake is no other's, and no failure of the line. */
function tell(listener: Listener, event: Event): void {
  try {
    listener(event);
  } catch (error) {
    reportError(error);
  }
}

/** Tells each event of the team from now on. @returns what ends it */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** One reader of the trail for all pages, while somebody looks. It goes on where it stopped: nothing is missed. */
export function followEvents(): void {
  let last: { teamId: string; eventId: string | undefined } | undefined;
  const isVisible = signal(!document.hidden);
  document.addEventListener("visibilitychange", () => {
    isVisible.value = !document.hidden;
  });
  effect(() => {
    const current = session.value;
    if (!current?.team || hasEnded.value || !isVisible.value) return;
    const { client, team } = current;
    if (last?.teamId !== team.id) last = undefined;
    const stop = new AbortController();
    const { signal } = stop;
    const follow = async () => {
      while (!signal.aborted) {
        try {
          if (!last) {
            const { items } = await client.events.list({ limit: 1 }, { signal }).page();
            last = { teamId: team.id, eventId: items[0]?._id };
          }
          isLive.value = true;
          isLost.value = false;
          beginnings.value = beginnings.peek() + 1;
          for await (const event of client.events.follow({ after: last.eventId }, { signal })) {
            last = { teamId: team.id, eventId: event._id };
            for (const listener of listeners) tell(listener, event);
          }
        } catch (error) {
          if (signal.aborted) return;
          noteFailure(error, client);
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
    };
  });
}
