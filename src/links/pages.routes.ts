import type { Context } from "hono";
import { secureHeaders } from "hono/secure-headers";
import { isError } from "../errors.ts";
import type { AppEnv } from "../http/app-env.ts";
import { PAGE_HEADERS, type SecretPage } from "../http/pages.ts";
import { openCounted } from "./links.routes.ts";
import { findLinked } from "./links.ts";
import { PICTURE_PIXELS } from "./picture.ts";
import { drawLinked } from "./sharing.ts";

/* The page of a link, its player for other sites, and its preview in chats and mail programs. */

/** A link's page is on the host of its file. */
const shareHeaders = secureHeaders(PAGE_HEADERS);
/** Any site may frame the player. */
const embedHeaders = secureHeaders({
  ...PAGE_HEADERS,
  contentSecurityPolicy: { ...PAGE_HEADERS.contentSecurityPolicy, frameAncestors: ["*"] },
  xFrameOptions: false,
  crossOriginResourcePolicy: "cross-origin",
});
/** A revoked link ends with the next request, so nothing is stored. */
const LINK_HEADERS = { "Cache-Control": "no-store", "X-Robots-Tag": "noindex" };

/** Below the page of a link. It has the same secret. */
const PICTURE_PATH = "waveform.png";

/** @throws `not_found`, also if the file has no waveform, `rate_limited` */
async function servePicture(c: Context<AppEnv>): Promise<Response> {
  const picture = await openCounted(c, drawLinked);
  return new Response(picture, { headers: { ...LINK_HEADERS, "Content-Type": "image/png" } });
}

interface Preview {
  /** The title of the page, which is that of the recording if it has one. */
  name: string;
  /** The title of the preview. */
  title: string;
  description: string;
  /** The size of the picture at `PICTURE_PATH`. Null if there is none. */
  picture: { width: number; height: number } | null;
}

/** @returns null if there is no such link @throws `rate_limited` */
async function findPreview(c: Context<AppEnv>): Promise<Preview | null> {
  try {
    const { name, link, file, teamName } = await openCounted(c, findLinked);
    const shown = file.title ?? name;
    const title = link.name ?? [shown, file.artist].filter(Boolean).join(" – ");
    const picture = file.waveform !== null ? PICTURE_PIXELS : null;
    return { name: shown, title, description: `Shared by ${teamName}`, picture };
  } catch (error) {
    if (isError(error, "not_found")) return null;
    throw error;
  }
}

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

/** Its status is that of the link. */
async function servePageOfLink(c: Context<AppEnv>): Promise<Response> {
  const preview = await findPreview(c);
  const page = await c.get("deps").pages.fetch(new URL(preview ? "/share.html" : "/gone.html", c.req.url));
  const html = await page.text();
  const body = preview
    ? html
        .replace(/(?<=<title>)[^<]*/, () => escapeHtml(preview.name))
        .replace("</head>", () => `${previewTags(c, preview)}</head>`)
    : html;
  const headers = { ...LINK_HEADERS, "Content-Type": "text/html; charset=utf-8" };
  return new Response(body, { status: preview ? 200 : 404, headers });
}

export const linkPages: SecretPage[] = [
  { path: "/share/{link}", headers: shareHeaders, serve: servePageOfLink },
  { path: `/share/{link}/${PICTURE_PATH}`, headers: embedHeaders, serve: servePicture },
  { path: "/embed/{link}", headers: embedHeaders, serve: servePageOfLink },
];
