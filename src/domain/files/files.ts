import { and, eq, exists, getTableColumns, inArray, notExists, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { contentDisposition } from "../../platform/byte-store.ts";
import { columnsFrom, type Db, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files, isListed, uploads } from "../../platform/schema.ts";
import { MINUTE } from "../../platform/system.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../accounts/authorization.ts";
import type { Audio } from "../audio/inspect.ts";
import { writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { type OpenableLink, signLink } from "./links.ts";
import { type FileKey, fileKey, isFile, isFileOfUpload, objectKey, storedKeys, storedName } from "./names.ts";
import { endResumable, eraseResumable } from "./resumable-rows.ts";

/*
 * The life of a file:
 *
 *   receiving (hidden) -> pending -> processing -> completed | failed;  from any of them -> deleting (hidden) -> gone
 *
 * Each arrow is one conditional update. If a file stays in a state until `due_at`, the recovery job continues.
 */

/** How long a state can last before the recovery job continues. */
export const MAX_PENDING_MILLISECONDS = 2 * MINUTE;
export const MAX_DELETING_MILLISECONDS = MINUTE;

/** Why a file failed. `inspection_failed` is a bug in a parser of ours. */
export const FAILURE_CODES = [
  "bytes_missing",
  "bytes_altered",
  "audio_unreadable",
  "inspection_failed",
  "retries_exhausted",
] as const;
export type FailureCode = (typeof FAILURE_CODES)[number];

/** The states in which a file exists for its team. */
export const LISTED_STATES = ["pending", "processing", "completed", "failed"] as const;

/** Hides a file for good. When it is due, the recovery job deletes its bytes and its row. */
export const hidden = (dueAt: SQL) => ({ status: "deleting" as const, idempotencyKey: null, dueAt });

export type FileRow = typeof files.$inferSelect;

/** Audio tags that lists show. All tags of a file may be many times as large as its row. */
const SHOWN_TAG_CHARACTERS = 200;
const shown = (tag: SQL) => sql<string | null>`substr(${tag}, 1, ${SHOWN_TAG_CHARACTERS})`;

/** The columns that a list returns. */
export const LISTED_COLUMNS = {
  id: files.id,
  teamId: files.teamId,
  originalName: files.originalName,
  name: sql<string>`coalesce(${files.name}, ${files.originalName})`.as("name"),
  nameKey: files.nameKey,
  folder: files.folder,
  reference: files.reference,
  /** JSON. */
  tags: files.tags,
  title: shown(sql`json_extract(${files.audio}, '$.tags.title')`).as("title"),
  artist: shown(sql`json_extract(${files.audio}, '$.tags.artist')`).as("artist"),
  fileType: files.fileType,
  status: files.status,
  sizeBytes: files.sizeBytes,
  mimeType: files.mimeType,
  durationSeconds: sql<number | null>`json_extract(${files.audio}, '$.durationSeconds')`.as("durationSeconds"),
  createdAt: files.createdAt,
  updatedAt: files.updatedAt,
  version: files.version,
};
type ComputedColumns = { name: string; title: string | null; artist: string | null; durationSeconds: number | null };
export type ListedRow = Pick<FileRow, Exclude<keyof typeof LISTED_COLUMNS, keyof ComputedColumns>> & ComputedColumns;

/** A file as its team sees it. Instants are milliseconds since the epoch. */
export interface StoredFile extends Omit<ListedRow, "tags" | "nameKey"> {
  tags: string[];
  filename: string;
  fileType: string;
  sizeBytes: number;
  mimeType: string;
  /** Its private URL in the store. */
  path: string;
}

export interface FileMetadata extends StoredFile {
  /** Null for a resumable upload until its bytes are read back. */
  sha256: string | null;
  processedAt: number | null;
  failure: { code: FailureCode; message: string } | null;
  audio: Audio | null;
  hasWaveform: boolean;
  /** What the team has set. */
  metadata: Record<string, unknown>;
}

export function toStoredFile(deps: Deps, row: ListedRow): StoredFile {
  const { id, teamId, originalName, name, folder, reference, title, artist } = row;
  const { status, durationSeconds, createdAt, updatedAt, version } = row;
  return {
    id,
    teamId,
    originalName,
    name,
    folder,
    reference,
    tags: JSON.parse(row.tags),
    title,
    artist,
    filename: storedName(row),
    path: deps.signer.url(objectKey(row)),
    fileType: row.fileType ?? "other file",
    sizeBytes: row.sizeBytes ?? 0,
    mimeType: row.mimeType ?? "application/octet-stream",
    durationSeconds,
    status,
    createdAt,
    updatedAt,
    version,
  };
}

const hasId = (param: Param<{ id: string }>) => and(eq(files.id, param("id")), isListed);

const fileById = teamRead(files.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select(LISTED_COLUMNS).from(files).$dynamic(),
  where: hasId(param),
}));
const metadataById = teamRead(files.teamId, (db, param: Param<{ id: string }>) => ({
  query: db
    .select({ ...getTableColumns(files), ...LISTED_COLUMNS })
    .from(files)
    .$dynamic(),
  where: hasId(param),
}));

/** @throws `not_found` */
export async function fetchMetadata(
  deps: Deps,
  credential: Credential<"files:read">,
  id: string,
): Promise<FileMetadata> {
  const [row] = await authorizeRead(deps, credential, metadataById({ id }));
  if (!row) throw new AppError("not_found");
  return {
    ...toStoredFile(deps, row),
    sha256: row.sha256,
    processedAt: row.processedAt,
    failure:
      row.failureCode === null ? null : { code: row.failureCode as FailureCode, message: row.failureMessage ?? "" },
    audio: row.audio === null ? null : JSON.parse(row.audio),
    hasWaveform: row.waveformWritingSince !== null,
    metadata: JSON.parse(row.metadata),
  };
}

/**
 * Creates a signed URL of the store, or a signed link if there are no S3 credentials. Anyone who has it can download the
 * file, in any processing status.
 * @throws `not_found`
 */
export async function signFile(
  deps: Deps,
  credential: Credential<"files:download">,
  id: string,
  expiresInSeconds: number,
): Promise<string | OpenableLink> {
  const [row] = await authorizeRead(deps, credential, fileById({ id }));
  if (!row) throw new AppError("not_found");
  // The object itself keeps the name that it was uploaded with.
  const disposition = row.name === row.originalName ? undefined : contentDisposition("attachment", row.name);
  const url = await deps.signer.sign(objectKey(row), expiresInSeconds, disposition);
  return url ?? signLink(deps, row, expiresInSeconds);
}

/** Sets the columns that every visible change updates. */
export const changed = (param: Param<{ updatedAt: number }>) => ({
  ...columnsFrom(param, "updatedAt"),
  version: sql`${files.version} + 1`,
});

/** True while a waveform write may still be running. A write takes milliseconds; after a minute its Worker has died. */
export const isWritingWaveform = ({ system }: Deps, { waveformWritingSince }: FileRow): boolean =>
  (waveformWritingSince ?? 0) > system.now() - MAX_DELETING_MILLISECONDS;

type FileValues = FileKey & { updatedAt: number; dueAt: number };

/** The resumable upload of the file, if its row still exists. */
const uploadsOfFile = (db: Db) => db.select({ one: sql`1` }).from(uploads).where(isFileOfUpload);

/**
 * If a form upload is still sending the file, keeps `due_at`, so that the upload itself cleans up first. If a resumable
 * upload is, releases its quota now.
 */
const markDeleting = preparedQuery((db, param: Param<FileValues & { onlyUnfinished: number }>) => {
  const isUnstored = sql`${files.sizeBytes} is null`;
  const isResumable = exists(uploadsOfFile(db));
  return db
    .update(files)
    .set({
      ...hidden(sql`case when ${isUnstored} and not ${isResumable} then ${files.dueAt} else ${param("dueAt")} end`),
      reservedBytes: sql`case when ${isUnstored} and ${isResumable} then 0 else ${files.reservedBytes} end`,
      ...changed(param),
    })
    .where(and(isFile(param), sql`(${param("onlyUnfinished")} = 0 or ${files.status} in ('receiving', 'deleting'))`))
    .returning();
});

const listedStatus = preparedQuery((db, param: Param<FileKey>) =>
  db
    .select({ status: files.status })
    .from(files)
    .where(and(isFile(param), isListed)),
);

/**
 * One update hides the file. The recovery job can do everything after that too. An interrupted deletion can be repeated.
 * While a form upload is still sending the bytes, the row stays: the upload finds it at the commit point, and cleans up.
 */
export function fileDeletion(deps: Deps, actor: TeamActor, id: string, onlyUnfinished = false) {
  const { teamId } = actor;
  const now = deps.system.now();
  const dueAt = now + MAX_DELETING_MILLISECONDS;
  const mark = markDeleting({ id, teamId, updatedAt: now, dueAt, onlyUnfinished: Number(onlyUnfinished) });
  const queries = [mark, endResumable({ id, teamId, now })] as const;
  return { event: fileEvent(deps, "file.deleted", actor, { id, teamId }), queries };
}

/**
 * @param onlyUnfinished keeps a file whose upload is complete, even if it completes at the same time
 * @throws `not_found`; `forbidden` with `onlyUnfinished` if the upload is complete; `unavailable` if the bytes could not be
 *   deleted yet
 */
export async function deleteFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { onlyUnfinished = false } = {},
): Promise<void> {
  const { teamId } = actor;
  const { event, queries } = fileDeletion(deps, actor, id, onlyUnfinished);
  // An unfinished upload has no events.
  const [[row], [resumable], [listed]] = onlyUnfinished
    ? await write(deps, [...queries, listedStatus({ id, teamId })], { isIdempotent: true })
    : [...(await writeWithEvent(deps, event, queries, { isIdempotent: true })), []];
  if (listed) throw new AppError("forbidden", { message: "The upload is complete. Delete the file instead." });
  if (!row) throw new AppError("not_found");
  if (row.sizeBytes === null && !resumable) return;
  if (resumable) await eraseResumable(deps, row, resumable, { keepsRow: resumable.isWriting });
  await deps.bytes.remove(storedKeys(row));
  // A waveform that is still being written may arrive after this. Then recovery removes it, with the row.
  if (isWritingWaveform(deps, row)) return;
  // The caller need not wait for this: the file is hidden and its bytes are deleted.
  deps.after(removeRows(deps, [row]).catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: id, cause })));
}

/** The row of a resumable upload must be deleted first, because it names the other objects of the file. */
const deleteWhere = (db: Db, isGiven: SQL | undefined) =>
  db.delete(files).where(and(isGiven, eq(files.status, "deleting"), notExists(uploadsOfFile(db))));
const deleteRow = preparedQuery((db, param: Param<FileKey>) => deleteWhere(db, isFile(param)));
/** The keys are one parameter, because D1 allows 100 parameters. */
const deleteManyRows = preparedQuery((db, param: Param<{ keys: string }>) => {
  const given = sql`(select value ->> 'teamId', value ->> 'id' from json_each(${param("keys")}))`;
  return deleteWhere(db, sql`${fileKey} in ${given}`);
});

/** Ends a deletion, once the bytes are deleted. */
export async function removeRows(deps: Deps, keys: FileKey[]): Promise<void> {
  const [key, ...others] = keys;
  if (!key) return;
  const query = others.length === 0 ? deleteRow(key) : deleteManyRows({ keys: JSON.stringify(keys) });
  await write(deps, [query], { isIdempotent: true });
}

const markPendingAgain = preparedQuery((db, param: Param<FileValues>) =>
  db
    .update(files)
    .set({
      status: "pending",
      audio: null,
      failureCode: null,
      failureMessage: null,
      processedAt: null,
      attempts: 0,
      ...columnsFrom(param, "dueAt"),
      ...changed(param),
    })
    .where(and(isFile(param), inArray(files.status, ["completed", "failed"]))),
);

/** Makes a completed or failed file pending again. Does not change an unprocessed one. */
export function fileReprocessing(deps: Deps, actor: TeamActor, id: string) {
  const now = deps.system.now();
  const values = { id, teamId: actor.teamId, updatedAt: now, dueAt: now + MAX_PENDING_MILLISECONDS };
  const queries = [markPendingAgain(values)] as const;
  return { event: fileEvent(deps, "file.reprocessed", actor, values), queries };
}

/** @throws `not_found` */
export async function reprocessFile(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const { event, queries } = fileReprocessing(deps, actor, id);
  const key = { id, teamId: actor.teamId };
  const [, [row]] = await writeWithEvent(deps, event, [...queries, listedStatus(key)], { isIdempotent: true });
  if (!row) throw new AppError("not_found");
  // If the file was pending already, its message may be lost.
  if (row.status === "pending") await enqueue(deps, key);
}

/** Sends the file's message. If that fails, the recovery job sends it. */
export async function enqueue(deps: Deps, { teamId, id: fileId }: FileKey): Promise<void> {
  try {
    await deps.jobs.send({ teamId, fileId });
  } catch (cause) {
    deps.log("warn", "file_message_failed", { fileId, cause });
  }
}
