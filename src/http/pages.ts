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

type SecureHeaders = NonNullable<Parameters<typeof secureHeaders>[0]>;

/** A page that anyone with its URL may open. */
export interface SecretPage {
  /** Such as `/share/{link}`. */
  path: string;
  headers: MiddlewareHandler;
  serve(c: Context<AppEnv>): Promise<Response>;
}

/** Allows our own scripts, no text as script, and no other host. */
const POLICY = {
  defaultSrc: ["'none'"],
  scriptSrc: ["'self'"],
  styleSrc: ["'self'"],
  imgSrc: ["'self'"],
  connectSrc: ["'self'"],
  mediaSrc: ["'self'"],
  baseUri: ["'none'"],
  formAction: ["'none'"],
  frameAncestors: ["'none'"],
  requireTrustedTypesFor: ["'script'"],
  trustedTypes: ["'none'"],
};
export const PAGE_HEADERS = {
  contentSecurityPolicy: POLICY,
  strictTransportSecurity: "max-age=63072000",
  referrerPolicy: "no-referrer",
  // As the policy says, for browsers that don't know `frame-ancestors`.
  xFrameOptions: "DENY",
} satisfies SecureHeaders;
/** The console also plays, shows, and downloads files from storage. */
const pageHeaders = secureHeaders({
  ...PAGE_HEADERS,
  contentSecurityPolicy: {
    ...POLICY,
    connectSrc: ["'self'", fileSource],
    frameSrc: [fileSource],
    imgSrc: ["'self'", fileSource],
    mediaSrc: [fileSource],
  },
});
/** The guide to the API, and that to its client, as Markdown. */
const DOCUMENTS = ["/guide.md", "/client.md"];

/** Errors of these are in the shape of every error, also in a browser. */
const API_PATHS = /^\/(auth|docs|health|openapi\.json|llms\.txt|reference\.md|reference\/\w+\.md)(\/|$)/;

/**
 * The web pages, built by src/console/build.js: each route serves one static file. Requests for their scripts and styles
 * under /assets never reach the Worker.
 * @param secretPages the pages of capabilities
 */
export function mountPages(app: Hono<AppEnv>, provideDeps: MiddlewareHandler<AppEnv>, secretPages: SecretPage[]): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.var.deps.pages.fetch(new URL(file, c.req.url), c.req.raw);
    const response = new Response(body, { status, headers });
    response.headers.set("Cache-Control", "no-cache, no-transform");
    return response;
  };
  const serveNotFound = async (c: Context<AppEnv>) => {
    const { body } = await c.var.deps.pages.fetch(new URL("/not-found.html", c.req.url));
    return new Response(body, { status: 404, headers: { "Content-Type": "text/html; charset=utf-8" } });
  };
  const page = [redirectToHttps, provideDeps, pageHeaders] as const;
  app.get("/console/*", ...page, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], ...page, servePage("/reference.html"));
  for (const path of DOCUMENTS) app.get(path, ...page, servePage(path));
  for (const { path, headers, serve } of secretPages)
    app.get(path.replaceAll(/\{(\w+)\}/g, ":$1"), redirectToHttps, provideDeps, headers, serve);
  // Only browsers get a page at `/`. API clients get a 404 in the shape of every error.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, ...page, servePage("/home.html")));
  // As middleware, because a route for every path would hide which methods a path has.
  const isCall = (c: Context) => c.req.header("Sec-Fetch-Mode") !== "navigate" || API_PATHS.test(c.req.path);
  app.use(except(isCall, ...page, serveNotFound));
}
