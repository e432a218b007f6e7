import type { Event } from "../../client/stowage.ts";

export type EventType = Event["type"];

/** A label for each type of event. A type that the API gains does not compile until it has one. */
export const EVENT_LABELS: Record<EventType, string> = {
  "file.uploaded": "File uploaded",
  "file.completed": "File processed",
  "file.failed": "File failed",
  "file.deleted": "File deleted",
  "file.trashed": "File moved to trash",
  "file.restored": "File restored",
  "file.held": "File held",
  "file.released": "File released",
  "file.reprocessed": "File requeued",
  "file.updated": "File updated",
  "link.created": "Link created",
  "link.revoked": "Link revoked",
  "user.created": "User created",
  "user.updated": "User updated",
  "user.deleted": "User deleted",
  "user.invited": "User invited",
  "user.logged_in": "User signed in",
  "apikey.created": "API key created",
  "apikey.updated": "API key updated",
  "apikey.rotated": "API key rotated",
  "apikey.revealed": "API key revealed",
  "apikey.revoked": "API key revoked",
  "session.created": "Session created",
  "session.revoked": "Session revoked",
  "team.created": "Team created",
  "team.updated": "Team updated",
  "team.suspended": "Team suspended",
  "team.deleted": "Team deleted",
  "webhook.created": "Webhook created",
  "webhook.updated": "Webhook updated",
  "webhook.deleted": "Webhook deleted",
  "webhook.disabled": "Webhook disabled",
};

export const EVENT_TYPES = Object.keys(EVENT_LABELS) as EventType[];
