import type { MiddlewareHandler } from "hono";
import { routePath } from "hono/route";
import type { AppEnv } from "./operation.ts";

/** Gives the request its id, and the log its one line about it. */
export const observed: MiddlewareHandler<AppEnv> = async (c, next) => {
  const startedAt = Date.now();
  const requestId = crypto.randomUUID();
  c.set("requestId", requestId);
  await next();
  const actor = c.var.caller?.actor;
  c.var.log("info", "request", {
    requestId,
    method: c.req.method,
    route: routePath(c, -1),
    status: c.res.status,
    ...(c.var.code && { code: c.var.code }),
    durationMilliseconds: Date.now() - startedAt,
    ...(actor && "keyId" in actor && { keyId: actor.keyId, teamId: actor.teamId }),
  });
};

const HEADERS = {
  // OWASP's headers for an API: nothing here is a page, to be kept, framed, or sniffed into one.
  "Cache-Control": "no-store",
  "X-Content-Type-Options": "nosniff",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Strict-Transport-Security": "max-age=63072000",
  "Referrer-Policy": "no-referrer",
  // Any origin may read it: callers authenticate by header, so a page has no more rights than its visitor's token.
  "Access-Control-Allow-Origin": "*",
  "Access-Control-Expose-Headers": "Location, Link, ETag, Retry-After, X-Request-Id",
};

/** The headers of every response. */
export const secured: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  for (const [name, value] of Object.entries(HEADERS)) c.res.headers.set(name, value);
  c.res.headers.set("X-Request-Id", c.var.requestId);
};
