import type { Context, Hono, MiddlewareHandler } from "hono";
import { except } from "hono/combine";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";

const commonHeaders = {
  strictTransportSecurity: "max-age=63072000",
  referrerPolicy: "no-referrer",
} as const;

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
  ...commonHeaders,
});

/**
 * The reference runs Swagger UI, which does not work with Trusted Types and sets inline styles. The sandbox gives the page
 * an opaque origin, so its scripts can't reach the console's session.
 */
const referenceHeaders = secureHeaders({
  contentSecurityPolicy: {
    sandbox: ["allow-scripts", "allow-forms", "allow-downloads"],
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'", "'unsafe-inline'"],
    imgSrc: ["'self'", "data:"],
    connectSrc: ["'self'"],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
  },
  ...commonHeaders,
});

/**
 * The web pages, built by src/console/build.js: each route serves one static file. Requests for their scripts and styles
 * under /assets never reach the Worker.
 */
export function mountPages(app: Hono<AppEnv>, provideDeps: MiddlewareHandler<AppEnv>): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.var.deps.pages.fetch(new URL(file, c.req.url), c.req.raw);
    const response = new Response(body, { status, headers });
    response.headers.set("Cache-Control", "no-cache");
    return response;
  };
  app.get("/console/*", provideDeps, pageHeaders, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], provideDeps, referenceHeaders, servePage("/reference.html"));
  // Only browsers get a page at `/`. API clients get a 404 in the shape of every error.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, provideDeps, pageHeaders, servePage("/home.html")));
}
