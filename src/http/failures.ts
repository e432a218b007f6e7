import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import * as z from "zod";
import { AppError, type Code, MESSAGES } from "../errors.ts";
import { RATE_LIMIT_SECONDS, RATE_LIMITS, type RateLimitName } from "../rate-limits.ts";
import type { AppEnv } from "./app-env.ts";

/** The HTTP status of each error code. A new code does not compile until it has a status. */
export const STATUS = {
  invalid_input: 400,
  malformed_json: 400,
  malformed_multipart: 400,
  file_missing: 400,
  file_empty: 400,
  too_many_files: 400,
  digest_mismatch: 400,
  token_missing: 401,
  token_invalid: 401,
  login_failed: 401,
  forbidden: 403,
  team_suspended: 403,
  insufficient_scope: 403,
  upload_limit_reached: 403,
  not_found: 404,
  route_not_found: 404,
  method_not_allowed: 405,
  upload_timeout: 408,
  email_taken: 409,
  last_admin: 409,
  idempotency_conflict: 409,
  idempotency_in_progress: 409,
  file_held: 409,
  not_in_trash: 409,
  conflict: 409,
  file_limit_reached: 409,
  too_many_unfinished_uploads: 409,
  too_many_keys: 409,
  too_many_webhooks: 409,
  too_many_folders: 409,
  folder_busy: 409,
  too_many_links: 409,
  webhook_disabled: 409,
  offset_mismatch: 409,
  upload_expired: 410,
  version_mismatch: 412,
  unsupported_version: 412,
  body_too_large: 413,
  file_too_large: 413,
  quota_exceeded: 413,
  unsupported_media_type: 415,
  type_not_allowed: 415,
  range_not_satisfiable: 416,
  upload_locked: 423,
  rate_limited: 429,
  internal: 500,
  email_not_configured: 501,
  unavailable: 503,
  storage_full: 507,
} as const satisfies Record<Code, ContentfulStatusCode>;

/** `Retry-After` of errors that name no delay. */
const RETRY_AFTER_SECONDS: Partial<Record<number, number>> = {
  429: RATE_LIMIT_SECONDS,
  503: 5, // binding failures usually last only seconds
};

export const retryAfterOf = ({ code, retryAfterSeconds }: AppError): number | undefined =>
  retryAfterSeconds ?? RETRY_AFTER_SECONDS[STATUS[code]];

/** `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10): the requests `q` in the window of `w` seconds. */
export const rateLimitPolicy = (limit: RateLimitName): string =>
  `"${limit}";q=${RATE_LIMITS[limit]};w=${RATE_LIMIT_SECONDS}`;

const CODES = Object.keys(STATUS) as [Code, ...Code[]];

export const errorSchema = z
  .strictObject({
    status: z.literal(false),
    message: z.string(),
    code: z.enum(CODES).meta({
      // Redocly's extension for describing enum values.
      "x-enumDescriptions": Object.fromEntries(CODES.map((code) => [code, `${STATUS[code]}: ${MESSAGES[code]}`])),
    }),
    requestId: z.string(),
    errors: z
      .array(z.strictObject({ path: z.string(), message: z.string() }))
      .optional()
      .meta({ description: "Only for `invalid_input`: each invalid field and its problem." }),
  })
  .meta({ id: "Error", description: "The shape of every error." });

function appErrorOf(error: unknown): AppError {
  if (error instanceof AppError) return error;
  // Hono throws this for a body that is not JSON, and for nothing else.
  if (error instanceof HTTPException && error.status === 400) return new AppError("malformed_json");
  return new AppError("internal", { cause: error });
}

/** Renders any error in the error shape. An unexpected error reveals only the request id; its cause is logged under that id. */
export function renderError(c: Context<AppEnv>, error: unknown): Response {
  const appError = appErrorOf(error);
  const status = STATUS[appError.code];
  c.set("code", appError.code);
  if (status >= 500) {
    c.var.log("error", "request_failed", { requestId: c.var.requestId, code: appError.code, cause: appError.cause });
  }
  if (status === 401) c.header("WWW-Authenticate", "Bearer");
  // RFC 6750, section 3.1.
  if (appError.scope) c.header("WWW-Authenticate", `Bearer error="insufficient_scope", scope="${appError.scope}"`);
  const retryAfterSeconds = retryAfterOf(appError);
  if (retryAfterSeconds !== undefined) c.header("Retry-After", String(retryAfterSeconds));
  const { code, message, errors, limit } = appError;
  if (limit !== undefined) {
    c.header("RateLimit", `"${limit}";r=0;t=${retryAfterSeconds}`);
    c.header("RateLimit-Policy", rateLimitPolicy(limit));
  }
  const body: z.input<typeof errorSchema> = { status: false, message, code, requestId: c.var.requestId };
  return c.json(errors ? { ...body, errors } : body, status);
}

/** Sends `Allow`, as RFC 9110, section 15.5.6, requires. */
export function renderMethodNotAllowed(c: Context, methods: readonly string[]): Response {
  c.header("Allow", [...methods, "OPTIONS"].join(", "));
  // A path with GET has HEAD, too.
  const list = new Intl.ListFormat("en", { type: "disjunction" }).format(
    methods.filter((method) => method !== "HEAD" || !methods.includes("GET")),
  );
  const message = `Method not allowed. Use ${list}.`;
  return renderError(c, new AppError("method_not_allowed", { message }));
}
