import { API_KEY_EVENTS, SESSION_EVENTS, TEAM_EVENTS, USER_EVENTS } from "./accounts/account-event-types.ts";
import type { EventKind, EventType } from "./events/event-type.ts";
import { FILE_EVENTS } from "./files/file-event-types.ts";
import { LINK_EVENTS } from "./links/link-event-types.ts";
import { WEBHOOK_EVENTS } from "./webhooks/webhook-event-types.ts";

/**
 * All types of events, in the order of the API document. A list of its own beside service.ts, because the contracts of operations
 * name the types.
 */
export const EVENT_TYPES: EventType[] = [
  FILE_EVENTS,
  LINK_EVENTS,
  USER_EVENTS,
  API_KEY_EVENTS,
  SESSION_EVENTS,
  TEAM_EVENTS,
  WEBHOOK_EVENTS,
].flatMap((types) => Object.values<EventType>(types));

export const EVENT_TYPE_NAMES = EVENT_TYPES.map(({ name }) => name);
export const EVENT_KINDS: EventKind[] = [...new Set(EVENT_TYPES.map(({ kind }) => kind))];
export const EVENT_KIND_NAMES = EVENT_KINDS.map(({ name }) => name);
