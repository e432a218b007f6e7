import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { StoredPart } from "../../platform/byte-store.ts";
import { read, write } from "../../platform/db.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import type { Doer } from "../events/events.ts";
import { enqueue, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { objectKey, stashPrefix } from "./names.ts";
import {
  deleteParts,
  isSaved,
  MAX_RESUMABLE_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  markFinished,
  partsOf,
  type ResumableRow,
  savePart,
  saveResumable,
} from "./resumable-rows.ts";
import { ObjectWriter } from "./storing.ts";
import { commit } from "./upload.ts";

/* One request that writes to a resumable upload, and the end of the upload. The protocol is in resumable.ts. */

/** How far an upload has come. */
export interface ResumableUpload {
  id: string;
  sizeBytes: number;
  offsetBytes: number;
  metadata: string;
  expiresAt: number;
  /** The file is there. */
  isFinished: boolean;
}

export const view = ({
  fileId,
  sizeBytes,
  offsetBytes,
  metadata,
  dueAt,
  isFinished,
}: ResumableRow): ResumableUpload => ({
  id: fileId,
  sizeBytes,
  offsetBytes,
  metadata,
  expiresAt: dueAt,
  isFinished,
});

export const isWhole = ({ offsetBytes, sizeBytes }: ResumableRow) => offsetBytes === sizeBytes;

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

export type NamedRow = ResumableRow & { originalName: string };
export const fileOf = ({ fileId: id, teamId, originalName }: NamedRow) => ({ id, teamId, originalName });

const isFencedOff = (error: unknown) => error instanceof AppError && error.code === "offset_mismatch";

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
        onBegun: () => this.#saveBegun(),
        onPart: (part) => this.#savePart(part),
      },
      { multipartId, type, number },
    );
  }

  /** Where the part that is being gathered begins. */
  get #partStart(): number {
    const { offsetBytes, partBytes, stash } = this.#row;
    return stash === null ? offsetBytes : offsetBytes - (offsetBytes % partBytes);
  }

  #roomOf(number: number) {
    const { partBytes, sizeBytes, epoch } = this.#row;
    return {
      bytes: Math.min(partBytes, sizeBytes - this.#partStart),
      maxBytes: this.#bodyEnd - this.#partStart,
      key: `${stashPrefix(fileOf(this.#row))}${number}.${epoch}`,
    };
  }

  async run(): Promise<ResumableUpload> {
    const { part } = this.#writer;
    try {
      const { stash, offsetBytes } = this.#row;
      if (stash !== null) {
        await this.#writer.write(this.#deps.bytes.stream(stash, 0, offsetBytes - this.#partStart));
      }
      await this.#writer.write(this.#body());
      const end = this.#partStart + part.sizeBytes;
      if (end === this.#row.sizeBytes) return await this.#end();
      if (part.isFull) await this.#writer.sendPart();
      await this.#leave();
      return view(this.#row);
    } finally {
      // What this can't reach goes with the upload.
      await part.discard().catch(() => undefined);
      part.free();
    }
  }

  /** The body, which ends where the line breaks. */
  async *#body(): AsyncGenerator<Uint8Array> {
    const { sizeBytes, offsetBytes } = this.#row;
    let end = offsetBytes;
    try {
      for await (const chunk of this.#append.bytes) {
        end += chunk.length;
        if (end > sizeBytes) throw tooLong(sizeBytes);
        yield chunk;
      }
    } catch (error) {
      if (end > sizeBytes) throw error;
      this.#deps.log("info", "upload cut", { fileId: this.#row.fileId, cause: error });
    }
  }

  /** All bytes are there. */
  async #end(): Promise<ResumableUpload> {
    if (this.#writer.progress.multipartId !== null) {
      await this.#writer.sendPart();
      return finish(this.#deps, this.#actor, this.#row);
    }
    // What is put under the file's own key can't be fenced off.
    await this.#save({});
    const etag = await this.#writer.putWhole();
    const upload = await commitResumable(
      this.#deps,
      this.#actor,
      { ...this.#row, ...this.#writer.progress.type },
      etag,
    );
    this.#forget(this.#row.stash);
    return upload;
  }

  async #leave(): Promise<void> {
    const { part } = this.#writer;
    const end = this.#partStart + part.sizeBytes;
    if (end === this.#row.offsetBytes) return this.#save({ isWriting: false });
    const stash = this.#roomOf(this.#writer.progress.number).key;
    await part.leave();
    await this.#save({ offsetBytes: end, stash, isWriting: false }).catch(async (error) => {
      // Where it is not known whether it was saved, the stash may be needed.
      if (isFencedOff(error)) await this.#deps.bytes.remove([stash]);
      throw error;
    });
  }

  async #saveBegun(): Promise<void> {
    await this.#save({}).catch(async (error) => {
      // Where it is not known whether the id was saved, R2 gives the parts up after seven days.
      if (isFencedOff(error)) await this.#writer.abort();
      throw error;
    });
  }

  #savePart(part: StoredPart): Promise<void> {
    const offsetBytes = this.#partStart + this.#writer.part.sizeBytes;
    return this.#save({ offsetBytes, stash: null, isWriting: offsetBytes < this.#row.sizeBytes }, part);
  }

  /** @throws `offset_mismatch` where a newer request has taken over, or the upload was deleted */
  async #save(change: Partial<ResumableRow>, part?: StoredPart): Promise<void> {
    const { progress } = this.#writer;
    const now = this.#deps.system.now();
    const before = this.#row;
    const row = {
      ...before,
      ...change,
      multipartId: progress.multipartId,
      nextPart: progress.number,
      ...progress.type,
    };
    // One that is whole and is not put together is soon looked after.
    const milliseconds = isWhole(row) ? MAX_PENDING_MILLISECONDS : MAX_UNFINISHED_MILLISECONDS;
    row.dueAt = Math.min(now + milliseconds, row.createdAt + MAX_RESUMABLE_MILLISECONDS);
    const values = { ...row, id: row.fileId, isWriting: Number(row.isWriting) };
    const along = part ? [savePart({ ...values, ...part })] : [];
    const queries = [saveResumable(values), isSaved(values), ...along] as const;
    const [, saved] = await write(this.#deps, queries, { isIdempotent: true });
    if (saved.length === 0) {
      throw new AppError("offset_mismatch", { message: "Another request has taken over this upload." });
    }
    this.#row = row;
    if (before.stash !== row.stash) this.#forget(before.stash);
  }

  /** A stash that is needed no longer. Its client need not wait for that. */
  #forget(stash: string | null): void {
    if (stash === null) return;
    const { fileId } = this.#row;
    const removed = this.#deps.bytes.remove([stash]);
    this.#deps.after(removed.catch((cause) => this.#deps.log("warn", "stash left to recovery", { fileId, cause })));
  }
}

/** Puts the parts together and commits the file. May run twice at a time: both come to the same. */
export async function finish(deps: Deps, doer: Doer, row: NamedRow): Promise<ResumableUpload> {
  const { multipartId } = row;
  if (multipartId === null) throw new Error("An upload is whole and has no parts.");
  const [parts] = await read(deps, [partsOf({ id: row.fileId })]);
  // None are left where another request has just committed the file.
  const etag = parts.length === 0 ? "" : await deps.bytes.complete(objectKey(fileOf(row)), multipartId, parts);
  return commitResumable(deps, doer, row, etag);
}

async function commitResumable(deps: Deps, doer: Doer, row: NamedRow, etag: string): Promise<ResumableUpload> {
  const { fileId: id, sizeBytes, mimeType, fileType } = row;
  const dueAt = deps.system.now() + MAX_UNFINISHED_MILLISECONDS;
  const stored = { sizeBytes, sha256: null, etag, mimeType: mimeType ?? "", fileType: fileType ?? "" };
  await commit(deps, doer, fileOf(row), stored, [markFinished({ id, dueAt }), deleteParts({ id })]);
  await enqueue(deps, fileOf(row));
  return view({ ...row, offsetBytes: sizeBytes, isFinished: true, dueAt });
}
