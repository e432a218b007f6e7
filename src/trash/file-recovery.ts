import { and, asc, eq, lte, not, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { hasUpload } from "../files/ending.ts";
import { files, isAwaitingStep, teamOfFile } from "../files/files.schema.ts";
import { type FileRow, MAX_PENDING_MILLISECONDS, MAX_PROMPT_FILES, sendFiles } from "../files/files.ts";
import { type FileKey, fileKey, objectKeys } from "../files/names.ts";
import { read, write } from "../platform/db.ts";
import { newStep } from "../platform/recovery-step.ts";
import { isStorageFull } from "../platform/retry.ts";
import { MINUTE } from "../platform/system.ts";
import { ERASABLE_COLUMNS, hidden, MAX_DELETING_MILLISECONDS, removeRows } from "./deletion.ts";

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
  // A hidden file whose upload is not erased yet waits for that. One in the trash is first deleted with an event.
  const isErasable = status === "deleting" ? not(hasUpload) : undefined;
  const isInState = and(eq(files.status, status), hasExpired, isErasable, isAwaitingStep);
  const due = deps.db
    .select({ teamId: teamOfFile, id: files.id })
    .from(files)
    .where(and(isInState, lte(files.dueAt, now)))
    .orderBy(asc(files.dueAt))
    .limit(BATCH_ROWS);
  return and(sql`${fileKey} in ${due}`, isInState);
}

const COLUMNS = { ...ERASABLE_COLUMNS, reservedBytes: files.reservedBytes };

async function updateOverdue(deps: Deps, status: FileRow["status"], change: Change) {
  const update = deps.db.update(files).set(change).where(overdue(deps, status)).returning(COLUMNS);
  const [rows] = await write(deps, [update], { isIdempotent: true });
  return rows;
}

/** Reads hidden files whose deletion a full database can't postpone. Their rows are deleted next, which frees space. */
async function readHidden(deps: Deps, error: unknown) {
  if (!isStorageFull(error)) throw error;
  const [rows] = await read(deps, [deps.db.select(COLUMNS).from(files).where(overdue(deps, "deleting"))]);
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

/** Hides the files, then deletes the bytes, then the rows, so that no object is ever without a row. */
async function eraseOverdue(deps: Deps, status: "receiving" | "deleting"): Promise<number> {
  const hide = updateOverdue(deps, status, hidden(deps.system.now() + MAX_DELETING_MILLISECONDS));
  const rows = await (status === "deleting" ? hide.catch((error) => readHidden(deps, error)) : hide);
  await deps.bytes.remove(rows.flatMap(objectKeys));
  await removeRows(deps, rows);
  return rows.length;
}

export const FILE_STEPS = [
  newStep("send_pending", "sent", BATCH_ROWS, resendPending, { isUrgent: true }),
  newStep("send_abandoned", "sent", BATCH_ROWS, resendAbandoned, { isUrgent: true }),
  newStep("delete_abandoned", "filesDeleted", BATCH_ROWS, (deps) => eraseOverdue(deps, "receiving")),
  newStep("delete_hidden", "filesDeleted", BATCH_ROWS, (deps) => eraseOverdue(deps, "deleting")),
];
