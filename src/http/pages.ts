import type { Context, Hono, MiddlewareHandler } from "hono";
import { every, except } from "hono/combine";
import { secureHeaders } from "hono/secure-headers";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
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

/** The service in the examples of the documents, which show their own one in its place. */
const EXAMPLE_ORIGIN = "https://stowage.example.workers.dev";
/** Begins the keys under which the bucket keeps the clients of all deployments. No team has this id. */
export const CLIENT_KEYS = "stowage/";
const MAX_CLIENT_BYTES = 10_000_000;

/**
 * Where the package of this deployment's client is, such as `/client-1.0.0-50112cb7a048.tgz`. The name has the hash of the
 * bytes, so a lock file that contains the address stays valid. `/client.tgz`, which redirects to it, would not.
 */
export async function clientPath({ pages }: Pick<Deps, "pages">, url: string): Promise<string> {
  const { headers } = await pages.fetch(new URL("/client.tgz", url), { redirect: "manual" });
  return headers.get("Location") ?? "/client.tgz";
}

/** Serves a package: that of this deployment from its files, and those of earlier ones from the bucket. */
async function serveClient(c: Context<AppEnv>): Promise<Response> {
  const { pages, bytes } = c.get("deps");
  const { path } = c.req;
  const current = await pages.fetch(new URL(path, c.req.url));
  const body = current.ok ? current.body : await bytes.open(CLIENT_KEYS + path.slice(1), 0, MAX_CLIENT_BYTES);
  if (!body) throw new AppError("route_not_found");
  return c.body(body, 200, {
    "Content-Type": "application/gzip",
    "Cache-Control": "public, max-age=31536000, immutable",
  });
}

/** Errors of these are in the shape of every error, also in a browser. */
const API_PATHS =
  /^\/(auth|docs|health|openapi\.json|llms\.txt|client[\w.-]*\.tgz|reference\.md|reference\/\w+\.md)(\/|$)/;

/**
 * The web pages, built by src/console/build.js: each route serves one static file. Requests for their scripts and styles
 * under /assets never reach the Worker.
 * @param secretPages the pages of capabilities
 */
export function mountPages(app: Hono<AppEnv>, provideDeps: MiddlewareHandler<AppEnv>, secretPages: SecretPage[]): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.get("deps").pages.fetch(new URL(file, c.req.url), c.req.raw);
    const response = new Response(body, { status, headers });
    response.headers.set("Cache-Control", "no-cache, no-transform");
    return response;
  };
  /** Shows the own URL in examples. The ETag of the file stays valid, because each origin is cached by itself. */
  const serveExamples = (file: string) => async (c: Context<AppEnv>) => {
    const response = await servePage(file)(c);
    response.headers.delete("Content-Length");
    const text = (await response.text()).replaceAll(EXAMPLE_ORIGIN, new URL(c.req.url).origin);
    return new Response(text || null, response);
  };
  const serveNotFound = async (c: Context<AppEnv>) => {
    const { body } = await c.get("deps").pages.fetch(new URL("/not-found.html", c.req.url));
    return new Response(body, { status: 404, headers: { "Content-Type": "text/html; charset=utf-8" } });
  };
  const page = [redirectToHttps, provideDeps, pageHeaders] as const;
  app.get("/console/*", ...page, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], ...page, servePage("/reference.html"));
  for (const path of DOCUMENTS) app.get(path, ...page, serveExamples(path));
  app.get("/client.tgz", ...page, async (c) => {
    c.header("Cache-Control", "no-cache");
    return c.redirect(await clientPath(c.get("deps"), c.req.url));
  });
  app.get("/:name{client-[\\w.-]+\\.tgz}", ...page, serveClient);
  for (const { path, headers, serve } of secretPages)
    app.get(path.replaceAll(/\{(\w+)\}/g, ":$1"), redirectToHttps, provideDeps, headers, serve);
  // Only browsers get a page at `/`. API clients get a 404 in the shape of every error.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, ...page, servePage("/home.html")));
  // As middleware, because a route for every path would hide which methods a path has.
  const notFoundPage = every(...page, serveNotFound);
  app.use((c, next) => {
    const isCall = c.req.header("Sec-Fetch-Mode") !== "navigate" || API_PATHS.test(c.req.path);
    return isCall ? next() : notFoundPage(c, next);
  });
}
