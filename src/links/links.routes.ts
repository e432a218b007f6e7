import { Buffer } from "node:buffer";
import type { Context } from "hono";
import * as z from "zod";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import type { AppEnv } from "../http/app-env.ts";
import { countOpening, limitFailures } from "../http/authentication.ts";
import { countOf, type Operation, readOperation, writeOperation } from "../http/operation.ts";
import { creator, describeRecord, fieldOf } from "../http/record.ts";
import { id, iso, isoOrNull, name, readQuery, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { grouped } from "../numbers.ts";
import {
  createLink,
  DISPOSITIONS,
  type Link,
  type LinkedFile,
  listLinks,
  MAX_LINKS,
  MAX_TEAM_LINKS,
  type OpenableLink,
  openLink,
  revokeLink,
  tooManyLinks,
  transcriptName,
} from "./links.ts";
import { describeLink, type SharedFile } from "./sharing.ts";

/* Links: creating, listing and revoking them, their page, and serving the bytes as RFC 9110 describes. */

const rangeNotSatisfiable = errorCode("range_not_satisfiable", 416, "The range starts beyond the end of the file.");

const LINKS = "/docs/v1/links";

export const linksTag = {
  name: "Links",
  description: "Revocable download URLs on this service, for people without a token.",
};

/** Four months, far above the longest recording that an upload can be. */
const MAX_SECONDS = 10_000_000;
const seconds = lazy(() => z.number().nonnegative().max(MAX_SECONDS));

const field = fieldOf<Link>();

const linkRecord = describeRecord({
  id: "Link",
  fields: {
    _id: field(id, "0193477d0a5e2b7f4d1c8e91", (link) => link.id),
    fileId: field(id, "0193477c0a5e2b7f4d1c8e90", (link) => link.fileId),
    name: field(
      () => z.string().nullable().meta({ description: "What its page and lists call it. Null: the file's own name." }),
      "For the press",
      (link) => link.name,
    ),
    startSeconds: field(
      () => seconds().nullable().meta({ description: "Where its page starts to play. Null: at the start." }),
      50,
      (link) => link.startSeconds,
    ),
    endSeconds: field(
      () => seconds().nullable().meta({ description: "Where its page stops. Null: at the end." }),
      83.5,
      (link) => link.endSeconds,
    ),
    disposition: field(
      () => z.enum(DISPOSITIONS),
      "inline",
      (link) => link.disposition,
    ),
    expiresAt: field(
      () => timestamp().nullable().meta({ description: "Null: never." }),
      "2026-12-20T09:33:00.000Z",
      (link) => isoOrNull(link.expiresAt),
    ),
    createdAt: field(timestamp, "2026-11-20T09:33:00.000Z", (link) => iso(link.createdAt)),
    createdBy: field(creator, { keyId: "0193477be8a01f9c3ad5e7b2", userId: null }, (link) => link.createdBy),
  },
});

const newLinkRecord = describeRecord({
  id: "NewLink",
  fields: {
    ...linkRecord.fields,
    url: fieldOf<{ url: string }>()(
      () => z.url(),
      `https://stowage.example.com${LINKS}/0193477d0a5e2b7f4d1c8e91.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567/interview.mp3`,
      (link) => link.url,
    ),
    pageUrl: fieldOf<{ pageUrl: string }>()(
      () => z.url().meta({ description: "A page with a player, for people." }),
      "https://stowage.example.com/share/0193477d0a5e2b7f4d1c8e91.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567",
      (link) => link.pageUrl,
    ),
    embedUrl: fieldOf<{ embedUrl: string }>()(
      () => z.url().meta({ description: "Only the player, for an `iframe` of any site." }),
      "https://stowage.example.com/embed/0193477d0a5e2b7f4d1c8e91.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567",
      (link) => link.embedUrl,
    ),
  },
});

const sharedField = fieldOf<SharedFile & { url: string; transcriptUrl: string | null }>();

const sharedFileRecord = describeRecord({
  id: "SharedFile",
  fields: {
    name: sharedField(
      () => z.string().meta({ description: "The name of the link, or that of the file." }),
      "For the press",
      (file) => file.name,
    ),
    startSeconds: sharedField(
      () => seconds().nullable().meta({ description: "Where the page starts to play. Null: at the start." }),
      50,
      (file) => file.startSeconds,
    ),
    endSeconds: sharedField(
      () => seconds().nullable().meta({ description: "Where the page stops. Null: at the end." }),
      83.5,
      (file) => file.endSeconds,
    ),
    size: sharedField(
      () => z.int(),
      48_213_004,
      (file) => file.sizeBytes,
    ),
    mimeType: sharedField(
      () => z.string(),
      "audio/mpeg",
      (file) => file.mimeType,
    ),
    durationSeconds: sharedField(
      () => z.number().nullable().meta({ description: "Null unless the file is audio." }),
      1805.2,
      (file) => file.durationSeconds,
    ),
    title: sharedField(
      () => z.string().nullable().meta({ description: "Of the audio tags." }),
      "Night shift at the lock",
      (file) => file.title,
    ),
    artist: sharedField(
      () => z.string().nullable().meta({ description: "Of the audio tags." }),
      "Radio Lovelace",
      (file) => file.artist,
    ),
    teamName: sharedField(
      () => z.string().meta({ description: "The team that shares it." }),
      "Radio Lovelace",
      (file) => file.teamName,
    ),
    expiresAt: sharedField(
      () => timestamp().nullable().meta({ description: "When the link expires. Null: never." }),
      "2026-12-20T09:33:00.000Z",
      (file) => isoOrNull(file.expiresAt),
    ),
    waveform: sharedField(
      () =>
        z
          .array(z.array(z.number()))
          .nullable()
          .meta({ description: "Peaks per channel from -1 to 1, if they are set." }),
      [[0.12, -0.4, 0.31]],
      (file) => file.waveform,
    ),
    transcriptUrl: sharedField(
      () => z.url().nullable().meta({ description: "The transcript as WebVTT. Null if there is none." }),
      `https://stowage.example.com${LINKS}/0193477d0a5e2b7f4d1c8e91.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567/transcript/interview.vtt`,
      (file) => file.transcriptUrl,
    ),
    url: sharedField(
      () => z.url().meta({ description: "The bytes." }),
      `https://stowage.example.com${LINKS}/0193477d0a5e2b7f4d1c8e91.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567/interview.mp3`,
      (file) => file.url,
    ),
  },
});

const newLinkSchema = lazy(() =>
  z.strictObject({
    expiresAt: timestamp().nullable().optional().meta({ description: "Default null: the link never expires." }),
    disposition: z.enum(DISPOSITIONS).optional().meta({
      description: "Default `attachment`. `inline` lets a browser play the file, if it is audio of a harmless type.",
    }),
    name: name(1).optional().meta({
      description:
        "The name of the link on its page and in lists, such as who it is for: one line of at most 100 characters. A download has it, too, with the extension of the file. Default: the file's name.",
    }),
    startSeconds: seconds().optional().meta({
      description: "Where the link's page starts to play. A `#t=` in its URL takes precedence.",
    }),
    endSeconds: seconds().optional().meta({
      description: "Where it stops, after the start. Anyone with the link can still play and download the rest.",
    }),
  }),
);

function onLinkHost(c: Context<AppEnv>, path: string): string {
  const url = new URL(path, c.req.url);
  url.host = c.get("deps").settings.linkHost ?? url.host;
  return url.href;
}

/** Returns the URL at which anyone can open the link. */
export const linkUrl = (c: Context<AppEnv>, { token, fileName }: OpenableLink): string =>
  onLinkHost(c, `${LINKS}/${token}/${encodeURIComponent(fileName)}`);

const create = writeOperation(
  "files:download",
  {
    route: "POST /docs/v1/uploads/{id}/links",
    tag: linksTag,
    summary: "Create a link",
    sample: "const { url } = await stowage.links.create(fileId, { expiresAt });",
    description: `Anyone with the URL can download the file until the link expires or is revoked. A file has at most ${MAX_LINKS} links, and a team ${grouped(MAX_TEAM_LINKS)}.`,
    body: newLinkSchema,
    isBodyOptional: true,
    bodyExample: { disposition: "inline", name: "For the press", startSeconds: 50, endSeconds: 83.5 },
    success: {
      description: "The link. No later response contains `url`, `pageUrl` and `embedUrl`.",
      message: "Link created.",
      schema: newLinkRecord.schema,
      example: newLinkRecord.example,
    },
    errors: [tooManyLinks],
  },
  async ({ c, deps, actor, id, body }) => {
    const { expiresAt, ...rest } = body;
    const input = { ...rest, expiresAt: expiresAt ? Date.parse(expiresAt) : null };
    const { link, ...openable } = await createLink(deps, actor, id, input);
    const pageUrl = onLinkHost(c, `/share/${openable.token}`);
    const embedUrl = onLinkHost(c, `/embed/${openable.token}`);
    return newLinkRecord.render({ ...link, url: linkUrl(c, openable), pageUrl, embedUrl });
  },
);

const list = readOperation(
  "files:download",
  {
    route: "GET /docs/v1/uploads/{id}/links",
    tag: linksTag,
    summary: "List the links of a file",
    sample: "for await (const link of stowage.links.list(fileId)) console.log(link.name, link.expiresAt);",
    description:
      "Oldest first, without their URLs. Also of a file in the trash, whose links work again if it is restored: revoke those that must not.",
    success: {
      description: "The links.",
      message: countOf("Links"),
      schema: () => z.array(linkRecord.schema()),
      example: [linkRecord.example],
    },
  },
  async ({ deps, credential, id }) => (await listLinks(deps, credential, id)).map(linkRecord.render),
);

const revoke = writeOperation(
  "files:download",
  {
    route: "DELETE /docs/v1/links/{id}",
    tag: linksTag,
    summary: "Revoke a link",
    sample: "await stowage.links.delete(id);",
    description:
      "The link stops working with the next request, also if its file is in the trash and is restored later. A link that another user or key created also needs `files:write`.",
    success: { description: "The link is revoked.", message: "Link revoked." },
  },
  ({ deps, actor, id }) => revokeLink(deps, actor, id),
);

interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Parses `Range` (RFC 9110, section 14.2). @returns null to send the complete file: no range, several ranges, another
 * unit, or a malformed header
 * @throws `range_not_satisfiable`
 */
function parseRange(header: string | undefined, sizeBytes: number): ByteRange | null {
  const [, first = "", last = "", suffix = ""] = /^bytes=(?:(\d+)-(\d*)|-(\d+))$/i.exec(header?.trim() ?? "") ?? [];
  if (first === "" && suffix === "") return null;
  if (last !== "" && Number(last) < Number(first)) return null;
  const offset = suffix === "" ? Number(first) : Math.max(0, sizeBytes - Number(suffix));
  if (offset >= sizeBytes || Number(suffix || 1) === 0) throw new AppError(rangeNotSatisfiable);
  const end = last === "" ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
  return { offset, length: end - offset };
}

/** Returns true if a list of entity tags is `*` or contains the tag (strong comparison, RFC 9110, section 8.8.3.2). */
const includesTag = (list: string, tag: string) => list.split(",").some((one) => ["*", tag].includes(one.trim()));

/** Whether the client has this version. `If-None-Match` compares weakly: the prefix of weak tags doesn't count. */
export function isKnown(c: Context<AppEnv>, tag: string): boolean {
  const known = c.req.header("If-None-Match");
  return known !== undefined && includesTag(known.replaceAll("W/", ""), tag);
}

async function serve(c: Context<AppEnv>, file: LinkedFile): Promise<Response> {
  const { sizeBytes, sha256 } = file;
  const tag = `"${file.tag}"`;
  c.header("ETag", tag);
  c.header("Accept-Ranges", "bytes");
  const [ifMatch, ifRange] = ["If-Match", "If-Range"].map((name) => c.req.header(name));
  if (ifMatch !== undefined && !includesTag(ifMatch, tag)) throw new AppError("version_mismatch");
  if (isKnown(c, tag)) return c.body(null, 304);
  const isGet = c.req.method === "GET";
  // For the 416 that parseRange may throw.
  c.header("Content-Range", `bytes */${sizeBytes}`);
  const range = isGet && (ifRange ?? tag) === tag ? parseRange(c.req.header("Range"), sizeBytes) : null;
  c.header(
    "Content-Range",
    range ? `bytes ${range.offset}-${range.offset + range.length - 1}/${sizeBytes}` : undefined,
  );
  const { offset, length } = range ?? { offset: 0, length: sizeBytes };
  const found = isGet ? await file.read(offset, length) : await file.isStored();
  if (!found) throw new AppError("not_found");
  c.header("Content-Type", file.contentType);
  c.header("Content-Disposition", file.contentDisposition);
  c.header("Content-Length", String(length));
  if (sha256 !== null) c.header("Repr-Digest", `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:`);
  const status = range ? 206 : 200;
  return found === true ? c.body(null, status) : c.body(found, status);
}

/**
 * Looks up the link of the request. Failures count against the client IP.
 * @throws `not_found`, `rate_limited`
 */
export async function openCounted<T>(c: Context<AppEnv>, open: (deps: Deps, token: string) => Promise<T>): Promise<T> {
  const token = c.req.param("link") ?? "";
  return limitFailures(c, `link/${token}`, async () => {
    await countOpening(c);
    return open(c.get("deps"), token);
  });
}

const describe: Operation = {
  access: null,
  route: "GET /docs/v1/links/{id}.{secret}",
  hasSecretPath: true,
  pattern: `${LINKS}/:link{[^/]+\\.[^/]+}`,
  tag: linksTag,
  summary: "Describe a file by its link",
  description: "Needs no token. The link's page shows this. The same 404 as downloading by the link.",
  success: {
    description: "The file.",
    message: "Shared file.",
    schema: sharedFileRecord.schema,
    example: sharedFileRecord.example,
  },
  errors: ["invalid_input", "not_found", "rate_limited"],
  answer: async (c) => {
    readQuery(c, undefined);
    const file = await openCounted(c, describeLink);
    const token = c.req.param("link") ?? "";
    const url = linkUrl(c, { token, fileName: file.fileName });
    const path = `${LINKS}/${token}/transcript/${encodeURIComponent(transcriptName(file.fileName))}`;
    const transcriptUrl = file.hasTranscript ? onLinkHost(c, path) : null;
    return c.json({ message: "Shared file.", data: sharedFileRecord.render({ ...file, url, transcriptUrl }) });
  },
};

const open: Operation = {
  access: null,
  route: "GET /docs/v1/links/{link}/{name}",
  hasSecretPath: true,
  sendsFile: true,
  tag: linksTag,
  summary: "Download a file by its link",
  description:
    "Needs no token. Supports HEAD, one byte range, and conditional requests (RFC 9110). An unknown, revoked or expired " +
    "link, and a link of a deleted file, return the same 404. The name in the URL is not checked.",
  requestHeaders: {
    Range: {
      description: "One range, such as `bytes=0-1023`. Several ranges return the whole file.",
      schema: { type: "string" },
    },
  },
  success: {
    statuses: [200, 206, 304],
    description: "The bytes.",
    mediaType: "*/*",
    headers: {
      "Accept-Ranges": "`bytes`",
      "Content-Range": "With 206: the range and the size.",
      "Content-Disposition": "`inline` only for audio of a harmless type.",
      ETag: "A strong validator.",
      "Repr-Digest": "SHA-256 of the whole file (RFC 9530), once known.",
    },
  },
  errors: ["not_found", "version_mismatch", rangeNotSatisfiable, "rate_limited"],
  answer: async (c) => serve(c, await openCounted(c, openLink)),
};

export const operations = {
  createLink: create,
  listLinks: list,
  revokeLink: revoke,
  describeLink: describe,
  openLink: open,
};
