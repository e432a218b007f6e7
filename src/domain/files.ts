import { and, eq, inArray, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { retrying, type Slot } from "../platform/db.ts";
import { files, isListed, teamUsage } from "../platform/schema.ts";
import type { TeamActor } from "./actor.ts";
import type { Audio } from "./audio/inspect.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, type Page, type PageRequest } from "./paging.ts";
import { type Caller, prove, scopedRead } from "./proof.ts";

/*
 * The life of a file:
 *
 *   receiving (hidden) -> pending -> processing -> completed | failed;  from any of them -> deleting (hidden) -> gone
 *
 * Each arrow is one conditional update. `due_at` says when recovery is to look at a file that has not moved on since.
 */

/** How long each state may last before recovery looks. */
export const RECEIVING_MILLISECONDS = 24 * 60 * 60 * 1000;
export const PENDING_MILLISECONDS = 2 * 60 * 1000;
export const DELETING_MILLISECONDS = 60 * 1000;

/** Why a file failed. */
export const FAILURE_CODES = ["bytes_missing", "bytes_altered", "audio_unreadable", "retries_exhausted"] as const;
export type FailureCode = (typeof FAILURE_CODES)[number];

export type FileRow = typeof files.$inferSelect;

/** The columns that a list shows; what was found in a file may be many times as large. */
const SHOWN = {
  id: files.id,
  teamId: files.teamId,
  originalName: files.originalName,
  fileType: files.fileType,
  status: files.status,
  createdAt: files.createdAt,
  updatedAt: files.updatedAt,
  version: files.version,
};
type ShownRow = Pick<FileRow, keyof typeof SHOWN>;

/** A file as its team sees it. Instants are milliseconds since the epoch. */
export interface StoredFile extends ShownRow {
  filename: string;
  fileType: string;
  /** Its private address at the S3 endpoint. */
  path: string;
}

export interface FileMetadata extends StoredFile {
  sizeBytes: number;
  mimeType: string;
  sha256: string;
  processedAt: number | null;
  failure: { code: FailureCode; message: string } | null;
  audio: Audio | null;
}

type Named = Pick<FileRow, "id" | "teamId" | "originalName">;

export const storedName = ({ id, originalName }: Omit<Named, "teamId">): string => `${id}-${originalName}`;
/** Under which a file's bytes lie in R2. It holds the id, so no key is ever used twice. */
export const objectKey = (file: Named): string => `${file.teamId}/${storedName(file)}`;

function view(deps: Deps, row: ShownRow): StoredFile {
  const { id, teamId, originalName, status, createdAt, updatedAt, version } = row;
  return {
    id,
    teamId,
    originalName,
    filename: storedName(row),
    path: deps.signer.address(objectKey(row)),
    fileType: row.fileType ?? "other file",
    status,
    createdAt,
    updatedAt,
    version,
  };
}

const filesPage = scopedRead((db, scope, slot: Slot<KeysetValues>) => {
  const { where, by, limit, offset } = keyset(files.id, "newest first", slot);
  return db
    .select(SHOWN)
    .from(files)
    .where(where(scope(files.teamId), isListed))
    .orderBy(by)
    .limit(limit)
    .offset(offset);
});

/** Newest first. */
export async function listFiles(deps: Deps, caller: Caller, request: PageRequest): Promise<Page<StoredFile>> {
  const [actor, rows] = await prove(deps, caller, "team", filesPage(keysetValues("newest first", request)));
  const page = cutPage(deps.secrets, `files/${actor.teamId}`, request, rows);
  return { ...page, items: page.items.map((row) => view(deps, row)) };
}

const hasId = (slot: Slot<{ id: string }>, team: SQL | undefined) => and(eq(files.id, slot("id")), team, isListed);

const fileById = scopedRead((db, scope, slot: Slot<{ id: string }>) =>
  db
    .select(SHOWN)
    .from(files)
    .where(hasId(slot, scope(files.teamId))),
);
const metadataById = scopedRead((db, scope, slot: Slot<{ id: string }>) =>
  db
    .select()
    .from(files)
    .where(hasId(slot, scope(files.teamId))),
);

/** @throws `not_found` */
export async function fetchMetadata(deps: Deps, caller: Caller, id: string): Promise<FileMetadata> {
  const [, [row]] = await prove(deps, caller, "team", metadataById({ id }));
  if (!row) throw new AppError("not_found");
  return {
    ...view(deps, row),
    sizeBytes: row.sizeBytes ?? 0,
    mimeType: row.mimeType ?? "application/octet-stream",
    sha256: row.sha256 ?? "",
    processedAt: row.processedAt,
    failure:
      row.failureCode === null ? null : { code: row.failureCode as FailureCode, message: row.failureMessage ?? "" },
    audio: row.audio === null ? null : JSON.parse(row.audio),
  };
}

/** An address that opens the file to whoever holds it, in any state of processing. @throws `not_found` */
export async function signFile(deps: Deps, caller: Caller, id: string, expiresInSeconds: number): Promise<string> {
  const [, [row]] = await prove(deps, caller, "team", fileById({ id }));
  if (!row) throw new AppError("not_found");
  return deps.signer.sign(objectKey(row), expiresInSeconds);
}

/**
 * Decided by one update; from then on the file is hidden, and what is left to do recovery would do too. A file whose
 * deletion broke off may be deleted again. While bytes still arrive the row stays, so that nothing can come back:
 * the upload finds it at its point of no return, and clears it away.
 * @throws `not_found`, `unavailable` where the bytes could not be removed yet
 */
export async function deleteFile(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const { db, system } = deps;
  const now = system.now();
  const [row] = await retrying(system, () =>
    db
      .update(files)
      .set({
        status: "deleting",
        idempotencyKey: null,
        dueAt: sql`case when ${files.sizeBytes} is null then ${files.dueAt} else ${now + DELETING_MILLISECONDS} end`,
        updatedAt: now,
        version: sql`${files.version} + 1`,
      })
      .where(and(eq(files.id, id), eq(files.teamId, actor.teamId)))
      .returning(),
  );
  if (!row) throw new AppError("not_found");
  if (row.sizeBytes === null) return;
  await deps.bytes.remove([objectKey(row)]);
  // The caller need not wait for this: the file is hidden and its bytes are gone.
  deps.after(removeRows(deps, [id]).catch((cause) => deps.log("warn", "row left to recovery", { fileId: id, cause })));
}

/** The end of a deletion, once the bytes are gone. */
export async function removeRows(deps: Deps, ids: string[]): Promise<void> {
  // D1 takes 100 bound parameters in a statement.
  for (let i = 0; i < ids.length; i += 90) {
    const some = ids.slice(i, i + 90);
    await retrying(deps.system, () =>
      deps.db.delete(files).where(and(inArray(files.id, some), eq(files.status, "deleting"))),
    );
  }
}

/** Makes a completed or failed file pending again; one that is on its way already is left so. @throws `not_found` */
export async function reprocessFile(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const { db, system } = deps;
  const now = system.now();
  const own = and(eq(files.id, id), eq(files.teamId, actor.teamId), isListed);
  const [, [row]] = await retrying(system, () =>
    db.batch([
      db
        .update(files)
        .set({
          status: "pending",
          audio: null,
          failureCode: null,
          failureMessage: null,
          processedAt: null,
          attempts: 0,
          dueAt: now + PENDING_MILLISECONDS,
          updatedAt: now,
          version: sql`${files.version} + 1`,
        })
        .where(and(own, inArray(files.status, ["completed", "failed"]))),
      db.select({ status: files.status }).from(files).where(own),
    ]),
  );
  if (!row) throw new AppError("not_found");
  // Also for one that was pending already: the message it waits for may be lost.
  if (row.status === "pending") await announce(deps, id);
}

/** Sends the file's message. If that fails, the file is pending all the same, and recovery sends it. */
export async function announce(deps: Deps, fileId: string): Promise<void> {
  try {
    await deps.jobs.send(fileId);
  } catch (cause) {
    deps.log("warn", "message left to recovery", { fileId, cause });
  }
}

export interface Usage {
  files: number;
  bytes: number;
  maxFiles: number;
  maxBytes: number;
}

const usageOfTeam = scopedRead((db, scope) => db.select().from(teamUsage).where(scope(teamUsage.teamId)));

/** What the team keeps, uploads under way included, and what it may keep. */
export async function fetchUsage(deps: Deps, caller: Caller): Promise<Usage> {
  const { maxTeamFiles: maxFiles, maxTeamBytes: maxBytes } = deps.settings;
  const [, [usage]] = await prove(deps, caller, "team", usageOfTeam({}));
  return { files: usage?.files ?? 0, bytes: usage?.bytes ?? 0, maxFiles, maxBytes };
}
