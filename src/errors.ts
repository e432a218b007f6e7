import type { RateLimitName } from "./rate-limits.ts";

/** A kind of error: the code for programs, its HTTP status, and its default message, which says what happened and what to do. */
export interface ErrorCode {
  readonly code: string;
  readonly status: number;
  readonly message: string;
  /** The response has `Retry-After`, although other errors with this status don't. */
  readonly hasRetryAfter?: true;
}

/** A kind of error of one folder, beside the rule that throws it. Its operations name it in `errors`, so that the document has it. */
export const errorCode = (
  code: string,
  status: number,
  message: string,
  more: Pick<ErrorCode, "hasRetryAfter"> = {},
): ErrorCode => ({ code, status, message, ...more });

/** The errors of the frame, and those of several folders: status and default message. */
const COMMON = {
  invalid_input: [400, "The request has invalid input. Correct the fields in `errors`."],
  malformed_json: [400, "The body is not valid JSON."],
  malformed_multipart: [400, "The body is not a complete multipart/form-data message."],
  file_missing: [400, "The form has no file. Send the file in a part named `file` with a file name."],
  file_empty: [400, "The file is empty. Choose a file with content."],
  too_many_files: [400, "The form has more than one file. Send one file per request."],
  digest_mismatch: [400, "The bytes do not match their digest. Send them again."],
  token_missing: [401, "The request has no bearer token. Send one, such as an API key."],
  token_invalid: [401, "The token is invalid, revoked, or expired."],
  forbidden: [403, "This token isn't allowed to do this."],
  team_suspended: [403, "The team is suspended. Contact the operator of this service."],
  insufficient_scope: [403, "This token lacks a scope."],
  not_found: [404, "Not found."],
  route_not_found: [404, "No route matches this URL. See /reference for all routes."],
  method_not_allowed: [405, "Method not allowed."],
  upload_timeout: [408, "The request body stalled and timed out. Send it again."],
  conflict: [409, "Another request changed this record at the same time. Retry."],
  version_mismatch: [412, "The record has changed since the given version. Get it again and retry."],
  body_too_large: [413, "The body is too large."],
  file_too_large: [413, "The file is too large."],
  quota_exceeded: [413, "A limit (storage, sessions or users) is reached. Delete something and retry."],
  unsupported_media_type: [415, "The Content-Type is not supported."],
  rate_limited: [429, "Too many requests. Retry in a minute."],
  internal: [500, "Something went wrong on our side."],
  unavailable: [503, "The service is temporarily unavailable. Retry shortly."],
  storage_full: [507, "The database is full. Delete files, or ask the operator of this service for room."],
} as const satisfies Record<string, [status: number, message: string]>;

export type CommonCode = keyof typeof COMMON;
/** A common error by its code, or one of a folder. */
export type ErrorKind = CommonCode | ErrorCode;

const commonErrors = Object.fromEntries(
  Object.entries(COMMON).map(([code, [status, message]]) => [code, errorCode(code, status, message)]),
) as Record<CommonCode, ErrorCode>;
export const COMMON_ERRORS = Object.values(commonErrors);

export const errorOf = (kind: ErrorKind): ErrorCode => (typeof kind === "string" ? commonErrors[kind] : kind);

/** An invalid field. `path` uses dots (`audio.tags.0`) and is empty if the whole body is invalid. */
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
  readonly kind: ErrorCode;
  readonly code: string;
  readonly errors: FieldError[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly limit: RateLimitName | undefined;
  readonly scope: string | undefined;

  constructor(kind: ErrorKind, { message, errors, retryAfterSeconds, limit, scope, cause }: Details = {}) {
    super(message ?? describeFields(errors) ?? errorOf(kind).message, cause === undefined ? undefined : { cause });
    this.name = "AppError";
    this.kind = errorOf(kind);
    this.code = this.kind.code;
    this.errors = errors;
    this.retryAfterSeconds = retryAfterSeconds;
    this.limit = limit;
    this.scope = scope;
  }
}

/** Whether it is an error of one of these kinds. */
export const isError = (error: unknown, ...kinds: ErrorKind[]): error is AppError =>
  error instanceof AppError && kinds.some((kind) => error.kind === errorOf(kind));

/** An `invalid_input` of one field, parameter or header. */
export const invalidField = (path: string, message: string) =>
  new AppError("invalid_input", { errors: [{ path, message }] });
