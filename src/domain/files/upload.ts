import { createHash } from "node:crypto";
import { and, eq, exists, notExists, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { PART_BYTES, SINGLE_PUT_BYTES, type StoredPart } from "../../platform/byte-store.ts";
import { type BoundQuery, type Db, given, insertWhere, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files, teamUsage, uploads } from "../../platform/schema.ts";
import { instantOf, newId } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import {
  changed,
  enqueue,
  type ListedRow,
  MAX_DELETING_MILLISECONDS,
  MAX_PENDING_MILLISECONDS,
  removeRows,
  type StoredFile,
  toStoredFile,
} from "./files.ts";
import { claimKey, type EarlierUpload, hashOf, reportProgress, settleReplay, uploadState } from "./idempotency.ts";
import { cleanName, type FileKey, isFile, type Named, objectKey, objectKeys, partialPrefix } from "./names.ts";
import { quotaError } from "./quota.ts";
import { type DetectedType, ObjectWriter } from "./storing.ts";

/*
 * The upload protocol, of forms here and of resumable uploads in resumable.ts. Two stores are written, D1 and R2, and no
 * transaction spans them; so the order carries it:
 *
 *   1. begin    the row, as `receiving`: hidden, with its id, R2 key, quota and idempotency key
 *   2. write    the bytes stream to R2; SHA-256, size and media type are taken on the way
 *   3. commit   one update to `pending`: the point of no return, from here on the upload has happened
 *   4. enqueue  if the message can't be sent, recovery sends it
 *
 * The row comes before the bytes, so no object is ever without a row and nobody has to search the bucket. Whatever
 * fails before the commit is undone at once: the row is hidden for good, then the bytes go, then the row. What `undo`
 * can't reach (the Worker died, D1 is away) the recovery job does after `receivingMilliseconds`. A commit whose answer was lost is
 * repeated: it then tells whether the file is committed, by this try or by the one before.
 *
 * A row under `deleting` at the commit was deleted while its bytes arrived; it is undone like any other failure.
 */

/** After its first pause a client must send at least this much: a slower one holds memory and quota for too long. */
export const MIN_BYTES_PER_SECOND = 8 * 1024;
/** What a form upload takes besides receiving the file: the form around it, and R2 and D1 with their retries. */
const STORING_MILLISECONDS = 15 * 60 * 1000;

/** When the slowest client that is allowed must be done: 3.7 hours for 100 MB. The Worker of an older upload has died. */
const receivingMilliseconds = ({ settings }: Deps, maxBytes: number): number =>
  settings.uploadIdleMilliseconds + Math.ceil((maxBytes / MIN_BYTES_PER_SECOND) * 1000) + STORING_MILLISECONDS;

/** A file on its way in, whatever the transport. */
export interface IncomingFile {
  /** As the client sent it: any script, path and control characters included, possibly empty. */
  name: string;
  /** In pieces that are good until the next is asked for. Throws where the transport finds the upload wrong. */
  bytes: AsyncIterable<Uint8Array>;
  /** How many bytes there will be at least; null where that is not known. */
  minBytes: number | null;
  /** How many there can be at most: so much of the quota is reserved. */
  maxBytes: number;
  idempotencyKey?: string | undefined;
}

/**
 * Takes one upload from its first byte to its message. The transport keeps the invocation alive until this settles: a
 * client that goes away must not take the undoing with it.
 *
 * @returns the file; that of the first upload if the idempotency key was used before for the same bytes
 * @throws what `bytes` throws, `quota_exceeded`, `file_limit_reached`, `idempotency_conflict`, `idempotency_in_progress`,
 *   `unavailable`, and `not_found` if the file was deleted before its last byte came
 */
export async function uploadFile(deps: Deps, actor: TeamActor, file: IncomingFile): Promise<StoredFile> {
  const upload: Named = { id: newId(deps.system), teamId: actor.teamId, originalName: cleanName(file.name) };
  let isOurs = true;
  let stored: StoredFile;
  try {
    const outcome = await begin(deps, upload, file);
    isOurs = outcome === "begun";
    if (outcome === "no room") throw await quotaError(deps, upload.teamId);
    if (outcome !== "begun") return await settleReplay(deps, outcome, await hashOf(file.bytes));
    stored = toStoredFile(deps, await commit(deps, actor, upload, await storeBytes(deps, upload, file)));
  } catch (error) {
    if (isOurs) await undo(deps, actor, upload, file.maxBytes, error);
    throw error;
  }
  await enqueue(deps, upload);
  return stored;
}

export type UploadValues = Named & {
  reservedBytes: number;
  idempotencyKey: string | null;
  statedSha256: string | null;
  dueAt: number;
  now: number;
  createdAt: number;
  maxTeamFiles: number;
  maxTeamBytes: number;
};

/** The row of an upload. */
export function uploadValues(
  { settings, system }: Deps,
  upload: Named,
  reservedBytes: number,
  receivingMilliseconds: number,
): UploadValues {
  const now = system.now();
  const { maxTeamFiles, maxTeamBytes } = settings;
  const dueAt = now + receivingMilliseconds;
  // By the clock of the id: lists look for times of creation among the ids.
  const createdAt = instantOf(upload.id);
  return {
    ...upload,
    reservedBytes,
    idempotencyKey: null,
    statedSha256: null,
    dueAt,
    now,
    createdAt,
    maxTeamFiles,
    maxTeamBytes,
  };
}

/** The same query decides whether there is room, and reserves it: a race overdraws nothing. */
export function insertReceiving(db: Db, param: Param<UploadValues>, mayBegin = sql`1`) {
  const row = {
    id: param("id"),
    teamId: param("teamId"),
    originalName: param("originalName"),
    status: "receiving" as const,
    reservedBytes: param("reservedBytes"),
    idempotencyKey: param("idempotencyKey"),
    statedSha256: param("statedSha256"),
    dueAt: param("dueAt"),
    createdAt: param("createdAt"),
    updatedAt: param("now"),
  };
  const full = db
    .select({ one: sql`1` })
    .from(teamUsage)
    .where(
      and(
        eq(teamUsage.teamId, param("teamId")),
        or(
          sql`${teamUsage.files} + 1 > ${param("maxTeamFiles")}`,
          sql`${teamUsage.bytes} + ${param("reservedBytes")} > ${param("maxTeamBytes")}`,
        ),
      ),
    );
  const fits = sql`${param("reservedBytes")} <= ${param("maxTeamBytes")} and ${notExists(full)} and ${mayBegin}`;
  return insertWhere(db, files, row, fits);
}

const insertFormUpload = preparedQuery((db, param: Param<UploadValues>) => insertReceiving(db, param));

/** Inserts the row, if the team has room for it. Where the idempotency key is taken, the answer is the earlier upload. */
async function begin(
  deps: Deps,
  upload: Named,
  { maxBytes, idempotencyKey }: IncomingFile,
): Promise<"begun" | "no room" | EarlierUpload> {
  const values = uploadValues(deps, upload, maxBytes, receivingMilliseconds(deps, maxBytes));
  const insert = insertFormUpload({ ...values, idempotencyKey: idempotencyKey ?? null });
  if (idempotencyKey === undefined) {
    const [, own] = await write(deps, [insert, uploadState(upload)], { isIdempotent: true });
    return own.length > 0 ? "begun" : "no room";
  }
  const [freeOldKey, uploadWithSameKey] = claimKey(deps, upload.teamId, idempotencyKey);
  const queries = [freeOldKey, insert, uploadState(upload), uploadWithSameKey] as const;
  const [, , own, [earlier]] = await write(deps, queries, { isIdempotent: true });
  return own.length > 0 ? "begun" : (earlier ?? "no room");
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
      newKey: () => `${partialPrefix(upload)}${number}`,
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

/** What is known of a file once all its bytes are stored. */
export interface StoredObject extends DetectedType {
  sizeBytes: number;
  /** Hex; null where it is yet to be read back. */
  sha256: string | null;
  etag: string;
}

type CommitValues = StoredObject &
  FileKey & {
    reservedBytes: number;
    dueAt: number;
    updatedAt: number;
    /** Of the request that may commit a resumable upload; null where any may. */
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
      ...given(param, "sizeBytes", "sha256", "etag", "mimeType", "fileType", "reservedBytes", "dueAt"),
      ...changed(param),
    })
    .where(and(isFile(param), eq(files.status, "receiving"), or(sql`${param("epoch")} is null`, exists(currentEpoch))));
});

/**
 * The point of no return. Asks in the same batch whether it holds, so it may be repeated when an answer was lost.
 * `extraQueries` goes with it.
 * @throws `not_found` where the file was deleted while its bytes came, `offset_mismatch` where `epoch` is over
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
    throw new AppError("not_found", { message: "The file was deleted before its upload ended." });
  }
  if (row.status === "receiving" || (epoch !== null && row.etag !== stored.etag)) throw fencedOff();
  return row;
}

export const fencedOff = () =>
  new AppError("offset_mismatch", { message: "Another request has taken over this upload." });

const hideUpload = preparedQuery((db, param: Param<FileKey & { dueAt: number }>) =>
  db
    .update(files)
    .set({ status: "deleting", idempotencyKey: null, ...given(param, "dueAt") })
    .where(isFile(param)),
);

/**
 * Hides the row first: after a commit whose answer was lost the file may be listed, and must not be without bytes.
 * Unless the upload was refused by us, a write may still be under way in a store that failed; the row then stays, for
 * recovery to clear away both again.
 */
async function undo(deps: Deps, actor: TeamActor, upload: Named, maxBytes: number, failure: unknown): Promise<void> {
  const { id, teamId } = upload;
  const isRefusal = failure instanceof AppError && failure.code !== "unavailable";
  try {
    const dueAt = deps.system.now() + MAX_DELETING_MILLISECONDS;
    const event = fileEvent(deps, "file.deleted", actor, upload);
    await writeWithEvent(deps, event, [hideUpload({ id, teamId, dueAt })], { isIdempotent: true });
    await deps.bytes.remove(objectKeys({ ...upload, reservedBytes: maxBytes, sizeBytes: null }));
    if (isRefusal) await removeRows(deps, [upload]);
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId: id, teamId, cause });
  }
}
