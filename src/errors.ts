import type { RateLimitName } from "./rate-limits.ts";

/**
 * Every error code with its default message: what happened and what to do. The HTTP status of each code is in
 * http/failures.ts, which does not compile until a new code has one.
 */
export const MESSAGES = {
  invalid_input: "The request has invalid input. Correct the fields in `errors`.",
  malformed_json: "The body is not valid JSON.",
  malformed_multipart: "The body is not a complete multipart/form-data message.",
  file_missing: "The form has no file. Send the file in a part named `file` with a file name.",
  file_empty: "The file is empty. Choose a file with content.",
  too_many_files: "The form has more than one file. Send one file per request.",
  digest_mismatch: "The bytes do not match their digest. Send them again.",
  token_missing: "The request has no bearer token. Send `Authorization: Bearer <ACCESS_TOKEN>`.",
  token_invalid: "The token is invalid, revoked, or expired.",
  login_failed: "Incorrect team ID, email, or password.",
  forbidden: "This token isn't allowed to do this.",
  team_suspended: "The team is suspended. Contact the operator of this service.",
  insufficient_scope: "This token lacks a scope.",
  not_found: "Not found.",
  route_not_found: "No route matches this URL. See /reference for all routes.",
  method_not_allowed: "Method not allowed.",
  upload_timeout: "The request body stalled and timed out. Send it again.",
  email_taken: "A user with this email already exists.",
  last_admin: "This is the last admin of the team. Make another user an admin, or use a secret key.",
  idempotency_conflict: "This Idempotency-Key was used for a different file. Use a new key.",
  idempotency_in_progress: "The first upload with this Idempotency-Key is still in progress. Retry shortly.",
  file_held: "A hold forbids the deletion. Release the hold, as an admin or with a secret key, and retry.",
  not_in_trash: "The file is not in the trash.",
  conflict: "Another request changed this record at the same time. Retry.",
  upload_limit_reached: "This key has reached its limit of uploads.",
  type_not_allowed: "This key can't upload files of this type.",
  file_limit_reached: "The team has reached its file limit. Delete files and retry.",
  too_many_unfinished_uploads: "The team has too many unfinished uploads. Complete or cancel one and retry.",
  too_many_keys: "The team has too many API keys. Delete one and retry.",
  too_many_webhooks: "The team has too many webhooks. Delete one and retry.",
  too_many_folders: "The team has too many folders. Delete one and retry.",
  folder_busy: "Another folder of the team is being moved or deleted. Retry in a few minutes.",
  too_many_links: "The file or its team has too many links. Revoke one and retry.",
  webhook_disabled: "The webhook is disabled. Enable it and retry.",
  version_mismatch: "The record has changed since the version in If-Match. Get it again and retry.",
  body_too_large: "The body is too large.",
  file_too_large: "The file is too large.",
  quota_exceeded: "A limit (storage, sessions or users) is reached. Delete something and retry.",
  range_not_satisfiable: "The range starts beyond the end of the file.",
  unsupported_media_type: "The Content-Type is not supported.",
  upload_expired: "The upload has expired. Create a new one.",
  upload_locked: "The upload is in use. Retry shortly.",
  offset_mismatch: "Upload-Offset is not the current offset. Get the current one with HEAD.",
  unsupported_version: "This tus version is not supported. Send `Tus-Resumable: 1.0.0`.",
  email_not_configured: "This service sends no emails. Use the link of an invitation instead.",
  rate_limited: "Too many requests. Retry after the seconds in Retry-After.",
  storage_full: "The database is full. Delete files, or ask the operator of this service for room.",
  internal: "Something went wrong on our side.",
  unavailable: "The service is temporarily unavailable. Retry shortly.",
} as const;

export type Code = keyof typeof MESSAGES;

/** One invalid field. `path` uses dots (`audio.tags.0`) and is empty if the whole body is invalid. */
export interface FieldError {
  path: string;
  message: string;
}

interface Details {
  message?: string;
  errors?: FieldError[];
  /** Sent as `Retry-After`. */
  retryAfterSeconds?: number;
  /** The limit that a rate-limited caller has reached. */
  limit?: RateLimitName;
  /** Sent in `WWW-Authenticate`: the scope that the token lacks. */
  scope?: string;
  /** Logged, never sent to the caller. */
  cause?: unknown;
}

/** Bounds a message that quotes the name of an unknown field. */
const MAX_QUOTED_CHARACTERS = 100;

/** The first invalid field and its problem, because a log often has nothing of an error but its message. */
function describeFields([first, ...others]: FieldError[] = []): string | undefined {
  if (!first) return undefined;
  const field = first.path === "" ? "body" : `\`${first.path.slice(0, MAX_QUOTED_CHARACTERS)}\``;
  const more = others.length === 0 ? "" : ` (${others.length} more in \`errors\`)`;
  return `Invalid ${field}: ${first.message}${more}`;
}

/** An error whose code and message are safe to send to the caller. Any other error becomes `internal`. */
export class AppError extends Error {
  readonly code: Code;
  readonly errors: FieldError[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly limit: RateLimitName | undefined;
  readonly scope: string | undefined;

  constructor(code: Code, { message, errors, retryAfterSeconds, limit, scope, cause }: Details = {}) {
    super(message ?? describeFields(errors) ?? MESSAGES[code], cause === undefined ? undefined : { cause });
    this.name = "AppError";
    this.code = code;
    this.errors = errors;
    this.retryAfterSeconds = retryAfterSeconds;
    this.limit = limit;
    this.scope = scope;
  }
}

/** An `invalid_input` of one field, parameter or header. */
export const invalidField = (path: string, message: string) =>
  new AppError("invalid_input", { errors: [{ path, message }] });
