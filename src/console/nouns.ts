import type { Api } from "../client/api.ts";
import type { Event } from "../client/index.ts";
import type { IconName } from "./parts/icon.tsx";
import type { Scope } from "./session.ts";

/* The words for what the API has. A noun, a scope, or a route that it gains does not compile until it is here. */

/** A kind of record. */
export type Noun = Event["subject"]["kind"];

interface NounWords {
  plural: string;
  icon: IconName;
  /** A record without a known name. */
  one: string;
  /** Stands before the name of a record. */
  named?: string;
  /** The path and the query of its page. */
  page?: (of: Identity) => [path: string, query?: Record<string, string | undefined>];
}

interface Identity {
  id: string;
  /** The file of a link. */
  fileId: string;
  name: string | null | undefined;
}

export const NOUNS: Record<Noun, NounWords> = {
  file: { plural: "Files", icon: "document", one: "a file", page: ({ id }) => [`/files/${id}`] },
  link: {
    plural: "Links",
    icon: "link",
    one: "a link to a file",
    named: "a link to ",
    page: ({ fileId }) => [`/files/${fileId}`],
  },
  user: {
    plural: "Users",
    icon: "users",
    one: "a user",
    named: "the user ",
    page: ({ name }) => ["/users", { search: name ?? undefined }],
  },
  apikey: { plural: "API keys", icon: "key", one: "a key", named: "the key ", page: () => ["/keys"] },
  session: { plural: "Sessions", icon: "key", one: "a session", named: "a session of " },
  team: { plural: "Team", icon: "users", one: "the team", named: "the team " },
  webhook: {
    plural: "Webhooks",
    icon: "webhook",
    one: "a webhook",
    named: "the webhook ",
    page: ({ id }) => [`/webhooks/${id}`],
  },
};

/** The first word of each route that writes: `apikeys` of `POST /auth/v1/apikeys/{id}/rotate`. */
type Written =
  Exclude<keyof Api, `GET ${string}`> extends infer Route
    ? Route extends `${string}/v1/${infer Path}`
      ? Path extends `${infer Word}/${string}`
        ? Word
        : Path
      : never
    : never;

/** The noun that a write changes, by the last word of its route that is a key here. Null if no page shows what it changes. */
const WRITES: Record<Written | "links" | "password" | "waveform", Noun | null> = {
  login: null,
  logout: null,
  me: null,
  password: "session",
  sessions: "session",
  apikeys: "apikey",
  users: "user",
  invitations: "user",
  teams: "team",
  retention: "team",
  reconciliation: null,
  webhooks: "webhook",
  deliveries: "webhook",
  uploads: "file",
  uploadtokens: null,
  folders: "file",
  trash: "file",
  links: "link",
  // Waveforms aren't part of lists.
  waveform: null,
};

/** The noun that a call of a route changes. */
export function writtenBy(route: string): Noun | null {
  if (route.startsWith("GET ")) return null;
  const word = route.match(/[a-z]+/g)?.findLast((word) => Object.hasOwn(WRITES, word));
  return word === undefined ? null : WRITES[word as keyof typeof WRITES];
}

/** The action that each scope allows, to follow "may". */
export const SCOPE_LABELS: Record<Scope, string> = {
  "files:upload": "upload files",
  "files:read": "view files",
  "files:download": "download and share files",
  "files:write": "edit files",
  "files:delete": "delete files",
  "users:read": "view users",
  "users:write": "manage users",
  "keys:read": "view keys and sessions",
  "keys:write": "manage keys and sessions",
  "events:read": "view events",
  "webhooks:read": "view webhooks",
  "webhooks:write": "manage webhooks",
};
