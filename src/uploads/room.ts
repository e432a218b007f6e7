import { and, eq, lte, ne, type SQL, sql } from "drizzle-orm";
import { mayStillUpload, type TeamActor } from "../access/authorization.ts";
import { visitorIdOf } from "../access/upload-tokens.ts";
import type { Deps } from "../deps.ts";
import { cancelUploads, tryToRemoveUpload } from "../files/ending.ts";
import type { FileOf } from "../files/names.ts";
import { write } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import type { QuotaRefusal } from "./quota.ts";
import {
  givesWay,
  isUnfinishedResumable,
  silentUploads,
  unfinishedUploads,
  uploads,
  visitors,
} from "./uploads.schema.ts";

/*
 * How the unfinished uploads of visitors give way to others, so that abandoned ones block no visitor for a day. An upload is silent if it
 * received less than `PROGRESS_BYTES` in `SILENT_MILLISECONDS`. At a limit of one visitor, the visitor's upload that has been silent
 * longest gives way. At a limit that visitors share, that of the visitor with the most unfinished uploads does, or else the one that
 * has been silent longest of all. An upload of which more than half has arrived never does, unless it can be repeated at little cost.
 */

/** A smaller advance does not count as progress. */
export const PROGRESS_BYTES = 64 * 1024;
/** A phone in a dead spot loses nothing for this long. */
export const SILENT_MILLISECONDS = 10 * MINUTE;

/** The limits at which uploads of visitors give way: of one visitor, and of all. */
const OF_VISITOR = ["too_many_of_visitor"];
const OF_ALL = ["too_many_of_visitors", "too_many_of_team", "public_quota_exceeded"];

/** Cancels an upload that gives way to that of the newcomer, and deletes its bytes. @returns whether there was one */
export async function giveWay(
  deps: Deps,
  actor: TeamActor,
  newcomer: Pick<FileOf, "id">,
  refusal: string | null | undefined,
): Promise<boolean> {
  const { db, system } = deps;
  const { teamId, keyId } = actor;
  const isOfVisitor = OF_VISITOR.includes(refusal ?? "");
  if (!isOfVisitor && !OF_ALL.includes(refusal ?? "")) return false;
  const isSilent = and(
    eq(uploads.teamId, teamId),
    givesWay,
    lte(uploads.progressAt, system.now() - SILENT_MILLISECONDS),
    ne(uploads.fileId, newcomer.id),
  );
  const firstOf = (source: SQL, isSelected?: SQL) =>
    db
      .select({ fileId: sql`${uploads.fileId}` })
      .from(source)
      .where(and(isSilent, isSelected))
      .orderBy(uploads.progressAt)
      .limit(1);
  const firstOfVisitor = (keyAndId: SQL) =>
    firstOf(unfinishedUploads, and(isUnfinishedResumable, sql`(${uploads.keyId}, ${uploads.visitorId}) = ${keyAndId}`));
  const most = db
    .select({ keyId: visitors.keyId, id: visitors.id })
    .from(visitors)
    .where(and(eq(visitors.teamId, teamId), sql`${visitors.unfinishedUploads} > 1`))
    .orderBy(sql`${visitors.unfinishedUploads} desc`)
    .limit(1);
  const chosen = isOfVisitor
    ? sql`${firstOfVisitor(sql`(${keyId}, ${visitorIdOf(deps, actor)})`)}`
    : sql`coalesce(${firstOfVisitor(sql`${most}`)}, ${firstOf(silentUploads)})`;
  const cancel = cancelUploads(deps, and(eq(uploads.teamId, teamId), sql`${uploads.fileId} = ${chosen}`)).returning();
  const [canceled] = await write(deps, cancel, { isIdempotent: false, caller: mayStillUpload(deps, actor) });
  if (!canceled) return false;
  deps.log("info", "upload_gave_way", { fileId: canceled.fileId, teamId });
  await tryToRemoveUpload(deps, canceled);
  return true;
}

/** Inserts an upload, and once more if a limit refused it and another upload has given way. */
export async function insertWithRoom<T extends { refused?: QuotaRefusal | undefined }>(
  deps: Deps,
  actor: TeamActor,
  newcomer: Pick<FileOf, "id">,
  insert: () => Promise<T>,
): Promise<T> {
  const first = await insert();
  return (await giveWay(deps, actor, newcomer, first.refused?.refusal)) ? insert() : first;
}
