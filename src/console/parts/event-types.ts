import type { Event } from "../../client/stowage.ts";

export type EventType = Event["type"];

/** What happened, in words. A type that is new in the API does not compile until it is here. */
export const EVENT_WORDS: Record<EventType, string> = {
  "file.uploaded": "File uploaded",
  "file.completed": "File processed",
  "file.failed": "File failed",
  "file.deleted": "File deleted",
  "file.reprocessed": "File to be processed again",
  "user.created": "User created",
  "user.updated": "User changed",
  "user.deleted": "User deleted",
  "user.logged_in": "User signed in",
  "apikey.created": "Key created",
  "apikey.revoked": "Key revoked",
  "webhook.created": "Webhook created",
  "webhook.updated": "Webhook changed",
  "webhook.deleted": "Webhook deleted",
  "webhook.disabled": "Webhook disabled",
};

export const EVENT_TYPES = Object.keys(EVENT_WORDS) as EventType[];
