import type { Api, Schemas } from "./api.ts";
import { type CallOptions, type Connection, type IfMatch, ifMatch, type List } from "./connection.ts";

export type UserFilters = Omit<NonNullable<Api["GET /auth/v1/users"]["query"]>, "cursor" | "page">;
type KeyFilters = Omit<NonNullable<Api["GET /auth/v1/apikeys"]["query"]>, "cursor" | "page">;

export class Users {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async create(
    user: Api["POST /auth/v1/users"]["body"],
    { signal }: CallOptions = {},
  ): Promise<Schemas["CreatedUser"]> {
    return this.#connection.data("POST /auth/v1/users", { body: user, signal });
  }

  /** Lists the team's users, oldest first, or by name if `name` is given. */
  list(filters: UserFilters = {}, { signal }: CallOptions = {}): List<Schemas["User"]> {
    return this.#connection.list("GET /auth/v1/users", { query: filters, signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Schemas["User"]> {
    return this.#connection.data("GET /auth/v1/users/{id}", { id, signal });
  }

  update(
    id: string,
    changes: Api["PATCH /auth/v1/users/{id}"]["body"],
    { version, signal }: IfMatch = {},
  ): Promise<Schemas["User"]> {
    return this.#connection.call("PATCH /auth/v1/users/{id}", { id, body: changes, signal, ...ifMatch(version) });
  }

  /** Deletes a user with their sessions, and the API keys that they created unless `keepKeys`. */
  async delete(id: string, { version, keepKeys, signal }: IfMatch & { keepKeys?: boolean } = {}): Promise<void> {
    const query = keepKeys ? { keepKeys: "true" as const } : {};
    await this.#connection.call("DELETE /auth/v1/users/{id}", { id, query, signal, ...ifMatch(version) });
  }
}

export class Keys {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async create(key: Api["POST /auth/v1/apikeys"]["body"], { signal }: CallOptions = {}): Promise<Schemas["ApiKey"]> {
    return this.#connection.data("POST /auth/v1/apikeys", { body: key, signal });
  }

  /** Lists the team's API keys, newest first. With the operator token, `teamId` selects the team. */
  list(filters: KeyFilters = {}, { signal }: CallOptions = {}): List<Schemas["ApiKey"]> {
    return this.#connection.list("GET /auth/v1/apikeys", { query: filters, signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Schemas["ApiKey"]> {
    return this.#connection.data("GET /auth/v1/apikeys/{id}", { id, signal });
  }

  /** Renames an API key, removes scopes, or shortens its lifetime. */
  async update(
    id: string,
    changes: Api["PATCH /auth/v1/apikeys/{id}"]["body"],
    { signal }: CallOptions = {},
  ): Promise<Schemas["ApiKey"]> {
    return this.#connection.data("PATCH /auth/v1/apikeys/{id}", { id, body: changes, signal });
  }

  /** Creates a key in its place. The old one works for `overlapSeconds` more (a day by default). @returns the new key */
  async rotate(
    id: string,
    { signal, ...options }: Api["POST /auth/v1/apikeys/{id}/rotate"]["body"] & CallOptions = {},
  ): Promise<Schemas["ApiKey"]> {
    return this.#connection.data("POST /auth/v1/apikeys/{id}/rotate", { id, body: options, signal });
  }

  /** Revokes an API key with its sessions immediately. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /auth/v1/apikeys/{id}", { id, signal });
  }
}

export class Sessions {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Creates a session of 12 hours with the scopes of this client's secret key. Its `key` is shown only now. */
  async create({ signal }: CallOptions = {}): Promise<Schemas["ApiKey"]> {
    return this.#connection.data("POST /auth/v1/sessions", { signal });
  }

  /** Lists the team's sessions, newest first. */
  list({ signal }: CallOptions = {}): List<Schemas["Session"]> {
    return this.#connection.list("GET /auth/v1/sessions", { signal });
  }

  /** Ends a session immediately. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /auth/v1/sessions/{id}", { id, signal });
  }
}
