import { and, eq, getTableColumns, is, isNotNull, or, type Placeholder, SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { isVisitor, type UploadToken } from "../access/actor.ts";
import { type Credential, readAs, type TeamActor } from "../access/authorization.ts";
import { nameOfActor } from "../access/names.ts";
import { filesOfParam } from "../access/own-files.ts";
import type { Audio } from "../audio/inspect.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { links } from "../links/links.schema.ts";
import { hasRow, type Param, preparedQuery } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import { uploads } from "../uploads/uploads.schema.ts";
import { fileObjects } from "./beside.schema.ts";
import { type BesideObject, currentObject, currentPreview, parseObject } from "./beside.ts";
import { FILE_STATES, files, isUnprocessed, teamOfFile } from "./files.schema.ts";
import { type FileKey, type FileOf, isFile, isFileOfUpload, isRemoved, objectKey } from "./names.ts";
import { isTrashed, removed } from "./removed.schema.ts";

/** The peaks that lists show: bars of a row. */
export const SHOWN_PEAKS = 56;
/** A percentage would need one decimal digit more. */
export const MAX_SHOWN_PEAK = 99;

/*
 * The life of a file, once the commit of its upload has inserted it:
 *
 *   pending -> processing -> completed | failed
 *
 * Each arrow is one conditional update. If a file stays in a state until `due_at`, the recovery job continues. From any state,
 * a file may move to the table `removed`, to have its bytes deleted or to stay in the trash (files/deletion.ts).
 */

/** How long a state can last before the recovery job continues. */
export const MAX_PENDING_MILLISECONDS = 2 * MINUTE;

/** Why a file failed. `inspection_failed` is a bug in a parser of ours. */
export const FAILURE_CODES = [
  "bytes_missing",
  "bytes_altered",
  "audio_unreadable",
  "inspection_failed",
  "retries_exhausted",
  "type_not_allowed",
] as const;
export type FailureCode = (typeof FAILURE_CODES)[number];

export { FILE_STATES };
export type FileRow = typeof files.$inferSelect;

/** Audio tags that lists show. All tags of a file may be many times as large as its row. */
const SHOWN_TAG_CHARACTERS = 200;
const shown = (tag: SQL) => sql<string | null>`substr(${tag}, 1, ${SHOWN_TAG_CHARACTERS})`;

/** The facts of a file that its team sees in lists, of which some also are in events. */
export const FACTS = {
  id: files.id,
  teamId: teamOfFile,
  originalName: files.originalName,
  filename: sql<string>`${files.id} || '-' || ${files.originalName}`,
  name: sql<string>`coalesce(${files.name}, ${files.originalName})`,
  nameKey: files.nameKey,
  folder: files.folder,
  reference: files.reference,
  deleteAfter: files.deleteAfter,
  /** JSON. */
  tags: files.tags,
  peaks: currentPreview("waveform"),
  hasTranscript: sql<0 | 1>`${files.hasTranscript}`,
  title: shown(sql`json_extract(${files.audio}, '$.tags.title')`),
  artist: shown(sql`json_extract(${files.audio}, '$.tags.artist')`),
  fileType: files.fileType,
  status: files.status,
  sizeBytes: files.sizeBytes,
  mimeType: files.mimeType,
  durationSeconds: sql<number | null>`json_extract(${files.audio}, '$.durationSeconds')`,
  keyId: files.keyId,
  userId: files.userId,
  createdAt: files.createdAt,
  updatedAt: files.updatedAt,
  version: files.version,
};
type Facts = typeof FACTS;
type Listed = { [Name in keyof Facts]: Facts[Name] extends SQL<infer T> ? SQL.Aliased<T> : Facts[Name] };

/** The columns that a list returns. */
export const LISTED_COLUMNS = Object.fromEntries(
  Object.entries(FACTS).map(([name, fact]) => [name, is(fact, SQL) ? fact.as(name) : fact]),
) as unknown as Listed;
export type ListedRow = {
  [Name in keyof Facts]: Facts[Name] extends SQL<infer T> ? T : Name extends keyof FileRow ? FileRow[Name] : never;
};

/** A file as its team sees it. Instants are milliseconds since the epoch. */
export type StoredFile = ReturnType<typeof toStoredFile>;

export interface FileMetadata extends StoredFile {
  /** The name of the user who uploaded it, or of the key. Null once that is deleted. */
  uploaderName: string | null;
  uploadTokenId: string | null;
  /** Null for a resumable upload until its bytes are read back. */
  sha256: string | null;
  processedAt: number | null;
  failure: { code: FailureCode; message: string } | null;
  audio: Audio | null;
  hasWaveform: boolean;
  transcript: BesideObject | null;
  /** The metadata that the team has set. */
  metadata: Record<string, unknown>;
  hold: Hold | null;
}

/** Why a file can't be deleted. */
export interface Hold {
  reason: string;
  createdAt: number;
  createdBy: { keyId: string; userId: string | null };
}

export const toStoredFile = (deps: Deps, row: ListedRow) => ({
  ...row,
  tags: JSON.parse(row.tags) as string[],
  hasTranscript: row.hasTranscript === 1,
  /** Its private URL in the store. */
  path: deps.signer.url(objectKey(row)),
});

/** The columns of a file, by their names in SQL. */
const STORED_COLUMNS = Object.values(getTableColumns(files as SQLiteTable))
  .filter(({ generated }) => !generated)
  .map(({ name }) => name);
/** The columns of a file in the trash that are columns of `removed`. */
const REMOVED_COLUMNS = Object.values(getTableColumns(removed as SQLiteTable)).map(({ name }) => name);
/** The columns that a file loses when it moves to the trash. */
const LOST_COLUMNS = ["delete_after", "delete_after_by", "lease_ends_at", "folder_since"];
/** The columns that the trash keeps in one column, as JSON. */
const KEPT_COLUMNS = STORED_COLUMNS.filter((name) => ![...REMOVED_COLUMNS, ...LOST_COLUMNS].includes(name));
/** SQL functions of D1 have at most 32 arguments. */
const MAX_FIELDS = 16;

/** The values that the trash keeps. A file whose processing it interrupts will be processed again. */
export function keptValues(now: number): SQL {
  const values: Record<string, SQL> = {
    status: sql`iif(${files.status} = 'processing', 'pending', ${files.status})`,
    version: sql`${files.version} + 1`,
    updated_at: sql`${now}`,
  };
  const fields = KEPT_COLUMNS.map((name) => sql`${name}, ${values[name] ?? sql`${files}.${sql.identifier(name)}`}`);
  const objects: SQL[] = [];
  while (fields.length > 0) objects.push(sql`json_object(${sql.join(fields.splice(0, MAX_FIELDS), sql`, `)})`);
  return objects.reduce((all, object) => sql`json_patch(${all}, ${object})`);
}

/** The columns of a file in the trash, each as it was before if it is not among the changed ones. */
export const trashedColumns = (changed: Record<string, SQL> = {}): SQL =>
  sql.join(
    STORED_COLUMNS.map((name) => {
      const kept = KEPT_COLUMNS.includes(name) ? sql`file ->> ${`$.${name}`}` : sql`null`;
      const value = REMOVED_COLUMNS.includes(name) ? sql.identifier(name) : kept;
      return sql`${changed[name] ?? value} as ${sql.identifier(name)}`;
    }),
    sql`, `,
  );

/** A source in place of the files: those in the trash, as they were before, with further columns. */
export const trashedFiles = (source: SQL = sql`${removed} where ${isTrashed}`, more: SQL = sql``): SQL =>
  sql`(select ${trashedColumns()}${more} from ${source}) ${files}`;

/** A column of a file that is listed, or in the trash. Null if there is no such file. */
export function ofKnownFile<T>(file: FileOf, column: "id" | "hold") {
  const [listed, trashed] = [files, removed].map((table) => sql`${table}.${sql.identifier(column)}`);
  return sql<T | null>`coalesce((select ${listed} from ${files} where ${isFile(file)}),
    (select ${trashed} from ${removed} where ${and(isRemoved(file), isTrashed)}))`.as(column);
}

type RetainedColumns = Record<"id" | "teamId" | "deleteAfter" | "deleteAfterBy", SQLWrapper | number | string | null>;

/** Set when a file is stored or released: the retention of its team may have passed over it until then. */
export function deleteAfterRetention(
  now: number,
  { id, teamId, deleteAfter, deleteAfterBy }: RetainedColumns = { ...files, teamId: teamOfFile },
) {
  const ofTeam = (column: SQL) => sql`(select ${column} from teams where id = ${teamId})`;
  const isReached = sql`${id} < ${ofTeam(sql`retention_reached`)}`;
  return {
    deleteAfter: sql`iif(${isReached}, ${now}, ${deleteAfter})`,
    deleteAfterBy: sql`iif(${isReached}, ${ofTeam(sql`retention_by`)}, ${deleteAfterBy})`,
  };
}

export const isFileParam = (param: Param<FileOf>) => and(filesOfParam(param), eq(files.id, param("id")));

export const fileById = preparedQuery((db, param: Param<FileOf>) =>
  db
    .select({ ...LISTED_COLUMNS, restores: files.restores })
    .from(files)
    .where(isFileParam(param)),
);

/** The columns of the metadata of a file. Reading them reads up to four rows, where those of a list read two. */
export const METADATA_COLUMNS = {
  ...LISTED_COLUMNS,
  uploadTokenId: files.uploadTokenId,
  sha256: files.sha256,
  processedAt: files.processedAt,
  failureCode: files.failureCode,
  failureMessage: files.failureMessage,
  audio: files.audio,
  metadata: files.metadata,
  hold: files.hold,
  uploaderName: nameOfActor({ ...files, teamId: teamOfFile }).as("uploader_name"),
  transcript: currentObject("transcript").as("transcript"),
};
const metadataById = preparedQuery((db, param: Param<FileOf>) =>
  db.select(METADATA_COLUMNS).from(files).where(isFileParam(param)),
);

export type MetadataRow = ListedRow &
  Pick<
    FileRow,
    "uploadTokenId" | "sha256" | "processedAt" | "failureCode" | "failureMessage" | "audio" | "metadata" | "hold"
  > & {
    uploaderName: string | null;
    transcript: string | null;
  };

export const toMetadata = (deps: Deps, row: MetadataRow): FileMetadata => ({
  ...toStoredFile(deps, row),
  uploaderName: row.uploaderName,
  uploadTokenId: row.uploadTokenId,
  sha256: row.sha256,
  processedAt: row.processedAt,
  failure: failureOf(row),
  audio: row.audio === null ? null : JSON.parse(row.audio),
  hasWaveform: row.peaks !== null,
  transcript: parseObject(row.transcript),
  metadata: JSON.parse(row.metadata),
  hold: row.hold === null ? null : JSON.parse(row.hold),
});

/** @throws `not_found` */
export async function fetchMetadata(
  deps: Deps,
  credential: Credential<"files:read">,
  id: string,
): Promise<FileMetadata> {
  const { rows } = await readAs(deps, credential, (viewer) => metadataById({ ...viewer, id }));
  const [row] = rows;
  if (!row) throw new AppError("not_found");
  return toMetadata(deps, row);
}

/** The receipts of an upload token that began or finished the upload. They stay for as long as a token lives. */
export const isReceiptOf = ({ id }: Pick<UploadToken, "id">): SQL | undefined =>
  or(eq(uploads.uploadTokenId, id), eq(uploads.finishedByTokenId, id));

/** The files that a visitor uploaded: with its public key, or with an upload token that the receipt names. */
export const isUploadedBy = ({ keyId, uploadToken }: TeamActor): SQL | undefined =>
  uploadToken ? hasRow(uploads, and(isFileOfUpload, isReceiptOf(uploadToken))) : eq(files.keyId, keyId);

const isOfFile = and(eq(fileObjects.teamId, teamOfFile), eq(fileObjects.fileId, files.id));
/** The waveforms that a visitor or the service has set. */
const ownWaveforms = sql`(select count(*) from ${fileObjects}
  where ${isOfFile} and ${eq(fileObjects.kind, "waveform")} and ${fileObjects.isProvisional} and ${isNotNull(fileObjects.updatedAt)})`;

/**
 * Whether only the uploader and the service have changed the file, and it has no link. Each change adds one to the version of a file:
 * its upload, each claim and the end of its processing, and each waveform of the uploader or the service. Any other change makes the
 * version greater than their number, such as a transcript, or a hold, also if it was released since. So does a claim that was given
 * back.
 */
export const isUntouched = sql`(${files.version} = 1 + ${files.claim} + (${files.processedAt} is not null) + ${ownWaveforms}
  and not ${hasRow(links, and(eq(links.teamId, teamOfFile), eq(links.fileId, files.id)))})`;

/**
 * The processing status of a file, also for the visitor who uploaded it.
 * @throws `not_found`, also for another visitor
 */
export async function fetchStatus(
  deps: Deps,
  credential: Credential<{ scope: "files:read"; also: "uploader" }>,
  id: string,
): Promise<Pick<FileMetadata, "failure" | "status">> {
  const { status, failureCode, failureMessage, keyId } = files;
  const { uploadTokenId, finishedByTokenId } = uploads;
  const { actor, rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({ status, failureCode, failureMessage, keyId, uploadTokenId, finishedByTokenId })
      .from(files)
      .leftJoin(uploads, isFileOfUpload)
      .where(isFile({ ...viewer, id })),
  );
  const [row] = rows;
  const { uploadToken, keyId: callerId } = actor;
  const isUploader = uploadToken
    ? [row?.uploadTokenId, row?.finishedByTokenId].includes(uploadToken.id)
    : row?.keyId === callerId;
  if (!row || (isVisitor(actor) && !isUploader)) throw new AppError("not_found");
  return { status: row.status, failure: failureOf(row) };
}

const failureOf = ({ failureCode, failureMessage }: Pick<FileRow, "failureCode" | "failureMessage">) =>
  failureCode === null ? null : { code: failureCode as FailureCode, message: failureMessage ?? "" };

/** Sets the columns that every visible change updates. */
export const changed = (updatedAt: number) => ({ updatedAt, version: sql`${files.version} + 1` });

/** A team with more unprocessed files, or more bytes of them, waits in a separate queue, and delays no other team. */
export const MAX_PROMPT_FILES = 20;
/** A resumable upload is read back to hash it, so one team could hold all consumers with a few large ones. */
export const MAX_PROMPT_BYTES = 1_000_000_000;

/** Whether the team's unprocessed files exceed these. Reads at most one more of them. */
export const hasBacklog = (teamId: string | Placeholder) =>
  sql<0 | 1>`(select count(*) > ${MAX_PROMPT_FILES} or ifnull(sum(size_bytes), 0) > ${MAX_PROMPT_BYTES} from (
    select size_bytes from files indexed by files_unprocessed where team_id = ${teamId} and ${isUnprocessed}
    limit ${MAX_PROMPT_FILES + 1}) examined)`;

/** Sends the messages of files to the queue. */
export const sendFiles = (deps: Deps, keys: FileKey[], isBulk: boolean): Promise<void> =>
  (isBulk ? deps.bulkJobs : deps.jobs).sendAll(keys.map(({ teamId, id: fileId }) => ({ teamId, fileId })));

/**
 * Sends the messages of files. Nothing waits for the queue, which may hang: if a message is lost, the recovery job sends it.
 */
export function enqueue(deps: Deps, keys: FileKey[], isBulk: boolean): void {
  if (keys.length === 0) return;
  const sent = sendFiles(deps, keys, isBulk).catch((cause) => {
    for (const { id: fileId } of keys) deps.log("warn", "file_message_failed", { fileId, cause });
  });
  deps.after(sent);
}

/** Sends the messages of those of a team's files that are pending. */
export function enqueuePending(deps: Deps, rows: (FileKey & Pick<FileRow, "status"> & { isBulk: 0 | 1 })[]): void {
  const pending = rows.filter(({ status }) => status === "pending");
  enqueue(deps, pending, pending[0]?.isBulk === 1);
}
