import { createHash } from "node:crypto";
import { and, eq, lt, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { columnsFrom, type Param, preparedQuery, type RowsOf, read, write } from "../../platform/db.ts";
import { files } from "../../platform/schema.ts";
import { DAY, MINUTE } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { LISTED_COLUMNS, type StoredFile, toStoredFile } from "./files.ts";
import { type FileKey, isFile } from "./names.ts";
import type { propertyColumns } from "./properties.ts";

/*
 * Repeated uploads with the same idempotency key store one file, and each returns it. A unique index decides, even if
 * they arrive at once. Until the first upload ends, the others are rejected and have to be retried.
 */

export const IDEMPOTENCY_MILLISECONDS = DAY;
/** How often an upload with an idempotency key records its progress. */
const PROGRESS_MILLISECONDS = MINUTE;
/** An upload without progress for this long loses its key to a repetition, because its Worker may have died. */
const MAX_IDLE_MILLISECONDS = 10 * MINUTE;
/**
 * A duplicate that arrives during the first upload is rejected at once, because waiting would poll D1. Its client waits as
 * long as that upload has taken so far, up to this.
 */
const MAX_RETRY_AFTER_SECONDS = 10;

/** The key as stored. That of a public key is scoped to it, because anyone may have it. No key contains a line break. */
export const scopedKey = ({ kind, keyId }: TeamActor, idempotencyKey: string): string =>
  kind === "public" ? `${keyId}\n${idempotencyKey}` : idempotencyKey;

/** The file of an upload, in any state. */
export const uploadState = preparedQuery((db, param: Param<FileKey>) =>
  db
    .select({
      ...LISTED_COLUMNS,
      sha256: files.sha256,
      etag: files.etag,
      reservedBytes: files.reservedBytes,
      allowedTypes: files.allowedTypes,
    })
    .from(files)
    .where(isFile(param)),
);

export type UploadState = RowsOf<[ReturnType<typeof uploadState>]>[0][number];

type KeyValues = {
  teamId: string;
  idempotencyKey: string;
  /** Uploads created earlier lose their key. */
  expired: number;
  /** Unfinished uploads without progress since then lose their key too. */
  abandoned: number;
};
const hasSameKey = (param: Param<KeyValues>) =>
  and(eq(files.teamId, param("teamId")), eq(files.idempotencyKey, param("idempotencyKey")));

const freeOldKey = preparedQuery((db, param: Param<KeyValues>) =>
  db
    .update(files)
    .set({ idempotencyKey: null, status: sql`case status when 'receiving' then 'deleting' else status end` })
    .where(
      and(
        hasSameKey(param),
        or(
          lt(files.createdAt, param("expired")),
          and(eq(files.status, "receiving"), lt(files.updatedAt, param("abandoned"))),
        ),
      ),
    ),
);

const uploadWithSameKey = preparedQuery((db, param: Param<KeyValues>) =>
  db.select({ id: files.id, teamId: files.teamId }).from(files).where(hasSameKey(param)),
);

/**
 * The queries before and after the insert of an upload with an idempotency key. The first takes the key from an expired or
 * abandoned upload. The second finds the upload that has the key.
 */
export function claimKey({ settings, system }: Deps, teamId: string, idempotencyKey: string) {
  const now = system.now();
  const maxIdleMilliseconds = Math.max(MAX_IDLE_MILLISECONDS, 2 * settings.uploadIdleMilliseconds);
  const values = {
    teamId,
    idempotencyKey,
    expired: now - IDEMPOTENCY_MILLISECONDS,
    abandoned: now - maxIdleMilliseconds,
  };
  return [freeOldKey(values), uploadWithSameKey(values)] as const;
}

/** Reads a repeated upload to its end to compare it with the first. Nothing is stored. */
export async function hashOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const digest = createHash("sha256");
  for await (const chunk of bytes) digest.update(chunk);
  return digest.digest("hex");
}

/**
 * @returns the file of the first upload, with the properties that this request sent: the team may have changed them since,
 *   and the caller may not be allowed to read them
 * @throws `idempotency_conflict`, `idempotency_in_progress`
 */
export async function settleReplay(
  deps: Deps,
  earlier: FileKey,
  sha256: string,
  { name, folder, reference, tags }: ReturnType<typeof propertyColumns>,
): Promise<StoredFile> {
  const [[row]] = await read(deps, [uploadState(earlier)]);
  if (!row || row.status === "deleting") {
    const message = "The first upload with this Idempotency-Key failed. Retry.";
    throw new AppError("idempotency_in_progress", { message, retryAfterSeconds: 1 });
  }
  if (row.status === "receiving") {
    const ageSeconds = Math.ceil((deps.system.now() - row.createdAt) / 1000);
    const retryAfterSeconds = Math.max(1, Math.min(ageSeconds, MAX_RETRY_AFTER_SECONDS));
    throw new AppError("idempotency_in_progress", { retryAfterSeconds });
  }
  if (row.sha256 !== sha256) throw new AppError("idempotency_conflict");
  return toStoredFile(deps, { ...row, name: name ?? row.originalName, folder, reference, tags });
}

const touchUpload = preparedQuery((db, param: Param<FileKey & { updatedAt: number }>) =>
  db
    .update(files)
    .set(columnsFrom(param, "updatedAt"))
    .where(and(isFile(param), eq(files.status, "receiving"))),
);

/** Yields the bytes and records progress, so that a repetition does not take the key. */
export async function* reportProgress(deps: Deps, { teamId, id }: FileKey, bytes: AsyncIterable<Uint8Array>) {
  let reportedAt = deps.system.now();
  for await (const chunk of bytes) {
    const now = deps.system.now();
    if (now - reportedAt >= PROGRESS_MILLISECONDS) {
      reportedAt = now;
      // The upload continues: the next report may reach the database.
      await write(deps, [touchUpload({ teamId, id, updatedAt: now })], { isIdempotent: true }).catch((cause) =>
        deps.log("warn", "upload_progress_failed", { fileId: id, cause }),
      );
    }
    yield chunk;
  }
}
