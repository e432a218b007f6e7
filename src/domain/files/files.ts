import { and, eq, getTableColumns, inArray, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { contentDisposition } from "../../platform/byte-store.ts";
import { columnsFrom, type Param, preparedQuery } from "../../platform/db.ts";
import { files, isListed } from "../../platform/schema.ts";
import { MINUTE } from "../../platform/system.ts";
import {
  authorizeRead,
  type Credential,
  insufficientScope,
  type TeamActor,
  teamRead,
} from "../accounts/authorization.ts";
import { SCOPES } from "../accounts/scopes.ts";
import type { Audio } from "../audio/inspect.ts";
import { writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { type OpenableLink, signLink } from "./links.ts";
import { type FileKey, isFile, objectKey, storedName } from "./names.ts";

/*
 * The life of a file:
 *
 *   receiving (hidden) -> pending -> processing -> completed | failed;  from any of them -> deleting (hidden) -> gone
 *
 * Each arrow is one conditional update. If a file stays in a state until `due_at`, the recovery job continues.
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

/** The states in which a file exists for its team. */
export const LISTED_STATES = ["pending", "processing", "completed", "failed"] as const;
type ListedStatus = (typeof LISTED_STATES)[number];

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
export type StoredFile = ReturnType<typeof toStoredFile>;

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

export const toStoredFile = (deps: Deps, row: ListedRow) => ({
  ...row,
  tags: JSON.parse(row.tags) as string[],
  filename: storedName(row),
  /** Its private URL in the store. */
  path: deps.signer.url(objectKey(row)),
  fileType: row.fileType ?? "other file",
  sizeBytes: row.sizeBytes ?? 0,
  mimeType: row.mimeType ?? "application/octet-stream",
});

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
    failure: failureOf(row),
    audio: row.audio === null ? null : JSON.parse(row.audio),
    hasWaveform: row.waveformWritingSince !== null,
    metadata: JSON.parse(row.metadata),
  };
}

const statusById = teamRead(files.teamId, (db, param: Param<{ id: string }>) => {
  const { status, failureCode, failureMessage, publicKeyId } = files;
  return {
    query: db.select({ status, failureCode, failureMessage, publicKeyId }).from(files).$dynamic(),
    where: hasId(param),
  };
});

/**
 * The processing status of a file, also for the public key that uploaded it.
 * @throws `not_found`, also for a public key that did not upload the file; `insufficient_scope`
 */
export async function fetchStatus(
  deps: Deps,
  credential: Credential<"any token">,
  id: string,
): Promise<Pick<FileMetadata, "failure"> & { status: ListedStatus }> {
  const [row] = await authorizeRead(deps, credential, statusById({ id }));
  const { actor, scopes } = credential;
  const isReader = (scopes & SCOPES["files:read"]) !== 0;
  if (!actor || actor.kind === "operator") throw new AppError("forbidden");
  if (actor.kind !== "public" && !isReader) throw insufficientScope("files:read");
  if (!row || !(isReader || row.publicKeyId === actor.keyId)) throw new AppError("not_found");
  return { status: row.status as ListedStatus, failure: failureOf(row) };
}

const failureOf = ({ failureCode, failureMessage }: Pick<FileRow, "failureCode" | "failureMessage">) =>
  failureCode === null ? null : { code: failureCode as FailureCode, message: failureMessage ?? "" };

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

export type FileValues = FileKey & { updatedAt: number; dueAt: number };

export const listedStatus = preparedQuery((db, param: Param<FileKey>) =>
  db
    .select({ status: files.status })
    .from(files)
    .where(and(isFile(param), isListed)),
);

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
