import { and, asc, eq, lte, sql } from "drizzle-orm";
import type { Deps, RecoveryStep } from "../deps.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import { isOneOf, read, write } from "../platform/db.ts";
import { storedKeys } from "./beside.ts";
import {
  DELETED_TEAMS,
  ERASABLE_COLUMNS,
  erase,
  isWritten,
  MAX_DELETED_FILES,
  removedKey,
  removeRows,
} from "./deletion.ts";
import { MAX_LATE_WRITE_MILLISECONDS } from "./ending.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFiles } from "./file-events.ts";
import { trashedFiles } from "./files.ts";
import { type FileKey, isOneOfKeys } from "./names.ts";
import { isErasable, isTrashed, removed, teamOfRemoved } from "./removed.schema.ts";

/* How the recovery job erases removed files whose `due_at` has passed. */

/** Rows of one batch. */
const BATCH_ROWS = 500;

async function postpone(deps: Deps, keys: FileKey[]): Promise<void> {
  if (keys.length === 0) return;
  const dueAt = deps.system.now() + MAX_LATE_WRITE_MILLISECONDS;
  const later = deps.db.update(removed).set({ dueAt }).where(isOneOfKeys(removedKey, keys));
  await write(deps, later, { isIdempotent: true, caller: null });
}

/**
 * Deletes the bytes of removed files that are due, and then their rows, so that no object is ever without a row. If R2 may still
 * store an object beside the bytes, the row stays until it no longer may, and the bytes are deleted once more. Those of the trash are first taken out of
 * it, each with its event, and are due then. A run that is interrupted deletes again, and an erasure deletes first, so it also works
 * in a full database.
 */
async function eraseRemoved(deps: Deps) {
  const isDue = and(isErasable, lte(removed.dueAt, deps.system.now()));
  const due = deps.db.select(ERASABLE_COLUMNS).from(removed).where(isDue).orderBy(asc(removed.dueAt)).limit(BATCH_ROWS);
  const rows = await read(deps, due);
  const waiting = rows.filter(({ trashedAt }) => trashedAt === null);
  await deps.bytes.remove(waiting.flatMap(storedKeys));
  const written = waiting.filter(isWritten);
  await removeRows(deps, waiting);
  await postpone(deps, written);
  const filesDeleted = waiting.length - written.length;
  const trashed = rows.filter(({ trashedAt }) => trashedAt !== null).slice(0, MAX_DELETED_FILES);
  const ofTeams = [...Map.groupBy(trashed, ({ teamId }) => teamId)].slice(0, DELETED_TEAMS);
  const changes = ofTeams.map(([teamId, ofTeam]) => {
    const ids = ofTeam.map(({ id }) => id);
    const isNext = and(eq(teamOfRemoved, teamId), isOneOf(removed.id, ids), isDue);
    const source = trashedFiles(sql`${removed} where ${and(isNext, isTrashed)}`);
    const what = { type: FILE_EVENTS.deleted, initiator: SYSTEM, teamId, source };
    return recordedFiles(deps, what, erase(deps, isNext, deps.system.now()));
  });
  if (changes.length === 0) return { filesDeleted };
  const { erased } = await writeWithEvent(deps, { erased: changes }, { isIdempotent: true, caller: null });
  return {
    filesDeleted,
    trashEmptied: erased.reduce((count, { change: { meta } }) => count + meta.changes, 0),
  };
}

export const removedFiles: RecoveryStep = {
  name: "removed",
  counts: ["filesDeleted", "trashEmptied"],
  runBatch: eraseRemoved,
  maxBatches: 8,
  queries: 15,
};
