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
const HEADERS: SecureHeaders = {
  contentSecurityPolicy: POLICY,
  strictTransportSecurity: "max-age=63072000",
  referrerPolicy: "no-referrer",
  // As the policy says, for browsers that don't know `frame-ancestors`.
  xFrameOptions: "DENY",
};
/** The console also plays, shows, and downloads files from storage. */
const pageHeaders = secureHeaders({
  ...HEADERS,
  contentSecurityPolicy: {
    ...POLICY,
    connectSrc: ["'self'", fileSource],
    frameSrc: [fileSource],
    imgSrc: ["'self'", fileSource],
    mediaSrc: [fileSource],
  },
});
/** A link's page is on the host of its file. */
const shareHeaders = secureHeaders(HEADERS);
/** Any site may frame the player. */
const embedHeaders = secureHeaders({
  ...HEADERS,
  contentSecurityPolicy: { ...POLICY, frameAncestors: ["*"] },
  xFrameOptions: false,
  crossOriginResourcePolicy: "cross-origin",
});

/** The preview of a link in chats and mail programs. */
export interface Preview {
  /** The title of the page. */
  name: string;
  title: string;
  description: string;
  /** The size of the picture at `PICTURE_PATH`. Null if there is none. */
  picture: { width: number; height: number } | null;
}
/** Below the page of a link. It has the same secret. */
const PICTURE_PATH = "waveform.png";

const LINK_HEADERS = { "Cache-Control": "no-store", "X-Robots-Tag": "noindex" };

const escapeHtml = (text: string) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

function previewTags(c: Context<AppEnv>, { title, description, picture }: Preview): string {
  const image = new URL(`/share/${c.req.param("link")}/${PICTURE_PATH}`, c.req.url).href;
  const properties = {
    site_name: "Stowage",
    type: "website",
    title,
    description,
    ...(picture && { image, "image:type": "image/png", "image:width": picture.width, "image:height": picture.height }),
  };
  const tags = Object.entries(properties).map(
    ([name, content]) => `<meta property="og:${name}" content="${escapeHtml(String(content))}">`,
  );
  // Without it, some show a small picture.
  return tags.join("") + (picture ? '<meta name="twitter:card" content="summary_large_image">' : "");
}

/** Errors of these are in the shape of every error, also in a browser. */
const API_PATHS = /^\/(auth|docs|health|openapi\.json|llms\.txt|reference\.md|reference\/\w+\.md)(\/|$)/;

/**
 * The web pages, built by src/console/build.js: each route serves one static file. Requests for their scripts and styles
 * under /assets never reach the Worker. `findPreview` returns what a preview of the link of a request says, or null, and
 * `findPicture` its picture.
 */
export function mountPages(
  app: Hono<AppEnv>,
  provideDeps: MiddlewareHandler<AppEnv>,
  findPreview: (c: Context<AppEnv>) => Promise<Preview | null>,
  findPicture: (c: Context<AppEnv>) => Promise<Uint8Array<ArrayBuffer>>,
): void {
  const servePage = (file: string) => async (c: Context<AppEnv>) => {
    const { body, status, headers } = await c.var.deps.pages.fetch(new URL(file, c.req.url), c.req.raw);
    const response = new Response(body, { status, headers });
    response.headers.set("Cache-Control", "no-cache, no-transform");
    return response;
  };
  /** Its status is that of the link, so it is not stored: a revoked link ends with the next request. */
  const serveLinkPage = async (c: Context<AppEnv>) => {
    const preview = await findPreview(c);
    const page = await c.var.deps.pages.fetch(new URL(preview ? "/share.html" : "/gone.html", c.req.url));
    const html = await page.text();
    const body = preview
      ? html
          .replace(/(?<=<title>)[^<]*/, () => escapeHtml(preview.name))
          .replace("</head>", () => `${previewTags(c, preview)}</head>`)
      : html;
    const headers = { ...LINK_HEADERS, "Content-Type": "text/html; charset=utf-8" };
    return new Response(body, { status: preview ? 200 : 404, headers });
  };
  const servePicture = async (c: Context<AppEnv>) =>
    new Response(await findPicture(c), { headers: { ...LINK_HEADERS, "Content-Type": "image/png" } });
  const serveNotFound = async (c: Context<AppEnv>) => {
    const { body } = await c.var.deps.pages.fetch(new URL("/not-found.html", c.req.url));
    return new Response(body, { status: 404, headers: { "Content-Type": "text/html; charset=utf-8" } });
  };
  const page = [redirectToHttps, provideDeps, pageHeaders] as const;
  app.get("/console/*", ...page, servePage("/console.html"));
  app.on("GET", ["/reference", "/reference/"], ...page, servePage("/reference.html"));
  app.get("/share/:link", redirectToHttps, provideDeps, shareHeaders, serveLinkPage);
  app.get(`/share/:link/${PICTURE_PATH}`, redirectToHttps, provideDeps, embedHeaders, servePicture);
  app.get("/embed/:link", redirectToHttps, provideDeps, embedHeaders, serveLinkPage);
  // Only browsers get a page at `/`. API clients get a 404 in the shape of every error.
  const isApiClient = (c: Context) => !c.req.header("Accept")?.includes("text/html");
  app.get("/", except(isApiClient, ...page, servePage("/home.html")));
  // As middleware, because a route for every path would hide which methods a path has.
  const isCall = (c: Context) => c.req.header("Sec-Fetch-Mode") !== "navigate" || API_PATHS.test(c.req.path);
  app.use(except(isCall, ...page, serveNotFound));
}
