/**
 * Every way the service refuses. The catalogue gives each code its usual message; what HTTP makes of a code is
 * decided in http/failures.ts, which does not compile until a new code has a status there.
 */
export const MESSAGES = {
  invalid_input: "The request has invalid input.",
  malformed_json: "The body is not valid JSON.",
  malformed_multipart: "The body is not a complete multipart/form-data message.",
  file_missing: "The form has no file: send it in a part named `file` that has a file name.",
  file_empty: "The file is empty.",
  too_many_files: "Send one file in one request.",
  token_missing: "Send a token in the Authorization header: `Bearer <ACCESS_TOKEN>`.",
  token_invalid: "The token is not valid.",
  login_failed: "Team, email or password is wrong.",
  forbidden: "This token may not do this.",
  not_found: "Not found.",
  route_not_found: "There is nothing at this address.",
  method_not_allowed: "This address does not take this method.",
  upload_timeout: "The upload stood still for too long and was given up.",
  email_taken: "A user with this email already exists.",
  idempotency_conflict: "This Idempotency-Key was used for another upload.",
  webhook_disabled: "The webhook is disabled. Enable it first.",
  version_mismatch: "The record has changed since the version named in If-Match.",
  body_too_large: "The body is too large.",
  file_too_large: "The file is too large.",
  quota_exceeded: "The team has no room left.",
  unsupported_media_type: "The body has the wrong Content-Type.",
  upload_expired: "The upload has expired: begin a new one.",
  upload_locked: "How far the upload has come can't be told yet. Ask again shortly.",
  offset_mismatch: "The upload stands at another offset.",
  unsupported_version: "Send `Tus-Resumable: 1.0.0`.",
  rate_limited: "Too many requests: slow down.",
  internal: "Something went wrong on our side.",
  unavailable: "The service can't do this right now. Try again shortly.",
} as const;

export type Code = keyof typeof MESSAGES;

/** One invalid field: `path` in dots (`audio.tags.0`), empty for the body as a whole. */
export interface FieldError {
  path: string;
  message: string;
}

interface Details {
  message?: string;
  errors?: FieldError[];
  /** Seconds after which a retry makes sense. */
  retryAfterSeconds?: number;
  /** Never shown to a caller; goes to the log. */
  cause?: unknown;
}

/** A refusal with a reason the caller may know. Anything else that is thrown is a bug, and tells the caller nothing. */
export class AppError extends Error {
  readonly code: Code;
  readonly errors: FieldError[] | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: Code, { message, errors, retryAfterSeconds, cause }: Details = {}) {
    super(message ?? MESSAGES[code], cause === undefined ? undefined : { cause });
    this.name = "AppError";
    this.code = code;
    this.errors = errors;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
