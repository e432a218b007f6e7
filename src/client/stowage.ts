import { Keys, Sessions, Users } from "./accounts.ts";
import type { Api, Schemas } from "./api.ts";
import { type CallOptions, Connection, type StowageOptions } from "./connection.ts";
import { Events, Webhooks } from "./events.ts";
import { Files } from "./files.ts";
import { Links } from "./links.ts";
import { Teams } from "./teams.ts";
import { Uploads } from "./uploads.ts";

export type { UserFilters } from "./accounts.ts";
export type { CallOptions, FetchFunction, List, Page, StowageOptions } from "./connection.ts";
export { type ErrorCode, isServerError, StowageError } from "./errors.ts";
export { type EventFilters, type FileEvent, isFileEvent } from "./events.ts";
export { RESUMABLE_BYTES, type UploadOptions } from "./file-upload.ts";
export type { Batch, BatchResult, FileFilters, FileProperties } from "./files.ts";
export type { UploadSource } from "./upload-source.ts";

export type ApiKey = Schemas["ApiKey"];
export type Delivery = Schemas["Delivery"];
export type Event = Schemas["Event"];
export type FileMetadata = Schemas["FileMetadata"];
export type Link = Schemas["Link"];
export type Me = Schemas["Me"];
export type StoredFile = Schemas["File"];
export type Session = Schemas["Session"];
export type Team = Schemas["Team"];
export type UnfinishedUpload = Schemas["UnfinishedUpload"];
export type Usage = Api["GET /docs/v1/usage"]["response"]["data"];
export type User = Schemas["User"];
export type Webhook = Schemas["Webhook"];

/**
 * A client for browsers and Node. Failed calls reject with a `StowageError`, aborted calls with the signal's reason.
 * Idempotent requests are retried after transient errors.
 */
export class Stowage {
  readonly files: Files;
  readonly links: Links;
  readonly uploads: Uploads;
  readonly teams: Teams;
  readonly users: Users;
  readonly keys: Keys;
  readonly sessions: Sessions;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly #connection: Connection;

  constructor(options: StowageOptions) {
    this.#connection = new Connection(options);
    this.files = new Files(this.#connection);
    this.links = new Links(this.#connection);
    this.uploads = new Uploads(this.#connection);
    this.teams = new Teams(this.#connection);
    this.users = new Users(this.#connection);
    this.keys = new Keys(this.#connection);
    this.sessions = new Sessions(this.#connection);
    this.events = new Events(this.#connection);
    this.webhooks = new Webhooks(this.#connection);
  }

  /** Returns the team's storage usage and quota. */
  async usage({ signal }: CallOptions = {}): Promise<Usage> {
    return this.#connection.data("GET /docs/v1/usage", { signal });
  }

  /** Returns the kind and scopes of the token that this client uses. */
  async me({ signal }: CallOptions = {}): Promise<Me> {
    return this.#connection.data("GET /auth/v1/me", { signal });
  }

  /** Changes the password of the user whose session this client uses. */
  async changePassword(
    passwords: Api["POST /auth/v1/me/password"]["body"],
    { signal }: CallOptions = {},
  ): Promise<void> {
    await this.#connection.call("POST /auth/v1/me/password", { body: passwords, signal });
  }

  /** Logs in as a user. @returns a session of 12 hours, in the shape of an API key. A client with its `key` can `logOut` */
  async logIn(credentials: Api["POST /auth/v1/login"]["body"], { signal }: CallOptions = {}): Promise<ApiKey> {
    return this.#connection.data("POST /auth/v1/login", { body: credentials, signal });
  }

  /** Ends the session that this client uses. Fails with `forbidden` if it uses an API key. */
  async logOut({ signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("POST /auth/v1/logout", { signal });
  }
}
