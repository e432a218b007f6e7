import { Keys, Sessions, Users } from "./accounts.ts";
import type { Api, Schemas } from "./api.ts";
import { type Call, type CallOptions, Connection, type StowageOptions } from "./connection.ts";
import { Events } from "./events.ts";
import { Files } from "./files.ts";
import { Links } from "./links.ts";
import { Teams } from "./teams.ts";
import { Uploads } from "./uploads.ts";
import { Webhooks } from "./webhooks.ts";

export type * from "./accounts.ts";
export type {
  ActorKind,
  DeliveryStatus,
  Disposition,
  EventType,
  FailureCode,
  FileType,
  ProcessingStatus,
  Role,
  Scope,
  SubjectKind,
  TeamStatus,
  TokenKind,
  WebhookHealth,
  WebhookStatus,
} from "./api.ts";
export type { Call, CallOptions, FetchFunction, List, Page, StowageOptions, VersionOptions } from "./connection.ts";
export { type ErrorCode, isServerError, StowageError } from "./errors.ts";
export type * from "./events.ts";
export { isFileEvent } from "./events.ts";
export type * from "./files.ts";
export { MAX_BATCH_FILES } from "./files.ts";
export type * from "./links.ts";
export type * from "./teams.ts";
export {
  type FileProperties,
  RESUMABLE_BYTES,
  type SavedUpload,
  type UploadOptions,
  type UploadStore,
} from "./upload.ts";
export type { UploadSource } from "./upload-source.ts";
export type * from "./uploads.ts";
export type * from "./webhooks.ts";

export type ApiKey = Schemas["ApiKey"];
export type Attempt = Schemas["Attempt"];
export type CreatedUser = Schemas["CreatedUser"];
export type Delivery = Schemas["Delivery"];
export type Event = Schemas["Event"];
export type FileMetadata = Schemas["FileMetadata"];
export type FileStatus = Schemas["ProcessingStatus"];
export type KeyLimits = Schemas["KeyLimits"];
export type Link = Schemas["Link"];
export type Me = Schemas["Me"];
export type NewLink = Schemas["NewLink"];
export type NewWebhook = Schemas["NewWebhook"];
export type StoredFile = Schemas["File"];
export type Session = Schemas["Session"];
export type Team = Schemas["Team"];
export type UnfinishedUpload = Schemas["UnfinishedUpload"];
export type UploadToken = Schemas["UploadToken"];
export type Usage = Api["GET /docs/v1/usage"]["response"]["data"];
export type User = Schemas["User"];
export type Waveform = Schemas["Waveform"];
export type Webhook = Schemas["Webhook"];
export type Credentials = Api["POST /auth/v1/login"]["body"];
export type PasswordChange = Api["POST /auth/v1/me/password"]["body"];

/**
 * A client for any runtime with `fetch`. Failed calls reject with a `StowageError`, aborted calls with the signal's reason.
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
  /** The URL of the service, without a slash at its end. */
  readonly url: string;
  readonly #connection: Connection;

  constructor(options: StowageOptions) {
    this.#connection = new Connection(options);
    this.url = this.#connection.url;
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
  usage(options?: CallOptions): Call<Usage> {
    return this.#connection.data("GET /docs/v1/usage", { ...options });
  }

  /** Returns the kind and scopes of the token that this client uses. */
  me(options?: CallOptions): Call<Me> {
    return this.#connection.data("GET /auth/v1/me", { ...options });
  }

  /** Changes the password of the user whose session this client uses. */
  changePassword(passwords: PasswordChange, options?: CallOptions): Call<void> {
    return this.#connection.run("POST /auth/v1/me/password", { body: passwords, ...options });
  }

  /** Logs in as a user. @returns a session of 12 hours, in the shape of an API key. A client with its `key` can `logOut` */
  logIn(credentials: Credentials, options?: CallOptions): Call<ApiKey> {
    return this.#connection.data("POST /auth/v1/login", { body: credentials, ...options });
  }

  /** Ends the session that this client uses. Fails with `forbidden` if it uses an API key. */
  logOut(options?: CallOptions): Call<void> {
    return this.#connection.run("POST /auth/v1/logout", { ...options });
  }
}
