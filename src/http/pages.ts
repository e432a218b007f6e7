import type { Context, Hono, MiddlewareHandler } from "hono";
import { except } from "hono/combine";
import { secureHeaders } from "hono/secure-headers";
import type { AppEnv } from "./app-env.ts";

/** No script but ours, no text that becomes one, and no other host but the store's, whose sound is played. */
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
 * The pages for people, which src/console/build.js makes: each address answers one static file. What they link to under
 * /assets never reaches the Worker.
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
  // At `/` only a browser gets a page: whoever calls the API there hears that there is nothing, in its one shape.
  const isNoBrowser = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isNoBrowser, provideDeps, pageHeaders, servePage("/home.html")));
}
