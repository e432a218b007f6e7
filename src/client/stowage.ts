import { Keys, Sessions, Users } from "./accounts.ts";
import type { Api, ApiKey, Me } from "./api.ts";
import type { Call } from "./call.ts";
import { type CallOptions, Connection, normalizeUrl, Resource, type StowageOptions } from "./connection.ts";
import { Events } from "./events.ts";
import { Files } from "./files.ts";
import { Links } from "./links.ts";
import { Teams } from "./teams.ts";
import { Trash } from "./trash.ts";
import { UnfinishedUploads } from "./unfinished-uploads.ts";
import { Webhooks } from "./webhooks.ts";

export type Usage = Api["GET /docs/v1/usage"]["response"]["data"];
export type Credentials = Api["POST /auth/v1/login"]["body"];
export type InvitationDescription = Api["POST /auth/v1/invitations/describe"]["response"]["data"];
export type InvitationAcceptance = Api["POST /auth/v1/invitations/accept"]["body"];
export type ForgottenPassword = Api["POST /auth/v1/password/forgot"]["body"];
export type PasswordChange = Api["POST /auth/v1/me/password"]["body"];

/** The settings of the process; none in browsers. */
const env: Record<string, string | undefined> = globalThis.process?.env ?? {};

function connect(options: StowageOptions): Connection {
  const { url = env.STOWAGE_URL } = options;
  if (url === undefined) throw new TypeError("No URL. Pass `url`, or set STOWAGE_URL.");
  const isEnvUrl = !options.url || !env.STOWAGE_URL || normalizeUrl(options.url) === normalizeUrl(env.STOWAGE_URL);
  const { key = isEnvUrl ? env.STOWAGE_KEY : undefined } = options;
  if (key === undefined || key === "")
    throw new TypeError("No key. Pass `key`, or null to log in. STOWAGE_KEY belongs to STOWAGE_URL.");
  return new Connection({ ...options, url, key });
}

/**
 * A client for any runtime with `fetch`. Failed calls reject with a `StowageError`, aborted calls with the signal's reason.
 * Idempotent requests are retried after transient errors.
 * @example
 * const stowage = new Stowage({ url: "https://stowage.example.workers.dev", key: process.env.STOWAGE_KEY });
 * const { id } = await stowage.files.upload("interview.mp3");
 */
export class Stowage extends Resource {
  /** Uploads, files, and their folders. */
  readonly files = new Files(this.connection);
  /** Links to files. */
  readonly links = new Links(this.connection);
  /** Deleted files. */
  readonly trash = new Trash(this.connection);
  /** Uploads that are not files yet. */
  readonly unfinishedUploads = new UnfinishedUploads(this.connection);
  /** Teams. */
  readonly teams = new Teams(this.connection);
  /** The people of a team. */
  readonly users = new Users(this.connection);
  /** API keys. */
  readonly keys = new Keys(this.connection);
  /** Sessions of people who have logged in. */
  readonly sessions = new Sessions(this.connection);
  /** The event log. */
  readonly events = new Events(this.connection);
  /** Endpoints that receive events. */
  readonly webhooks = new Webhooks(this.connection);
  /** The URL of the service, without a slash at its end. */
  readonly url = this.connection.url;

  /** @throws TypeError if the URL or the key is missing or invalid */
  constructor(options: StowageOptions = {}) {
    super(connect(options));
  }

  /** Returns the team's storage usage and quota. */
  usage(options?: CallOptions): Call<Usage> {
    return this.connection.json("GET /docs/v1/usage", {}, options);
  }

  /** Returns the kind and scopes of the token that this client uses. */
  me(options?: CallOptions): Call<Me> {
    return this.connection.json("GET /auth/v1/me", {}, options);
  }

  /** Changes the password of the user whose session this client uses. */
  changePassword(passwords: PasswordChange, options?: CallOptions): Call<void> {
    return this.connection.empty("POST /auth/v1/me/password", { body: passwords }, options);
  }

  /** Logs in as a user, by a client whose `key` is null. @returns a session of 12 hours, in the shape of an API key. A client with its `key` can `logOut` */
  logIn(credentials: Credentials, options?: CallOptions): Call<ApiKey> {
    return this.connection.json("POST /auth/v1/login", { body: credentials }, options);
  }

  /** Returns whom the token invites, and to which team. */
  describeInvitation(invitation: { token: string }, options?: CallOptions): Call<InvitationDescription> {
    const input = { body: invitation, isIdempotent: true };
    return this.connection.json("POST /auth/v1/invitations/describe", input, options);
  }

  /** Sets the password of the user whom the token invites. @returns a session, as `logIn` does */
  acceptInvitation(acceptance: InvitationAcceptance, options?: CallOptions): Call<ApiKey> {
    return this.connection.json("POST /auth/v1/invitations/accept", { body: acceptance }, options);
  }

  /** Sends a link to the user with this email, if there is one, with which they set a new password. */
  forgotPassword(user: ForgottenPassword, options?: CallOptions): Call<void> {
    return this.connection.empty("POST /auth/v1/password/forgot", { body: user }, options);
  }

  /** Ends the session that this client uses. Fails with `forbidden` if it uses an API key. */
  logOut(options?: CallOptions): Call<void> {
    return this.connection.empty("POST /auth/v1/logout", {}, options);
  }
}
