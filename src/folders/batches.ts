import { and, inArray, sql } from "drizzle-orm";
import { checkCovered, type TeamActor } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Change, writeWithEvents } from "../events/events.ts";
import { isClean } from "../files/ending.ts";
import { files, isListed, teamOfFile } from "../files/files.schema.ts";
import { enqueuePending, hasBacklog } from "../files/files.ts";
import { storedKeys } from "../files/names.ts";
import { fileReprocessing } from "../files/processing.ts";
import { type FileChanges, fileUpdate, refusalOf } from "../files/properties.ts";
import type { Query } from "../platform/db.ts";
import { checkErasure, eraseInPlace, fileDeletion, isWritingWaveform, placesOf, removeRows } from "../trash/deletion.ts";
import { restoreFiles } from "../trash/trash.ts";

/*
 * One action on many files. Every file is changed by the queries that change a single one, with its own event, and all of
 * them are one transaction: one round trip. A repetition finds the files changed, and changes nothing.
 */

/** A file takes up to four queries, so a batch stays far below the 1,000 queries that D1 allows an invocation. */
export const MAX_BATCH_FILES = 100;

type BatchAction =
  | { action: "reprocess" | "restore" }
  | { action: "delete"; permanent?: boolean | undefined }
  | { action: "tag" | "untag"; tags: string[] }
  | { action: "move"; folder: string };

export interface BatchResult {
  id: string;
  /** Null if the file now is as requested. */
  code: "not_found" | "too_many_tags" | "file_held" | "not_in_trash" | null;
}

/**
 * @returns a result for each id, in their order
 * @throws `insufficient_scope` for a deletion or restoration without `files:delete`; `forbidden` as `checkErasure` does;
 *   `unavailable` if bytes could not be deleted yet: repeat the batch
 */
export async function changeFiles(
  deps: Deps,
  actor: TeamActor,
  ids: string[],
  action: BatchAction,
): Promise<BatchResult[]> {
  if (action.action === "delete" || action.action === "restore") checkCovered(actor, SCOPES["files:delete"]);
  if (action.action === "delete") return deleteFiles(deps, actor, ids, action.permanent ?? false);
  if (action.action === "restore") return restoreFiles(deps, actor, ids);
  const changes = ids.map((id): Change<Query[]> => {
    if (action.action === "reprocess") {
      const { event, queries } = fileReprocessing(deps, actor, id);
      return { event, queries: [...queries] };
    }
    const { event, update } = fileUpdate(deps, actor, id, propertiesOf(action));
    return { event, queries: [update] };
  });
  // Evaluated after the changes, it names the same files: where tags were added, adding them again still fits.
  const refusal = refusalOf(propertiesOf(action));
  const isGiven = inArray(files.id, sql`(select value from json_each(${JSON.stringify(ids)}))`);
  const current = deps.db
    .select({
      id: files.id,
      teamId: teamOfFile,
      status: files.status,
      isBulk: hasBacklog(actor.teamId).as("isBulk"),
      refusal,
    })
    .from(files)
    .where(and(filesOf(actor), isGiven, isListed));
  const {
    last: [found],
  } = await writeWithEvents(deps, changes, [current], { isIdempotent: true });
  if (action.action === "reprocess") enqueuePending(deps, found);
  const rows = new Map(found.map((row) => [row.id, row]));
  return ids.map((id) => {
    const row = rows.get(id);
    if (!row) return { id, code: "not_found" };
    return { id, code: row.refusal === null ? null : "too_many_tags" };
  });
}

function propertiesOf(action: BatchAction): FileChanges {
  if (action.action === "move") return { folder: action.folder };
  if (action.action === "tag") return { addedTags: action.tags };
  return action.action === "untag" ? { removedTags: action.tags } : {};
}

/**
 * Removes all files in one transaction, and deletes the bytes of those that the trash does not keep with one call for 1,000
 * objects. The recovery job cleans up files whose upload or waveform may still be writing.
 */
async function deleteFiles(deps: Deps, actor: TeamActor, ids: string[], isPermanent: boolean): Promise<BatchResult[]> {
  if (isPermanent) checkErasure(actor);
  const now = deps.system.now();
  const changes = ids.map((id) => fileDeletion(deps, actor, { ...actor, id }, { isPermanent, now }));
  const {
    last: [kept, left, endedUploads],
  } = await writeWithEvents(deps, changes, placesOf(deps, actor, ids), { isIdempotent: true });
  const uploads = new Map(endedUploads.map((upload) => [upload.fileId, upload]));
  // A form upload that is still sending the bytes cleans up itself.
  const stored = left.filter((row) => row.trashedAt === null && (row.sizeBytes !== null || uploads.has(row.id)));
  await deps.bytes.remove(stored.flatMap(storedKeys));
  const finished = stored.filter((row) => {
    const upload = uploads.get(row.id);
    return !isWritingWaveform(deps, row) && (!upload || isClean(upload));
  });
  const clean = finished.flatMap(({ id }) => (uploads.has(id) ? id : []));
  const ending = removeRows(deps, finished, clean);
  deps.after(ending.catch((cause) => deps.log("warn", "file_cleanup_failed", { cause })));
  const inFiles = new Map(kept.map((row) => [row.id, row]));
  const inRemoved = new Map(left.map((row) => [row.id, row]));
  const results = ids.map((id, i) => ({
    id,
    code: changes[i]?.refusalOf(inFiles.get(id), inRemoved.get(id)) ?? null,
  }));
  const unmoved = results.filter(({ code }) => code === "storage_full");
  if (unmoved.length > 0 && changes[0]?.isTrashing) throw new AppError("storage_full");
  if (unmoved.length > 0) await eraseInPlace(deps, actor, unmoved.map(({ id }) => id));
  // Without `onlyUnfinished`, no deletion is refused as `forbidden`.
  return results.map(({ id, code }) => ({ id, code: code === "storage_full" ? null : (code as BatchResult["code"]) }));
}
