import { and, eq, exists, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, columnsFrom, type Param, preparedQuery } from "../../platform/db.ts";
import { apiKeys, files, uploads } from "../../platform/schema.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import { fileEvent } from "./file-events.ts";
import { changed, type ListedRow, MAX_PENDING_MILLISECONDS } from "./files.ts";
import { uploadState } from "./idempotency.ts";
import { type FileKey, isFile } from "./names.ts";
import type { StoredObject } from "./storing.ts";

type CommitValues = StoredObject &
  FileKey & {
    reservedBytes: number;
    dueAt: number;
    updatedAt: number;
    /** Null if any request can commit. Otherwise only the request with this epoch can. */
    epoch: number | null;
    /** The key that must still exist. Null for none. */
    publicKeyId: string | null;
  };

const markPending = preparedQuery((db, param: Param<CommitValues>) => {
  const currentEpoch = db
    .select({ one: sql`1` })
    .from(uploads)
    .where(and(eq(uploads.fileId, param("id")), eq(uploads.epoch, param("epoch"))));
  const publicKey = db
    .select({ one: sql`1` })
    .from(apiKeys)
    .where(and(eq(apiKeys.teamId, param("teamId")), eq(apiKeys.id, param("publicKeyId"))));
  return db
    .update(files)
    .set({
      status: "pending",
      ...columnsFrom(param, "sizeBytes", "sha256", "etag", "mimeType", "fileType", "reservedBytes", "dueAt"),
      ...changed(param),
    })
    .where(
      and(
        isFile(param),
        eq(files.status, "receiving"),
        or(sql`${param("epoch")} is null`, exists(currentEpoch)),
        or(sql`${param("publicKeyId")} is null`, exists(publicKey)),
      ),
    );
});

/**
 * The commit point. The same batch reads the state, so a commit whose response was lost can be repeated.
 * @throws `not_found` if the file was deleted while its bytes arrived, `offset_mismatch` if `epoch` is fenced off,
 *   `token_invalid` if the public key was revoked
 */
export async function commit(
  deps: Deps,
  initiator: Initiator,
  { id, teamId }: FileKey,
  stored: StoredObject,
  {
    extraQueries = [],
    epoch = null,
    publicKeyId = null,
  }: { extraQueries?: BoundQuery<unknown>[]; epoch?: number | null; publicKeyId?: string | null },
): Promise<ListedRow> {
  const now = deps.system.now();
  const columns = { ...stored, reservedBytes: stored.sizeBytes };
  const dueAt = now + MAX_PENDING_MILLISECONDS;
  const mark = markPending({ id, teamId, ...columns, dueAt, updatedAt: now, epoch, publicKeyId });
  const event = fileEvent(deps, "file.uploaded", initiator, { id, teamId });
  const queries = [mark, uploadState({ id, teamId }), ...extraQueries] as const;
  const [, [row]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (!row || row.status === "deleting") {
    throw new AppError("not_found", { message: "The file was deleted during its upload." });
  }
  if (row.status === "receiving" && publicKeyId !== null) throw new AppError("token_invalid");
  if (row.status === "receiving" || (epoch !== null && row.etag !== stored.etag)) throw fencedOff();
  return row;
}

export const fencedOff = () => new AppError("offset_mismatch", { message: "A newer request has resumed this upload." });
