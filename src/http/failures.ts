import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import * as z from "zod";
import { AppError, type Code, MESSAGES } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

/** The one map from code to status. It has no default: a new code does not compile until it has a status. */
export const STATUS = {
  invalid_input: 400,
  malformed_json: 400,
  malformed_multipart: 400,
  file_missing: 400,
  file_empty: 400,
  too_many_files: 400,
  token_missing: 401,
  token_invalid: 401,
  login_failed: 401,
  forbidden: 403,
  not_found: 404,
  route_not_found: 404,
  method_not_allowed: 405,
  upload_timeout: 408,
  email_taken: 409,
  idempotency_conflict: 409,
  webhook_disabled: 409,
  offset_mismatch: 409,
  upload_expired: 410,
  version_mismatch: 412,
  unsupported_version: 412,
  body_too_large: 413,
  file_too_large: 413,
  quota_exceeded: 413,
  unsupported_media_type: 415,
  upload_locked: 423,
  rate_limited: 429,
  internal: 500,
  unavailable: 503,
} as const satisfies Record<Code, ContentfulStatusCode>;

/** When to try again where nobody knows better. */
const UNAVAILABLE_SECONDS = 5;

const CODES = Object.keys(STATUS) as [Code, ...Code[]];

export const errorSchema = z
  .strictObject({
    status: z.literal(false),
    message: z.string(),
    code: z.enum(CODES).meta({
      // As Redocly has it: what each value means.
      "x-enumDescriptions": Object.fromEntries(CODES.map((code) => [code, `${STATUS[code]}: ${MESSAGES[code]}`])),
    }),
    requestId: z.string(),
    errors: z
      .array(z.strictObject({ path: z.string(), message: z.string() }))
      .optional()
      .meta({ description: "Only for invalid input: each field and what is wrong with it." }),
  })
  .meta({ id: "Error", description: "The one shape of every failure." });

/** The error shape. Of a bug the caller learns the request id and nothing else; the log has the cause under it. */
export function renderError(c: Context<AppEnv>, error: unknown): Response {
  const known = error instanceof AppError ? error : new AppError("internal", { cause: error });
  const status = STATUS[known.code];
  c.set("code", known.code);
  if (status >= 500) {
    c.var.log("error", "request failed", { requestId: c.var.requestId, code: known.code, cause: known.cause });
  }
  if (status === 401) c.header("WWW-Authenticate", "Bearer");
  const retryAfterSeconds = known.retryAfterSeconds ?? (status === 503 ? UNAVAILABLE_SECONDS : undefined);
  if (retryAfterSeconds !== undefined) c.header("Retry-After", String(retryAfterSeconds));
  const { code, message, errors } = known;
  const body: z.input<typeof errorSchema> = { status: false, message, code, requestId: c.var.requestId };
  return c.json(errors ? { ...body, errors } : body, status);
}

/** RFC 9110, section 15.5.6, asks for `Allow`. */
export function renderMethodNotAllowed(c: Context, methods: readonly string[]): Response {
  c.header("Allow", [...methods, "OPTIONS"].join(", "));
  const list = new Intl.ListFormat("en").format(methods.filter((method) => method !== "HEAD"));
  const message = `This address takes ${list}.`;
  return renderError(c, new AppError("method_not_allowed", { message }));
}
