import { createHash } from "node:crypto";
import { and, eq, exists, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { PART_BYTES, SINGLE_PUT_BYTES, type StoredPart } from "../../platform/byte-store.ts";
import {
  type BoundQuery,
  columnsFrom,
  type Db,
  insertWhere,
  type Param,
  preparedQuery,
  write,
} from "../../platform/db.ts";
import { files, teams, uploads } from "../../platform/schema.ts";
import { instantOf, MINUTE, newId } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { isExistingTeam } from "../accounts/teams.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import {
  changed,
  enqueue,
  hidden,
  type ListedRow,
  MAX_DELETING_MILLISECONDS,
  MAX_PENDING_MILLISECONDS,
  removeRows,
  type StoredFile,
  toStoredFile,
} from "./files.ts";
import { claimKey, hashOf, reportProgress, settleReplay, uploadState } from "./idempotency.ts";
import { chunkPrefix, cleanName, type FileKey, isFile, type Named, objectKey, objectKeys } from "./names.ts";
import { type FileProperties, propertyColumns } from "./properties.ts";
import { quotaError } from "./quota.ts";
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
 * @returns the file. If the idempotency key was used before for the same bytes, the file of that upload
 * @throws what `bytes` throws, `quota_exceeded`, `file_limit_reached`, `idempotency_conflict`, `idempotency_in_progress`,
 *   `unavailable`, and `not_found` if the file was deleted before its last byte arrived
 */
export async function uploadFile(deps: Deps, actor: TeamActor, file: IncomingFile): Promise<StoredFile> {
  const upload: Named = { id: newId(deps.system), teamId: actor.teamId, originalName: cleanName(file.name) };
  const orRollBack = <T>(work: Promise<T>) =>
    work.catch(async (error) => {
      await rollBack(deps, actor, upload, file.maxBytes, error);
      throw error;
    });
  const outcome = await orRollBack(insertUpload(deps, upload, file));
  if (outcome === "limit reached") throw await quotaError(deps, upload.teamId);
  if (outcome !== "inserted") return settleReplay(deps, outcome, await hashOf(file.bytes));
  const stored = storeBytes(deps, upload, file);
  const row = await orRollBack(stored.then((object) => commit(deps, actor, upload, object)));
  await enqueue(deps, upload);
  return toStoredFile(deps, row);
}

export type UploadValues = Named &
  ReturnType<typeof propertyColumns> & {
    reservedBytes: number;
    idempotencyKey: string | null;
    statedSha256: string | null;
    dueAt: number;
    now: number;
    createdAt: number;
    maxTeamFiles: number;
    maxTeamBytes: number;
  };

export function uploadValues(
  { settings, system }: Deps,
  upload: Named,
  reservedBytes: number,
  receivingMilliseconds: number,
  properties: FileProperties = {},
): UploadValues {
  const now = system.now();
  return {
    ...upload,
    ...propertyColumns(upload.originalName, properties),
    reservedBytes,
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

/** The insert itself checks the limits, so concurrent requests cannot exceed them. */
export function insertReceiving(db: Db, param: Param<UploadValues>, isAllowed = sql`1`) {
  const row = {
    ...columnsFrom(param, "id", "teamId", "originalName", "reservedBytes", "idempotencyKey", "statedSha256"),
    ...columnsFrom(param, "name", "nameKey", "folder", "reference", "tags", "metadata", "dueAt", "createdAt"),
    status: "receiving" as const,
    updatedAt: param("now"),
  };
  const teamWithRoom = db
    .select({ one: sql`1` })
    .from(teams)
    .where(
      and(
        isExistingTeam(param),
        sql`${teams.files} + 1 <= coalesce(${teams.maxFiles}, ${param("maxTeamFiles")})`,
        sql`${teams.bytes} + ${param("reservedBytes")} <= coalesce(${teams.maxBytes}, ${param("maxTeamBytes")})`,
      ),
    );
  return insertWhere(db, files, row, sql`${exists(teamWithRoom)} and ${isAllowed}`);
}

const insertFormUpload = preparedQuery((db, param: Param<UploadValues>) => insertReceiving(db, param));

/** @returns the earlier upload if that has the idempotency key */
async function insertUpload(
  deps: Deps,
  upload: Named,
  { maxBytes, idempotencyKey, properties }: IncomingFile,
): Promise<"inserted" | "limit reached" | FileKey> {
  const values = uploadValues(deps, upload, maxBytes, receivingMilliseconds(deps, maxBytes), properties);
  const insert = insertFormUpload({ ...values, idempotencyKey: idempotencyKey ?? null });
  if (idempotencyKey === undefined) {
    const [, inserted] = await write(deps, [insert, uploadState(upload)], { isIdempotent: true });
    return inserted.length > 0 ? "inserted" : "limit reached";
  }
  const [freeOldKey, uploadWithSameKey] = claimKey(deps, upload.teamId, idempotencyKey);
  const queries = [freeOldKey, insert, uploadState(upload), uploadWithSameKey] as const;
  const [, , inserted, [earlier]] = await write(deps, queries, { isIdempotent: true });
  return inserted.length > 0 ? "inserted" : (earlier ?? "limit reached");
}

async function storeBytes(deps: Deps, upload: Named, file: IncomingFile): Promise<StoredObject> {
  const { bytes, minBytes, maxBytes, idempotencyKey } = file;
  const isSmall = minBytes !== null && minBytes <= SINGLE_PUT_BYTES;
  const digest = createHash("sha256");
  const parts: StoredPart[] = [];
  let sizeBytes = 0;
  const writer = new ObjectWriter(deps, upload, {
    sha256: digest,
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
  const stored = async (etag: string | null): Promise<StoredObject> => {
    const { type } = writer.progress;
    if (etag === null) throw new Error("The key of a new file is in use.");
    if (!type) throw new Error("The media type was not detected.");
    return { ...type, sizeBytes, etag, sha256: digest.digest("hex") };
  };
  try {
    await writer.write(idempotencyKey === undefined ? bytes : reportProgress(deps, upload, bytes));
    const { multipartId } = writer.progress;
    if (multipartId === null) {
      sizeBytes = writer.part.sizeBytes;
      return await stored(await writer.putObject());
    }
    await writer.sendPart();
    return await stored(await deps.bytes.complete(objectKey(upload), multipartId, parts));
  } catch (error) {
    await writer.abort();
    throw error;
  } finally {
    writer.part.free();
  }
}

type CommitValues = StoredObject &
  FileKey & {
    reservedBytes: number;
    dueAt: number;
    updatedAt: number;
    /** Null if any request can commit. Otherwise only the request with this epoch can. */
    epoch: number | null;
  };

const markPending = preparedQuery((db, param: Param<CommitValues>) => {
  const currentEpoch = db
    .select({ one: sql`1` })
    .from(uploads)
    .where(and(eq(uploads.fileId, param("id")), eq(uploads.epoch, param("epoch"))));
  return db
    .update(files)
    .set({
      status: "pending",
      ...columnsFrom(param, "sizeBytes", "sha256", "etag", "mimeType", "fileType", "reservedBytes", "dueAt"),
      ...changed(param),
    })
    .where(and(isFile(param), eq(files.status, "receiving"), or(sql`${param("epoch")} is null`, exists(currentEpoch))));
});

/**
 * The commit point. The same batch reads the state, so a commit whose response was lost can be repeated.
 * @throws `not_found` if the file was deleted while its bytes arrived, `offset_mismatch` if `epoch` is fenced off
 */
export async function commit(
  deps: Deps,
  initiator: Initiator,
  { id, teamId }: FileKey,
  stored: StoredObject,
  extraQueries: BoundQuery<unknown>[] = [],
  epoch: number | null = null,
): Promise<ListedRow> {
  const now = deps.system.now();
  const columns = { ...stored, reservedBytes: stored.sizeBytes };
  const mark = markPending({ id, teamId, ...columns, dueAt: now + MAX_PENDING_MILLISECONDS, updatedAt: now, epoch });
  const event = fileEvent(deps, "file.uploaded", initiator, { id, teamId });
  const queries = [mark, uploadState({ id, teamId }), ...extraQueries] as const;
  const [, [row]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (!row || row.status === "deleting") {
    throw new AppError("not_found", { message: "The file was deleted during its upload." });
  }
  if (row.status === "receiving" || (epoch !== null && row.etag !== stored.etag)) throw fencedOff();
  return row;
}

export const fencedOff = () => new AppError("offset_mismatch", { message: "A newer request has resumed this upload." });

const hideUpload = preparedQuery((db, param: Param<FileKey & { dueAt: number }>) =>
  db
    .update(files)
    .set(hidden(sql`${param("dueAt")}`))
    .where(isFile(param)),
);

/**
 * Hides the row before deleting bytes: if only the commit's response was lost, the file is listed. If a store failed,
 * one of its writes may still be in flight. Then keeps the row, so that the recovery job deletes late objects too.
 */
async function rollBack(
  deps: Deps,
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
    await writeWithEvent(deps, event, [hideUpload({ id, teamId, dueAt })], { isIdempotent: true });
    await deps.bytes.remove(objectKeys({ ...upload, reservedBytes: maxBytes, sizeBytes: null }));
    if (isRejection) await removeRows(deps, [upload]);
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId: id, teamId, cause });
  }
}
