import { createHash } from "node:crypto";
import { and, eq, isNotNull, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { PART_BYTES, SINGLE_PUT_BYTES, type StoredPart } from "../../platform/byte-store.ts";
import { columnsFrom, type Db, insertWhere, type Param, preparedQuery, write } from "../../platform/db.ts";
import { apiKeys, files, isListed } from "../../platform/schema.ts";
import { instantOf, MINUTE, newId } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { isGuardRejection } from "../accounts/write-authorization.ts";
import { writeWithEvent } from "../events/events.ts";
import { commit } from "./commit.ts";
import { hidden, MAX_DELETING_MILLISECONDS, removeRows } from "./deletion.ts";
import { fileEvent } from "./file-events.ts";
import { enqueue, type StoredFile, toStoredFile } from "./files.ts";
import { claimKey, hashOf, reportProgress, scopedKey, settleReplay } from "./idempotency.ts";
import { chunkPrefix, cleanName, type FileKey, isFile, type Named, objectKey, objectKeys } from "./names.ts";
import { type FileProperties, propertyColumns } from "./properties.ts";
import { fileTooLarge, quotaError, quotaFor, type Reservation } from "./quota.ts";
import { ObjectWriter, type StoredObject } from "./storing.ts";

/*
 * The upload protocol: form uploads here, resumable uploads in resumable.ts. No transaction spans D1 and R2, so the order
 * of the writes makes an upload safe:
 *
 *   1. insert   the row as `receiving`: hidden, with its id, R2 key, quota, and idempotency key
 *   2. store    the bytes in R2. SHA-256, size, and media type are computed on the way
 *   3. commit   by one update to `pending`. This is the commit point: from here on the upload has succeeded
 *   4. enqueue  the message. If that fails, the recovery job sends it
 *
 * The row is inserted before the bytes, so R2 never holds orphans. If anything fails before the commit, `rollBack` hides
 * the row, deletes the bytes, and deletes the row. If it can't (the Worker died, D1 is unreachable), the recovery job does
 * so after `receivingMilliseconds`. A commit whose response was lost is repeated: either attempt may have taken effect.
 */

/** A client must average at least this rate, plus one idle period of slack. */
export const MIN_BYTES_PER_SECOND = 8 * 1024;
/** The time for everything except receiving the file: the form around it, and R2 and D1 with their retries. */
const STORING_MILLISECONDS = 15 * MINUTE;

/** 3.7 hours for 100 MB at the lowest rate. An upload that is still receiving after this has lost its Worker. */
const receivingMilliseconds = ({ settings }: Deps, maxBytes: number): number =>
  settings.uploadIdleMilliseconds + Math.ceil((maxBytes / MIN_BYTES_PER_SECOND) * 1000) + STORING_MILLISECONDS;

export interface IncomingFile {
  /** As the client sent it. It can have a path and control characters, and can be empty. */
  name: string;
  /** Each chunk is valid until the next one is requested. Throws if the body is malformed or interrupted. */
  bytes: AsyncIterable<Uint8Array>;
  /** A lower bound of the file size, from Content-Length; null if unknown. Small files are stored with one put. */
  minBytes: number | null;
  /** The quota to reserve. */
  maxBytes: number;
  idempotencyKey?: string | undefined;
  properties?: FileProperties | undefined;
}

/**
 * Stores a file. The transport keeps the invocation alive until this settles, so that a disconnect does not prevent the
 * rollback.
 *
 * @returns the file. If the idempotency key was used before for the same bytes, the file of that upload, with the
 *   properties of this one
 * @throws what `bytes` throws, the errors of `quotaError`, `type_not_allowed`, `idempotency_conflict`,
 *   `idempotency_in_progress`, `unavailable`, and those of `commit`
 */
export async function uploadFile(deps: Deps, actor: TeamActor, file: IncomingFile): Promise<StoredFile> {
  const { name, idempotencyKey: key, minBytes, maxBytes, properties } = file;
  const upload: Named = { id: newId(deps.system), teamId: actor.teamId, originalName: cleanName(name) };
  const bytes = { minBytes: Math.max(0, minBytes ?? 0), reservedBytes: maxBytes };
  const idempotencyKey = key === undefined ? null : scopedKey(actor, key);
  const receiving = receivingMilliseconds(deps, maxBytes);
  const values = { ...uploadValues(deps, actor, upload, bytes, receiving, properties), idempotencyKey };
  const orRollBack = <T>(work: Promise<T>) =>
    work.catch(async (error) => {
      if (!isGuardRejection(error)) await rollBack(deps, actor, upload, maxBytes, error);
      throw error;
    });
  const { row, earlier } = await orRollBack(insertUpload(deps, values));
  if (!row && earlier) return settleReplay(deps, earlier, await hashOf(file.bytes), values);
  if (!row) throw await quotaError(deps, values);
  const storeAndCommit = async () => {
    const stored = await storeBytes(deps, upload, file, row);
    return commit(deps, actor, upload, stored);
  };
  const committed = await orRollBack(storeAndCommit());
  await enqueue(deps, upload);
  return toStoredFile(deps, committed);
}

export type UploadValues = Named &
  ReturnType<typeof propertyColumns> &
  Reservation & {
    idempotencyKey: string | null;
    statedSha256: string | null;
    dueAt: number;
    now: number;
    createdAt: number;
  };

export function uploadValues(
  { settings, system }: Deps,
  { kind, keyId }: TeamActor,
  upload: Named,
  bytes: Pick<Reservation, "minBytes" | "reservedBytes">,
  receivingMilliseconds: number,
  properties: FileProperties = {},
): UploadValues {
  const now = system.now();
  return {
    ...upload,
    ...propertyColumns(upload.originalName, properties),
    publicKeyId: kind === "public" ? keyId : null,
    ...bytes,
    idempotencyKey: null,
    statedSha256: null,
    dueAt: now + receivingMilliseconds,
    now,
    // Lists filter by creation time through the id, so the time comes from the id.
    createdAt: instantOf(upload.id),
    maxTeamFiles: settings.maxTeamFiles,
    maxTeamBytes: settings.maxTeamBytes,
  };
}

/** The insert itself checks the quota and the limits of the key, so concurrent requests cannot exceed them. */
export function insertReceiving(db: Db, param: Param<UploadValues>, isAllowed = sql`1`) {
  const { rows, reservedBytes, allowedTypes, hasRoom } = quotaFor(param);
  const row = {
    ...columnsFrom(param, "id", "teamId", "originalName", "publicKeyId", "idempotencyKey", "statedSha256"),
    ...columnsFrom(param, "name", "nameKey", "folder", "reference", "tags", "metadata", "dueAt", "createdAt"),
    status: "receiving" as const,
    reservedBytes,
    allowedTypes,
    updatedAt: param("now"),
  };
  return insertWhere(db, files, row, sql`${hasRoom} and ${isAllowed}`, rows);
}

/** What the insert has decided for the upload. */
const insertedLimits = preparedQuery((db, param: Param<FileKey>) =>
  db.select({ reservedBytes: files.reservedBytes, allowedTypes: files.allowedTypes }).from(files).where(isFile(param)),
);

const insertFormUpload = preparedQuery((db, param: Param<UploadValues>) => insertReceiving(db, param));

/** @returns the row, unless a limit rejected it; with an idempotency key also the upload that has the key */
async function insertUpload(deps: Deps, values: UploadValues) {
  const { id, teamId, idempotencyKey } = values;
  const queries = [insertFormUpload(values), insertedLimits({ id, teamId })] as const;
  if (idempotencyKey === null) {
    const [, [row]] = await write(deps, queries, { isIdempotent: true });
    return { row, earlier: undefined };
  }
  const [freeOldKey, uploadWithSameKey] = claimKey(deps, teamId, idempotencyKey);
  const [, , [row], [earlier]] = await write(deps, [freeOldKey, ...queries, uploadWithSameKey], { isIdempotent: true });
  return { row, earlier };
}

/** @throws `file_too_large` */
async function* limitBytes(bytes: AsyncIterable<Uint8Array>, maxBytes: number) {
  let sizeBytes = 0;
  for await (const chunk of bytes) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) throw fileTooLarge(maxBytes);
    yield chunk;
  }
}

async function storeBytes(
  deps: Deps,
  upload: Named,
  { minBytes, idempotencyKey, ...file }: IncomingFile,
  { reservedBytes: maxBytes, allowedTypes }: { reservedBytes: number; allowedTypes: string | null },
): Promise<StoredObject> {
  // The transport enforces `file.maxBytes`. A public key may have a lower limit.
  const bytes = maxBytes < file.maxBytes ? limitBytes(file.bytes, maxBytes) : file.bytes;
  const isSmall = minBytes !== null && minBytes <= SINGLE_PUT_BYTES;
  const sha256 = createHash("sha256");
  const parts: StoredPart[] = [];
  let sizeBytes = 0;
  const writer = new ObjectWriter(deps, upload, {
    sha256,
    allowedTypes,
    partSpec: (number) => ({
      bytes: isSmall ? SINGLE_PUT_BYTES : PART_BYTES,
      maxBytes: maxBytes - sizeBytes,
      newKey: () => `${chunkPrefix(upload)}${number}`,
    }),
    onPart: async (part) => {
      sizeBytes += writer.part.sizeBytes;
      parts.push(part);
    },
  });
  const finish = async () => {
    const { multipartId } = writer.progress;
    if (multipartId !== null) {
      await writer.sendPart();
      return deps.bytes.complete(objectKey(upload), multipartId, parts);
    }
    sizeBytes = writer.part.sizeBytes;
    return writer.putObject();
  };
  try {
    await writer.write(idempotencyKey === undefined ? bytes : reportProgress(deps, upload, bytes));
    const etag = await finish();
    const { type } = writer.progress;
    if (etag === null || !type) throw new Error("The key of a new file is in use, or its type was not detected.");
    return { ...type, sizeBytes, etag, sha256: sha256.digest("hex") };
  } catch (error) {
    await writer.abort();
    throw error;
  } finally {
    writer.part.free();
  }
}

const hideUpload = preparedQuery((db, param: Param<FileKey & { dueAt: number }>) =>
  db
    .update(files)
    .set(hidden(sql`${param("dueAt")}`))
    .where(isFile(param)),
);

/** Gives a committed upload back to its public key. A trigger does so for one that is still receiving. */
const giveBackCommitted = preparedQuery((db, param: Param<FileKey>) => {
  const committed = db
    .select({ id: files.publicKeyId })
    .from(files)
    .where(and(isFile(param), isListed));
  return db
    .update(apiKeys)
    .set({ uploadCount: sql`${apiKeys.uploadCount} - 1` })
    .where(and(eq(apiKeys.id, committed), isNotNull(apiKeys.limits)));
});

/**
 * Hides the row before deleting bytes: if only the commit's response was lost, the file is listed. If a store failed,
 * one of its writes may still be in flight. Then keeps the row, so that the recovery job deletes late objects too. Runs
 * without the guard, because it only removes what this request has inserted.
 */
async function rollBack(
  { guard: _, ...deps }: Deps,
  actor: TeamActor,
  upload: Named,
  maxBytes: number,
  failure: unknown,
): Promise<void> {
  const { id, teamId } = upload;
  const isRejection = failure instanceof AppError && failure.code !== "unavailable";
  try {
    const dueAt = deps.system.now() + MAX_DELETING_MILLISECONDS;
    const event = fileEvent(deps, "file.deleted", actor, upload);
    const queries = [giveBackCommitted({ id, teamId }), hideUpload({ id, teamId, dueAt })];
    await writeWithEvent(deps, event, queries, { isIdempotent: true });
    const file = { ...upload, reservedBytes: maxBytes, sizeBytes: null, waveformWritingSince: null };
    await deps.bytes.remove(objectKeys(file));
    if (isRejection) await removeRows(deps, [upload]);
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId: id, teamId, cause });
  }
}
