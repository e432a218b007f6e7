import { and, eq, lt, ne, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, type Db, type Param, preparedQuery } from "../../platform/db.ts";
import { files } from "../../platform/schema.ts";
import { isUnfinished, uploads } from "../../platform/upload-schema.ts";
import { authorizeRead, type Credential, type RowsOfRead, teamRead } from "../accounts/authorization.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, type Page, type PageRequest, pageOf } from "../paging.ts";
import { hidden } from "./deletion.ts";
import { fileKey, isFileOfUpload } from "./names.ts";
import { endedUpload, hasHiddenFile } from "./resumable-rows.ts";

/* The unfinished resumable uploads of a team: their limits, their list, and their cancellation with their key. */

/** Each holds quota and R2 objects, and every creation reads all of them to count. */
const MAX_UNFINISHED_UPLOADS = 100;
/** Anyone who sees a web page can use its public key, so public keys leave half of the uploads to the team itself. */
const MAX_PUBLIC_UPLOADS = 50;
/** Half of these, so that the visitors of one public key can't block the other keys. */
const MAX_UPLOADS_PER_PUBLIC_KEY = 25;

const isOfTeam = (param: Param<{ teamId: string }>) => and(eq(uploads.teamId, param("teamId")), isUnfinished);
type CountValues = { teamId: string; keyId: string };
const countsFor = (param: Param<CountValues>) => ({
  all: sql<number>`count(*)`,
  public: sql<number>`coalesce(sum(${uploads.isPublic}), 0)`,
  ofKey: sql<number>`coalesce(sum(${uploads.keyId} = ${param("keyId")}), 0)`,
});

/** Whether the team can begin one more upload. It is a condition of the insert itself, so concurrent requests are exact. */
export function canBegin(db: Db, param: Param<CountValues & { isPublic: boolean }>) {
  const counts = countsFor(param);
  const isBelow = sql`${counts.all} < ${MAX_UNFINISHED_UPLOADS} and (not ${param("isPublic")}
    or ${counts.public} < ${MAX_PUBLIC_UPLOADS} and ${counts.ofKey} < ${MAX_UPLOADS_PER_PUBLIC_KEY})`;
  return sql`${db.select({ isBelow }).from(uploads).where(isOfTeam(param))}`;
}

/** The counts that `canBegin` compares. */
export const unfinishedCounts = preparedQuery((db, param: Param<CountValues>) =>
  db.select(countsFor(param)).from(uploads).where(isOfTeam(param)),
);

/** The error for a team that has too many unfinished uploads. Undefined if another limit kept it from beginning one. */
export function tooManyUnfinished(
  isPublic: boolean,
  counts: { all: number; public: number; ofKey: number },
): AppError | undefined {
  const error = (who: string, limit: number) =>
    new AppError("too_many_unfinished_uploads", {
      message: `${who} can have at most ${limit} unfinished uploads. Complete or cancel one and retry.`,
    });
  if (counts.all >= MAX_UNFINISHED_UPLOADS) return error("A team", MAX_UNFINISHED_UPLOADS);
  if (!isPublic) return undefined;
  if (counts.public >= MAX_PUBLIC_UPLOADS) return error("The public keys of a team", MAX_PUBLIC_UPLOADS);
  return counts.ofKey >= MAX_UPLOADS_PER_PUBLIC_KEY ? error("A public key", MAX_UPLOADS_PER_PUBLIC_KEY) : undefined;
}

const LIST = "unfinished";

const unfinishedPage = teamRead(uploads.teamId, (db, param: Param<KeysetValues>) => {
  const { fileId: id, sizeBytes, offsetBytes, keyId, createdAt, dueAt: expiresAt } = uploads;
  const rows = db
    .select({ id, name: files.originalName, sizeBytes, offsetBytes, keyId, createdAt, expiresAt })
    .from(uploads)
    .innerJoin(files, isFileOfUpload)
    .$dynamic();
  return pageOf(rows, keyset(id, "newest first", param), param, and(isUnfinished, eq(files.status, "receiving")));
});
export type UnfinishedUpload = RowsOfRead<typeof unfinishedPage>[number];

/** Newest first. @throws `invalid_input` for a cursor of another list */
export async function listUnfinished(
  deps: Deps,
  credential: Credential<"files:read">,
  request: PageRequest,
): Promise<Page<UnfinishedUpload>> {
  const values = keysetValues(LIST, "newest first", request);
  const rows = await authorizeRead(deps, credential, unfinishedPage(values));
  return cutPage(LIST, request, rows);
}

/**
 * Ends incomplete uploads and hides their files, which then hold no quota. The recovery job deletes the bytes and rows.
 * `isSelected` must not hold for an upload that has all of its bytes: only its commit is missing.
 */
export function cancelUploads<V extends { now: number }>(
  isSelected: (db: Db, param: Param<V>) => SQL | undefined,
): (values: V) => readonly [BoundQuery<unknown>, BoundQuery<D1Result>] {
  const nowOf = (param: Param<V>) => param as unknown as Param<{ now: number }>;
  const hideFiles = preparedQuery((db, param: Param<V>) => {
    const selected = db
      .select({ teamId: uploads.teamId, id: uploads.fileId })
      .from(uploads)
      .where(isSelected(db, param));
    return db
      .update(files)
      .set({ ...hidden(sql`${nowOf(param)("now")}`), reservedBytes: 0 })
      .where(and(sql`${fileKey} in ${selected}`, eq(files.status, "receiving")));
  });
  const end = preparedQuery((db, param: Param<V>) =>
    db
      .update(uploads)
      .set(endedUpload(nowOf(param)))
      .where(isSelected(db, param)),
  );
  return (values) => [hideFiles(values), end(values)];
}

/** Cancels the incomplete uploads of the keys that `keyIds` selects, in the batch that deletes those keys. */
export function uploadCancellation<V extends { teamId: string }>(keyIds: (db: Db, param: Param<V>) => SQL) {
  const cancel = cancelUploads((db, param: Param<V & { now: number }>) =>
    and(isOfTeam(param), sql`${uploads.keyId} in ${keyIds(db, param)}`, lt(uploads.offsetBytes, uploads.sizeBytes)),
  );
  return ({ system }: Deps, target: V) => cancel({ ...target, now: system.now() });
}

type ReplacementValues = { id: string; teamId: string; idempotencyKey: string; now: number };
const hideReplaced = preparedQuery((db, param: Param<ReplacementValues>) => {
  const ifUnfinished = (value: SQL | string, column: SQLiteColumn) =>
    sql`iif(${files.status} = 'receiving', ${value}, ${column})`;
  return db
    .update(files)
    .set({
      idempotencyKey: null,
      status: ifUnfinished("deleting", files.status),
      dueAt: ifUnfinished(sql`${param("now")}`, files.dueAt),
      reservedBytes: ifUnfinished(sql`0`, files.reservedBytes),
    })
    .where(
      and(
        eq(files.teamId, param("teamId")),
        eq(files.idempotencyKey, param("idempotencyKey")),
        ne(files.id, param("id")),
      ),
    );
});
const endHidden = preparedQuery((db, param: Param<ReplacementValues>) =>
  db
    .update(uploads)
    .set(endedUpload(param))
    .where(and(isOfTeam(param), hasHiddenFile)),
);

/** Part of the batch that creates the upload `id`. Takes the key from an earlier upload, and cancels an unfinished one. */
export const replaceUpload = (values: ReplacementValues) => [hideReplaced(values), endHidden(values)];
