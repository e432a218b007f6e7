import { and, eq, or, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, columnsFrom, hasRow, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys, files, teams } from "../../platform/schema.ts";
import { uploads } from "../../platform/upload-schema.ts";
import { isExistingTeam } from "../accounts/teams.ts";
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
    /** The key or session that must still exist. Null for the service itself. */
    keyId: string | null;
  };

/**
 * A condition on the team: it is not being deleted, and the key or session has not ended. An expired key may finish its
 * upload while its row exists, and so may a key of a suspended team.
 */
const hasAccess = (param: Param<{ teamId: string; keyId: string | null }>) => {
  const keyExists = hasRow(apiKeys, and(eq(apiKeys.teamId, param("teamId")), eq(apiKeys.id, param("keyId"))));
  return and(isExistingTeam(param), or(sql`${param("keyId")} is null`, keyExists));
};
const accessOfCaller = preparedQuery((db, param: Param<{ teamId: string; keyId: string | null }>) =>
  db.select({ id: teams.id }).from(teams).where(hasAccess(param)),
);

const markPending = preparedQuery((db, param: Param<CommitValues>) => {
  const isCurrentEpoch = hasRow(uploads, and(eq(uploads.fileId, param("id")), eq(uploads.epoch, param("epoch"))));
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
        or(sql`${param("epoch")} is null`, isCurrentEpoch),
        hasRow(teams, hasAccess(param)),
      ),
    );
});

/**
 * The commit point. The same batch reads the state, so a commit whose response was lost can be repeated.
 * @throws `not_found` if the file was deleted while its bytes arrived, `token_invalid` if the initiator's access ended
 *   meanwhile, `offset_mismatch` if `epoch` is fenced off
 */
export async function commit(
  deps: Deps,
  initiator: Initiator,
  { id, teamId }: FileKey,
  stored: StoredObject,
  { extraQueries = [], epoch = null }: { extraQueries?: BoundQuery<unknown>[]; epoch?: number | null } = {},
): Promise<ListedRow> {
  const now = deps.system.now();
  const columns = { ...stored, reservedBytes: stored.sizeBytes };
  const dueAt = now + MAX_PENDING_MILLISECONDS;
  const access = { teamId, keyId: "keyId" in initiator ? initiator.keyId : null };
  const mark = markPending({ id, ...access, ...columns, dueAt, updatedAt: now, epoch });
  const event = fileEvent(deps, "file.uploaded", initiator, { id, teamId });
  const queries = [mark, uploadState({ id, teamId }), ...extraQueries] as const;
  const [, [row]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (!row || row.status === "deleting") {
    throw new AppError("not_found", { message: "The file was deleted during its upload." });
  }
  if (row.status === "receiving") {
    const [[isLive]] = await read(deps, [accessOfCaller(access)]);
    throw isLive ? fencedOff() : new AppError("token_invalid");
  }
  if (epoch !== null && row.etag !== stored.etag) throw fencedOff();
  return row;
}

export const fencedOff = () => new AppError("offset_mismatch", { message: "A newer request has resumed this upload." });
