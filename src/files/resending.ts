import { and, asc, lte, type SQL, sql } from "drizzle-orm";
import type { Deps, RecoveryStep } from "../deps.ts";
import { write } from "../platform/db.ts";
import { MINUTE } from "../platform/system.ts";
import { files, isAwaitingStep, teamOfFile } from "./files.schema.ts";
import { MAX_PENDING_MILLISECONDS, MAX_PROMPT_FILES, sendFiles } from "./files.ts";
import { fileKey } from "./names.ts";

/*
 * How the recovery job continues unprocessed files whose `due_at` has passed. `due_at` changes in the statement that selects the
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
async function resend(deps: Deps) {
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
  const rows = await write(deps, update, { isIdempotent: true, caller: null });
  // To count the team's other unprocessed files, too, would read 21 rows for each message.
  const ofTeams = [...Map.groupBy(rows, ({ teamId }) => teamId).values()];
  for (const isBulk of [false, true]) {
    const sent = ofTeams.filter((ofTeam) => ofTeam.length > MAX_PROMPT_FILES === isBulk).flat();
    if (sent.length > 0) await sendFiles(deps, sent, isBulk);
  }
  return { sent: rows.length };
}

export const unprocessedFiles: RecoveryStep = {
  name: "files",
  counts: ["sent"],
  runBatch: resend,
  maxBatches: 20,
  queries: 1,
};
