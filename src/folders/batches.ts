import { and, inArray, sql } from "drizzle-orm";
import { checkCovered, type TeamActor } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { type Change, writeWithEvents } from "../events/events.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { enqueuePending, hasBacklog } from "../files/files.ts";
import { fileReprocessing } from "../files/processing.ts";
import { type FileChanges, fileUpdate, refusalOf } from "../files/properties.ts";
import type { Query } from "../platform/db.ts";
import { deleteFiles } from "../trash/deletion.ts";
import { restoreFiles } from "../trash/trash.ts";

/*
 * One action on many files, each with its own event, in one transaction: one round trip. A repetition finds the files changed,
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
  if (action.action === "delete") {
    const codes = await deleteFiles(deps, actor, ids, { isPermanent: action.permanent ?? false });
    return ids.map((id, i) => ({ id, code: codes[i] ?? null }));
  }
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
    .where(and(filesOf(actor), isGiven));
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
