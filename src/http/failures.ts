import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { AppError, type FieldError } from "../errors.ts";
import { RATE_LIMIT_SECONDS, RATE_LIMITS, type RateLimitName } from "../rate-limits.ts";
import type { AppEnv } from "./app-env.ts";

/** `Retry-After` of errors that name no delay. */
const RETRY_AFTER_SECONDS: Partial<Record<number, number>> = {
  429: RATE_LIMIT_SECONDS,
  503: 5, // binding failures usually last only seconds
};

export const retryAfterOf = ({ kind, retryAfterSeconds }: AppError): number | undefined =>
  retryAfterSeconds ?? RETRY_AFTER_SECONDS[kind.status];

/** `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10): the requests `q` in the window of `w` seconds. */
export const rateLimitPolicy = (limit: RateLimitName): string =>
  `"${limit}";q=${RATE_LIMITS[limit]};w=${RATE_LIMIT_SECONDS}`;

/** The body of every error. */
interface ErrorBody {
  status: false;
  message: string;
  code: string;
  requestId: string;
  errors?: FieldError[];
}

function appErrorOf(error: unknown): AppError {
  if (error instanceof AppError) return error;
  // Hono throws this for a body that is not JSON, and for nothing else.
  if (error instanceof HTTPException && error.status === 400) return new AppError("malformed_json");
  return new AppError("internal", { cause: error });
}

/** Renders any error in the error shape. An unexpected error reveals only the request id; its cause is logged under that id. */
export function renderError(c: Context<AppEnv>, error: unknown): Response {
  const appError = appErrorOf(error);
  const { code, status } = appError.kind;
  c.set("code", code);
  if (status >= 500) {
    c.get("log")("error", "request_failed", { requestId: c.get("requestId"), code, cause: appError.cause });
  }
  if (status === 401) c.header("WWW-Authenticate", "Bearer");
  // RFC 6750, section 3.1.
  if (appError.scope) c.header("WWW-Authenticate", `Bearer error="insufficient_scope", scope="${appError.scope}"`);
  const retryAfterSeconds = retryAfterOf(appError);
  if (retryAfterSeconds !== undefined) c.header("Retry-After", String(retryAfterSeconds));
  const { message, errors, limit } = appError;
  if (limit !== undefined) {
    c.header("RateLimit", `"${limit}";r=0;t=${retryAfterSeconds}`);
    c.header("RateLimit-Policy", rateLimitPolicy(limit));
  }
  const body: ErrorBody = { status: false, message, code, requestId: c.get("requestId") };
  return c.json(errors ? { ...body, errors } : body, status as ContentfulStatusCode);
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
