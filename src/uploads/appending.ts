import { and, asc, eq, not, type SQL, sql } from "drizzle-orm";
import { isKey, type TeamActor } from "../access/authorization.ts";
import { apiKeys } from "../accounts/keys.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError, isError } from "../errors.ts";
import type { Initiator } from "../events/events.ts";
import { namedFile, type UploadRow } from "../files/ending.ts";
import { enqueue, MAX_PENDING_MILLISECONDS } from "../files/files.ts";
import { chunkPrefix, isUpload, objectKey } from "../files/names.ts";
import type { StoredPart } from "../platform/byte-store.ts";
import { type Db, hasRow, insertWhere, read, write } from "../platform/db.ts";
import type { Chunk, PartSpec } from "../platform/part.ts";
import { DAY } from "../platform/system.ts";
import { PROGRESS_BYTES, SILENT_MILLISECONDS } from "./room.ts";
import { ObjectWriter, typeNotAllowed } from "./storing.ts";
import {
  commit,
  deletedMeanwhile,
  fencedOff,
  receiptOf,
  type SetColumns,
  STATUS_CHECK_MILLISECONDS,
} from "./upload.ts";
import { isReceiving, uploadParts, uploads } from "./uploads.schema.ts";

/* A request that appends to a resumable upload, and the assembly of the upload. The protocol is in resumable.ts. */

/** An unfinished upload expires this long after its last byte. */
export const MAX_UNFINISHED_MILLISECONDS = DAY;
/** It also expires this long after its creation, because R2 drops parts after seven days. */
export const MAX_RESUMABLE_MILLISECONDS = 6 * DAY;

export const isComplete = ({ offsetBytes, sizeBytes }: UploadRow) => offsetBytes === sizeBytes;

/** The bytes of one request. */
export interface AppendInput {
  offsetBytes: number;
  /** Each chunk is valid until the next one is requested. If it throws, the bytes received so far are still saved. */
  bytes: AsyncIterable<Uint8Array>;
  /** Null if the client did not announce it. */
  sizeBytes: number | null;
  /** Called with the error that `bytes` threw. */
  onInterrupted?(cause: unknown): void;
}

export const bodyTooLarge = (sizeBytes: number) =>
  new AppError("body_too_large", { message: `The body exceeds the Upload-Length (${sizeBytes} bytes).` });

/** How often a waiting request checks for new bytes. Tests recognize the sleep by this value. */
export const STALL_CHECK_MILLISECONDS = 600;
/** Received bytes are saved if this many checks find no new ones. */
const STALL_CHECKS = 2;

/** When the recovery job expires an upload that has just stored bytes, or assembles it if these were the last. */
function dueTime(row: UploadRow, now: number): number {
  const milliseconds = isComplete(row) ? MAX_PENDING_MILLISECONDS : MAX_UNFINISHED_MILLISECONDS;
  return Math.min(now + milliseconds, row.createdAt + MAX_RESUMABLE_MILLISECONDS);
}

/** A request that has claimed its upload. */
export class Appender {
  readonly #deps: Deps;
  readonly #actor: TeamActor;
  readonly #input: AppendInput;
  readonly #writer: ObjectWriter;
  /** As saved in D1. */
  #row: UploadRow;
  /** The highest offset that the body can reach. */
  readonly #bodyEnd: number;
  #keys = 0;
  #nextCheck: Promise<"check"> | undefined;
  #lookedAt: number;
  /** Doubled by each save within a part, so that a client that often stalls costs little. */
  #checksBeforeSave = STALL_CHECKS;

  constructor(deps: Deps, actor: TeamActor, row: UploadRow, input: AppendInput) {
    this.#deps = deps;
    this.#actor = actor;
    this.#row = row;
    this.#input = input;
    this.#lookedAt = deps.system.now();
    this.#bodyEnd = input.sizeBytes === null ? row.sizeBytes : row.offsetBytes + input.sizeBytes;
    const { multipartId, mimeType, fileType, nextPart: number } = row;
    const type = mimeType !== null && fileType !== null ? { mimeType, fileType } : null;
    this.#writer = new ObjectWriter(
      deps,
      namedFile(row),
      {
        allowedTypes: row.allowedTypes,
        partSpec: (part) => this.#partSpec(part),
        onCreated: () => this.#save({}),
        onPart: (part) => this.#savePart(part),
      },
      { multipartId, type, number },
    );
  }

  /** Where the current part starts. */
  get #partStart(): number {
    return this.#row.offsetBytes - chunksOf(this.#row).reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }

  /** Whether this request counts as writing in D1. */
  get isWriting(): boolean {
    return this.#row.isWriting;
  }

  get #end(): number {
    return this.#partStart + this.#writer.part.sizeBytes;
  }

  #partSpec(number: number): PartSpec {
    const { partBytes, sizeBytes, epoch, isPublic: isVisitor } = this.#row;
    return {
      bytes: Math.min(partBytes, sizeBytes - this.#partStart),
      maxBytes: this.#bodyEnd - this.#partStart,
      isVisitor,
      newKey: () => {
        this.#keys += 1;
        return `${chunkPrefix(namedFile(this.#row))}${number}.${epoch}.${this.#keys}`;
      },
      chunks: chunksOf(this.#row),
    };
  }

  async run(): Promise<UploadRow> {
    const { part } = this.#writer;
    try {
      await this.#writer.write(this.#body());
      if (this.#end === this.#row.sizeBytes) return await this.#complete();
      if (part.isFull) await this.#writer.sendPart();
      if (this.#end > this.#row.offsetBytes) await this.#saveTail({ isWriting: false });
      else if (this.#row.isWriting) await this.#save({ isWriting: false });
      return this.#row;
    } catch (error) {
      // After a rejected body, neither HEAD nor the deletion of the upload must wait for this request.
      if (isError(error, "body_too_large", typeNotAllowed)) await this.#save({ isWriting: false });
      if (!(error instanceof AppError) || isError(error, "unavailable", "internal")) await this.#look();
      throw error;
    } finally {
      // Anything left in R2 is deleted with the upload.
      await part.discard().catch(() => undefined);
      part.free();
    }
  }

  /** The bytes of the body until it ends, is interrupted, or stalls after the upload's last byte. */
  async *#body(): AsyncGenerator<Uint8Array> {
    const { fileId, sizeBytes } = this.#row;
    const chunks = this.#input.bytes[Symbol.asyncIterator]();
    for (let end = this.#row.offsetBytes; ; ) {
      const next = chunks.next().catch((cause) => {
        this.#deps.log("info", "upload_interrupted", { fileId, cause });
        this.#input.onInterrupted?.(cause);
        return { done: true, value: undefined } as const;
      });
      if (!(await this.#awaitBytes(next))) return;
      const { done, value } = await next;
      if (done) return;
      end += value.length;
      if (end > sizeBytes) throw bodyTooLarge(sizeBytes);
      if (this.#deps.system.now() - this.#lookedAt >= STATUS_CHECK_MILLISECONDS) {
        // The request continues: the next look, or a save, may reach the database.
        await this.#look().catch((cause) => {
          if (cause instanceof AppError && !isError(cause, "unavailable")) throw cause;
          this.#deps.log("warn", "upload_progress_failed", { fileId, cause });
        });
      }
      yield value;
    }
  }

  /**
   * Waits for the next bytes. If the connection stalls, saves the received ones, because the client may disconnect without
   * notice. @returns false if all bytes of the upload have arrived and the connection stalls
   */
  async #awaitBytes(next: Promise<unknown>): Promise<boolean> {
    const arrival = next.then(() => "arrival" as const);
    for (let checks = 0; this.#end > this.#row.offsetBytes; ) {
      this.#nextCheck ??= this.#deps.system.sleep(STALL_CHECK_MILLISECONDS).then(() => "check");
      if ((await Promise.race([arrival, this.#nextCheck])) === "arrival") return true;
      this.#nextCheck = undefined;
      checks += 1;
      if (checks < this.#checksBeforeSave) continue;
      if (this.#end === this.#row.sizeBytes) return false;
      await this.#saveDuringStall();
    }
    return true;
  }

  async #saveDuringStall(): Promise<void> {
    if (this.#writer.part.isFull) return this.#writer.sendPart();
    await this.#saveTail({ isWriting: true });
    this.#checksBeforeSave *= 2;
  }

  /** Stores the rest of the bytes and commits the file. */
  async #complete(): Promise<UploadRow> {
    if (this.#writer.progress.multipartId === null) {
      await this.#save({});
      const etag = await this.#writer.putObject();
      // A fenced-off request may have put other bytes, which it can't commit. Assembled parts replace them.
      if (etag !== null) {
        const row = { ...this.#row, ...this.#writer.progress.type };
        const upload = await commitResumable(this.#deps, this.#actor, row, etag, row.epoch);
        this.#deleteChunks(chunksOf(row));
        return upload;
      }
    }
    await this.#writer.sendPart();
    return assembleAndCommit(this.#deps, this.#actor, this.#row);
  }

  /** Saves the bytes after the last full part, for this request or another one to continue. */
  async #saveTail({ isWriting }: { isWriting: boolean }): Promise<void> {
    const { part } = this.#writer;
    const before = chunksOf(this.#row);
    const offsetBytes = this.#end;
    await part.save();
    await this.#save({ offsetBytes, chunks: JSON.stringify(part.chunks), isWriting });
    this.#deleteChunks(without(before, part.chunks));
  }

  #savePart(part: StoredPart): Promise<void> {
    const offsetBytes = this.#end;
    this.#checksBeforeSave = STALL_CHECKS;
    return this.#save({ offsetBytes, chunks: null, isWriting: offsetBytes < this.#bodyEnd }, part);
  }

  /**
   * @throws `offset_mismatch` if a newer request has fenced this one off, `not_found` if the upload was canceled, `token_invalid` if
   *   the key or session of this request was revoked
   */
  async #save(change: Partial<UploadRow>, part?: StoredPart): Promise<void> {
    const { progress } = this.#writer;
    const before = this.#row;
    const row = {
      ...before,
      ...change,
      multipartId: progress.multipartId,
      nextPart: progress.number,
      ...progress.type,
    };
    const now = this.#deps.system.now();
    if (row.offsetBytes > before.offsetBytes) row.dueAt = dueTime(row, now);
    if (row.offsetBytes >= row.progressBytes + PROGRESS_BYTES) {
      Object.assign(row, { progressAt: now, progressBytes: row.offsetBytes });
    }
    // Once set, the row keeps it.
    row.hasLeftovers ||= row.chunks !== null || this.#writer.part.isSpilled;
    const { db } = this.#deps;
    const hasKey = this.#hasKey;
    const save = saveProgress(db, row, hasKey);
    const batch = { save, state: savedState(db, row, hasKey), part: part ? [savePart(db, row, part)] : [] };
    const {
      state: [saved],
    } = await write(this.#deps, batch, { isIdempotent: true, caller: null });
    const end = endOf(saved, row);
    if (end || saved?.offsetBytes !== row.offsetBytes) {
      // A retried save may find that its first attempt succeeded and a newer request took over. Keep the objects that
      // the saved row names.
      const known = [...chunksOf(before), ...(saved ? chunksOf(saved) : [])];
      const unknown = without(chunksOf(row), known);
      if (unknown.length > 0) await this.#deps.bytes.remove(unknown.map(({ key }) => key));
      if (row.multipartId !== before.multipartId && row.multipartId !== saved?.multipartId) await this.#writer.abort();
      throw end ?? fencedOff();
    }
    this.#row = row;
    this.#lookedAt = this.#deps.system.now();
  }

  /**
   * Looks whether this request may continue. If another one has fenced it off, its chunks are deleted, and R2 may reject its parts: the
   * error says so, not the failure that this caused.
   * @throws as `#save` does
   */
  async #look(): Promise<void> {
    this.#lookedAt = this.#deps.system.now();
    const state = savedState(this.#deps.db, this.#row, this.#hasKey);
    const progress = this.#unsavedProgress;
    const [saved] = progress ? await this.#report(progress, state) : await read(this.#deps, state);
    const end = endOf(saved, this.#row);
    if (end) throw end;
  }

  /** The progress of a visitor's upload whose bytes arrive evenly, but so slowly that the part is not saved for minutes. */
  get #unsavedProgress() {
    const { isPublic, progressAt, progressBytes } = this.#row;
    const isDue = isPublic && this.#lookedAt >= progressAt + SILENT_MILLISECONDS / 2;
    if (!isDue || this.#end < progressBytes + PROGRESS_BYTES) return null;
    return { progressAt: this.#lookedAt, progressBytes: this.#end };
  }

  /** Records the progress, so that the upload does not give way, and reads its state. */
  async #report(progress: Pick<UploadRow, "progressAt" | "progressBytes">, state: ReturnType<typeof savedState>) {
    const report = this.#deps.db
      .update(uploads)
      .set(progress)
      .where(and(isOwn(this.#row), isReceiving));
    const found = await write(this.#deps, { report, state }, { isIdempotent: true, caller: null });
    this.#row = { ...this.#row, ...progress };
    return found.state;
  }

  get #hasKey(): SQL {
    return hasRow(apiKeys, isKey(this.#row.teamId, this.#actor.keyId));
  }

  /** The client need not wait for this. */
  #deleteChunks(chunks: Chunk[]): void {
    if (chunks.length === 0) return;
    const { fileId } = this.#row;
    const removed = this.#deps.bytes.remove(chunks.map(({ key }) => key));
    this.#deps.after(removed.catch((cause) => this.#deps.log("warn", "chunk_cleanup_failed", { fileId, cause })));
  }
}

const chunksOf = ({ chunks }: Pick<UploadRow, "chunks">): Chunk[] => JSON.parse(chunks ?? "[]");

const without = (chunks: Chunk[], others: readonly Chunk[]): Chunk[] =>
  chunks.filter(({ key }) => others.every((other) => other.key !== key));

const isOwn = (row: UploadRow) => and(isUpload(namedFile(row)), eq(uploads.epoch, row.epoch));

/** Saves the progress of a request. Changes nothing if the request is fenced off, or its key is gone. */
function saveProgress(db: Db, row: UploadRow, hasKey: SQL) {
  const { offsetBytes, nextPart, chunks, multipartId, mimeType, fileType, isWriting, dueAt, hasLeftovers } = row;
  const { progressAt, progressBytes } = row;
  const stored = { offsetBytes, nextPart, chunks, multipartId, mimeType, fileType, isWriting, dueAt, hasLeftovers };
  return db
    .update(uploads)
    .set({ ...stored, progressAt, progressBytes })
    .where(and(isOwn(row), isReceiving, hasKey));
}

/** Inserts a part if the progress was saved. */
function savePart(db: Db, row: UploadRow, { number, etag, md5 }: StoredPart) {
  const isSaved = hasRow(uploads, and(isOwn(row), isReceiving, eq(uploads.offsetBytes, row.offsetBytes)));
  return insertWhere(db, uploadParts, { fileId: row.fileId, number, etag, md5 }, isSaved);
}

interface SavedState extends Pick<UploadRow, "status" | "epoch" | "offsetBytes" | "chunks" | "multipartId"> {
  hasKey: number;
}

/** The saved progress, of any request. */
const savedState = (db: Db, row: UploadRow, hasKey: SQL) =>
  db
    .select({
      status: uploads.status,
      epoch: uploads.epoch,
      offsetBytes: uploads.offsetBytes,
      chunks: uploads.chunks,
      multipartId: uploads.multipartId,
      hasKey: sql<number>`${hasKey}`.as("hasKey"),
    })
    .from(uploads)
    .where(isUpload(namedFile(row)));

/** Why a request can't continue. Once another one has committed the upload, its client learns so from HEAD. */
function endOf(saved: SavedState | undefined, { epoch }: UploadRow): AppError | null {
  if (saved?.hasKey === 0) return new AppError("token_invalid");
  if (!saved || saved.status === "canceled") return deletedMeanwhile();
  return saved.status === "committed" || saved.epoch !== epoch ? fencedOff() : null;
}

/**
 * The ETag for the commit of an upload that has no parts any more, because another request has just committed it. The commit then
 * inserts no file, and finds that of the other request.
 */
const COMMITTED_MEANWHILE = "";

/** Assembles the parts and commits the file. Concurrent calls have the same result. */
export async function assembleAndCommit(deps: Deps, initiator: Initiator, row: UploadRow): Promise<UploadRow> {
  const { multipartId, fileId } = row;
  if (multipartId === null) throw new Error("A complete upload has no parts.");
  const { number, etag: partEtag, md5 } = uploadParts;
  const saved = deps.db
    .select({ number, etag: partEtag, md5 })
    .from(uploadParts)
    .where(eq(uploadParts.fileId, fileId))
    .orderBy(asc(number));
  const parts = await read(deps, saved);
  const isCommitted = parts.length === 0;
  const complete = () => deps.bytes.complete(objectKey(namedFile(row)), multipartId, parts);
  return commitResumable(deps, initiator, row, isCommitted ? COMMITTED_MEANWHILE : await complete());
}

async function commitResumable(
  deps: Deps,
  initiator: Initiator,
  row: UploadRow,
  etag: string,
  epoch: number | null = null,
): Promise<UploadRow> {
  const { db, system } = deps;
  const { fileId, sizeBytes, mimeType, fileType } = row;
  const stored = { sizeBytes, sha256: null, etag, mimeType: mimeType ?? "", fileType: fileType ?? "" };
  const file = namedFile(row);
  const isArriving = hasRow(uploads, and(isUpload(file), isReceiving));
  const deleteParts = db.delete(uploadParts).where(and(eq(uploadParts.fileId, fileId), not(isArriving)));
  const set: SetColumns = JSON.parse(row.properties ?? "{}");
  const { isBulk } = await commit(deps, initiator, { ...row, ...set }, stored, { extraQueries: [deleteParts], epoch });
  enqueue(deps, [file], isBulk);
  return { ...row, ...receiptOf(initiator, sizeBytes, system.now()) };
}
