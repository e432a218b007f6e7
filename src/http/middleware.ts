import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import { routePath } from "hono/route";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";
import { RESUMABLE } from "./resumable.ts";

/** The log's one line for each request. */
export const requestLog: MiddlewareHandler<AppEnv> = async (c, next) => {
  const startedAt = Date.now();
  await next();
  const { actor, code, log, requestId } = c.var;
  log("info", "request", {
    requestId,
    method: c.req.method,
    route: routePath(c, -1),
    status: c.res.status,
    ...(code && { code }),
    durationMilliseconds: Date.now() - startedAt,
    ...(actor && "keyId" in actor && { keyId: actor.keyId, teamId: actor.teamId }),
  });
};

/** OWASP's headers for an API: nothing here is a page, to be kept, framed, or sniffed into one. */
export const apiSecureHeaders = secureHeaders({
  contentSecurityPolicy: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
  strictTransportSecurity: "max-age=63072000",
  // For pages only; the answers are for pages of any origin.
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
 * The other headers of every response. Any origin may read it: callers authenticate by header, so a page has no more
 * rights than its visitor's token.
 */
export const apiHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  const { headers } = c.res;
  headers.set("Cache-Control", "no-store");
  headers.set("X-Request-Id", c.var.requestId);
  headers.set("Access-Control-Allow-Origin", "*");
  headers.set("Access-Control-Expose-Headers", EXPOSED_HEADERS);
};

const answerPreflight = cors({
  origin: "*",
  allowMethods: ["GET", "POST", "PUT", "PATCH", "DELETE"],
  allowHeaders: [
    ...["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-HTTP-Method-Override"],
    ...["Tus-Resumable", "Upload-Length", "Upload-Offset", "Upload-Metadata", "Upload-Defer-Length", "Upload-Concat"],
    ...["X-Requested-With", "X-Request-ID"],
  ],
  maxAge: 86_400,
});

/** Only preflights: on every other request the middleware would build a response just to set two headers. */
export const preflight: MiddlewareHandler<AppEnv> = (c, next) => {
  if (c.req.method !== "OPTIONS") return next();
  // What the server of resumable uploads can do is asked by OPTIONS too; a preflight names the method that is to follow.
  const isQuestion = c.req.path === RESUMABLE && !c.req.header("Access-Control-Request-Method");
  return isQuestion ? next() : answerPreflight(c, next);
};
