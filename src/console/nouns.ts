import type { Api } from "../client/api.ts";
import type { Event } from "../client/index.ts";
import type { Scope } from "./framework/session.ts";
import type { IconName } from "./parts/icon.tsx";

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

type WriteRoute = Exclude<keyof Api, `GET ${string}`>;

/** The kind of record that a write changes, whose data are loaded again. Null if no page shows what it changes. */
const WRITES: Record<WriteRoute, Noun | null> = {
  "POST /auth/v1/login": null,
  "POST /auth/v1/sessions": "session",
  "DELETE /auth/v1/sessions/{id}": "session",
  "POST /auth/v1/logout": null,
  "POST /auth/v1/invitations/describe": null,
  "POST /auth/v1/invitations/accept": "user",
  "POST /auth/v1/password/forgot": null,
  "POST /auth/v1/apikeys": "apikey",
  "PATCH /auth/v1/apikeys/{id}": "apikey",
  "DELETE /auth/v1/apikeys/{id}": "apikey",
  "POST /auth/v1/apikeys/{id}/rotate": "apikey",
  "POST /auth/v1/teams": "team",
  "PATCH /auth/v1/teams/{id}": "team",
  "DELETE /auth/v1/teams/{id}": "team",
  "POST /auth/v1/me/password": "session",
  "POST /auth/v1/users": "user",
  "PATCH /auth/v1/users/{id}": "user",
  "DELETE /auth/v1/users/{id}": "user",
  "POST /auth/v1/users/{id}/invitations": "user",
  "POST /auth/v1/webhooks": "webhook",
  "PATCH /auth/v1/webhooks/{id}": "webhook",
  "DELETE /auth/v1/webhooks/{id}": "webhook",
  "POST /auth/v1/webhooks/{id}/secret": "webhook",
  "POST /auth/v1/webhooks/{id}/test": "webhook",
  "POST /auth/v1/webhooks/{id}/replay": "webhook",
  "POST /auth/v1/deliveries/{id}/redeliver": "webhook",
  "POST /docs/v1/uploadtokens": null,
  "POST /docs/v1/uploads": "file",
  "POST /docs/v1/uploads/batch": "file",
  "PATCH /docs/v1/uploads/{id}": "file",
  "DELETE /docs/v1/uploads/{id}": "file",
  "POST /docs/v1/uploads/{id}/reprocess": "file",
  // Waveforms aren't part of lists.
  "PUT /docs/v1/uploads/{id}/waveform": null,
  "PUT /docs/v1/uploads/{id}/transcript": "file",
  "DELETE /docs/v1/uploads/{id}/transcript": "file",
  "PUT /docs/v1/uploads/{id}/hold": "file",
  "DELETE /docs/v1/uploads/{id}/hold": "file",
  "POST /docs/v1/trash/{id}/restore": "file",
  "DELETE /docs/v1/trash/{id}": "file",
  "PUT /docs/v1/retention": "team",
  "POST /docs/v1/uploads/{id}/links": "link",
  "DELETE /docs/v1/links/{id}": "link",
  "POST /auth/v1/reconciliation": null,
  "POST /auth/v1/teams/{id}/search/rebuild": null,
  "POST /docs/v1/folders": "file",
  "PATCH /docs/v1/folders": "file",
  "POST /docs/v1/folders/delete": "file",
};

/** The noun that a call of a route changes. */
export const writtenBy = (route: string): Noun | null => WRITES[route as WriteRoute] ?? null;

/** The action that each scope allows, to follow "may". */
export const SCOPE_LABELS: Record<Scope, string> = {
  "files:upload": "upload files",
  "files:read": "view files",
  "files:download": "download and share files",
  "files:write": "edit files",
  "files:delete": "delete files",
  "files:erase": "erase files",
  "users:read": "view users",
  "users:write": "manage users",
  "keys:read": "view keys and sessions",
  "keys:write": "manage keys and sessions",
  "events:read": "view events",
  "webhooks:read": "view webhooks",
  "webhooks:write": "manage webhooks",
};
