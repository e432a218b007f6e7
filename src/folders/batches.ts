import { and, inArray, sql } from "drizzle-orm";
import { checkCovered, type TeamActor } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { type Change, writeWithEvents } from "../events/events.ts";
import { isClean } from "../files/ending.ts";
import { files, isListed, teamOfFile } from "../files/files.schema.ts";
import { enqueuePending, hasBacklog } from "../files/files.ts";
import { storedKeys } from "../files/names.ts";
import { fileReprocessing } from "../files/processing.ts";
import { type FileChanges, fileUpdate, refusalOf } from "../files/properties.ts";
import type { Query } from "../platform/db.ts";
import {
  checkErasure,
  deletionRefusal,
  fileDeletion,
  isWritingBeside,
  keptFiles,
  removeRows,
} from "../trash/deletion.ts";
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
 * Hides all files in one transaction, and deletes the bytes of those that the trash does not keep with one call for 1,000
 * objects. The recovery job cleans up files whose upload, waveform or transcript may still be writing.
 */
async function deleteFiles(deps: Deps, actor: TeamActor, ids: string[], isPermanent: boolean): Promise<BatchResult[]> {
  if (isPermanent) checkErasure(actor);
  const now = deps.system.now();
  const changes = ids.map((id) => fileDeletion(deps, actor, { ...actor, id }, { isPermanent, now }));
  // With the same time, the reason is the same expression for each file.
  const refusal = changes[0]?.refusal ?? sql<null>`null`;
  const {
    rows,
    last: [found],
  } = await writeWithEvents(deps, changes, [keptFiles(deps, actor, ids, refusal)], { isIdempotent: true });
  const kept = new Map(found.map((row) => [row.id, row]));
  const deleted = rows.flatMap(([[row], [upload]]) => (row && !kept.has(row.id) ? [{ row, upload }] : []));
  // A form upload that is still sending the bytes cleans up itself.
  const stored = deleted.filter(({ row, upload }) => row.sizeBytes !== null || upload);
  await deps.bytes.remove(stored.flatMap(({ row }) => storedKeys(row)));
  const finished = stored.filter(({ row, upload }) => !isWritingBeside(deps, row) && (!upload || isClean(upload)));
  const uploads = finished.flatMap(({ upload }) => upload?.fileId ?? []);
  const removed = removeRows(
    deps,
    finished.map(({ row }) => row),
    uploads,
  );
  deps.after(removed.catch((cause) => deps.log("warn", "file_cleanup_failed", { cause })));
  // Without `onlyUnfinished`, no deletion is refused as `forbidden`.
  return ids.map((id, i) => ({ id, code: deletionRefusal(rows[i]?.[0][0], kept.get(id)) as BatchResult["code"] }));
}
