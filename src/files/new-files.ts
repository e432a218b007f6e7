import { and, isNull, type SQL, sql } from "drizzle-orm";
import { ownerColumns } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import type { Initiator } from "../events/events.ts";
import { evaluate, insertWhere, type Param, preparedQuery } from "../platform/db.ts";
import { leave, MAX_DELETING_MILLISECONDS } from "./deletion.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFile, recordedFiles } from "./file-events.ts";
import { files } from "./files.schema.ts";
import {
  deleteAfterRetention,
  type FileRow,
  hasBacklog,
  isFileParam,
  LISTED_COLUMNS,
  MAX_PENDING_MILLISECONDS,
  ofKnownFile,
} from "./files.ts";
import { type FileOf, isFile } from "./names.ts";

/* How a stored upload becomes a file, and how it is taken back if its upload has failed after all. Both are parts of a batch. */

type GivenColumns =
  | "originalName"
  | "name"
  | "nameKey"
  | "folder"
  | "reference"
  | "tags"
  | "metadata"
  | "searchKeys"
  | "deleteAfter"
  | "deleteAfterBy"
  | "sizeBytes"
  | "sha256"
  | "etag"
  | "mimeType"
  | "fileType"
  | "allowedTypes"
  | "statedSha256"
  | "keyId"
  | "userId"
  | "createdAt";
type NewFile = FileOf & Pick<FileRow, GivenColumns> & { uploadTokenId: string | null };

/** Inserts the file with its event, if the condition holds, and reads it. A repetition finds the file. */
export function fileInsert(deps: Deps, initiator: Initiator, given: NewFile, isAccepted: SQL) {
  const { db, system } = deps;
  const now = system.now();
  const { id, originalName, name, nameKey, folder, reference, tags, metadata, searchKeys, createdAt } = given;
  const { sizeBytes, sha256, etag, mimeType, fileType, allowedTypes, statedSha256, uploadTokenId } = given;
  const file = {
    ...ownerColumns(given),
    id,
    originalName,
    name,
    nameKey,
    folder,
    reference,
    tags,
    metadata,
    searchKeys,
    ...deleteAfterRetention(now, given),
    sizeBytes,
    sha256,
    etag,
    mimeType,
    fileType,
    reservedBytes: sizeBytes,
    allowedTypes,
    statedSha256,
    uploadTokenId,
    status: "pending" as const,
    dueAt: now + MAX_PENDING_MILLISECONDS,
    createdAt,
    updatedAt: now,
    folderSince: now,
    version: 1,
  };
  const uploaded = { type: FILE_EVENTS.uploaded, initiator, file: given, uploadTokenId };
  return {
    insert: recordedFile(deps, uploaded, insertWhere(db, files, file, isAccepted)),
    stored: newFile(given),
  };
}

const newFile = preparedQuery((db, param: Param<FileOf>) =>
  db
    .select({ ...LISTED_COLUMNS, etag: files.etag, isBulk: hasBacklog(param("teamId")).as("isBulk") })
    .from(files)
    .where(isFileParam(param)),
);

/**
 * If nobody may know of it and it is not held, the file leaves, with its event. `kept` has its id if it stays: a full database keeps it,
 * and so does the trash, if somebody has deleted it by now.
 */
export function fileRevocation(deps: Deps, initiator: Initiator, file: FileOf, isUnknown: boolean) {
  const dueAt = deps.system.now() + MAX_DELETING_MILLISECONDS;
  const where = and(isFile(file), isUnknown ? isNull(files.hold) : sql`0`);
  const deleted = { type: FILE_EVENTS.deleted, initiator, teamId: file.teamId, where };
  return {
    leave: recordedFiles(deps, deleted, leave(deps, where, { dueAt })),
    kept: evaluate(deps.db, { id: ofKnownFile<string>(file, "id") }),
  };
}
