import { and, eq, notExists, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { NoMemory, type StoredBytes } from "../../platform/byte-store.ts";
import { given, insertWhere, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files, teamUsage } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { detectMediaType, type MediaType, servedContentType } from "../audio/media-type.ts";
import {
  changed,
  enqueue,
  MAX_DELETING_MILLISECONDS,
  MAX_PENDING_MILLISECONDS,
  MAX_RECEIVING_MILLISECONDS,
  removeRows,
} from "./files.ts";
import { claimKey, type EarlierUpload, hashOf, reportProgress, settleReplay, uploadState } from "./idempotency.ts";
import { cleanName, objectKey } from "./names.ts";

/*
 * The upload protocol. Two stores are written, D1 and R2, and no transaction spans them; so the order carries it:
 *
 *   1. begin    the row, as `receiving`: hidden, with its id, R2 key, quota and idempotency key
 *   2. write    the bytes stream to R2; SHA-256, size and media type are taken on the way
 *   3. commit   one update to `pending`: the point of no return, from here on the upload has happened
 *   4. enqueue  if the message can't be sent, recovery sends it
 *
 * The row comes before the bytes, so no object is ever without a row and nobody has to search the bucket. Whatever
 * fails before the commit is undone at once: the row is hidden for good, then the bytes go, then the row. What `undo`
 * can't reach (the Worker died, D1 is away) recovery does after 24 hours. A commit whose answer was lost is asked again:
 * it says whether it holds, not whether it was the one to do it.
 *
 * A row under `deleting` at the commit was deleted while its bytes arrived; it is undone like any other failure.
 */

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

/** An upload that has begun. */
interface Upload {
  id: string;
  teamId: string;
  originalName: string;
}

/**
 * Takes one upload from its first byte to its message. The transport keeps the invocation alive until this settles: a
 * client that goes away must not take the undoing with it.
 *
 * @returns the id of the file; that of the first answer where the idempotency key was used before for the same bytes
 * @throws what `bytes` throws, `quota_exceeded`, `idempotency_conflict`, `unavailable`, and `not_found` where the file
 *   was deleted before its last byte came
 */
export async function uploadFile(deps: Deps, actor: TeamActor, file: IncomingFile): Promise<{ id: string }> {
  const upload: Upload = { id: newId(deps.system), teamId: actor.teamId, originalName: cleanName(file.name) };
  let isOurs = true;
  try {
    const outcome = await begin(deps, upload, file);
    isOurs = outcome === "begun";
    if (outcome === "no room") throw new AppError("quota_exceeded");
    if (outcome !== "begun") return await settleReplay(deps, outcome, await hashOf(file.bytes));
    const [stored, type] = await writeBytes(deps, upload, file);
    await commit(deps, upload, stored, type);
  } catch (error) {
    if (isOurs) await undo(deps, upload, error);
    throw error;
  }
  await enqueue(deps, upload.id);
  return { id: upload.id };
}

type UploadValues = Upload & {
  reservedBytes: number;
  idempotencyKey: string | null;
  dueAt: number;
  now: number;
  maxTeamFiles: number;
  maxTeamBytes: number;
};

/** The same query decides whether there is room, and reserves it: a race overdraws nothing. */
const insertUpload = preparedQuery((db, param: Param<UploadValues>) => {
  const row = {
    id: param("id"),
    teamId: param("teamId"),
    originalName: param("originalName"),
    status: "receiving" as const,
    reservedBytes: param("reservedBytes"),
    idempotencyKey: param("idempotencyKey"),
    dueAt: param("dueAt"),
    createdAt: param("now"),
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
  return insertWhere(db, files, row, sql`${param("reservedBytes")} <= ${param("maxTeamBytes")} and ${notExists(full)}`);
});

/** Inserts the row, if the team has room for it. Where the idempotency key is taken, the answer is the earlier upload. */
async function begin(
  deps: Deps,
  upload: Upload,
  { maxBytes, idempotencyKey }: IncomingFile,
): Promise<"begun" | "no room" | EarlierUpload> {
  const { maxTeamFiles, maxTeamBytes } = deps.settings;
  const now = deps.system.now();
  const insert = insertUpload({
    ...upload,
    reservedBytes: maxBytes,
    idempotencyKey: idempotencyKey ?? null,
    dueAt: now + MAX_RECEIVING_MILLISECONDS,
    now,
    maxTeamFiles,
    maxTeamBytes,
  });
  if (idempotencyKey === undefined) {
    const [, own] = await write(deps, [insert, uploadState(upload)], { isIdempotent: true });
    return own.length > 0 ? "begun" : "no room";
  }
  const [freeOldKey, uploadWithSameKey] = claimKey(deps, upload.teamId, idempotencyKey);
  const queries = [freeOldKey, insert, uploadState(upload), uploadWithSameKey] as const;
  const [, , own, [earlier]] = await write(deps, queries, { isIdempotent: true });
  return own.length > 0 ? "begun" : (earlier ?? "no room");
}

async function writeBytes(
  deps: Deps,
  upload: Upload,
  { bytes, minBytes, idempotencyKey }: IncomingFile,
): Promise<[StoredBytes, MediaType]> {
  let type: MediaType | undefined;
  const source = idempotencyKey === undefined ? bytes : reportProgress(deps, upload.id, bytes);
  const stored = await deps.bytes.put(objectKey(upload), source, minBytes, {
    name: upload.originalName,
    contentType: async (head) => {
      type = await detectMediaType(head);
      return servedContentType(type.mediaType);
    },
  });
  return [stored, type ?? (await detectMediaType(new Uint8Array()))];
}

type CommitValues = StoredBytes & { mimeType: string; fileType: string } & {
  id: string;
  reservedBytes: number;
  dueAt: number;
  updatedAt: number;
};

const markPending = preparedQuery((db, param: Param<CommitValues>) =>
  db
    .update(files)
    .set({
      status: "pending",
      ...given(param, "sizeBytes", "sha256", "etag", "mimeType", "fileType", "reservedBytes", "dueAt"),
      ...changed(param),
    })
    .where(and(eq(files.id, param("id")), eq(files.status, "receiving"))),
);

/** The point of no return. Asks in the same batch whether it holds, so it may be repeated when an answer was lost. */
async function commit(deps: Deps, { id }: Upload, stored: StoredBytes, type: MediaType): Promise<void> {
  const now = deps.system.now();
  const columns = { ...stored, mimeType: type.mediaType, fileType: type.fileType, reservedBytes: stored.sizeBytes };
  const mark = markPending({ id, ...columns, dueAt: now + MAX_PENDING_MILLISECONDS, updatedAt: now });
  const [, [row]] = await write(deps, [mark, uploadState({ id })], { isIdempotent: true });
  if (!row || row.status === "receiving" || row.status === "deleting") {
    throw new AppError("not_found", { message: "The file was deleted before its upload ended." });
  }
}

const hideUpload = preparedQuery((db, param: Param<{ id: string; dueAt: number }>) =>
  db
    .update(files)
    .set({ status: "deleting", idempotencyKey: null, ...given(param, "dueAt") })
    .where(eq(files.id, param("id"))),
);

/**
 * Hides the row first: after a commit whose answer was lost the file may be listed, and must not be without bytes.
 * After a transient error of a store a write may still be under way in it; the row then stays, for recovery to clear away
 * both again.
 */
async function undo(deps: Deps, upload: Upload, failure: unknown): Promise<void> {
  const { id, teamId } = upload;
  const mayStillWrite = failure instanceof AppError && failure.code === "unavailable" && !(failure instanceof NoMemory);
  try {
    const dueAt = deps.system.now() + MAX_DELETING_MILLISECONDS;
    await write(deps, [hideUpload({ id, dueAt })], { isIdempotent: true });
    await deps.bytes.remove([objectKey(upload)]);
    if (!mayStillWrite) await removeRows(deps, [id]);
  } catch (cause) {
    deps.log("warn", "upload left to recovery", { fileId: id, teamId, cause });
  }
}
