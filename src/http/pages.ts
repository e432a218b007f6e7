import type { Context, Hono, MiddlewareHandler } from "hono";
import { except } from "hono/combine";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";
import { redirectToHttps } from "./middleware.ts";

/** Where files are played from: storage, or links on their own host or on this one. */
function fileSource({ var: { deps } }: Context<AppEnv>): string {
  const { storeOrigin, linkHost } = deps.settings;
  return storeOrigin ?? (linkHost === null ? "'self'" : `https://${linkHost}`);
}

/** Allows our own scripts, no text as script, and no other host except storage, from which files are played. */
const pageHeaders = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    imgSrc: ["'self'"],
    connectSrc: ["'self'", fileSource],
    mediaSrc: [fileSource],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
    requireTrustedTypesFor: ["'script'"],
    trustedTypes: ["'none'"],
  },
  strictTransportSecurity: "max-age=63072000",
  referrerPolicy: "no-referrer",
});

/**
 * The web pages, built by src/console/build.js: each route serves one static file. Requests for their scripts and styles
 * under /assets never reach the Worker.
 */
export function mountPages(app: Hono<AppEnv>, provideDeps: MiddlewareHandler<AppEnv>): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.var.deps.pages.fetch(new URL(file, c.req.url), c.req.raw);
    const response = new Response(body, { status, headers });
    response.headers.set("Cache-Control", "no-cache, no-transform");
    return response;
  };
  const page = [redirectToHttps, provideDeps, pageHeaders] as const;
  app.get("/console/*", ...page, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], ...page, servePage("/reference.html"));
  // Only browsers get a page at `/`. API clients get a 404 in the shape of every error.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, ...page, servePage("/home.html")));
}
