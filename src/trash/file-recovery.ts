import { and, asc, eq, lte, not, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { SYSTEM, writeWithEvents } from "../events/events.ts";
import { isOfUpload } from "../files/ending.ts";
import { fileEvents } from "../files/file-events.ts";
import { files, isAwaitingStep, teamOfFile } from "../files/files.schema.ts";
import { type FileRow, MAX_PENDING_MILLISECONDS, MAX_PROMPT_FILES, sendFiles, trashedFiles } from "../files/files.ts";
import { type FileKey, fileKey, objectKeys } from "../files/names.ts";
import { read, write } from "../platform/db.ts";
import { type Batch, newStep, type RecoveryStep } from "../platform/recovery-step.ts";
import { MINUTE } from "../platform/system.ts";
import { ERASABLE_COLUMNS, erase, leave, MAX_DELETED_FILES, removeRows } from "./deletion.ts";
import { DELETED_TEAMS } from "./expiry.ts";
import { isErasable, isTrashed, removed, teamOfRemoved } from "./trash.schema.ts";

/*
 * How the recovery job continues the files whose `due_at` has passed. `due_at` changes in the statement that selects the
 * rows, so an interrupted run is repeated by a later one.
 */

/** Rows of one batch. */
const BATCH_ROWS = 500;
const MAX_RESEND_MILLISECONDS = 15 * MINUTE;

type Change = Parameters<ReturnType<Deps["db"]["update"]>["set"]>[0];

/** Up to `BATCH_ROWS` files in a state that have been overdue longest. */
function overdue(deps: Deps, status: FileRow["status"]) {
  const now = deps.system.now();
  const hasExpired = status === "processing" ? lte(files.leaseEndsAt, now) : undefined;
  const isInState = and(eq(files.status, status), hasExpired, isAwaitingStep);
  const due = deps.db
    .select({ teamId: teamOfFile, id: files.id })
    .from(files)
    .where(and(isInState, lte(files.dueAt, now)))
    .orderBy(asc(files.dueAt))
    .limit(BATCH_ROWS);
  return and(sql`${fileKey} in ${due}`, isInState);
}

async function updateOverdue(deps: Deps, status: FileRow["status"], change: Change) {
  const key = { teamId: teamOfFile, id: files.id };
  const update = deps.db.update(files).set(change).where(overdue(deps, status)).returning(key);
  const [rows] = await write(deps, [update], { isIdempotent: true });
  return rows;
}

/** If sending fails, a later run sends the messages. @returns how many */
async function resend(deps: Deps, rows: FileKey[]): Promise<number> {
  // To count the team's other unprocessed files, too, would read 21 rows for each message.
  const ofTeams = [...Map.groupBy(rows, ({ teamId }) => teamId).values()];
  for (const isBulk of [false, true]) {
    const sent = ofTeams.filter((ofTeam) => ofTeam.length > MAX_PROMPT_FILES === isBulk).flat();
    if (sent.length > 0) await sendFiles(deps, sent, isBulk);
  }
  return rows.length;
}

/**
 * Sends pending files again. Changes only the time of the next resend. The delay doubles up to 15 minutes, because the
 * message may only be waiting behind others, and resending must not make a long queue longer.
 */
async function resendPending(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const waited = sql`${now} - ${files.updatedAt}`;
  const delay = sql`min(max(${MAX_PENDING_MILLISECONDS}, ${waited}), ${MAX_RESEND_MILLISECONDS})`;
  return resend(deps, await updateOverdue(deps, "pending", { dueAt: sql`${now} + ${delay}` }));
}

/** Returns files whose lease has expired to `pending`, and sends them. */
async function resendAbandoned(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const rows = await updateOverdue(deps, "processing", {
    status: "pending",
    leaseEndsAt: null,
    dueAt: now + MAX_PENDING_MILLISECONDS,
    updatedAt: now,
    version: sql`${files.version} + 1`,
  });
  return resend(deps, rows);
}

/** Ends uploads whose Worker has died. @returns how many */
async function endAbandoned(deps: Deps): Promise<number> {
  const leaving = leave(deps, overdue(deps, "receiving"), { dueAt: deps.system.now() });
  const [, { meta }] = await write(deps, leaving, { isIdempotent: true });
  return meta.changes;
}

/**
 * Deletes the bytes of removed files that are due, and then their rows, so that no object is ever without a row. Those of the
 * trash are first taken out of it, each with its event, and are due then. A run that is interrupted changes no `due_at`, and
 * deletes first, so it also works in a full database.
 */
async function eraseRemoved(deps: Deps): Promise<Batch> {
  const isDue = and(isErasable, lte(removed.dueAt, deps.system.now()));
  const due = deps.db
    .select(ERASABLE_COLUMNS)
    .from(removed)
    // A file whose upload is not erased yet waits for that.
    .where(and(isDue, not(isOfUpload)))
    .orderBy(asc(removed.dueAt))
    .limit(BATCH_ROWS);
  const [rows] = await read(deps, [due]);
  const waiting = rows.filter(({ trashedAt }) => trashedAt === null);
  await deps.bytes.remove(waiting.flatMap(objectKeys));
  await removeRows(deps, waiting);
  const trashed = rows.filter(({ trashedAt }) => trashedAt !== null).slice(0, MAX_DELETED_FILES);
  const ofTeams = [...Map.groupBy(trashed, ({ teamId }) => teamId)].slice(0, DELETED_TEAMS);
  const changes = ofTeams.map(([teamId, ofTeam]) => {
    const ids = JSON.stringify(ofTeam.map(({ id }) => id));
    const isNext = and(eq(teamOfRemoved, teamId), sql`${removed.id} in (select value from json_each(${ids}))`, isDue);
    const source = trashedFiles(sql`${removed} where ${and(isNext, isTrashed)}`);
    return {
      event: fileEvents(deps, "file.deleted", SYSTEM, teamId, undefined, source),
      queries: [erase(deps, isNext, deps.system.now())],
    };
  });
  if (changes.length > 0) await writeWithEvents(deps, changes, [], { isIdempotent: true });
  return { rows: waiting.length, isLast: rows.length === 0 };
}

export const FILE_STEPS: RecoveryStep<"sent" | "uploadsExpired" | "filesDeleted">[] = [
  newStep("send_pending", "sent", BATCH_ROWS, resendPending, { isUrgent: true }),
  newStep("send_abandoned", "sent", BATCH_ROWS, resendAbandoned, { isUrgent: true }),
  newStep("abandoned", "uploadsExpired", BATCH_ROWS, endAbandoned),
  { name: "removed", count: "filesDeleted", isUrgent: false, start: (deps) => () => eraseRemoved(deps) },
];
