import { and, eq, gt, isNotNull, isNull, lt, lte, or, sql } from "drizzle-orm";
import { QueryBuilder } from "drizzle-orm/sqlite-core";
import { type Credential, insufficientScope, readAs, type TeamActor, teamExists } from "../access/authorization.ts";
import { inDatabaseOf } from "../access/databases.ts";
import { filesOf, removedOf } from "../access/own-files.ts";
import { SCOPES } from "../access/scopes.ts";
import { teams } from "../accounts/teams.schema.ts";
import { servedContentType } from "../audio/media-type.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError, errorCode, invalidField } from "../errors.ts";
import { recorded, writeWithEvent } from "../events/events.ts";
import { currentObject } from "../files/beside.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { cleanName, type FileKey, isFile, objectKey } from "../files/names.ts";
import { isTrashed, removed, teamOfRemoved } from "../files/removed.schema.ts";
import { grouped } from "../numbers.ts";
import { contentDisposition } from "../platform/byte-store.ts";
import { deleteFirst, firstOf, hasRow, insertWhere, type Param, preparedQuery, read, write } from "../platform/db.ts";
import {
  newSecret,
  parseSecretUrl,
  renderSecretUrl,
  type SecretUrlValues,
  secretUrlValues,
} from "../platform/secret-url.ts";
import { fingerprint } from "../platform/secrets.ts";
import { newId } from "../platform/system.ts";
import { LINK_EVENTS } from "./link-event-types.ts";
import { links } from "./links.schema.ts";

/*
 * Download links that the Worker serves. A link belongs to one file and can be revoked. Its URL contains a secret of which
 * the row has only the hash, so neither the database nor a list of links opens a file. A trigger deletes the links of a
 * file as soon as the file is erased. In the trash, they stay, so that a restored file has those again that were not revoked, but
 * they find no file, and none is added.
 *
 * A signed link has no row: its URL contains the file, the expiry and their signature. It takes the place of a signed URL
 * if there are no S3 credentials. Like a signed URL it can't be revoked, and ends with its file. It stays invalid if the file
 * comes back from the trash.
 */

export const tooManyLinks = errorCode(
  "too_many_links",
  409,
  "The file or its team has too many links. Revoke one and retry.",
);

/** Enough to share a file with a group one by one, and few enough to list at once. */
export const MAX_LINKS = 100;
/**
 * A link takes about 600 bytes of D1's 10 GB, so links of a team take at most 6 MB. Expired ones count until they are purged, and those
 * of a file in the trash until it is erased.
 */
export const MAX_TEAM_LINKS = 10_000;
/** `{team id}.{file id}.{expiry in seconds}.{signature}`, or `{expiry in seconds}.{restores}` for a file that was in the trash. */
const SIGNED_LINK = /^(([0-9a-f]{24})\.([0-9a-f]{24})\.(\d{1,11})(?:\.(\d{1,9}))?)\.([\w-]{43})$/;
/** Expired links deleted by one statement of the recovery job. */
const EXPIRED_LINK_ROWS = 500;

export const DISPOSITIONS = ["attachment", "inline"] as const;
export type Disposition = (typeof DISPOSITIONS)[number];

/** A link as its team sees it. Instants are milliseconds since the epoch. */
export interface Link {
  id: string;
  fileId: string;
  /** Its name on its page and in lists; null for the file's own name. */
  name: string | null;
  /** The part that its page opens with. Null: from the start, to the end. */
  startSeconds: number | null;
  endSeconds: number | null;
  disposition: Disposition;
  /** Null: never. */
  expiresAt: number | null;
  createdAt: number;
  createdBy: { keyId: string; userId: string | null };
}

const isLinkOfFile = and(eq(links.teamId, teamOfFile), eq(links.fileId, files.id));
const isLinkOfRemoved = and(eq(links.teamId, teamOfRemoved), eq(links.fileId, removed.id));

type LinkRow = typeof links.$inferSelect;

const linkOf = ({ teamId: _, secretHash: __, keyId, userId, ...link }: LinkRow): Link => ({
  ...link,
  createdBy: { keyId, userId },
});

export interface NewLink {
  expiresAt: number | null;
  disposition?: Disposition | undefined;
  name?: string | undefined;
  startSeconds?: number | undefined;
  endSeconds?: number | undefined;
}

/** The parts of a link's URL. */
export interface OpenableLink {
  /** Contains the secret or the signature. */
  token: string;
  fileName: string;
}

/**
 * @returns the link, and what its URL contains. No later response contains the token
 * @throws `invalid_input` for an expiry in the past or an end before the start, `not_found`, `too_many_links`
 */
export async function createLink(
  deps: Deps,
  actor: TeamActor,
  fileId: string,
  { expiresAt, disposition = "attachment", name, startSeconds, endSeconds }: NewLink,
): Promise<OpenableLink & { link: Link }> {
  const { teamId, keyId, userId } = actor;
  const now = deps.system.now();
  if (expiresAt !== null && expiresAt <= now) {
    throw invalidField("expiresAt", "Must be in the future.");
  }
  if (endSeconds !== undefined && endSeconds <= (startSeconds ?? 0)) {
    throw invalidField("endSeconds", "Must be after the start.");
  }
  const secret = newSecret(deps.system);
  const row: LinkRow = {
    id: newId(deps.system, deps.db.number),
    teamId,
    fileId,
    secretHash: fingerprint(secret),
    name: name ?? null,
    startSeconds: startSeconds ?? null,
    endSeconds: endSeconds ?? null,
    disposition,
    expiresAt,
    createdAt: now,
    keyId,
    userId,
  };
  const isOfFile = isFile({ ...actor, id: fileId });
  const others = sql`(select count(*) from ${links}
    where ${and(eq(links.teamId, teamId), eq(links.fileId, fileId))})`;
  const hasRoom = sql`${others} < ${MAX_LINKS} and ${teamExists(teamId, lt(teams.links, MAX_TEAM_LINKS))}`;
  // After a lost response, the link of the first attempt counts.
  const isCreated = hasRow(links, eq(links.id, row.id));
  const refusal = firstOf({
    too_many_links: sql`not ${isCreated} and not (${hasRoom})`,
  });
  const batch = {
    file: deps.db.select({ refusal, name: files.name, originalName: files.originalName }).from(files).where(isOfFile),
    insert: recorded(
      deps,
      { type: LINK_EVENTS.created, initiator: actor, subject: { teamId, id: row.id }, data: { fileId } },
      insertWhere(deps.db, links, row, sql`${isOfFile} and ${refusal} is null`, sql`${files}`),
    ),
  };
  const {
    file: [file],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  if (!file) throw new AppError("not_found");
  if (file.refusal !== null) {
    const teamLimit = grouped(MAX_TEAM_LINKS);
    const message = `A file can have at most ${MAX_LINKS} links, and a team ${teamLimit}. Revoke one and retry.`;
    throw new AppError(tooManyLinks, { message });
  }
  const token = renderSecretUrl({ id: row.id, secret });
  return { link: linkOf(row), token, fileName: downloadName(row.name, file.name ?? file.originalName) };
}

/** The download name: that of the link, if it has one, with the extension of the file, unless it has one itself. */
function downloadName(linkName: string | null, fileName: string): string {
  if (linkName === null) return fileName;
  const [extension = ""] = /\.\w{1,10}$/.exec(fileName) ?? [];
  const hasExtension = /\.\d*[a-z]\w{0,9}$/i.test(linkName);
  return cleanName(linkName.replaceAll(/[/\\]/g, "-") + (hasExtension ? "" : extension));
}

/** Creates a signed link of a file. */
export function signLink(
  deps: Deps,
  { teamId, id, name, restores }: FileKey & { name: string; restores: number },
  expiresInSeconds: number,
): OpenableLink {
  const expiresAtSeconds = Math.floor(deps.system.now() / 1000) + expiresInSeconds;
  const text = `${teamId}.${id}.${expiresAtSeconds}${restores > 0 ? `.${restores}` : ""}`;
  return { token: `${text}.${deps.secrets.sign(text)}`, fileName: name };
}

/** The links of a file, also of one in the trash, oldest first. @throws `not_found` */
export async function listLinks(deps: Deps, credential: Credential<"files:download">, fileId: string): Promise<Link[]> {
  // A row without a link shows that the file exists. The links of a file in the trash can be revoked, so they are listed.
  const { rows } = await readAs(deps, credential, (viewer) => {
    const inTrash = deps.db
      .select({ link: links })
      .from(removed)
      .leftJoin(links, isLinkOfRemoved)
      .where(and(removedOf(viewer), eq(removed.id, fileId), isTrashed));
    return deps.db
      .select({ link: links })
      .from(files)
      .leftJoin(links, isLinkOfFile)
      .where(isFile({ ...viewer, id: fileId }))
      .unionAll(inTrash)
      .limit(MAX_LINKS);
  });
  if (rows.length === 0) throw new AppError("not_found");
  // SQLite would sort in a temporary table: it does not know that this is one file.
  const found = rows.flatMap(({ link }) => link ?? []).sort((a, b) => (a.id < b.id ? -1 : 1));
  return found.map(linkOf);
}

/**
 * The link stops working with the next request.
 * @throws `not_found`, `insufficient_scope` for a link of another user or key, unless the caller has `files:write`
 */
export async function revokeLink(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const { teamId, keyId, userId } = actor;
  const isOfTrashed = and(removedOf(actor), isTrashed, isLinkOfRemoved);
  // Also in the trash, because the link would come back with the file.
  const isOfFile = or(hasRow(files, and(filesOf(actor), isLinkOfFile)), hasRow(removed, isOfTrashed));
  const isLink = and(eq(links.id, id), eq(links.teamId, teamId), isOfFile);
  const isOwn = or(eq(links.keyId, keyId), userId === null ? undefined : eq(links.userId, userId));
  const mayRevokeAll = (actor.scopes & SCOPES["files:write"]) !== 0;
  const refusal = firstOf(mayRevokeAll ? {} : { insufficient_scope: sql`(${isOwn}) is not true` });
  const isRevocable = sql`${isLink} and ${refusal} is null`;
  const revoked = {
    type: LINK_EVENTS.revoked,
    initiator: actor,
    subject: { teamId, id, version: sql`null` },
    data: sql`json_object('_id', ${links.id}, 'fileId', ${links.fileId})`,
    from: sql`${links}`,
    where: isRevocable,
    reads: "before",
  } as const;
  const batch = {
    link: deps.db.select({ refusal }).from(links).where(isLink),
    deletion: recorded(deps, revoked, deps.db.delete(links).where(isRevocable)),
  };
  const {
    link: [link],
  } = await writeWithEvent(deps, batch, { isIdempotent: false, caller: actor });
  if (!link) throw new AppError("not_found");
  if (link.refusal !== null) throw insufficientScope("files:write");
}

/** The bytes behind a link. */
export interface LinkedFile {
  /** Names the bytes, which never change: the id of the link, so that two links of a file don't show that they are. */
  tag: string;
  sizeBytes: number;
  /** Hex; null for a resumable upload that was not read back yet. */
  sha256: string | null;
  /** The Content-Type to serve: a harmless type, or opaque bytes. */
  contentType: string;
  contentDisposition: string;
  /** The bytes from `offset` on, as a stream; null if the object is missing. */
  read(offset: number, length: number): Promise<ReadableStream<Uint8Array> | null>;
  /** False if the object is missing. */
  isStored(): Promise<boolean>;
}

const SERVED_COLUMNS = {
  id: files.id,
  teamId: teamOfFile,
  originalName: files.originalName,
  /** Results have no two columns of the same name. */
  name: sql<string>`coalesce(${files.name}, ${files.originalName})`.as("file_name"),
  sizeBytes: files.sizeBytes,
  sha256: files.sha256,
  mimeType: sql<string>`coalesce(${files.mimeType}, 'application/octet-stream')`.as("mime"),
  durationSeconds: sql<number | null>`json_extract(${files.audio}, '$.durationSeconds')`.as("seconds"),
  title: sql<string | null>`json_extract(${files.audio}, '$.tags.title')`.as("title"),
  artist: sql<string | null>`json_extract(${files.audio}, '$.tags.artist')`.as("artist"),
  waveform: currentObject("waveform").as("waveform"),
  transcript: currentObject("transcript").as("transcript"),
};
type OpenValues = SecretUrlValues & { now: number };
/** The active team of each row. As a subquery, because its columns have the names of the file's. */
const activeTeam = new QueryBuilder()
  .select({ teamKey: sql<string>`${teams.id}`.as("team_key"), teamName: sql<string>`${teams.name}`.as("team_name") })
  .from(teams)
  .where(eq(teams.status, "active"))
  .as("active_team");
const isActive = eq(activeTeam.teamKey, teamOfFile);

const fileOfLink = preparedQuery((db, param: Param<OpenValues>) =>
  db
    .select({
      link: {
        id: sql<string>`${links.id}`.as("link_id"),
        name: links.name,
        disposition: links.disposition,
        expiresAt: links.expiresAt,
        startSeconds: links.startSeconds,
        endSeconds: links.endSeconds,
      },
      file: SERVED_COLUMNS,
      teamName: activeTeam.teamName,
    })
    .from(links)
    .innerJoin(files, isLinkOfFile)
    .innerJoin(activeTeam, isActive)
    .where(
      and(
        eq(links.id, param("id")),
        eq(links.secretHash, param("secretHash")),
        or(isNull(links.expiresAt), gt(links.expiresAt, param("now"))),
      ),
    ),
);

const fileOfSignedLink = ({ db }: Deps, file: FileKey, restores: number, expiresAt: number) =>
  db
    .select({
      link: {
        // Its URL contains the id of the file. Another signed link of the file continues its download.
        id: sql<string>`${files.id}`.as("link_id"),
        name: sql<null>`null`.as("link_name"),
        disposition: sql<Disposition>`'attachment'`,
        expiresAt: sql<number>`${expiresAt}`,
        startSeconds: sql<null>`null`.as("start_seconds"),
        endSeconds: sql<null>`null`.as("end_seconds"),
      },
      file: SERVED_COLUMNS,
      teamName: activeTeam.teamName,
    })
    .from(files)
    .innerJoin(activeTeam, isActive)
    .where(and(isFile({ ...file, ownerId: null }), eq(files.restores, restores)));

/** Finds the file of a link, by the link's id or the signed team, which name the database. */
async function findByToken(given: Deps, token: string) {
  const now = given.system.now();
  const url = parseSecretUrl(token);
  if (url) return read(inDatabaseOf(given, url.id), fileOfLink({ ...secretUrlValues(url), now }));
  const [, text = "", teamId = "", id = "", expiresAtSeconds, restores, signature = ""] = SIGNED_LINK.exec(token) ?? [];
  const expiresAt = Number(expiresAtSeconds) * 1000;
  if (!(expiresAt > now && given.secrets.isSigned(text, signature))) return [];
  const deps = inDatabaseOf(given, teamId);
  return read(deps, fileOfSignedLink(deps, { teamId, id }, Number(restores ?? 0), expiresAt));
}

/** @throws `not_found` if the link is unknown, revoked or expired, its file is deleted, or its team is suspended or deleted */
export async function findLinked(deps: Deps, token: string) {
  const [row] = await findByToken(deps, token);
  if (!row) throw new AppError("not_found");
  return { ...row, name: row.link.name ?? row.file.name, fileName: downloadName(row.link.name, row.file.name) };
}

/** @throws as `findLinked` */
export async function openLink(deps: Deps, token: string): Promise<LinkedFile> {
  const { link, file, fileName } = await findLinked(deps, token);
  const contentType = servedContentType(file.mimeType);
  // Only audio of a harmless type is shown inline. Everything else could be a page on our origin.
  const isInline = link.disposition === "inline" && contentType.startsWith("audio/");
  return {
    tag: link.id,
    sizeBytes: file.sizeBytes,
    sha256: file.sha256,
    contentType,
    contentDisposition: contentDisposition(isInline ? "inline" : "attachment", fileName),
    read: (offset, length) => deps.bytes.open(objectKey(file), offset, length),
    isStored: async () => (await deps.bytes.head(objectKey(file))) !== null,
  };
}

/** The download name of the transcript of a file. */
export const transcriptName = (name: string): string => `${name.replace(/(?<=.)\.[^.]*$/, "")}.vtt`;

/** Removes expired links. */
async function removeExpiredLinks(deps: Deps) {
  const where = and(isNotNull(links.expiresAt), lte(links.expiresAt, deps.system.now()));
  const remove = deleteFirst(deps.db, links, { where, orderBy: links.expiresAt, limit: EXPIRED_LINK_ROWS });
  const rows = await write(deps, remove, { isIdempotent: true, caller: null });
  return { linksRemoved: rows.length };
}

export const expiredLinks: RecoveryStep = {
  name: "expired links",
  counts: ["linksRemoved"],
  runBatch: removeExpiredLinks,
  maxBatches: 10,
  queries: 1,
};
