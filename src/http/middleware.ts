import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import { routePath } from "hono/route";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";
import { RESUMABLE } from "./resumable.ts";

export const requestLog: MiddlewareHandler<AppEnv> = async (c, next) => {
  const startedAt = Date.now();
  await next();
  const { actor, code, log, requestId } = c.var;
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

/** OWASP's headers for an API: responses are not pages and must not be framed or sniffed as pages. */
export const apiSecureHeaders = secureHeaders({
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  strictTransportSecurity: "max-age=63072000",
  // These protect pages only. Pages of any origin may read API responses.
  crossOriginResourcePolicy: false,
  crossOriginOpenerPolicy: false,
  originAgentCluster: false,
  xDnsPrefetchControl: false,
  xDownloadOptions: false,
  xFrameOptions: false,
  xPermittedCrossDomainPolicies: false,
  xXssProtection: false,
});

const EXPOSED_HEADERS =
  "Location, Content-Location, Link, ETag, Retry-After, X-Request-Id, Tus-Resumable, Tus-Version, Tus-Extension, " +
  "Tus-Max-Size, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires";

/**
 * The other headers of every response. Any origin may read responses: callers authenticate by header, so a page can do only
 * what its token allows.
 */
export const apiHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  const { headers } = c.res;
  headers.set("Cache-Control", "no-store");
  headers.set("X-Request-Id", c.var.requestId);
  headers.set("Access-Control-Allow-Origin", "*");
  headers.set("Access-Control-Expose-Headers", EXPOSED_HEADERS);
};

const respondToPreflight = cors({
  origin: "*",
  allowMethods: ["GET", "POST", "PUT", "PATCH", "DELETE"],
  allowHeaders: [
    ...["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-HTTP-Method-Override"],
    ...["Tus-Resumable", "Upload-Length", "Upload-Offset", "Upload-Metadata", "Upload-Defer-Length", "Upload-Concat"],
    ...["X-Requested-With", "X-Request-ID"],
  ],
  maxAge: 86_400,
});

/** Runs the CORS middleware for preflights only. On other requests it would build a response just to set two headers. */
export const preflight: MiddlewareHandler<AppEnv> = (c, next) => {
  if (c.req.method !== "OPTIONS") return next();
  // tus clients also send OPTIONS to get the capabilities. Only a preflight names the next method.
  const isCapabilityRequest = c.req.path === RESUMABLE && !c.req.header("Access-Control-Request-Method");
  return isCapabilityRequest ? next() : respondToPreflight(c, next);
};
