import { and, inArray, sql } from "drizzle-orm";
import { type TeamActor, withScope } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { writeWithEvent } from "../events/events.ts";
import type { Batch } from "../platform/db.ts";
import { deleteFiles } from "./deletion.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { enqueuePending, hasBacklog } from "./files.ts";
import { fileReprocessing } from "./processing.ts";
import { type FileChanges, fileUpdate, refusalOf } from "./properties.ts";
import { restoreFiles } from "./restoring.ts";

/*
 * An action on many files, each with its own event, in one transaction: one round trip. A repetition finds the files changed,
 * and changes nothing.
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
  /** Whether a deletion moved it to the trash. */
  isTrashed?: boolean;
}

/**
 * @returns a result for each id, in their order
 * @throws `insufficient_scope` for a deletion or restoration without `files:delete`, or an erasure without `files:erase`;
 *   `unavailable` if bytes could not be deleted yet: repeat the batch
 */
export async function changeFiles(
  deps: Deps,
  actor: TeamActor,
  ids: string[],
  action: BatchAction,
): Promise<BatchResult[]> {
  if (action.action === "delete") {
    const deleter = withScope(actor, "files:delete");
    const results = await deleteFiles(deps, deleter, ids, { isPermanent: action.permanent ?? false });
    return results.map(({ refusal, isTrashed }, i) => ({ id: ids[i] ?? "", code: refusal, isTrashed }));
  }
  if (action.action === "restore") return restoreFiles(deps, withScope(actor, "files:delete"), ids);
  const changes = ids.map((id): Batch => {
    if (action.action === "reprocess") return fileReprocessing(deps, actor, id);
    return fileUpdate(deps, actor, id, propertiesOf(action));
  });
  // Evaluated after the changes, it names the same files: where tags were added, adding them again still fits.
  const refusal = refusalOf(propertiesOf(action));
  const isGiven = inArray(files.id, sql`(select value from json_each(${JSON.stringify(ids)}))`);
  const found = deps.db
    .select({
      id: files.id,
      teamId: teamOfFile,
      status: files.status,
      isBulk: hasBacklog(actor.teamId).as("isBulk"),
      refusal,
    })
    .from(files)
    .where(and(filesOf(actor), isGiven));
  const current = (await writeWithEvent(deps, { changes, found }, { isIdempotent: true, caller: actor })).found;
  if (action.action === "reprocess") enqueuePending(deps, current);
  const rows = new Map(current.map((row) => [row.id, row]));
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
