import { createHash } from "node:crypto";
import { and, eq, isNotNull, lt, lte, not, or, sql } from "drizzle-orm";
import { isVisitor } from "../access/actor.ts";
import { isExistingTeam, isKey, mayStillUpload, type TeamActor } from "../access/authorization.ts";
import { type FilesOf, ownerColumns, uploadsOf, uploadsOfParam } from "../access/own-files.ts";
import { visitorIdOf } from "../access/upload-tokens.ts";
import { apiKeys } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode, isError } from "../errors.ts";
import { actorOf, type Initiator, writeWithEvent } from "../events/events.ts";
import { deleteRemoved } from "../files/deletion.ts";
import { cancelUploads, deleteUploads, namedFile, type UploadRow } from "../files/ending.ts";
import { files } from "../files/files.schema.ts";
import { enqueue, LISTED_COLUMNS, type ListedRow, type StoredFile, toStoredFile } from "../files/files.ts";
import {
  chunkPrefix,
  cleanName,
  type FileOf,
  isFile,
  isFileOfUpload,
  isUpload,
  type Named,
  objectKey,
  storedName,
  uploadKeys,
} from "../files/names.ts";
import { fileInsert, fileRevocation } from "../files/new-files.ts";
import { type FileProperties, propertyColumns } from "../files/properties.ts";
import { MIN_BYTES_PER_SECOND } from "../platform/bodies.ts";
import { PART_BYTES, SINGLE_PUT_BYTES, type StoredPart } from "../platform/byte-store.ts";
import {
  evaluate,
  firstOf,
  hasRow,
  insertWhere,
  type Param,
  preparedQuery,
  type Query,
  read,
  write,
} from "../platform/db.ts";
import { DAY, instantOf, MINUTE, newId, SECOND } from "../platform/system.ts";
import { fileTooLarge, type QuotaRefusal, quotaError, quotaFor, type Reservation } from "./quota.ts";
import { insertWithRoom } from "./room.ts";
import { ObjectWriter, type StoredObject } from "./storing.ts";
import { isCommitted, isReceiving, uploads } from "./uploads.schema.ts";

/*
 * The upload protocol: form uploads here, resumable uploads in resumable.ts. No transaction spans D1 and R2, so the order
 * of the writes makes an upload safe:
 *
 *   1. insert   the row in `uploads`, with the id of the file, its quota, and its idempotency key
 *   2. store    the bytes in R2. SHA-256, size, and media type are computed on the way
 *   3. commit   by one batch: inserts the file, and deletes the row or keeps it as a receipt. This is the commit point: from here on the upload has succeeded
 *   4. enqueue  the message, which the response does not wait for. If that fails, the recovery job sends it
 *
 * The row is inserted before the bytes, so R2 never holds orphans. If anything fails before the commit, `rollBack` cancels the
 * upload, deletes the bytes, and deletes the row. If it can't (the Worker died, D1 is unreachable), the recovery job does
 * so after `receivingMilliseconds`. A commit whose response was lost is repeated: either attempt may have taken effect.
 */

export const idempotencyConflict = errorCode(
  "idempotency_conflict",
  409,
  "This idempotency key was used for a different file. Use a new key.",
);
export const idempotencyInProgress = errorCode(
  "idempotency_in_progress",
  409,
  "The first upload with this idempotency key is still in progress. Retry shortly.",
  { hasRetryAfter: true },
);
export const offsetMismatch = errorCode(
  "offset_mismatch",
  409,
  "Upload-Offset is not the current offset. Get the current one with HEAD.",
);

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
  /** In hex. The client may repeat an upload with the digest instead of the bytes, to learn whether it was stored. */
  statedSha256?: string | null;
  properties?: FileProperties | undefined;
  /** Returns the properties that followed the bytes. Called once, when the bytes have ended. */
  lateProperties?: () => FileProperties | undefined;
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
  const { teamId, ownerId } = actor;
  const id = newId(deps.system, deps.db.number);
  const upload = { id, teamId, ownerId, originalName: cleanName(file.name) };
  const orRollBack = <T>(work: Promise<T>) =>
    work.catch(async (error) => {
      await rollBack(deps, actor, upload, file, error);
      throw error;
    });
  let properties = propertyColumns(upload.originalName, file.properties ?? {});
  // An error in them fails the upload like one in its bytes: before the object is complete.
  async function* bytesAndProperties() {
    yield* file.bytes;
    const late = file.lateProperties?.();
    if (late) properties = propertyColumns(upload.originalName, late);
  }
  const bytes = bytesAndProperties();
  const insert = () => insertFormUpload(deps, actor, upload, file);
  const { inserted, earlier, refused } = await orRollBack(insertWithRoom(deps, actor, upload, insert));
  // A visitor does not see what an upload token sets.
  const shown = () => ({
    ...(actor.uploadToken ? propertyColumns(upload.originalName, {}) : properties),
    originalName: upload.originalName,
  });
  if (!inserted && earlier) {
    const sha256 = file.statedSha256 ?? (await hashOf(bytes));
    return settleReplay(deps, earlier, sha256, shown());
  }
  if (!inserted) throw quotaError(refused);
  const storeAndCommit = async () => {
    const stored = await storeBytes(deps, actor, upload, { ...file, bytes }, inserted);
    return commit(deps, actor, { ...inserted, ...setBy(deps, actor, properties) }, stored);
  };
  const committed = await orRollBack(storeAndCommit());
  enqueue(deps, [upload], committed.isBulk);
  const sent = shown();
  return toStoredFile(deps, { ...committed.row, ...sent, name: sent.name ?? upload.originalName });
}

/** A file that is uploaded. */
type NamedFile = Named & FileOf;
type PropertyColumns = ReturnType<typeof propertyColumns>;
/** The columns of a file that its upload sets, in a resumable upload as JSON. */
export type SetColumns = PropertyColumns & { deleteAfterBy: string | null };

export const setBy = ({ requestId }: Deps, initiator: Initiator, properties: PropertyColumns): SetColumns => ({
  ...properties,
  deleteAfterBy: properties.deleteAfter === null ? null : actorOf(initiator, requestId),
});

type OwnColumns =
  | "teamId"
  | "fileId"
  | "keyId"
  | "userId"
  | "isPublic"
  | "visitorId"
  | "sizeBytes"
  | "reservedBytes"
  | "originalName";
type NewUploadRow = Partial<Omit<UploadRow, OwnColumns>> & Pick<UploadRow, "dueAt">;

/**
 * The queries that read why a limit refuses an upload, and insert its row if none does. The insert itself checks the limits
 * and that the caller still has access, so concurrent requests can't exceed a limit.
 */
export function insertUpload(
  deps: Deps,
  actor: TeamActor,
  { id, originalName }: NamedFile,
  columns: NewUploadRow,
  reservation: Reservation,
) {
  const { from, refusalQuery, isAccepted, sizeBytes, reservedBytes, allowedTypes } = quotaFor(deps, actor, reservation);
  const row = {
    ...ownerColumns(actor),
    fileId: id,
    isPublic: isVisitor(actor),
    uploadTokenId: actor.uploadToken?.id ?? null,
    visitorId: visitorIdOf(deps, actor),
    originalName,
    sizeBytes,
    reservedBytes,
    allowedTypes,
    // Lists filter by creation time through the id, so the time comes from the id.
    createdAt: instantOf(id),
    updatedAt: deps.system.now(),
    progressAt: deps.system.now(),
    ...columns,
  };
  return { refusal: refusalQuery, insert: insertWhere(deps.db, uploads, row, isAccepted, from) };
}

/** The row of an upload that is arriving. None if it was not inserted. */
export const arrivingUpload = preparedQuery((db, param: Param<FileOf>) =>
  db
    .select()
    .from(uploads)
    .where(and(uploadsOfParam(param), eq(uploads.fileId, param("id")), isReceiving)),
);

interface Inserted {
  inserted?: UploadRow | undefined;
  /** The upload that has the idempotency key: this one, or an earlier one. */
  earlier?: UploadRow | undefined;
  refused?: QuotaRefusal | undefined;
}

async function insertFormUpload(
  deps: Deps,
  actor: TeamActor,
  upload: NamedFile,
  { minBytes, maxBytes, idempotencyKey: given }: IncomingFile,
): Promise<Inserted> {
  const idempotencyKey = given === undefined ? null : scopedKey(actor, given);
  const dueAt = deps.system.now() + receivingMilliseconds(deps, maxBytes);
  const reservation = { minBytes: Math.max(0, minBytes ?? 0), maxBytes };
  const claim = idempotencyKey === null ? null : claimKey(deps, upload, idempotencyKey);
  const batch = {
    freeKey: claim ? [claim.freeKey] : [],
    quota: insertUpload(deps, actor, upload, { idempotencyKey, dueAt }, reservation),
    arriving: arrivingUpload(upload),
    withKey: claim ? [claim.uploadWithKey] : [],
  };
  const { quota, arriving, withKey } = await write(deps, batch, {
    isIdempotent: true,
    caller: mayStillUpload(deps, actor),
  });
  return { refused: quota.refusal[0], inserted: arriving[0], earlier: withKey.flat()[0] };
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
  actor: TeamActor,
  upload: NamedFile,
  { minBytes, ...file }: IncomingFile,
  { sizeBytes: maxBytes, allowedTypes, isPublic: isVisitor }: UploadRow,
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
      isVisitor,
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
    await writer.write(whileNotEnded(deps, actor, upload, bytes));
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

/**
 * While bytes arrive, a request looks this often whether its upload was canceled, because only its end frees the quota. If none
 * arrive, it ends after the idle period.
 */
export const STATUS_CHECK_MILLISECONDS = 10 * SECOND;

/**
 * Yields the bytes while the upload may continue, and records once a minute that one with an idempotency key does, so that a
 * repetition does not take the key.
 * @throws `not_found` once the upload was canceled, `token_invalid` once its key, session or team was deleted
 */
async function* whileNotEnded(deps: Deps, { keyId }: TeamActor, upload: FileOf, bytes: AsyncIterable<Uint8Array>) {
  const { db, system, log } = deps;
  let lookedAt = system.now();
  for await (const chunk of bytes) {
    const now = system.now();
    if (now - lookedAt >= STATUS_CHECK_MILLISECONDS) {
      lookedAt = now;
      const isReported = and(isNotNull(uploads.idempotencyKey), lte(uploads.updatedAt, now - PROGRESS_MILLISECONDS));
      const report = db
        .update(uploads)
        .set({ updatedAt: now })
        .where(and(isUpload(upload), isReceiving, isReported));
      const end = firstOf(endsOf(upload, keyId));
      const state = evaluate(db, { end: end.as("end") });
      // The upload continues: the next look may reach the database.
      const looked = await write(deps, { state, report }, { isIdempotent: true, caller: null }).catch((cause) => {
        log("warn", "upload_progress_failed", { fileId: upload.id, cause });
        return { state: [] };
      });
      const [found] = looked.state;
      if (found?.end === "token_invalid") throw new AppError("token_invalid");
      if (found?.end === "not_found") throw deletedMeanwhile();
    }
    yield chunk;
  }
}

type CommitOptions = {
  /** Part of the commit's transaction, after it. */
  extraQueries?: Query[];
  /** Null if any request can commit. Otherwise only the request with this epoch can. */
  epoch?: number | null;
};

/** How long a receipt answers those who ask for the upload again: longer than an upload token and its grace. */
const RECEIPT_MILLISECONDS = 2 * DAY;

/** Whether someone may ask for the upload again: a late client, a repetition, or the visitor with the upload token. */
const leavesReceipt = ({ secretHash, idempotencyKey, uploadTokenId }: UploadRow): boolean =>
  secretHash !== null || idempotencyKey !== null || uploadTokenId !== null;

/** The columns of a receipt. */
export const receiptOf = (initiator: Initiator, sizeBytes: number, now: number) => ({
  status: "committed" as const,
  offsetBytes: sizeBytes,
  dueAt: now + RECEIPT_MILLISECONDS,
  // A commit knows the metadata, which may be as large as all the rest. HEAD reports none any more.
  isWriting: false,
  fencedOff: 0,
  chunks: null,
  multipartId: null,
  properties: null,
  metadata: "",
  ...("uploadToken" in initiator && { finishedByTokenId: initiator.uploadToken?.id ?? null }),
});

/**
 * The commit point. The team must not be deleted, and the key or session must still exist: an expired one may finish its
 * upload while its row exists, and so may one of a suspended team. The same batch reads the file, so a commit whose
 * response was lost can be repeated.
 * @throws `not_found` if the upload was canceled while its bytes arrived, or the file has left since, `token_invalid` if the
 *   initiator's access ended by then, `offset_mismatch` if `epoch` is fenced off
 */
export async function commit(
  deps: Deps,
  initiator: Initiator,
  upload: UploadRow & SetColumns,
  stored: StoredObject,
  { extraQueries = [], epoch = null }: CommitOptions = {},
): Promise<{ row: ListedRow; isBulk: boolean }> {
  const { db, system } = deps;
  const now = system.now();
  const key = namedFile(upload);
  const isCurrent = epoch === null ? sql`1` : hasRow(uploads, and(isUpload(key), eq(uploads.epoch, epoch)));
  const refusal = firstOf({
    ...endsOf(key, "keyId" in initiator ? initiator.keyId : undefined),
    offset_mismatch: sql`not ${isCurrent}`,
  });
  const isFileNow = and(isUpload(key), isReceiving, hasRow(files, isFile(key)));
  const settle = leavesReceipt(upload)
    ? db
        .update(uploads)
        .set(receiptOf(initiator, stored.sizeBytes, now))
        .where(isFileNow)
    : db.delete(uploads).where(isFileNow);
  const file = fileInsert(deps, initiator, { ...upload, ...stored, ...key }, sql`${refusal} is null`);
  const batch = {
    refused: evaluate(db, { refusal: refusal.as("refusal") }),
    insert: file.insert,
    settle,
    state: file.stored,
    extraQueries,
  };
  const {
    refused: [refused],
    state: [row],
    // The upload began in time. Whoever ends its caller cancels it.
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  if (!row && refused?.refusal === "token_invalid") throw new AppError("token_invalid");
  if (!row && refused?.refusal === "offset_mismatch") throw fencedOff();
  if (!row) throw deletedMeanwhile();
  if (epoch !== null && row.etag !== stored.etag) throw fencedOff();
  return { row, isBulk: row.isBulk === 1 };
}

/** Why an upload can't continue, or commit, as conditions: its key or session, or its team, was deleted, or it was canceled. */
const endsOf = (key: FileOf, keyId: string | undefined) => ({
  token_invalid: sql`not ${hasRow(teams, and(isExistingTeam(key.teamId), keyId === undefined ? undefined : hasRow(apiKeys, isKey(key.teamId, keyId))))}`,
  not_found: sql`not ${hasRow(uploads, and(isUpload(key), isReceiving))}`,
});

export const deletedMeanwhile = () => new AppError("not_found", { message: "The file was deleted during its upload." });

export const fencedOff = () => new AppError(offsetMismatch, { message: "A newer request has resumed this upload." });

/**
 * Cancels the upload before its bytes are deleted. If only the commit's response was lost, the file leaves, unless it has an
 * idempotency key: a repetition with the same key may have returned it. If a store failed, R2 may still store one of its writes.
 * Then keeps the row, so that the recovery job deletes late objects, too.
 */
async function rollBack(
  deps: Deps,
  actor: TeamActor,
  upload: NamedFile,
  { maxBytes, idempotencyKey }: IncomingFile,
  failure: unknown,
): Promise<void> {
  const { id, teamId } = upload;
  const isRejection = failure instanceof AppError && !isError(failure, "unavailable");
  try {
    const file = fileRevocation(deps, actor, upload, idempotencyKey === undefined);
    const batch = { leave: file.leave, cancel: cancelUploads(deps, isUpload(upload)), kept: file.kept };
    const {
      kept: [kept],
    } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
    if (kept?.id) return;
    await deps.bytes.remove(uploadKeys({ ...upload, sizeBytes: maxBytes }));
    if (!isRejection) return;
    const rows = { uploads: deleteUploads(deps, [upload]), removed: deleteRemoved(deps, [upload]) };
    await write(deps, rows, { isIdempotent: true, caller: null });
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId: id, teamId, cause });
  }
}

/*
 * Idempotency keys. Repeated uploads with the same key store one file, and each returns it. A unique index decides, even if
 * they arrive at once. Until the first upload ends, the others are rejected and have to be retried.
 */

export const IDEMPOTENCY_MILLISECONDS = DAY;
/** How often an upload with an idempotency key records its progress. */
const PROGRESS_MILLISECONDS = MINUTE;
/** An upload without progress for this long loses its key to a repetition, because its Worker may have died. */
const MAX_IDLE_MILLISECONDS = 10 * MINUTE;
/**
 * A duplicate that arrives during the first upload is rejected once its body is read, because waiting for the first would poll
 * D1. Its client waits as long as that upload has taken so far, up to this.
 */
const MAX_RETRY_AFTER_SECONDS = 10;

/** The id of the upload token, or of the key or session of another caller. */
export const uploaderId = ({ keyId, uploadToken }: TeamActor): string => uploadToken?.id ?? keyId;

/**
 * The key as stored. That of a public key or upload token is scoped to it, because anyone may have it, and that of a caller with
 * its own files to its user, or it would find the files of others. No key contains a line break.
 */
function scopedKey(actor: TeamActor, idempotencyKey: string): string {
  const scope = isVisitor(actor) ? uploaderId(actor) : actor.ownerId;
  return scope === null ? idempotencyKey : `${scope}\n${idempotencyKey}`;
}

/**
 * The query that takes the key from an expired or abandoned upload, and from one whose file has left, and the one that finds the
 * upload that has the key.
 */
function claimKey({ db, settings, system }: Deps, whose: FilesOf, idempotencyKey: string) {
  const now = system.now();
  const maxIdleMilliseconds = Math.max(MAX_IDLE_MILLISECONDS, 2 * settings.uploadIdleMilliseconds);
  const hasKey = and(uploadsOf(whose), eq(uploads.idempotencyKey, idempotencyKey));
  const isExpired = lt(uploads.createdAt, now - IDEMPOTENCY_MILLISECONDS);
  const isAbandoned = and(isReceiving, lt(uploads.updatedAt, now - maxIdleMilliseconds));
  const hasLeft = and(isCommitted, not(hasRow(files, isFileOfUpload)));
  const freeKey = db
    .update(uploads)
    // A canceled upload may still be writing, so the recovery job deletes its bytes when it would have.
    .set({ idempotencyKey: null, status: sql`iif(${isReceiving}, 'canceled', status)` })
    .where(and(hasKey, or(isExpired, isAbandoned, hasLeft)));
  return { freeKey, uploadWithKey: db.select().from(uploads).where(hasKey) };
}

/** Reads a repeated upload completely to compare it with the first. Nothing is stored. */
async function hashOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const digest = createHash("sha256");
  for await (const chunk of bytes) digest.update(chunk);
  return digest.digest("hex");
}

/**
 * @returns the file of the first upload, with the names and properties that this request sent: the first may have sent
 *   others, the team may have changed them since, and the caller may not be allowed to read them
 * @throws `idempotency_conflict`, `idempotency_in_progress`
 */
async function settleReplay(
  deps: Deps,
  earlier: UploadRow,
  sha256: string,
  { originalName, name, folder, reference, deleteAfter, tags }: PropertyColumns & Pick<Named, "originalName">,
): Promise<StoredFile> {
  const key = namedFile(earlier);
  const state = deps.db
    .select({ ...LISTED_COLUMNS, sha256: files.sha256 })
    .from(files)
    .where(isFile(key));
  const {
    state: [row],
    upload: [arriving],
  } = await read(deps, { state, upload: arrivingUpload(key) });
  if (arriving) {
    const ageSeconds = Math.ceil((deps.system.now() - arriving.createdAt) / 1000);
    const retryAfterSeconds = Math.max(1, Math.min(ageSeconds, MAX_RETRY_AFTER_SECONDS));
    throw new AppError(idempotencyInProgress, { retryAfterSeconds });
  }
  if (!row) {
    const message = "The first upload with this idempotency key failed. Retry.";
    throw new AppError(idempotencyInProgress, { message, retryAfterSeconds: 1 });
  }
  if (row.sha256 !== sha256) throw new AppError(idempotencyConflict);
  const sent = {
    originalName,
    filename: storedName({ ...key, originalName }),
    folder,
    reference,
    deleteAfter,
    tags,
  };
  return toStoredFile(deps, { ...row, ...sent, name: name ?? originalName });
}
