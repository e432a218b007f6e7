import type { Context, Hono, MiddlewareHandler } from "hono";
import { except } from "hono/combine";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";

/** Allows only our own scripts, no script from text, and no other host except the file storage, for playback. */
const pageHeaders = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    imgSrc: ["'self'"],
    connectSrc: ["'self'"],
    mediaSrc: [(c) => c.var.deps.settings.storeOrigin],
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
 * Serves the pages that src/console/build.js builds: one static file per URL. Their files under /assets never reach the
 * Worker.
 */
export function mountPages(app: Hono<AppEnv>, provideDeps: MiddlewareHandler<AppEnv>): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.var.deps.pages.fetch(new URL(file, c.req.url), c.req.raw);
    const answer = new Response(body, { status, headers });
    answer.headers.set("Cache-Control", "no-cache");
    return answer;
  };
  app.get("/console/*", provideDeps, pageHeaders, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], provideDeps, pageHeaders, servePage("/reference.html"));
  // Only browsers get a page at `/`. API clients get 404 in the error shape.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, provideDeps, pageHeaders, servePage("/home.html")));
}
