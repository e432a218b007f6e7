import { and, sql } from "drizzle-orm";
import type { TeamActor } from "../access/authorization.ts";
import { filesOf, removedOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { writeWithEvent } from "../events/events.ts";
import { isOneOf } from "../platform/db.ts";
import { notInTrash, placesOf } from "./deletion.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFiles } from "./file-events.ts";
import { files } from "./files.schema.ts";
import {
  enqueuePending,
  hasBacklog,
  LISTED_COLUMNS,
  MAX_PENDING_MILLISECONDS,
  type StoredFile,
  toStoredFile,
  trashedColumns,
} from "./files.ts";
import { isTrashed, removed } from "./removed.schema.ts";

/* How files return from `removed`, where the trash keeps them. */

/** The columns of a restored file: as they were, except for the time to delete it. Interrupted processing starts again. */
const restoredColumns = (now: number) =>
  trashedColumns({
    due_at: sql`iif(file ->> '$.status' = 'pending', ${now + MAX_PENDING_MILLISECONDS}, null)`,
    restores: sql`(file ->> '$.restores') + 1`,
    // As if it came into its folder now: a move or deletion of the folder that is in progress leaves it there.
    folder_since: sql`${now}`,
    version: sql`(file ->> '$.version') + 1`,
    updated_at: sql`${now}`,
  });

interface Restored {
  id: string;
  code: "not_found" | "not_in_trash" | null;
  file: StoredFile | undefined;
}

/** Restores each file that is in the trash, in one transaction. @returns a result for each id, in their order */
export async function restoreFiles(deps: Deps, actor: TeamActor, ids: string[]): Promise<Restored[]> {
  const { db } = deps;
  const isInTrash = and(removedOf(actor), isOneOf(removed.id, ids), isTrashed);
  const restoring = sql`select ${restoredColumns(deps.system.now())} from ${removed} where ${isInTrash}`;
  const source = sql`(${restoring}) ${files}`;
  const batch = {
    restore: recordedFiles(
      deps,
      { type: FILE_EVENTS.restored, initiator: actor, teamId: actor.teamId, source },
      db.insert(files).select(restoring).returning({ id: files.id }),
    ),
    removed: db.delete(removed).where(isInTrash),
    listed: db
      .select({ ...LISTED_COLUMNS, isBulk: hasBacklog(actor.teamId).as("isBulk") })
      .from(files)
      .where(and(filesOf(actor), isOneOf(files.id, ids))),
    left: placesOf(deps, actor, ids).left,
  };
  // After a lost response, a repetition would find no file in the trash.
  const { restore, listed, left } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
  });
  const isRestored = new Set(restore.change.map(({ id }) => id));
  const rows = new Map(listed.map((row) => [row.id, row]));
  enqueuePending(
    deps,
    listed.filter(({ id }) => isRestored.has(id)),
  );
  const existing = new Set([...rows.keys(), ...left.flatMap(({ id, trashedAt }) => (trashedAt === null ? [] : id))]);
  return ids.map((id) => {
    const row = rows.get(id);
    if (!row || !isRestored.has(id)) {
      return { id, code: existing.has(id) ? "not_in_trash" : "not_found", file: undefined };
    }
    const { isBulk, ...listed } = row;
    return { id, code: null, file: toStoredFile(deps, listed) };
  });
}

/** @throws `not_found`, `not_in_trash` */
export async function restoreFile(deps: Deps, actor: TeamActor, id: string): Promise<StoredFile> {
  const [result] = await restoreFiles(deps, actor, [id]);
  if (result?.file) return result.file;
  throw new AppError(result?.code === "not_in_trash" ? notInTrash : "not_found");
}
