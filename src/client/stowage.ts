import { Keys, Sessions, Users } from "./accounts.ts";
import type { Api, ApiKey, Me } from "./api.ts";
import { type Call, type CallOptions, Connection, normalizeUrl, type StowageOptions } from "./connection.ts";
import { Events } from "./events.ts";
import { Files } from "./files.ts";
import { Links } from "./links.ts";
import { Teams } from "./teams.ts";
import { Trash } from "./trash.ts";
import { UnfinishedUploads } from "./unfinished-uploads.ts";
import { Webhooks } from "./webhooks.ts";

export type * from "./accounts.ts";
export type * from "./api.ts";
export type { Call, CallOptions, FetchFunction, List, Page, StowageOptions, VersionOptions } from "./connection.ts";
export { type ErrorCode, isServerError, StowageError } from "./errors.ts";
export type * from "./events.ts";
// The `type` of these narrows `data`, unlike in the generated types of the same name.
export { type Event, isFileEvent, type RecordedEvent, type WebhookMessage } from "./events.ts";
export type * from "./files.ts";
export { MAX_BATCH_FILES } from "./files.ts";
export type * from "./links.ts";
export { isMeasured } from "./measured.ts";
export type * from "./teams.ts";
export type * from "./unfinished-uploads.ts";
export {
  type FileProperties,
  RESUMABLE_BYTES,
  type SavedUpload,
  type UploadOptions,
  type UploadStore,
} from "./upload.ts";
export type { UploadSource } from "./upload-source.ts";
export type * from "./webhooks.ts";
export type { Delivery, Redelivery } from "./webhooks.ts";

export type Usage = Api["GET /docs/v1/usage"]["response"]["data"];
export type Credentials = Api["POST /auth/v1/login"]["body"];
export type InvitationDescription = Api["POST /auth/v1/invitations/describe"]["response"]["data"];
export type InvitationAcceptance = Api["POST /auth/v1/invitations/accept"]["body"];
export type ForgottenPassword = Api["POST /auth/v1/password/forgot"]["body"];
export type PasswordChange = Api["POST /auth/v1/me/password"]["body"];

/** The settings of the process; none in browsers. */
const env: Record<string, string | undefined> = globalThis.process?.env ?? {};

/**
 * A client for any runtime with `fetch`. Failed calls reject with a `StowageError`, aborted calls with the signal's reason.
 * Idempotent requests are retried after transient errors.
 * @example
 * const stowage = new Stowage({ url: "https://stowage.example.workers.dev", key: process.env.STOWAGE_KEY });
 * const { id } = await stowage.files.upload("interview.mp3");
 */
export class Stowage {
  readonly files: Files;
  readonly links: Links;
  readonly trash: Trash;
  readonly unfinishedUploads: UnfinishedUploads;
  readonly teams: Teams;
  readonly users: Users;
  readonly keys: Keys;
  readonly sessions: Sessions;
  readonly events: Events;
  readonly webhooks: Webhooks;
  /** The URL of the service, without a slash at its end. */
  readonly url: string;
  readonly #connection: Connection;

  /** @throws TypeError if the URL or the key is missing or invalid */
  constructor(options: StowageOptions = {}) {
    const { url = env.STOWAGE_URL } = options;
    if (url === undefined) throw new TypeError("No URL. Pass `url`, or set STOWAGE_URL.");
    const isEnvUrl = !options.url || !env.STOWAGE_URL || normalizeUrl(options.url) === normalizeUrl(env.STOWAGE_URL);
    const { key = isEnvUrl ? env.STOWAGE_KEY : undefined } = options;
    if (key === undefined || key === "")
      throw new TypeError("No key. Pass `key`, or set STOWAGE_KEY. To log in, pass null.");
    this.#connection = new Connection({ ...options, url, key });
    this.url = this.#connection.url;
    this.files = new Files(this.#connection);
    this.links = new Links(this.#connection);
    this.trash = new Trash(this.#connection);
    this.unfinishedUploads = new UnfinishedUploads(this.#connection);
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

  /** Logs in as a user, by a client whose `key` is null. @returns a session of 12 hours, in the shape of an API key. A client with its `key` can `logOut` */
  logIn(credentials: Credentials, options?: CallOptions): Call<ApiKey> {
    return this.#connection.data("POST /auth/v1/login", { body: credentials, ...options });
  }

  /** Returns whom the token invites, and to which team. */
  describeInvitation(invitation: { token: string }, options?: CallOptions): Call<InvitationDescription> {
    return this.#connection.data("POST /auth/v1/invitations/describe", { body: invitation, ...options });
  }

  /** Sets the password of the user whom the token invites. @returns a session, as `logIn` does */
  acceptInvitation(acceptance: InvitationAcceptance, options?: CallOptions): Call<ApiKey> {
    return this.#connection.data("POST /auth/v1/invitations/accept", { body: acceptance, ...options });
  }

  /** Sends a link to the user with this email, if there is one, with which they set a new password. */
  forgotPassword(user: ForgottenPassword, options?: CallOptions): Call<void> {
    return this.#connection.run("POST /auth/v1/password/forgot", { body: user, ...options });
  }

  /** Ends the session that this client uses. Fails with `forbidden` if it uses an API key. */
  logOut(options?: CallOptions): Call<void> {
    return this.#connection.run("POST /auth/v1/logout", { ...options });
  }
}
