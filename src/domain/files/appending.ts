import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { StoredPart } from "../../platform/byte-store.ts";
import type { Chunk } from "../../platform/chunk.ts";
import { read, write } from "../../platform/db.ts";
import type { PartSpec } from "../../platform/part.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import type { Initiator } from "../events/events.ts";
import { commit, fencedOff } from "./commit.ts";
import { enqueue, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { chunkPrefix, objectKey } from "./names.ts";
import {
  deleteParts,
  fileOf,
  isComplete,
  MAX_RESUMABLE_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  markFinished,
  type NamedRow,
  partsOf,
  type ResumableRow,
  savedState,
  savePart,
  saveResumable,
} from "./resumable-rows.ts";
import { ObjectWriter } from "./storing.ts";

/* One request that appends to a resumable upload, and the assembly of the upload. The protocol is in resumable.ts. */

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
function dueTime(row: ResumableRow, now: number): number {
  const milliseconds = isComplete(row) ? MAX_PENDING_MILLISECONDS : MAX_UNFINISHED_MILLISECONDS;
  return Math.min(now + milliseconds, row.createdAt + MAX_RESUMABLE_MILLISECONDS);
}

/** One request that has claimed its upload. */
export class Appender {
  readonly #deps: Deps;
  readonly #actor: TeamActor;
  readonly #input: AppendInput;
  readonly #writer: ObjectWriter;
  /** As saved in D1. */
  #row: NamedRow;
  /** The highest offset that the body can reach. */
  readonly #bodyEnd: number;
  #keys = 0;
  #nextCheck: Promise<"check"> | undefined;
  /** Doubled by each save within a part, so that a client that often stalls costs little. */
  #checksBeforeSave = STALL_CHECKS;

  constructor(deps: Deps, actor: TeamActor, row: NamedRow, input: AppendInput) {
    this.#deps = deps;
    this.#actor = actor;
    this.#row = row;
    this.#input = input;
    this.#bodyEnd = input.sizeBytes === null ? row.sizeBytes : row.offsetBytes + input.sizeBytes;
    const { multipartId, mimeType, fileType, nextPart: number } = row;
    const type = mimeType !== null && fileType !== null ? { mimeType, fileType } : null;
    this.#writer = new ObjectWriter(
      deps,
      fileOf(row),
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

  get #end(): number {
    return this.#partStart + this.#writer.part.sizeBytes;
  }

  #partSpec(number: number): PartSpec {
    const { partBytes, sizeBytes, epoch } = this.#row;
    return {
      bytes: Math.min(partBytes, sizeBytes - this.#partStart),
      maxBytes: this.#bodyEnd - this.#partStart,
      newKey: () => {
        this.#keys += 1;
        return `${chunkPrefix(fileOf(this.#row))}${number}.${epoch}.${this.#keys}`;
      },
      chunks: chunksOf(this.#row),
    };
  }

  async run(): Promise<ResumableRow> {
    const { part } = this.#writer;
    try {
      await this.#writer.write(this.#body());
      if (this.#end === this.#row.sizeBytes) return await this.#complete();
      if (part.isFull) await this.#writer.sendPart();
      if (this.#end > this.#row.offsetBytes) await this.#saveTail({ isWriting: false });
      else if (this.#row.isWriting) await this.#save({ isWriting: false });
      return this.#row;
    } catch (error) {
      const code = error instanceof AppError ? error.code : "internal";
      // After a rejected body the upload is unchanged, and HEAD must not wait for this request.
      if (code === "body_too_large") await this.#save({ isWriting: false });
      if (code === "unavailable" || code === "internal") await this.#throwIfFencedOff();
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
  async #complete(): Promise<ResumableRow> {
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

  /** @throws `offset_mismatch` if a newer request has fenced this one off, or the upload was deleted */
  async #save(change: Partial<ResumableRow>, part?: StoredPart): Promise<void> {
    const { progress } = this.#writer;
    const before = this.#row;
    const row = {
      ...before,
      ...change,
      multipartId: progress.multipartId,
      nextPart: progress.number,
      ...progress.type,
    };
    if (row.offsetBytes > before.offsetBytes) row.dueAt = dueTime(row, this.#deps.system.now());
    const hasLeftovers = Number(row.chunks !== null || this.#writer.part.isSpilled);
    const values = { ...row, id: row.fileId, isWriting: Number(row.isWriting), hasLeftovers };
    const partQueries = part ? [savePart({ ...values, ...part })] : [];
    const queries = [saveResumable(values), savedState(values), ...partQueries] as const;
    const [, [saved]] = await write(this.#deps, queries, { isIdempotent: true });
    if (saved?.epoch !== row.epoch || saved.offsetBytes !== row.offsetBytes) {
      // A retried save may find that its first attempt succeeded and a newer request took over. Keep the objects that
      // the saved row names.
      const known = [...chunksOf(before), ...(saved ? chunksOf(saved) : [])];
      const unknown = without(chunksOf(row), known);
      if (unknown.length > 0) await this.#deps.bytes.remove(unknown.map(({ key }) => key));
      if (row.multipartId !== before.multipartId && row.multipartId !== saved?.multipartId) await this.#writer.abort();
      throw fencedOff();
    }
    this.#row = row;
  }

  /**
   * If another request has fenced this one off, its chunks are deleted, and R2 may reject its parts. So report
   * `offset_mismatch`, not the failure it caused.
   */
  async #throwIfFencedOff(): Promise<void> {
    const [[saved]] = await read(this.#deps, [savedState({ id: this.#row.fileId })]);
    if (saved?.epoch !== this.#row.epoch) throw fencedOff();
  }

  /** The client need not wait for this. */
  #deleteChunks(chunks: Chunk[]): void {
    if (chunks.length === 0) return;
    const { fileId } = this.#row;
    const removed = this.#deps.bytes.remove(chunks.map(({ key }) => key));
    this.#deps.after(removed.catch((cause) => this.#deps.log("warn", "chunk_cleanup_failed", { fileId, cause })));
  }
}

const chunksOf = ({ chunks }: Pick<ResumableRow, "chunks">): Chunk[] => JSON.parse(chunks ?? "[]");

const without = (chunks: Chunk[], others: readonly Chunk[]): Chunk[] =>
  chunks.filter(({ key }) => others.every((other) => other.key !== key));

/** Assembles the parts and commits the file. Concurrent calls have the same result. */
export async function assembleAndCommit(deps: Deps, initiator: Initiator, row: NamedRow): Promise<ResumableRow> {
  const { multipartId } = row;
  if (multipartId === null) throw new Error("A complete upload has no parts.");
  const [parts] = await read(deps, [partsOf({ id: row.fileId })]);
  // If there are none, another request has just committed the file.
  const etag = parts.length === 0 ? "" : await deps.bytes.complete(objectKey(fileOf(row)), multipartId, parts);
  return commitResumable(deps, initiator, row, etag);
}

async function commitResumable(
  deps: Deps,
  initiator: Initiator,
  row: NamedRow,
  etag: string,
  epoch: number | null = null,
): Promise<ResumableRow> {
  const { fileId: id, sizeBytes, mimeType, fileType } = row;
  const dueAt = deps.system.now() + MAX_UNFINISHED_MILLISECONDS;
  const stored = { sizeBytes, sha256: null, etag, mimeType: mimeType ?? "", fileType: fileType ?? "" };
  const extraQueries = [markFinished({ id, dueAt }), deleteParts({ id })];
  await commit(deps, initiator, fileOf(row), stored, { extraQueries, epoch });
  await enqueue(deps, fileOf(row));
  return { ...row, offsetBytes: sizeBytes, isFinished: true, dueAt };
}
