import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type BoundQuery, type Param, preparedQuery, write } from "../../platform/db.ts";
import { files, isListed } from "../../platform/schema.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { type Change, writeWithEvents } from "../events/events.ts";
import { fileDeletion, isWritingWaveform, removeRows } from "./deletion.ts";
import { fileReprocessing } from "./files.ts";
import { storedKeys } from "./names.ts";
import { fileUpdate } from "./properties.ts";
import type { ResumableRow } from "./resumable-rows.ts";
import { deleteUploads } from "./upload-recovery.ts";

/*
 * One action on many files. Every file is changed by the queries that change a single one, with its own event, and all of
 * them are one transaction: one round trip. A repetition finds the files changed, and changes nothing.
 */

/** A file takes up to four queries, so a batch stays far below the 1,000 queries that D1 allows an invocation. */
export const MAX_BATCH_FILES = 100;
/**
 * Files of a batch that count as one call that reprocesses a file. With the limit of ten calls, a team can reprocess 100
 * files a minute, so that its files don't delay those of other teams for long.
 */
export const REPROCESSED_FILES_PER_CALL = 10;

export type BatchAction =
  | { action: "delete" | "reprocess" }
  | { action: "tag" | "untag"; tags: string[] }
  | { action: "move"; folder: string };

export interface BatchResult {
  id: string;
  /** Null if the file now is as requested. */
  code: "not_found" | "too_many_tags" | null;
}

type FilesValues = { teamId: string; ids: string };
const listedFiles = preparedQuery((db, param: Param<FilesValues>) =>
  db
    .select({ id: files.id, status: files.status, tags: files.tags })
    .from(files)
    .where(
      and(
        eq(files.teamId, param("teamId")),
        sql`${files.id} in (select value from json_each(${param("ids")}))`,
        isListed,
      ),
    ),
);

/** @returns a result for each id, in their order. @throws `unavailable` if bytes could not be deleted yet: repeat the batch */
export async function changeFiles(
  deps: Deps,
  actor: TeamActor,
  ids: string[],
  action: BatchAction,
): Promise<BatchResult[]> {
  if (action.action === "delete") return deleteFiles(deps, actor, ids);
  const current = listedFiles({ teamId: actor.teamId, ids: JSON.stringify(ids) });
  const changes = ids.map((id) => changeOf(deps, actor, id, action));
  const { last } = await writeWithEvents(deps, changes, [current], { isIdempotent: true });
  const rows = new Map(last[0].map((row) => [row.id, row]));
  if (action.action === "reprocess") {
    const pending = last[0].filter(({ status }) => status === "pending");
    const jobs = pending.map(({ id }) => ({ teamId: actor.teamId, fileId: id }));
    // The recovery job sends messages that could not be sent.
    await deps.jobs.sendAll(jobs).catch((cause) => deps.log("warn", "file_message_failed", { cause }));
  }
  return ids.map((id) => {
    const row = rows.get(id);
    if (!row) return { id, code: "not_found" };
    const tags: string[] = JSON.parse(row.tags);
    const isTagged = action.action !== "tag" || action.tags.every((tag) => tags.includes(tag));
    return { id, code: isTagged ? null : "too_many_tags" };
  });
}

function changeOf(deps: Deps, actor: TeamActor, id: string, action: BatchAction): Change<BoundQuery<unknown>[]> {
  if (action.action === "reprocess") {
    const { event, queries } = fileReprocessing(deps, actor, id);
    return { event, queries: [...queries] };
  }
  const { event, update } = fileUpdate(deps, actor, id, {
    ...(action.action === "move" && { folder: action.folder }),
    ...(action.action === "tag" && { addedTags: action.tags }),
    ...(action.action === "untag" && { removedTags: action.tags }),
  });
  return { event, queries: [update] };
}

/** Nothing of the upload is in R2, so only its row has to be deleted. */
const isClean = ({ hasLeftovers, multipartId, isWriting }: ResumableRow) =>
  !hasLeftovers && multipartId === null && !isWriting;

/**
 * Hides all files in one transaction, and deletes their bytes with one call for 1,000 objects. The recovery job cleans up
 * files whose upload or waveform may still be writing.
 */
async function deleteFiles(deps: Deps, actor: TeamActor, ids: string[]): Promise<BatchResult[]> {
  const changes = ids.map((id) => fileDeletion(deps, actor, id));
  const { rows } = await writeWithEvents(deps, changes, [], { isIdempotent: true });
  const deleted = rows.flatMap(([[row], [upload]]) => (row ? [{ row, upload }] : []));
  const stored = deleted.filter(({ row }) => row.sizeBytes !== null);
  await deps.bytes.remove(stored.flatMap(({ row }) => storedKeys(row)));
  const finished = stored.filter(({ row, upload }) => !isWritingWaveform(deps, row) && (!upload || isClean(upload)));
  const cleanUp = async () => {
    const uploads = finished.flatMap(({ upload }) => upload?.fileId ?? []);
    if (uploads.length > 0)
      await write(deps, [deleteUploads({ ids: JSON.stringify(uploads) })], { isIdempotent: true });
    await removeRows(
      deps,
      finished.map(({ row: { teamId, id } }) => ({ teamId, id })),
    );
  };
  deps.after(cleanUp().catch((cause) => deps.log("warn", "file_cleanup_failed", { cause })));
  const found = new Set(deleted.map(({ row }) => row.id));
  return ids.map((id) => ({ id, code: found.has(id) ? null : "not_found" }));
}
