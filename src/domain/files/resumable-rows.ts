import { and, asc, eq, getTableColumns, gt, isNotNull, lt, not, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { columnsFrom, type Db, hasRow, insertWhere, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files } from "../../platform/schema.ts";
import { DAY, HOUR, MINUTE } from "../../platform/system.ts";
import { isUnfinished, uploadParts, uploads } from "../../platform/upload-schema.ts";
import { teamRead } from "../accounts/authorization.ts";
import { chunkPrefix, isFileOfUpload, objectKey } from "./names.ts";
import type { SecretUrlValues } from "./secret-url.ts";

/* The rows of resumable uploads, and the cleanup of everything that an upload has in addition to its file. The protocol is in resumable.ts. */

/** An upload without bytes expires this long after its creation, so that it does not hold its quota for a day. */
export const MAX_EMPTY_MILLISECONDS = HOUR;
/** An unfinished upload expires this long after its last byte. */
export const MAX_UNFINISHED_MILLISECONDS = DAY;
/** It also expires this long after its creation, because R2 drops parts after seven days. */
export const MAX_RESUMABLE_MILLISECONDS = 6 * DAY;
/** The limit of R2. */
const MAX_PART_NUMBER = 10_000;
/** By then, a request that was writing when its upload ended has stopped: at the lowest rate, 5 MiB take 11 minutes. */
export const MAX_FENCED_MILLISECONDS = 15 * MINUTE;

export type ResumableRow = typeof uploads.$inferSelect;

export type NamedRow = ResumableRow & { originalName: string; allowedTypes: string | null };
export const fileOf = ({ fileId: id, teamId, originalName }: NamedRow) => ({ id, teamId, originalName });

export const isComplete = ({ offsetBytes, sizeBytes }: ResumableRow) => offsetBytes === sizeBytes;

/** A caller of another team, or without the secret, finds nothing. */
type OwnedValues = SecretUrlValues & { teamId: string };

const matchesUrl = (param: Param<SecretUrlValues>) =>
  and(eq(uploads.fileId, param("id")), eq(uploads.secretHash, param("secretHash")));
const matchesUrlAndTeam = (param: Param<OwnedValues>) => and(matchesUrl(param), eq(uploads.teamId, param("teamId")));
const isReceiving = hasRow(files, and(isFileOfUpload, eq(files.status, "receiving")));

const NAMED_COLUMNS = {
  ...getTableColumns(uploads),
  originalName: files.originalName,
  allowedTypes: files.allowedTypes,
  status: files.status,
};
/** The upload with its file. */
export const withFile = (db: Db) => db.select(NAMED_COLUMNS).from(uploads).innerJoin(files, isFileOfUpload);
const isNotDeleting = sql`${files.status} <> 'deleting'`;

export const resumableOfTeam = preparedQuery((db, param: Param<OwnedValues>) =>
  withFile(db).where(and(matchesUrlAndTeam(param), isNotDeleting)),
);
/** The same, for a caller that is authorized in the same round trip. */
export const resumableByUrl = teamRead(uploads.teamId, (db, param: Param<SecretUrlValues>) => ({
  query: withFile(db).$dynamic(),
  where: and(matchesUrl(param), isNotDeleting),
}));

type ClaimValues = OwnedValues & { offsetBytes: number; minBytes: number; now: number };

/** The newest request wins. If an older one is writing, skips the part number that the older request may still upload. */
export const claimResumable = preparedQuery((db, param: Param<ClaimValues>) =>
  db
    .update(uploads)
    .set({
      epoch: sql`${uploads.epoch} + 1`,
      nextPart: sql`${uploads.nextPart} + case when is_writing then 1 else 0 end`,
      hasLeftovers: sql`has_leftovers or is_writing`,
      isWriting: true,
    })
    .where(
      and(
        matchesUrlAndTeam(param),
        eq(uploads.offsetBytes, param("offsetBytes")),
        sql`${uploads.offsetBytes} + ${param("minBytes")} <= ${uploads.sizeBytes}`,
        lt(uploads.offsetBytes, uploads.sizeBytes),
        isUnfinished,
        gt(uploads.dueAt, param("now")),
        lt(uploads.nextPart, MAX_PART_NUMBER),
        isReceiving,
      ),
    )
    .returning(),
);

/** `hasLeftovers` is 1 if the request has stored a chunk in R2. Once set, the row keeps it. */
type SavedValues = Omit<ResumableRow, "isWriting" | "hasLeftovers"> & {
  id: string;
  isWriting: number;
  hasLeftovers: number;
};
const isOwn = (param: Param<SavedValues>) => and(eq(uploads.fileId, param("id")), eq(uploads.epoch, param("epoch")));

/** Saves the progress of a request. Changes nothing if the request is fenced off. */
export const saveResumable = preparedQuery((db, param: Param<SavedValues>) =>
  db
    .update(uploads)
    .set({
      ...columnsFrom(param, "offsetBytes", "nextPart", "chunks", "multipartId", "mimeType", "fileType"),
      ...columnsFrom(param, "isWriting", "dueAt"),
      hasLeftovers: sql`has_leftovers or ${param("hasLeftovers")}`,
    })
    .where(and(isOwn(param), isUnfinished, isReceiving)),
);
/** Inserts a part if the progress was saved. */
export const savePart = preparedQuery(
  (db, param: Param<SavedValues & { number: number; etag: string; md5: string }>) => {
    const isSaved = hasRow(uploads, and(isOwn(param), eq(uploads.offsetBytes, param("offsetBytes"))));
    const row = { fileId: param("id"), number: param("number"), etag: param("etag"), md5: param("md5") };
    return insertWhere(db, uploadParts, row, isSaved);
  },
);
/** The saved progress, of any request. */
export const savedState = preparedQuery((db, param: Param<{ id: string }>) =>
  db
    .select({
      epoch: uploads.epoch,
      offsetBytes: uploads.offsetBytes,
      chunks: uploads.chunks,
      multipartId: uploads.multipartId,
    })
    .from(uploads)
    .where(and(eq(uploads.fileId, param("id")), isReceiving)),
);

export const partsOf = preparedQuery((db, param: Param<{ id: string }>) =>
  db
    .select({ number: uploadParts.number, etag: uploadParts.etag, md5: uploadParts.md5 })
    .from(uploadParts)
    .where(eq(uploadParts.fileId, param("id")))
    .orderBy(asc(uploadParts.number)),
);

/** Part of the commit batch. If the file is committed, keeps the row for a day to answer late clients. */
export const markFinished = preparedQuery((db, param: Param<{ id: string; dueAt: number }>) => {
  const isCommitted = hasRow(files, and(isFileOfUpload, isNotNull(files.sizeBytes)));
  return db
    .update(uploads)
    .set({
      isFinished: true,
      isWriting: false,
      chunks: null,
      multipartId: null,
      offsetBytes: uploads.sizeBytes,
      ...columnsFrom(param, "dueAt"),
    })
    .where(and(eq(uploads.fileId, param("id")), isUnfinished, isCommitted));
});
export const deleteParts = preparedQuery((db, param: Param<{ id: string }>) => {
  const isOfUnfinished = hasRow(uploads, and(eq(uploads.fileId, param("id")), isUnfinished));
  return db.delete(uploadParts).where(and(eq(uploadParts.fileId, param("id")), not(isOfUnfinished)));
});
const deleteResumable = preparedQuery((db, param: Param<{ id: string }>) =>
  db.delete(uploads).where(eq(uploads.fileId, param("id"))),
);

/** Ends an upload. If a request is writing, the row stays until that request must have noticed it. */
export const endedUpload = (param: Param<{ now: number }>) => ({
  isFinished: true,
  dueAt: sql`${param("now")} + case when is_writing then ${MAX_FENCED_MILLISECONDS} else 0 end`,
});

/** Whether the file of an upload is hidden. */
export const hasHiddenFile = hasRow(files, and(isFileOfUpload, eq(files.status, "deleting")));

/** Part of the batch that deletes a file. */
export const endResumable = preparedQuery((db, param: Param<{ id: string; teamId: string; now: number }>) =>
  db
    .update(uploads)
    .set(endedUpload(param))
    .where(and(eq(uploads.fileId, param("id")), eq(uploads.teamId, param("teamId")), hasHiddenFile))
    .returning(),
);

/** Deletes the parts and chunks of an upload, and then its rows. The file is deleted separately. */
export async function eraseResumable(
  deps: Deps,
  file: { id: string; teamId: string; originalName: string },
  { multipartId }: Pick<ResumableRow, "multipartId">,
  { keepsRow = false } = {},
): Promise<void> {
  if (multipartId !== null) await deps.bytes.abort(objectKey(file), multipartId);
  await deps.bytes.removeAll(chunkPrefix(file));
  if (keepsRow) return;
  const { id } = file;
  await write(deps, [deleteResumable({ id }), deleteParts({ id })], { isIdempotent: true });
}
