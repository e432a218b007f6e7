import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { StoredPart } from "../../platform/byte-store.ts";
import { read, write } from "../../platform/db.ts";
import type { Chunk, PartRoom } from "../../platform/part.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import type { Doer } from "../events/events.ts";
import { enqueue, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { objectKey, stashPrefix } from "./names.ts";
import {
  deleteParts,
  fileOf,
  isWhole,
  MAX_EMPTY_MILLISECONDS,
  MAX_FENCED_MILLISECONDS,
  MAX_RESUMABLE_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  markFinished,
  type NamedRow,
  partsOf,
  type ResumableRow,
  type ResumableUpload,
  savedState,
  savePart,
  saveResumable,
  view,
} from "./resumable-rows.ts";
import { ObjectWriter } from "./storing.ts";
import { commit, fencedOff } from "./upload.ts";

/* One request that writes to a resumable upload, and the end of the upload. The protocol is in resumable.ts. */

/** More bytes of an upload. */
export interface Append {
  offsetBytes: number;
  /** In pieces that are good until the next is asked for. What they throw only ends them: all that came before counts. */
  bytes: AsyncIterable<Uint8Array>;
  /** How many they are, where that is known. */
  sizeBytes: number | null;
}

export const tooLong = (sizeBytes: number) =>
  new AppError("body_too_large", { message: `The upload has ${sizeBytes} bytes by its Upload-Length.` });

/** How often a request that waits for bytes looks whether any have come. (Tests tell its pause by its length.) */
export const LOOK_MILLISECONDS = 600;
/** Bytes that are not saved are when none have come for so many looks. */
const SILENT_LOOKS = 2;

/** When the recovery job looks at an unfinished upload: it expires, or has all of its bytes and is not assembled yet. */
function dueTime(row: ResumableRow, now: number): number {
  const { offsetBytes, isWriting, createdAt } = row;
  // A request that is writing has stored its first bytes by then, or has timed out.
  if (offsetBytes === 0) return createdAt + MAX_EMPTY_MILLISECONDS + (isWriting ? MAX_FENCED_MILLISECONDS : 0);
  const milliseconds = isWhole(row) ? MAX_PENDING_MILLISECONDS : MAX_UNFINISHED_MILLISECONDS;
  return Math.min(now + milliseconds, createdAt + MAX_RESUMABLE_MILLISECONDS);
}

/** One request that has claimed its upload. */
export class Appending {
  readonly #deps: Deps;
  readonly #actor: TeamActor;
  readonly #append: Append;
  readonly #writer: ObjectWriter;
  /** As it is saved. */
  #row: NamedRow;
  /** Where the body ends, at the latest. */
  readonly #bodyEnd: number;
  #keys = 0;
  #nextLook: Promise<"look"> | undefined;
  /** Doubled by each time within a part, so that a client that often pauses costs little. */
  #silentLooks = SILENT_LOOKS;

  constructor(deps: Deps, actor: TeamActor, row: NamedRow, append: Append) {
    this.#deps = deps;
    this.#actor = actor;
    this.#row = row;
    this.#append = append;
    this.#bodyEnd = append.sizeBytes === null ? row.sizeBytes : row.offsetBytes + append.sizeBytes;
    const { multipartId, mimeType, fileType, nextPart: number } = row;
    const type = mimeType !== null && fileType !== null ? { mimeType, fileType } : null;
    this.#writer = new ObjectWriter(
      deps,
      fileOf(row),
      {
        roomOf: (part) => this.#roomOf(part),
        onBegun: () => this.#save({}),
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

  #roomOf(number: number): PartRoom {
    const { partBytes, sizeBytes, epoch } = this.#row;
    return {
      bytes: Math.min(partBytes, sizeBytes - this.#partStart),
      maxBytes: this.#bodyEnd - this.#partStart,
      newKey: () => {
        this.#keys += 1;
        return `${stashPrefix(fileOf(this.#row))}${number}.${epoch}.${this.#keys}`;
      },
      chunks: chunksOf(this.#row),
    };
  }

  async run(): Promise<ResumableUpload> {
    const { part } = this.#writer;
    try {
      await this.#writer.write(this.#body());
      if (this.#end === this.#row.sizeBytes) return await this.#complete();
      if (part.isFull) await this.#writer.sendPart();
      if (this.#end > this.#row.offsetBytes) await this.#leave(false);
      else if (this.#row.isWriting) await this.#save({ isWriting: false });
      return view(this.#row);
    } catch (error) {
      if (error instanceof AppError) await this.#endWriting(error);
      else await this.#throwIfFencedOff();
      throw error;
    } finally {
      // What this can't reach goes with the upload.
      await part.discard().catch(() => undefined);
      part.free();
    }
  }

  /** The body, which ends where the line breaks, or is silent after the last byte of the upload. */
  async *#body(): AsyncGenerator<Uint8Array> {
    const { fileId, sizeBytes } = this.#row;
    const pieces = this.#append.bytes[Symbol.asyncIterator]();
    for (let end = this.#row.offsetBytes; ; ) {
      const next = pieces.next().catch((cause) => {
        this.#deps.log("info", "upload cut", { fileId, cause });
        return { done: true, value: undefined } as const;
      });
      if (!(await this.#comes(next))) return;
      const { done, value } = await next;
      if (done) return;
      end += value.length;
      if (end > sizeBytes) throw tooLong(sizeBytes);
      yield value;
    }
  }

  /**
   * Waits. The client of a line that has gone silent gives the request up at some time, which nobody tells us: what came
   * is saved meanwhile. @returns false where all bytes of the upload are there, and nothing more comes
   */
  async #comes(next: Promise<unknown>): Promise<boolean> {
    const come = next.then(() => "come" as const);
    for (let looks = 0; this.#end > this.#row.offsetBytes; ) {
      this.#nextLook ??= this.#deps.system.sleep(LOOK_MILLISECONDS).then(() => "look");
      if ((await Promise.race([come, this.#nextLook])) === "come") return true;
      this.#nextLook = undefined;
      looks += 1;
      if (looks < this.#silentLooks) continue;
      if (this.#end === this.#row.sizeBytes) return false;
      await this.#saveInSilence();
    }
    return true;
  }

  async #saveInSilence(): Promise<void> {
    if (this.#writer.part.isFull) return this.#writer.sendPart();
    await this.#leave(true);
    this.#silentLooks *= 2;
  }

  /** All bytes are there. */
  async #complete(): Promise<ResumableUpload> {
    if (this.#writer.progress.multipartId === null) {
      await this.#save({});
      const etag = await this.#writer.putWhole();
      // An older request may have put other bytes; it can't commit them. Parts replace what is there, under our epoch alone.
      if (etag !== null) {
        const row = { ...this.#row, ...this.#writer.progress.type };
        const upload = await commitResumable(this.#deps, this.#actor, row, etag, row.epoch);
        this.#deleteChunks(chunksOf(row));
        return upload;
      }
    }
    await this.#writer.sendPart();
    return finish(this.#deps, this.#actor, this.#row);
  }

  /** Saves the partial part, for this request or another one to continue. */
  async #leave(isWriting: boolean): Promise<void> {
    const { part } = this.#writer;
    const before = chunksOf(this.#row);
    const offsetBytes = this.#end;
    await part.save();
    await this.#save({ offsetBytes, partialPart: JSON.stringify(part.chunks), isWriting });
    this.#deleteChunks(without(before, part.chunks));
  }

  #savePart(part: StoredPart): Promise<void> {
    const offsetBytes = this.#end;
    this.#silentLooks = SILENT_LOOKS;
    return this.#save({ offsetBytes, partialPart: null, isWriting: offsetBytes < this.#bodyEnd }, part);
  }

  /** @throws `offset_mismatch` where a newer request has taken over, or the upload was deleted */
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
    row.dueAt = dueTime(row, this.#deps.system.now());
    const hasLeftovers = Number(row.partialPart !== null || this.#writer.part.isSpilled);
    const values = { ...row, id: row.fileId, isWriting: Number(row.isWriting), hasLeftovers };
    const along = part ? [savePart({ ...values, ...part })] : [];
    const queries = [saveResumable(values), savedState(values), ...along] as const;
    const [, [saved]] = await write(this.#deps, queries, { isIdempotent: true });
    if (saved?.epoch !== row.epoch || saved.offsetBytes !== row.offsetBytes) {
      // If the first of two attempts was saved, the request that took over continues with its chunks and its parts.
      const known = [...chunksOf(before), ...(saved ? chunksOf(saved) : [])];
      const unknown = without(chunksOf(row), known);
      if (unknown.length > 0) await this.#deps.bytes.remove(unknown.map(({ key }) => key));
      if (row.multipartId !== before.multipartId && row.multipartId !== saved?.multipartId) await this.#writer.abort();
      throw fencedOff();
    }
    this.#row = row;
  }

  /** R2 refuses the parts of an upload that was deleted, or ended, meanwhile: then that is the answer. */
  async #throwIfFencedOff(): Promise<void> {
    const [[saved]] = await read(this.#deps, [savedState({ id: this.#row.fileId })]);
    if (saved?.epoch !== this.#row.epoch) throw fencedOff();
  }

  /** A body that is refused leaves the upload as it was, and nobody waits for it. */
  async #endWriting({ code }: AppError): Promise<void> {
    if (code === "body_too_large") await this.#save({ isWriting: false });
  }

  /** The client need not wait for this. */
  #deleteChunks(chunks: Chunk[]): void {
    if (chunks.length === 0) return;
    const { fileId } = this.#row;
    const removed = this.#deps.bytes.remove(chunks.map(({ key }) => key));
    this.#deps.after(removed.catch((cause) => this.#deps.log("warn", "chunks left to recovery", { fileId, cause })));
  }
}

const chunksOf = ({ partialPart }: Pick<ResumableRow, "partialPart">): Chunk[] => JSON.parse(partialPart ?? "[]");

const without = (chunks: Chunk[], others: readonly Chunk[]): Chunk[] =>
  chunks.filter(({ key }) => others.every((other) => other.key !== key));

/** Puts the parts together and commits the file. May run twice at a time: both come to the same. */
export async function finish(deps: Deps, doer: Doer, row: NamedRow): Promise<ResumableUpload> {
  const { multipartId } = row;
  if (multipartId === null) throw new Error("An upload is whole and has no parts.");
  const [parts] = await read(deps, [partsOf({ id: row.fileId })]);
  // None are left where another request has just committed the file.
  const etag = parts.length === 0 ? "" : await deps.bytes.complete(objectKey(fileOf(row)), multipartId, parts);
  return commitResumable(deps, doer, row, etag);
}

async function commitResumable(
  deps: Deps,
  doer: Doer,
  row: NamedRow,
  etag: string,
  epoch: number | null = null,
): Promise<ResumableUpload> {
  const { fileId: id, sizeBytes, mimeType, fileType } = row;
  const dueAt = deps.system.now() + MAX_UNFINISHED_MILLISECONDS;
  const stored = { sizeBytes, sha256: null, etag, mimeType: mimeType ?? "", fileType: fileType ?? "" };
  await commit(deps, doer, fileOf(row), stored, [markFinished({ id, dueAt }), deleteParts({ id })], epoch);
  await enqueue(deps, fileOf(row));
  return view({ ...row, offsetBytes: sizeBytes, isFinished: true, dueAt });
}
