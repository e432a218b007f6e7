import { and, asc, eq, isNotNull, lte, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { columnsFrom, type Param, preparedQuery, write } from "../platform/db.ts";
import { files } from "../platform/schema.ts";
import { MINUTE } from "../platform/system.ts";
import { reencryptTokens, removeExpiredKeys, removeExpiredSessions } from "./accounts/key-recovery.ts";
import { type Batch, purgeDeliveries, purgeEvents } from "./events/purge.ts";
import { reencryptSecrets } from "./events/signing.ts";
import { WAKING_COST, wakeOverdueWebhooks } from "./events/waking.ts";
import { ERASABLE_COLUMNS, hidden, MAX_DELETING_MILLISECONDS, removeRows } from "./files/deletion.ts";
import { changed, type FileRow, MAX_PENDING_MILLISECONDS } from "./files/files.ts";
import { EXPIRED_LINK_ROWS, purgeLinks } from "./files/links.ts";
import { fileKey, objectKeys } from "./files/names.ts";
import { hasExpiredLease } from "./files/processing.ts";
import {
  CALLS_PER_LEFTOVER,
  deleteFinishedUploads,
  deleteLeftovers,
  enqueueAssemblies,
  expireUploads,
  FINISHED_ROWS,
  LEFTOVER_ROWS,
  UPLOAD_ROWS,
} from "./files/upload-recovery.ts";
import { type Cost, RUN_LIMITS, RunBudget } from "./run-budget.ts";
import { DELETION_COST, deleteRowsOfDeletedTeams, HIDING_COST, hideFilesOfDeletedTeams } from "./team-deletion.ts";

/** Rows of one batch of a step. */
const BATCH_ROWS = 500;
/** A queue takes 100 messages in a call. */
const SEND_CALLS = BATCH_ROWS / 100;
/**
 * R2 deletes 1,000 objects in a call. Files of 500 MB, the largest body on any Cloudflare plan (100 MB on Free and
 * Pro), have up to 100 parts each.
 */
const DELETE_CALLS = 50;
/** Each row is one query. */
const REENCRYPT_ROWS = 200;
const MAX_RESEND_MILLISECONDS = 15 * MINUTE;
/** Urgent steps leave the rest of the budget to clean-up, so a backlog of them never lets the database fill up. */
const URGENT_SHARE = 0.5;

const NOTHING_RECOVERED = {
  /** Files sent to the queue again: their message was lost, or their worker's lease expired. */
  sent: 0,
  /** Complete uploads that a consumer was asked to assemble. */
  assemblies: 0,
  /** Webhooks with overdue deliveries, for each of which one message was sent. */
  webhooks: 0,
  /** Incomplete uploads that expired. */
  uploadsExpired: 0,
  /** Finished uploads that are no longer remembered for late clients. */
  uploadsRemoved: 0,
  /** Files of deleted teams. Later steps delete their bytes. */
  teamFilesHidden: 0,
  /** Deleted teams that have nothing left. */
  teamsDeleted: 0,
  /** Files whose bytes and row were deleted. */
  filesDeleted: 0,
  /** Expired sessions. */
  sessionsRemoved: 0,
  /** API keys that expired 30 days ago. */
  keysRemoved: 0,
  /** Expired links. */
  linksRemoved: 0,
  /** Events and deliveries. */
  purged: 0,
  /** Tokens and webhook secrets encrypted under the current master key. */
  reencrypted: 0,
};
export type Recovered = typeof NOTHING_RECOVERED;

interface Step {
  name: string;
  count: keyof Recovered;
  /** The most that a batch uses. */
  cost: Cost;
  runBatch(): Promise<Batch>;
}

/** Creates a step whose last batch is the first with fewer than `limit` rows. */
const newStep = (
  name: string,
  count: keyof Recovered,
  limit: number,
  cost: Cost,
  runBatch: () => Promise<number>,
): Step => ({
  name,
  count,
  cost,
  runBatch: async () => {
    const rows = await runBatch();
    return { rows, isLast: rows < limit };
  },
});

/** Work that users wait for. */
function urgentSteps(deps: Deps): Step[] {
  const send = { queries: 1, calls: SEND_CALLS, rows: BATCH_ROWS };
  return [
    newStep("send_pending", "sent", BATCH_ROWS, send, () => enqueueOverdue(deps, resendPending)),
    newStep("send_abandoned", "sent", BATCH_ROWS, send, () => enqueueOverdue(deps, releaseAbandoned)),
    newStep("assemblies", "assemblies", UPLOAD_ROWS, send, () => enqueueAssemblies(deps)),
    newStep("webhooks", "webhooks", Infinity, WAKING_COST, () => wakeOverdueWebhooks(deps)),
  ];
}

function cleanUpSteps(deps: Deps): Step[] {
  const deletion = { queries: 2, calls: DELETE_CALLS, rows: BATCH_ROWS };
  const leftovers = { queries: 3, calls: LEFTOVER_ROWS * CALLS_PER_LEFTOVER, rows: LEFTOVER_ROWS };
  const purge = { queries: 2 };
  const keys = deps.secrets.olderKeyIds.length;
  const reencrypt = { queries: keys + REENCRYPT_ROWS, rows: keys * REENCRYPT_ROWS };
  return [
    newStep("team_files", "teamFilesHidden", 1, HIDING_COST, () => hideFilesOfDeletedTeams(deps)),
    newStep("expired_uploads", "uploadsExpired", UPLOAD_ROWS, { queries: 2 }, () => expireUploads(deps)),
    newStep("finished_uploads", "uploadsRemoved", FINISHED_ROWS, { queries: 1 }, () => deleteFinishedUploads(deps)),
    newStep("leftovers", "uploadsRemoved", LEFTOVER_ROWS, leftovers, () => deleteLeftovers(deps)),
    newStep("delete_abandoned", "filesDeleted", BATCH_ROWS, deletion, () => deleteOverdue(deps, hideAbandoned)),
    newStep("delete_hidden", "filesDeleted", BATCH_ROWS, deletion, () => deleteOverdue(deps, retryDeleting)),
    { name: "team_rows", count: "teamsDeleted", cost: DELETION_COST, runBatch: () => deleteRowsOfDeletedTeams(deps) },
    newStep("sessions", "sessionsRemoved", BATCH_ROWS, { queries: 1 }, () => removeExpiredSessions(deps, BATCH_ROWS)),
    newStep("keys", "keysRemoved", BATCH_ROWS, { queries: 1 }, () => removeExpiredKeys(deps, BATCH_ROWS)),
    newStep("links", "linksRemoved", EXPIRED_LINK_ROWS, { queries: 1 }, () => purgeLinks(deps)),
    { name: "events", count: "purged", cost: purge, runBatch: purgeEvents(deps) },
    { name: "deliveries_purge", count: "purged", cost: purge, runBatch: purgeDeliveries(deps) },
    newStep("tokens", "reencrypted", Infinity, reencrypt, () => reencryptTokens(deps, REENCRYPT_ROWS)),
    newStep("secrets", "reencrypted", Infinity, reencrypt, () => reencryptSecrets(deps, REENCRYPT_ROWS)),
  ];
}

/**
 * Finishes interrupted work, from a cron trigger. Every step is idempotent and may itself stop at any point: a row's
 * `due_at` changes only in the statement that selects the row, so the next run finds whatever is not done.
 * The steps take turns, one batch each, until nothing is left or the budget of the run is used. A step that fails is
 * logged and does not stop the others.
 */
export async function recover(deps: Deps, limits = RUN_LIMITS): Promise<Recovered> {
  const budget = new RunBudget(deps.system, limits);
  const counts = { ...NOTHING_RECOVERED };
  /** Returns whether the step may have more to do. */
  const runNextBatch = async ({ name, count, cost, runBatch }: Step, share: number): Promise<boolean> => {
    if (!budget.spend(cost, share)) return false;
    try {
      const { rows, isLast } = await runBatch();
      counts[count] += rows;
      return !isLast;
    } catch (cause) {
      deps.log("error", "recovery_step_failed", { outcome: name, cause });
      return false;
    }
  };
  const runInTurns = async (steps: Step[], share: number) => {
    for (let unfinished = steps; unfinished.length > 0; ) {
      const next: Step[] = [];
      for (const step of unfinished) if (await runNextBatch(step, share)) next.push(step);
      unfinished = next;
    }
  };
  await runInTurns(urgentSteps(deps), URGENT_SHARE);
  await runInTurns(cleanUpSteps(deps), 1);
  deps.log("info", "recovery_finished", { counts });
  return counts;
}

/** `updatedAt` is the time of the run. */
type OverdueValues = { updatedAt: number; dueAt: number };

/** Changes the files in a state that have been overdue longest. */
function overdueFiles(state: FileRow["status"], change: (param: Param<OverdueValues>) => Record<string, unknown>) {
  return preparedQuery((db, param: Param<OverdueValues>) => {
    const isInState = and(eq(files.status, state), state === "processing" ? hasExpiredLease(param) : undefined);
    const due = db
      .select({ teamId: files.teamId, id: files.id })
      .from(files)
      .where(and(isInState, isNotNull(files.dueAt), lte(files.dueAt, param("updatedAt"))))
      .orderBy(asc(files.dueAt))
      .limit(BATCH_ROWS);
    return db
      .update(files)
      .set(change(param))
      .where(and(sql`${fileKey} in ${due}`, isInState))
      .returning({ ...ERASABLE_COLUMNS, reservedBytes: files.reservedBytes });
  });
}

/**
 * Changes only the time of the next resend. The delay doubles up to 15 minutes, because the message may only be waiting
 * behind others, and resending must not make a long queue longer.
 */
const resendPending = overdueFiles("pending", (param) => {
  const waited = sql`${param("updatedAt")} - ${files.updatedAt}`;
  return {
    dueAt: sql`${param("updatedAt")} + min(max(${MAX_PENDING_MILLISECONDS}, ${waited}), ${MAX_RESEND_MILLISECONDS})`,
  };
});
/** Returns files whose lease has expired to `pending`. */
const releaseAbandoned = overdueFiles("processing", (param) => ({
  status: "pending",
  leaseEndsAt: null,
  ...columnsFrom(param, "dueAt"),
  ...changed(param),
}));
const hide = (param: Param<OverdueValues>) => hidden(sql`${param("dueAt")}`);
const hideAbandoned = overdueFiles("receiving", hide);
const retryDeleting = overdueFiles("deleting", hide);

/** The files are overdue again after `milliseconds`, unless the next step succeeds. */
async function updateOverdue(deps: Deps, update: typeof resendPending, milliseconds: number) {
  const now = deps.system.now();
  const [rows] = await write(deps, [update({ updatedAt: now, dueAt: now + milliseconds })], { isIdempotent: true });
  return rows;
}

/** If sending fails, a later run sends the messages. */
async function enqueueOverdue(deps: Deps, update: typeof resendPending): Promise<number> {
  const rows = await updateOverdue(deps, update, MAX_PENDING_MILLISECONDS);
  await deps.jobs.sendAll(rows.map(({ teamId, id: fileId }) => ({ teamId, fileId })));
  return rows.length;
}

/** Hides the files, then deletes the bytes, then the rows, so that no object is ever without a row. */
async function deleteOverdue(deps: Deps, update: typeof resendPending): Promise<number> {
  const rows = await updateOverdue(deps, update, MAX_DELETING_MILLISECONDS);
  await deps.bytes.remove(rows.flatMap(objectKeys));
  await removeRows(
    deps,
    rows.map(({ teamId, id }) => ({ teamId, id })),
  );
  return rows.length;
}
