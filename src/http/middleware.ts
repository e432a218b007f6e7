import type { Context, MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import { routePath } from "hono/route";
import { secureHeaders } from "hono/secure-headers";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { rateLimitPolicy } from "./failures.ts";
import { RESUMABLE } from "./paths.ts";

export const requestLog: MiddlewareHandler<AppEnv> = async (c, next) => {
  const startedAt = Date.now();
  await next();
  const { credential, code, log, requestId } = c.var;
  const actor = credential?.caller?.actor;
  log("info", "request_finished", {
    requestId,
    method: c.req.method,
    route: routePath(c, -1),
    status: c.res.status,
    ...(code && { code }),
    durationMilliseconds: Date.now() - startedAt,
    ...(actor && "keyId" in actor && { keyId: actor.keyId, teamId: actor.teamId }),
  });
};

type SecureHeaders = NonNullable<Parameters<typeof secureHeaders>[0]>;

/** OWASP's headers for responses that are not pages. */
const NOT_A_PAGE: SecureHeaders = {
  strictTransportSecurity: "max-age=63072000",
  // These protect pages only.
  crossOriginOpenerPolicy: false,
  originAgentCluster: false,
  xDnsPrefetchControl: false,
  xDownloadOptions: false,
  xFrameOptions: false,
  xPermittedCrossDomainPolicies: false,
  xXssProtection: false,
};

/** API responses must not be framed or sniffed as pages. Pages of any origin may read them. */
const apiSecureHeaders = secureHeaders({
  ...NOT_A_PAGE,
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  crossOriginResourcePolicy: false,
});

/**
 * The security headers of a response with a user's bytes on our origin. The sandbox stops scripts, forms and plugins in
 * every browser, and CORP lets pages of other origins play the file.
 */
const sandboxHeaders = secureHeaders({
  ...NOT_A_PAGE,
  // A browser that opens the link of an audio file shows its own player, which loads the same URL as media.
  contentSecurityPolicy: { sandbox: [], defaultSrc: ["'none'"], mediaSrc: ["'self'"] },
  crossOriginResourcePolicy: "cross-origin",
});

const EXPOSED_HEADERS =
  "Location, Content-Location, Link, ETag, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Tus-Resumable, Tus-Version, Tus-Extension, " +
  "Tus-Max-Size, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires";

const EXPOSED_FILE_HEADERS =
  "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag, Repr-Digest, Retry-After, X-Request-Id";

/** Any origin may read responses: callers authenticate by header or by a secret URL, and never by a cookie. */
function setCommonHeaders(c: Context<AppEnv>, cacheControl: string, exposedHeaders: string): void {
  const { headers } = c.res;
  // Compression by the edge would weaken the ETag, and change the bytes behind a digest.
  headers.set("Cache-Control", `${cacheControl}, no-transform`);
  headers.set("X-Request-Id", c.get("requestId"));
  headers.set("Access-Control-Allow-Origin", "*");
  headers.set("Access-Control-Expose-Headers", exposedHeaders);
}

const apiHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  await apiSecureHeaders(c, next);
  setCommonHeaders(c, c.res.headers.get("Cache-Control") ?? "no-store", EXPOSED_HEADERS);
  const limit = c.get("credential")?.caller?.limit;
  if (limit && !c.res.headers.has("RateLimit-Policy")) c.res.headers.set("RateLimit-Policy", rateLimitPolicy(limit));
};

const fileHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  await sandboxHeaders(c, next);
  const { ok, status } = c.res;
  // Revalidation lets a player reuse what it has, and a revoked link still stops at once.
  setCommonHeaders(c, ok || status === 304 ? "private, no-cache" : "no-store", EXPOSED_FILE_HEADERS);
};

/** Sets the headers of every API response, and in their place those of a user's file. */
export const responseHeaders =
  (isFilePath: (path: string) => boolean): MiddlewareHandler<AppEnv> =>
  (c, next) =>
    isFilePath(c.req.path) ? fileHeaders(c, next) : apiHeaders(c, next);

const respondToPreflight = cors({
  origin: "*",
  allowMethods: ["GET", "POST", "PUT", "PATCH", "DELETE"],
  allowHeaders: [
    ...["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-HTTP-Method-Override"],
    ...["Tus-Resumable", "Upload-Length", "Upload-Offset", "Upload-Metadata", "Upload-Defer-Length", "Upload-Concat"],
    ...["Content-Digest", "Repr-Digest", "X-Requested-With", "X-Request-ID"],
  ],
  maxAge: 86_400,
});

/** This machine's own names. Only a developer's server has them. */
const LOCAL_HOST = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;

const isReadable = (c: Context): boolean =>
  c.req.url.startsWith("http:") && !LOCAL_HOST.test(new URL(c.req.url).hostname);

/**
 * Rejects tokens, bodies and secret paths sent over plain http, where others can read them. A redirect would hide the mistake from
 * the client, which would send its secret in plain text each time.
 */
export const requireHttps =
  (isSecretPath: (path: string) => boolean): MiddlewareHandler<AppEnv> =>
  async (c, next) => {
    const isSecret =
      c.req.header("Authorization") !== undefined ||
      !["GET", "HEAD", "OPTIONS"].includes(c.req.method) ||
      isSecretPath(c.req.path);
    if (isSecret && isReadable(c)) {
      throw new AppError("forbidden", {
        message: "Use https. If the request had a token or a link, revoke it: it was readable.",
      });
    }
    await next();
  };

/** Redirects a browser that opens a page over plain http, where others could change the page. */
export const redirectToHttps: MiddlewareHandler<AppEnv> = async (c, next) => {
  if (isReadable(c) && c.req.header("Authorization") === undefined) {
    return c.redirect(c.req.url.replace(/^http:/, "https:"), 308);
  }
  await next();
};

/** Runs the CORS middleware for preflights only. On other requests it would build a response just to set two headers. */
export const preflight: MiddlewareHandler<AppEnv> = (c, next) => {
  if (c.req.method !== "OPTIONS") return next();
  // tus clients also send OPTIONS to get the capabilities. Only a preflight names the next method.
  const isCapabilityRequest = c.req.path === RESUMABLE && !c.req.header("Access-Control-Request-Method");
  return isCapabilityRequest ? next() : respondToPreflight(c, next);
};
