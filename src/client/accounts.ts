import type { Api, Invitation, Schemas, SentInvitation } from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, type Filters, Resource, type VersionOptions } from "./connection.ts";
import type { RecordedEvent } from "./events.ts";

export type UserFilters = Filters<"GET /auth/v1/users">;
export type UserInput = Api["POST /auth/v1/users"]["body"];
export type UserChanges = Api["PATCH /auth/v1/users/{id}"]["body"];
export type InvitationInput = Api["POST /auth/v1/users/{id}/invitations"]["body"];
export type KeyFilters = Filters<"GET /auth/v1/apikeys">;
export type KeyInput = Api["POST /auth/v1/apikeys"]["body"];
export type KeyChanges = Api["PATCH /auth/v1/apikeys/{id}"]["body"];
export type KeyRotation = Api["POST /auth/v1/apikeys/{id}/rotate"]["body"];
export type SessionInput = Api["POST /auth/v1/sessions"]["body"];
export type SessionFilters = Filters<"GET /auth/v1/sessions">;

/** Everything that names a person. */
export type UserExport = Omit<Schemas["UserExport"], "events"> & { events: RecordedEvent[] };

/** The people of a team. */
export class Users extends Resource {
  /** Creates a user. Without a `password`, they can't log in until they accept an invitation. */
  create(user: UserInput, options?: CallOptions): Call<Schemas["CreatedUser"]> {
    return this.connection.json("POST /auth/v1/users", { body: user }, options);
  }

  /** Lists the team's users, oldest first, or by name if `name` is given. */
  list(filters?: UserFilters, options?: CallOptions): List<Schemas["User"]> {
    return this.connection.list("GET /auth/v1/users", { query: filters }, options);
  }

  /** Returns a user. */
  get(id: string, options?: CallOptions): Call<Schemas["User"]> {
    return this.connection.json("GET /auth/v1/users/{id}", { id }, options);
  }

  /** Changes the given fields. A new password, email or role ends the sessions and invitations of the user. */
  update(id: string, changes: UserChanges, options?: VersionOptions): Call<Schemas["User"]> {
    return this.connection.json("PATCH /auth/v1/users/{id}", { id, body: changes }, options, (user) => user);
  }

  /**
   * Creates a link with which the person sets the user's password, once: an invitation, or a reset. With `email`, the
   * service sends it instead.
   */
  invite(
    id: string,
    invitation?: InvitationInput & { email?: false | undefined },
    options?: CallOptions,
  ): Call<Invitation>;
  invite(id: string, invitation: InvitationInput & { email: true }, options?: CallOptions): Call<SentInvitation>;
  invite(id: string, invitation?: InvitationInput, options?: CallOptions): Call<Invitation | SentInvitation> {
    return this.connection.json("POST /auth/v1/users/{id}/invitations", { id, body: invitation }, options);
  }

  /** Returns everything that names the person: the user, with their sessions, API keys and events. */
  export(id: string, options?: CallOptions): Call<UserExport> {
    return this.connection.json("GET /auth/v1/users/{id}/export", { id }, options) as Call<UserExport>;
  }

  /** Deletes a user with their sessions, and the API keys that they created unless `keepKeys`. Then it also disables their webhooks. */
  delete(id: string, params?: { keepKeys?: boolean | undefined }, options?: VersionOptions): Call<void> {
    return this.connection.empty("DELETE /auth/v1/users/{id}", { id, query: params }, options);
  }
}

/** The API keys of a team. */
export class Keys extends Resource {
  /** Creates an API key. Its `key`, the token, is shown only now. */
  create(key: KeyInput, options?: CallOptions): Call<Schemas["ApiKey"]> {
    return this.connection.json("POST /auth/v1/apikeys", { body: key }, options);
  }

  /** Lists the team's API keys, newest first. With the operator token, `teamId` must name the team. */
  list(filters?: KeyFilters, options?: CallOptions): List<Schemas["ApiKey"]> {
    return this.connection.list("GET /auth/v1/apikeys", { query: filters }, options);
  }

  /** Returns an API key, with its token if your scopes cover those of the key. The event log records that. */
  get(id: string, options?: CallOptions): Call<Schemas["ApiKey"]> {
    return this.connection.json("GET /auth/v1/apikeys/{id}", { id }, options);
  }

  /** Renames an API key, removes scopes, or shortens its lifetime. */
  update(id: string, changes: KeyChanges, options?: CallOptions): Call<Schemas["ApiKey"]> {
    return this.connection.json("PATCH /auth/v1/apikeys/{id}", { id, body: changes }, options);
  }

  /** Creates a key in its place. The old one works for `overlapSeconds` more (a day by default). @returns the new key */
  rotate(id: string, rotation?: KeyRotation, options?: CallOptions): Call<Schemas["ApiKey"]> {
    return this.connection.json("POST /auth/v1/apikeys/{id}/rotate", { id, body: rotation }, options);
  }

  /** Revokes an API key with its sessions immediately. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /auth/v1/apikeys/{id}", { id }, options);
  }
}

/** The sessions of people who have logged in, and of the console. */
export class Sessions extends Resource {
  /** Creates a session with the scopes of this client's secret key, of 12 hours unless `expiresIn` says otherwise. Its `key` is shown only now. */
  create(session?: SessionInput, options?: CallOptions): Call<Schemas["ApiKey"]> {
    return this.connection.json("POST /auth/v1/sessions", { body: session }, options);
  }

  /** Lists the team's sessions, newest first. */
  list(filters?: SessionFilters, options?: CallOptions): List<Schemas["Session"]> {
    return this.connection.list("GET /auth/v1/sessions", { query: filters }, options);
  }

  /** Ends a session immediately. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /auth/v1/sessions/{id}", { id }, options);
  }
}
