import { and, eq, isNotNull, isNull, ne, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { type Credential, readAs, type TeamActor } from "../access/authorization.ts";
import { type FilesOf, filesOf, removedOf } from "../access/own-files.ts";
import { visitorIdOf } from "../access/upload-tokens.ts";
import { apiKeys } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { FileType } from "../audio/media-type.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { isCountedType } from "../events/kinds.ts";
import { files, isOwned } from "../files/files.schema.ts";
import { type FileOf, isFileOfUpload, isUpload } from "../files/names.ts";
import { isOwnedInTrash, removed } from "../files/removed.schema.ts";
import { grouped } from "../numbers.ts";
import { firstOf, hasRow, qualified, read } from "../platform/db.ts";
import { isCommitted, isReceiving, isResumable, uploads, visitors, visitorUploads } from "./uploads.schema.ts";

/*
 * The quota of a team, and the limits of its uploads. The statement that inserts an upload requires that nothing refuses
 * it, so concurrent requests can't exceed a limit. An upload counts until its bytes are gone from R2.
 */

export const uploadLimitReached = errorCode("upload_limit_reached", 403, "This key has reached its limit of uploads.");
export const fileLimitReached = errorCode(
  "file_limit_reached",
  409,
  "The team has reached its file limit. Delete files and retry.",
);
export const tooManyUnfinishedUploads = errorCode(
  "too_many_unfinished_uploads",
  409,
  "The team has too many unfinished uploads. Complete or cancel one and retry.",
  { hasRetryAfter: true },
);
/** Uploads end all the time. */
const FULL_RETRY_SECONDS = 60;

export interface Usage {
  /** Also those in the trash. */
  files: number;
  bytes: number;
  trashFiles: number;
  trashBytes: number;
  maxFiles: number;
  maxBytes: number;
  /**
   * Stored file and link events, 0 for a contributor. The oldest above the limit are deleted, so the number may exceed it for a
   * few minutes.
   */
  events: number;
  maxEvents: number;
}

/** The file and link events of a team: those between the first and the last that are left. */
const eventCount = (() => {
  const last = sql`(select position from events where team_id = teams.id order by seq desc limit 1)`;
  const before = sql`(select position - ${isCountedType(sql`type`)} from events
    where team_id = teams.id and seq > teams.events_purged_to order by seq limit 1)`;
  return sql<number | null>`${last} - ${before}`;
})();

/** Files that the usage of an owner counts, and as many in the trash: a row of an index each. */
export const MAX_COUNTED_FILES = 10_000;

/** The storage that the newest files of an owner take. Uploads in progress do not count. */
export async function fetchOwnUsage(deps: Deps, whose: FilesOf) {
  const countIn = (source: SQL, condition: SQL | undefined) => {
    const newest = sql`(select size_bytes from ${source} where ${condition} order by id desc limit ${MAX_COUNTED_FILES}) newest`;
    return deps.db
      .select({ files: sql<number>`count(*)`, bytes: sql<number>`coalesce(sum(size_bytes), 0)` })
      .from(newest);
  };
  const none = { files: 0, bytes: 0 };
  const {
    listed: [listed = none],
    trashed: [trashed = none],
  } = await read(deps, {
    listed: countIn(sql`${files} indexed by files_owner`, and(filesOf(whose), isOwned)),
    trashed: countIn(sql`${removed} indexed by removed_owner`, and(removedOf(whose), isOwnedInTrash)),
  });
  return {
    files: listed.files + trashed.files,
    bytes: listed.bytes + trashed.bytes,
    trashFiles: trashed.files,
    trashBytes: trashed.bytes,
  };
}

/** The usage and limits of the team, with its uploads in progress. For a contributor, what the own files take. */
export async function fetchUsage(deps: Deps, credential: Credential<"files:read">): Promise<Usage> {
  const { maxTeamFiles, maxTeamBytes, maxTeamEvents: maxEvents } = deps.settings;
  const {
    actor,
    rows: [usage],
  } = await readAs(deps, credential, ({ teamId }) =>
    deps.db
      .select({
        files: teams.files,
        bytes: teams.bytes,
        trashFiles: teams.trashFiles,
        trashBytes: teams.trashBytes,
        maxFiles: teams.maxFiles,
        maxBytes: teams.maxBytes,
        events: eventCount,
      })
      .from(teams)
      .where(eq(teams.id, teamId)),
  );
  const quota = { maxFiles: usage?.maxFiles ?? maxTeamFiles, maxBytes: usage?.maxBytes ?? maxTeamBytes };
  if (actor.ownerId !== null) {
    return { ...(await fetchOwnUsage(deps, actor)), events: 0, ...quota, maxEvents };
  }
  const used = { files: 0, bytes: 0, trashFiles: 0, trashBytes: 0, ...usage };
  return { ...used, events: usage?.events ?? 0, ...quota, maxEvents };
}

/** Anyone who sees a web page can use its public key or upload token, so these can reserve only a fifth of the storage quota. */
const PUBLIC_QUOTA_DIVISOR = 5;
/** An unfinished upload holds quota, rows and R2 objects. */
export const MAX_UNFINISHED_UPLOADS = 3000;
/** An event day: hundreds of phones, each with some uploads. Anyone can be a visitor, so visitors leave a third to the team itself. */
export const MAX_VISITOR_UPLOADS = 2000;
/** One hundredth, so that no visitor can block the others. */
export const MAX_UPLOADS_PER_VISITOR = 20;
/** Forty contributors can't block the team. */
export const MAX_UPLOADS_PER_CONTRIBUTOR = 25;

/** The bytes that the announcement of a visitor reserves until its first byte comes: a phone may announce hours, and never send them. */
export const ANNOUNCED_BYTES = 5 * 1024 * 1024;

/** The part of the quota that an upload takes. */
export interface Reservation {
  /** The file has at least `minBytes`, and takes at most `maxBytes`. */
  minBytes: number;
  maxBytes: number;
  /** For a resumable upload: the unfinished one that it replaces, whose quota it takes over. */
  resumable?: { replaced: SQL | undefined };
}

/** The limits on uploads with a public key. Those of an upload token also have `maxFiles`. */
export interface KeyLimits {
  maxFileBytes?: number | undefined;
  fileTypes?: FileType[] | undefined;
}
/** A visitor may begin as many times the files of its upload token in a day. So a page that uploads and deletes in a loop comes to an end. */
const MAX_BEGUN_FACTOR = 5;
/** The files and uploads that count against an upload token. A canceled upload counts until its bytes are gone. */
const usedBy = (teamId: string, visitorId: string) => {
  const isCounted = sql`case when ${isCommitted} then ${hasRow(files, isFileOfUpload)} else ${isReceiving} or ${isResumable} end`;
  const isOfVisitor = and(
    eq(uploads.teamId, teamId),
    eq(uploads.visitorId, visitorId),
    isNotNull(uploads.uploadTokenId),
    isCounted,
  );
  const bytes = sql`iif(${isCommitted}, ${uploads.offsetBytes}, ${uploads.sizeBytes})`;
  return sql`(select count(*) as files, coalesce(sum(${bytes}), 0) as bytes from ${visitorUploads} where ${isOfVisitor}) used`;
};

const isAtLeast = (count: SQLWrapper, limit: number | SQL) => sql`${count} >= ${limit}`;

/**
 * The quota in SQL: `from` has the rows of the team, of the calling key, and of the replaced upload; `refusal` is the reason
 * why the upload can't begin, or null.
 */
export function quotaFor(deps: Deps, actor: TeamActor, { minBytes, maxBytes: requested, resumable }: Reservation) {
  const { teamId, keyId, ownerId, uploadToken } = actor;
  const { db, settings } = deps;
  const visitorId = visitorIdOf(deps, actor);
  const isPublic = visitorId !== null;
  const limits = uploadToken ? sql`${JSON.stringify(uploadToken.limits)}` : sql`${apiKeys.limits}`;
  // The limits of an upload token are known: each is one parameter, of which D1 allows 100.
  const keyLimit = (name: "maxFiles" | "maxBytes" | "maxFileBytes") =>
    uploadToken
      ? sql<number>`${uploadToken.limits[name] ?? Number.MAX_SAFE_INTEGER}`
      : sql<number>`coalesce(json_extract(${limits}, ${`$.${name}`}), ${Number.MAX_SAFE_INTEGER})`;
  const maxFiles = sql<number>`coalesce(${teams.maxFiles}, ${settings.maxTeamFiles})`;
  const maxBytes = sql<number>`coalesce(${teams.maxBytes}, ${settings.maxTeamBytes})`;
  const replaced = resumable?.replaced;
  const usedBytes = replaced ? sql`used.bytes - coalesce(${replacedUpload.sizeBytes}, 0)` : sql`used.bytes`;
  const leftBytes = uploadToken ? [sql`${keyLimit("maxBytes")} - ${usedBytes}`] : [];
  const sizeBytes = sql<number>`min(${sql.join([sql`${requested}`, keyLimit("maxFileBytes"), ...leftBytes], sql`, `)})`;
  const reservedBytes = isPublic && resumable ? sql<number>`min(${sizeBytes}, ${ANNOUNCED_BYTES})` : sizeBytes;
  const publicBytes = sql`${maxBytes} / ${PUBLIC_QUOTA_DIVISOR}`;
  const isCaller = and(eq(apiKeys.teamId, teams.id), eq(apiKeys.id, keyId));
  const freedFiles = replaced ? sql`(${replacedUpload.fileId} is not null)` : sql`0`;
  const freedBytes = replaced ? sql`coalesce(${replacedUpload.reservedBytes}, 0)` : sql`0`;
  const repeated = replaced ? sql`(${replacedUpload.visitorId} is ${visitorId})` : sql`0`;
  const joins = [
    sql`left join ${apiKeys} on ${isCaller}`,
    ...(replaced ? [sql`left join ${uploads} ${replacedUpload} on ${replaced}`] : []),
    ...(uploadToken && isPublic ? [sql`join ${usedBy(teamId, visitorId)}`] : []),
    ...(isPublic ? [sql`left join ${visitors} on ${isVisitorRow(teamId, visitorId)}`] : []),
    ...(ownerId === null ? [] : [sql`left join ${users} on ${eq(users.id, ownerId)}`]),
  ];
  const from = sql`${teams} ${sql.join(joins, sql` `)}`;
  const besides = (count: SQLWrapper) => sql`${count} - ${freedFiles}`;
  const tooManyUnfinished = {
    ...(isPublic && {
      too_many_of_visitor: isAtLeast(besides(visitors.unfinishedUploads), MAX_UPLOADS_PER_VISITOR),
      too_many_of_visitors: isAtLeast(besides(teams.visitorUploads), MAX_VISITOR_UPLOADS),
    }),
    ...(ownerId !== null && {
      too_many_of_contributor: isAtLeast(besides(users.unfinishedUploads), MAX_UPLOADS_PER_CONTRIBUTOR),
    }),
    too_many_of_team: isAtLeast(besides(teams.unfinishedUploads), MAX_UNFINISHED_UPLOADS),
  };
  const refusal = firstOf<string>({
    token_invalid: sql`${teams.status} = 'deleting' or ${isNull(apiKeys.id)}`,
    ...(uploadToken && {
      upload_limit_reached: isAtLeast(besides(sql`used.files`), keyLimit("maxFiles")),
      too_many_begun: isAtLeast(
        sql`${visitors.begunUploads} - ${repeated}`,
        sql`${MAX_BEGUN_FACTOR} * ${keyLimit("maxFiles")}`,
      ),
      byte_limit_reached: sql`${usedBytes} + ${Math.max(1, minBytes)} > ${keyLimit("maxBytes")}`,
    }),
    file_too_large: sql`${minBytes} > ${keyLimit("maxFileBytes")}`,
    file_limit_reached: isAtLeast(besides(teams.files), maxFiles),
    ...(resumable && tooManyUnfinished),
    quota_exceeded: sql`${teams.bytes} - ${freedBytes} + ${reservedBytes} > ${maxBytes}`,
    ...(isPublic && {
      exceeds_public_quota: sql`${minBytes} > ${publicBytes}`,
      public_quota_exceeded: sql`${teams.publicBytes} - ${freedBytes} + ${reservedBytes} > ${publicBytes}`,
    }),
  });
  const isTeam = eq(teams.id, teamId);
  const refusalQuery = db
    .select({
      refusal: refusal.as("refusal"),
      maxFiles: sql<number>`${maxFiles}`.as("maxFiles"),
      maxBytes: sql<number>`${maxBytes}`.as("maxBytes"),
      limits: qualified<string | null>(limits).as("limits"),
    })
    .from(from)
    .where(isTeam);
  const allowedTypes = sql<string | null>`${limits} -> 'fileTypes'`;
  return {
    from,
    sizeBytes,
    reservedBytes,
    allowedTypes,
    isAccepted: sql`${isTeam} and ${refusal} is null`,
    refusalQuery,
  };
}

/** Why a first byte can't reserve the rest of what a visitor has announced: conditions of a statement on the row of the upload. */
export function growthRefusals({ settings }: Deps, teamId: string) {
  const growth = sql`(${uploads.sizeBytes} - ${uploads.reservedBytes})`;
  const most = sql`coalesce(${teams.maxBytes}, ${settings.maxTeamBytes})`;
  const exceeds = (bytes: SQLWrapper, limit: SQL) =>
    sql`${growth} > 0 and ${hasRow(teams, and(eq(teams.id, teamId), sql`${bytes} + ${growth} > ${limit}`))}`;
  return {
    quota_exceeded: exceeds(teams.bytes, most),
    public_quota_exceeded: exceeds(teams.publicBytes, sql`${most} / ${PUBLIC_QUOTA_DIVISOR}`),
  };
}

/** The error for a first byte that can't. */
export const growthError = (refusal: keyof ReturnType<typeof growthRefusals>) =>
  refusal === "quota_exceeded"
    ? new AppError("quota_exceeded", { message: "The storage quota has no room for the file. Delete files and retry." })
    : new AppError(tooManyUnfinishedUploads, {
        message: "Unfinished uploads of public keys and upload tokens reserve all that they may. Retry in a minute.",
        retryAfterSeconds: FULL_RETRY_SECONDS,
      });

const isVisitorRow = (teamId: string, id: string) => and(eq(visitors.teamId, teamId), eq(visitors.id, id));
const replacedUpload = alias(uploads, "replaced");
/** The unfinished upload with an idempotency key that the upload of this file replaces. Its row is that of `replaced`. */
export const isReplaced = ({ teamId, id }: FileOf, idempotencyKey: string) =>
  and(
    eq(replacedUpload.teamId, teamId),
    eq(replacedUpload.idempotencyKey, idempotencyKey),
    sql`${replacedUpload.status} = 'receiving'`,
    ne(replacedUpload.fileId, id),
  );

/**
 * A repeated creation is not begun once more: takes back what the insert of the upload has counted. Runs before the upload that it
 * replaces is canceled.
 */
export function uncountRepetition({ db }: Deps, file: FileOf, idempotencyKey: string) {
  const isArriving = hasRow(uploads, and(isUpload(file), isReceiving));
  const isRepeated = sql`exists (select 1 from ${uploads} ${replacedUpload}
    where ${isReplaced(file, idempotencyKey)} and ${replacedUpload.visitorId} = ${visitors.id})`;
  const visitorId = db.select({ id: uploads.visitorId }).from(uploads).where(isUpload(file));
  return db
    .update(visitors)
    .set({ begunUploads: sql`${visitors.begunUploads} - 1` })
    .where(and(eq(visitors.teamId, file.teamId), sql`${visitors.id} = ${visitorId}`, isArriving, isRepeated));
}

/** Why the quota refuses an upload, with the limits that the error names. */
export type QuotaRefusal = { refusal: string | null; maxFiles: number; maxBytes: number; limits: string | null };

export const fileTooLarge = (maxBytes: number) =>
  new AppError("file_too_large", { message: `The file can have at most ${maxBytes} bytes.` });

const tooMany = (who: string, limit: number) =>
  new AppError(tooManyUnfinishedUploads, {
    message: `${who} can have at most ${grouped(limit)} unfinished uploads. Complete or cancel one and retry.`,
    retryAfterSeconds: FULL_RETRY_SECONDS,
  });

/** The error for an upload that was not inserted. */
export function quotaError(refused: QuotaRefusal | undefined): AppError {
  const { refusal, maxFiles = 0, maxBytes = 0, limits } = refused ?? {};
  const { maxFiles: tokenFiles, maxBytes: tokenBytes, maxFileBytes = 0 } = JSON.parse(limits ?? "{}");
  switch (refusal) {
    case "too_many_of_team":
      return tooMany("A team", MAX_UNFINISHED_UPLOADS);
    case "too_many_of_visitors":
      return tooMany("The public keys and upload tokens of a team", MAX_VISITOR_UPLOADS);
    case "too_many_of_visitor":
      return tooMany("A public key, or a visitor with an upload token,", MAX_UPLOADS_PER_VISITOR);
    case "too_many_of_contributor":
      return tooMany("A contributor", MAX_UPLOADS_PER_CONTRIBUTOR);
    case "upload_limit_reached":
      return new AppError(uploadLimitReached, { message: `This token can upload at most ${tokenFiles} files.` });
    case "too_many_begun": {
      const message = `This token can begin at most ${MAX_BEGUN_FACTOR * tokenFiles} uploads.`;
      return new AppError(uploadLimitReached, { message });
    }
    case "byte_limit_reached":
      return new AppError(uploadLimitReached, { message: `This token can upload at most ${tokenBytes} bytes.` });
    case "file_too_large":
      return fileTooLarge(maxFileBytes);
    case "file_limit_reached": {
      const message = `A team can have at most ${grouped(maxFiles)} files. Delete files and retry.`;
      return new AppError(fileLimitReached, { message });
    }
    case "quota_exceeded": {
      const message = `Storage quota (${formatBytes(maxBytes)}) exceeded. Delete files and retry.`;
      return new AppError("quota_exceeded", { message });
    }
    case "exceeds_public_quota":
    case "public_quota_exceeded": {
      const limit = formatBytes(Math.floor(maxBytes / PUBLIC_QUOTA_DIVISOR));
      const message = `Unfinished uploads of public keys and upload tokens can reserve at most ${limit}.`;
      if (refusal === "exceeds_public_quota") return new AppError("quota_exceeded", { message });
      return new AppError(tooManyUnfinishedUploads, {
        message: `${message} Retry in a minute.`,
        retryAfterSeconds: FULL_RETRY_SECONDS,
      });
    }
    default:
      // The team was deleted, or the key was revoked, after the token was accepted.
      return new AppError("token_invalid");
  }
}

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  const exponent = UNITS.findLastIndex((_, index) => bytes >= 1000 ** index);
  return `${Number((bytes / 1000 ** exponent).toFixed(1))} ${UNITS[exponent]}`;
}
