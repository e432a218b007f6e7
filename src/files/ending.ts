import { and, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { hasRow, write } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import {
  hasWriters,
  isCommitted,
  isEnded,
  isReceiving,
  isResumable,
  uploadParts,
  uploads,
} from "../uploads/uploads.schema.ts";
import { files } from "./files.schema.ts";
import {
  chunkPrefix,
  type FileKey,
  isFileOfUpload,
  isOneOfKeys,
  type Named,
  objectKey,
  uploadKey,
  uploadKeys,
} from "./names.ts";

/*
 * How an upload ends that does not become a file: one update cancels it, then its bytes are deleted, then its row. Until then, it
 * holds its quota.
 */

export type UploadRow = typeof uploads.$inferSelect;

/**
 * At the lowest rate, a request takes 11 minutes for 5 MiB. After this time, one that was writing has noticed the end, and a write to
 * R2 that failed or lost its Worker has been stored or dropped: R2 may store it after its caller has got an error.
 */
export const MAX_LATE_WRITE_MILLISECONDS = 15 * MINUTE;

/** Arriving, or a receipt of a file that has not left. */
export const isKnownUpload = sql`(${isReceiving} or ${isCommitted} and ${hasRow(files, isFileOfUpload)})`;

/** The file that an upload creates, as its objects are named. */
export const namedFile = ({ teamId, fileId, originalName }: Pick<UploadRow, "teamId" | "fileId" | "originalName">) => ({
  teamId,
  id: fileId,
  originalName,
  ownerId: null,
});

/**
 * Part of a batch: cancels the uploads that are still arriving. A request that is writing finds this out within ten seconds of
 * bytes, or when it saves, and cleans up: a form upload itself, of a resumable one the last of its requests. If they died, the
 * recovery job does, once they must have noticed it.
 */
export function cancelUploads({ db, system }: Deps, isSelected: SQL | undefined) {
  const now = system.now();
  const whenFenced = sql`iif(${hasWriters} or not ${isResumable}, ${now + MAX_LATE_WRITE_MILLISECONDS}, ${now})`;
  const ended = { idempotencyKey: null, metadata: "", properties: null, chunks: null };
  return db
    .update(uploads)
    .set({
      status: "canceled",
      ...ended,
      dueAt: sql`iif(${isResumable}, ${whenFenced}, min(due_at, ${whenFenced}))`,
    })
    .where(and(isReceiving, isSelected));
}

type Stored = Named & Pick<UploadRow, "multipartId" | "hasLeftovers" | "isWriting" | "sizeBytes" | "secretHash">;

/** Every object that the upload can have has a known key. */
export const isClean = ({ hasLeftovers, multipartId, isWriting }: Omit<Stored, keyof Named>): boolean =>
  !hasLeftovers && multipartId === null && !isWriting;

/** Deletes the parts and chunks of a resumable upload. */
export async function eraseParts({ bytes }: Deps, file: Named, multipartId: string | null): Promise<void> {
  if (multipartId !== null) await bytes.abort(objectKey(file), multipartId);
  await bytes.removeAll(chunkPrefix(file));
}

/** The objects of a canceled upload, besides its parts and chunks. */
export const keysOfCanceled = (upload: Named & Pick<UploadRow, "sizeBytes" | "secretHash">): string[] =>
  upload.secretHash === null ? uploadKeys(upload) : [objectKey(upload)];

/** Deletes the rows of uploads that have ended, and of their parts, once their bytes are gone. */
export function deleteUploads({ db }: Deps, keys: FileKey[]) {
  const isGone = and(isOneOfKeys(uploadKey, keys), isEnded);
  const ended = db.select({ fileId: uploads.fileId }).from(uploads).where(isGone);
  return {
    parts: db.delete(uploadParts).where(sql`${uploadParts.fileId} in ${ended}`),
    uploads: db.delete(uploads).where(isGone),
  };
}

/** Deletes what a canceled resumable upload stored, and its row. If requests are still writing, the last one to end does so again. */
export async function removeUpload(deps: Deps, upload: UploadRow): Promise<void> {
  const file = namedFile(upload);
  await eraseParts(deps, file, upload.multipartId);
  await deps.bytes.remove([objectKey(file)]);
  if (!upload.isWriting && upload.fencedOff === 0)
    await write(deps, deleteUploads(deps, [file]), { isIdempotent: true, caller: null });
}

/** As `removeUpload`. If it fails, the recovery job does it, and the request continues. */
export async function tryToRemoveUpload(deps: Deps, upload: UploadRow): Promise<void> {
  const { fileId, teamId } = upload;
  await removeUpload(deps, upload).catch((cause) =>
    deps.log("warn", "upload_cleanup_failed", { fileId, teamId, cause }),
  );
}
