import { and, eq, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys, teams } from "../../platform/schema.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import type { KeyLimits } from "../accounts/keys.ts";
import { isExistingTeam } from "../accounts/teams.ts";

/* The usage and quota of a team. The settings have the default quota. The insert of an upload enforces them (`insertReceiving` in upload.ts). */

export interface Usage {
  files: number;
  bytes: number;
  maxFiles: number;
  maxBytes: number;
  /** Stored events. The oldest above the limit are deleted, so the number may exceed it for a few minutes. */
  events: number;
  maxEvents: number;
}

const positionAt = (end: SQL) =>
  sql`(select position from events where team_id = teams.id order by seq ${end} limit 1)`;
const usageOfTeam = teamRead(teams.id, (db) => ({
  query: db
    .select({
      files: teams.files,
      bytes: teams.bytes,
      maxFiles: teams.maxFiles,
      maxBytes: teams.maxBytes,
      events: sql<number | null>`${positionAt(sql`desc`)} - ${positionAt(sql`asc`)} + 1`,
    })
    .from(teams)
    .$dynamic(),
}));

/** The team's usage and limits. Uploads in progress count. */
export async function fetchUsage(deps: Deps, credential: Credential<"files:read">): Promise<Usage> {
  const { maxTeamFiles, maxTeamBytes, maxTeamEvents: maxEvents } = deps.settings;
  const [usage] = await authorizeRead(deps, credential, usageOfTeam({}));
  const { files = 0, bytes = 0, events, maxFiles, maxBytes } = usage ?? {};
  const quota = { maxFiles: maxFiles ?? maxTeamFiles, maxBytes: maxBytes ?? maxTeamBytes };
  return { files, bytes, events: events ?? 0, ...quota, maxEvents };
}

/** Anyone who sees a web page can use its public key, so public keys can reserve only a fifth of the storage quota. */
const PUBLIC_QUOTA_DIVISOR = 5;

/** An upload as it counts against the quota of its team and the limits of its key. */
export interface Reservation {
  teamId: string;
  /** The public key that uploads. Null for any other token. */
  publicKeyId: string | null;
  /** The file has at least `minBytes`, and takes at most `reservedBytes`. */
  minBytes: number;
  reservedBytes: number;
  /** The default quota. */
  maxTeamFiles: number;
  maxTeamBytes: number;
}

const keyLimit = (name: keyof KeyLimits) => sql<number | null>`json_extract(${apiKeys.limits}, ${`$.${name}`})`;

/** The quota in SQL: the condition and the values of the insert of an upload, from the rows of its team and key. */
export function quotaFor(param: Param<Reservation>) {
  const maxFiles = sql<number>`coalesce(${teams.maxFiles}, ${param("maxTeamFiles")})`;
  const maxBytes = sql<number>`coalesce(${teams.maxBytes}, ${param("maxTeamBytes")})`;
  const isKey = and(eq(apiKeys.teamId, teams.id), eq(apiKeys.id, param("publicKeyId")));
  const requested = param("reservedBytes");
  const reservedBytes = sql<number>`min(${requested}, coalesce(${keyLimit("maxFileBytes")}, ${requested}))`;
  const isWithinLimits = sql`${apiKeys.id} is not null
    and ${teams.publicBytes} + ${reservedBytes} <= ${maxBytes} / ${PUBLIC_QUOTA_DIVISOR}
    and ${apiKeys.uploadCount} < coalesce(${keyLimit("maxFiles")}, ${Number.MAX_SAFE_INTEGER})
    and ${param("minBytes")} <= coalesce(${keyLimit("maxFileBytes")}, ${param("minBytes")})`;
  return {
    isKey,
    rows: sql`${teams} left join ${apiKeys} on ${isKey}`,
    maxFiles,
    maxBytes,
    reservedBytes,
    allowedTypes: sql<string | null>`${apiKeys.limits} -> 'fileTypes'`,
    hasRoom: sql`${isExistingTeam(param)} and ${teams.files} + 1 <= ${maxFiles}
      and ${teams.bytes} + ${reservedBytes} <= ${maxBytes} and (${param("publicKeyId")} is null or ${isWithinLimits})`,
  };
}

const quotaState = preparedQuery((db, param: Param<Reservation>) => {
  const { isKey, maxFiles, maxBytes, reservedBytes } = quotaFor(param);
  const limits = { maxFiles: maxFiles.as("maxFiles"), maxBytes: maxBytes.as("maxBytes") };
  return db
    .select({
      ...limits,
      files: teams.files,
      bytes: teams.bytes,
      reservedBytes: reservedBytes.as("reservedBytes"),
      keyId: apiKeys.id,
      uploadCount: apiKeys.uploadCount,
      limits: apiKeys.limits,
    })
    .from(teams)
    .leftJoin(apiKeys, isKey)
    .where(isExistingTeam(param));
});

export const fileTooLarge = (maxBytes: number) =>
  new AppError("file_too_large", { message: `The file can have at most ${maxBytes} bytes.` });

/** The error for an upload that was not inserted. A separate read, so that successful uploads do not pay for it. */
export async function quotaError(deps: Deps, reservation: Reservation): Promise<AppError> {
  const [[state]] = await read(deps, [quotaState(reservation)]);
  const isPublic = reservation.publicKeyId !== null;
  // The team was deleted, or the key was revoked, after the token was accepted.
  if (!state || (isPublic && state.keyId === null)) return new AppError("token_invalid");
  const { files, bytes, reservedBytes, uploadCount, maxFiles: fileLimit, maxBytes: byteLimit } = state;
  const { maxFiles = Infinity, maxFileBytes = Infinity }: KeyLimits = JSON.parse(state.limits ?? "{}");
  if ((uploadCount ?? 0) >= maxFiles) {
    return new AppError("upload_limit_reached", { message: `This key can upload at most ${maxFiles} files.` });
  }
  if (reservation.minBytes > maxFileBytes) return fileTooLarge(maxFileBytes);
  if (files >= fileLimit) {
    const limit = fileLimit.toLocaleString("en");
    return new AppError("file_limit_reached", {
      message: `A team can have at most ${limit} files. Delete files and retry.`,
    });
  }
  const message =
    isPublic && bytes + reservedBytes <= byteLimit
      ? `Unfinished uploads of public keys can reserve at most ${formatBytes(Math.floor(byteLimit / PUBLIC_QUOTA_DIVISOR))}. Complete or cancel one and retry.`
      : `Storage quota (${formatBytes(byteLimit)}) exceeded. Delete files and retry.`;
  return new AppError("quota_exceeded", { message });
}

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  const exponent = UNITS.findLastIndex((_, index) => bytes >= 1000 ** index);
  return `${Number((bytes / 1000 ** exponent).toFixed(1))} ${UNITS[exponent]}`;
}
