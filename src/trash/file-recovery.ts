import { and, asc, eq, lte, type SQL, sql } from "drizzle-orm";
import type { Deps, RecoveryStep } from "../deps.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import { MAX_LATE_WRITE_MILLISECONDS } from "../files/ending.ts";
import { FILE_EVENTS } from "../files/file-event-types.ts";
import { fileEvents } from "../files/file-events.ts";
import { files, isAwaitingStep, teamOfFile } from "../files/files.schema.ts";
import { MAX_PENDING_MILLISECONDS, MAX_PROMPT_FILES, sendFiles, trashedFiles } from "../files/files.ts";
import { resendMeasurements } from "../files/measuring.ts";
import { type FileKey, fileKey, isOneOfKeys, storedKeys } from "../files/names.ts";
import { isOneOf, read, write } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import { ERASABLE_COLUMNS, erase, isWritingBeside, MAX_DELETED_FILES, removedKey, removeRows } from "./deletion.ts";
import { DELETED_TEAMS } from "./expiry.ts";
import { isErasable, isTrashed, removed, teamOfRemoved } from "./trash.schema.ts";

/*
 * How the recovery job continues the files whose `due_at` has passed. `due_at` changes in the statement that selects the
 * rows, so an interrupted run is repeated by a later one.
 */

/** Rows of one batch. */
const BATCH_ROWS = 500;
const MAX_RESEND_MILLISECONDS = 15 * MINUTE;

/** Up to `BATCH_ROWS` files in a state that have been overdue longest. */
function overdue(deps: Deps, state: SQL) {
  const isInState = and(state, isAwaitingStep);
  const due = deps.db
    .select({ teamId: teamOfFile, id: files.id })
    .from(files)
    .where(and(isInState, lte(files.dueAt, deps.system.now())))
    .orderBy(asc(files.dueAt))
    .limit(BATCH_ROWS);
  return and(sql`${fileKey} in ${due}`, isInState);
}

/**
 * Sends files again whose message was lost, and those whose lease has expired, which become `pending`. A pending file changes
 * only the time of its next resend: that delay doubles up to 15 minutes, because the message may only be waiting behind others,
 * and resending must not make a long queue longer. If sending fails, a later run sends the messages. @returns how many
 */
async function resend(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const isAbandoned = sql`${files.status} = 'processing' and ${files.leaseEndsAt} <= ${now}`;
  const isProcessing = sql`${files.status} = 'processing'`;
  const waited = sql`iif(${isProcessing}, 0, ${now} - ${files.updatedAt})`;
  const delay = sql`min(max(${MAX_PENDING_MILLISECONDS}, ${waited}), ${MAX_RESEND_MILLISECONDS})`;
  const update = deps.db
    .update(files)
    .set({
      status: "pending",
      leaseEndsAt: null,
      dueAt: sql`${now} + ${delay}`,
      updatedAt: sql`iif(${isProcessing}, ${now}, ${files.updatedAt})`,
      version: sql`${files.version} + (${isProcessing})`,
    })
    .where(overdue(deps, sql`(${files.status} = 'pending' or ${isAbandoned})`))
    .returning({ teamId: teamOfFile, id: files.id });
  const [rows] = await write(deps, [update], { isIdempotent: true, caller: null });
  // To count the team's other unprocessed files, too, would read 21 rows for each message.
  const ofTeams = [...Map.groupBy(rows, ({ teamId }) => teamId).values()];
  for (const isBulk of [false, true]) {
    const sent = ofTeams.filter((ofTeam) => ofTeam.length > MAX_PROMPT_FILES === isBulk).flat();
    if (sent.length > 0) await sendFiles(deps, sent, isBulk);
  }
  return rows.length;
}

/** Continues files that are due, and sends again what lost its message. */
const continueFiles = async (deps: Deps) => ({
  sent: await resend(deps),
  waveforms: await resendMeasurements(deps),
});

async function postpone(deps: Deps, keys: FileKey[]): Promise<void> {
  if (keys.length === 0) return;
  const dueAt = deps.system.now() + MAX_LATE_WRITE_MILLISECONDS;
  const later = deps.db.update(removed).set({ dueAt }).where(isOneOfKeys(removedKey, keys));
  await write(deps, [later], { isIdempotent: true, caller: null });
}

/**
 * Deletes the bytes of removed files that are due, and then their rows, so that no object is ever without a row. If R2 may still
 * store a waveform or a transcript, the row stays until the bytes are deleted once more. Those of the trash are first taken out of
 * it, each with its event, and are due then. A run that is interrupted deletes again, and an erasure deletes first, so it also works
 * in a full database.
 */
async function eraseRemoved(deps: Deps) {
  const isDue = and(isErasable, lte(removed.dueAt, deps.system.now()));
  const due = deps.db.select(ERASABLE_COLUMNS).from(removed).where(isDue).orderBy(asc(removed.dueAt)).limit(BATCH_ROWS);
  const [rows] = await read(deps, [due]);
  const waiting = rows.filter(({ trashedAt }) => trashedAt === null);
  await deps.bytes.remove(waiting.flatMap(storedKeys));
  const written = waiting.filter((row) => isWritingBeside(deps, row));
  const gone = waiting.filter((row) => !written.includes(row));
  await removeRows(deps, gone);
  await postpone(deps, written);
  const trashed = rows.filter(({ trashedAt }) => trashedAt !== null).slice(0, MAX_DELETED_FILES);
  const ofTeams = [...Map.groupBy(trashed, ({ teamId }) => teamId)].slice(0, DELETED_TEAMS);
  const changes = ofTeams.map(([teamId, ofTeam]) => {
    const ids = ofTeam.map(({ id }) => id);
    const isNext = and(eq(teamOfRemoved, teamId), isOneOf(removed.id, ids), isDue);
    const source = trashedFiles(sql`${removed} where ${and(isNext, isTrashed)}`);
    return {
      event: fileEvents(deps, FILE_EVENTS.deleted, SYSTEM, teamId, undefined, source),
      erase: erase(deps, isNext, deps.system.now()),
    };
  });
  if (changes.length === 0) return { filesDeleted: gone.length };
  const erased = await writeWithEvent(deps, changes, { isIdempotent: true, caller: null });
  return {
    filesDeleted: gone.length,
    trashEmptied: erased.reduce((count, { erase: { meta } }) => count + meta.changes, 0),
  };
}

export const unprocessed: RecoveryStep = {
  name: "files",
  counts: ["sent", "waveforms"],
  runBatch: continueFiles,
  maxBatches: 20,
  queries: 2,
};

export const erasure: RecoveryStep = {
  name: "removed",
  counts: ["filesDeleted"],
  runBatch: eraseRemoved,
  maxBatches: 8,
  queries: 15,
};
