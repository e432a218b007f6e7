import type { EventType } from "../../client/index.ts";

/**
 * Each type of event: its label, and the words of its sentence before its resource and after it. An update names the changed
 * fields instead. A type that the API gains does not compile until it is here.
 */
export const EVENTS: {
  [T in EventType]: T extends `${string}.updated` ? [label: string] : [label: string, before: string, after?: string];
} = {
  "file.uploaded": ["File uploaded", "uploaded"],
  "file.completed": ["File processed", "processed"],
  "file.failed": ["File failed", "couldn't process"],
  "file.deleted": ["File deleted", "deleted"],
  "file.trashed": ["File moved to trash", "moved", "to the trash"],
  "file.restored": ["File restored", "restored"],
  "file.held": ["File held", "put", "on hold"],
  "file.released": ["File released", "released", "from its hold"],
  "file.reprocessed": ["File requeued", "requeued"],
  "file.updated": ["File updated"],
  "link.created": ["Link created", "created"],
  "link.revoked": ["Link revoked", "revoked"],
  "user.created": ["User created", "created"],
  "user.updated": ["User updated"],
  "user.deleted": ["User deleted", "deleted"],
  // Also a reset of the password.
  "user.invited": ["User invited", "invited", "to set a password"],
  "user.logged_in": ["User signed in", "signed in"],
  "apikey.created": ["API key created", "created"],
  "apikey.updated": ["API key updated"],
  "apikey.rotated": ["API key rotated", "rotated"],
  "apikey.revealed": ["API key revealed", "revealed"],
  "apikey.expiring": ["API key expires soon", "warned that", "expires soon"],
  "apikey.revoked": ["API key revoked", "revoked"],
  "session.created": ["Session created", "started a session"],
  "session.revoked": ["Session revoked", "ended"],
  "team.created": ["Team created", "created"],
  "team.updated": ["Team updated"],
  "team.suspended": ["Team suspended", "suspended"],
  "team.deleted": ["Team deleted", "deleted"],
  "webhook.created": ["Webhook created", "created"],
  "webhook.updated": ["Webhook updated"],
  "webhook.deleted": ["Webhook deleted", "deleted"],
  "webhook.disabled": ["Webhook disabled", "disabled"],
};

export const EVENT_TYPES = Object.keys(EVENTS) as EventType[];

/** The label of a type, which may be newer than this page. */
export const labelOf = (type: EventType): string => EVENTS[type]?.[0] ?? type;
