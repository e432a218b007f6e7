import { and, asc, eq, isNotNull, lte, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { given, type Param, preparedQuery, write } from "../platform/db.ts";
import { files } from "../platform/schema.ts";
import { reencryptTokens, removeExpiredKeys, removeExpiredLogins } from "./accounts/keys.ts";
import { type Batch, purgeDeliveries, purgeEvents } from "./events/purge.ts";
import { reencryptSecrets } from "./events/signing.ts";
import { WAKING_COST, wakeOverdueWebhooks } from "./events/waking.ts";
import {
  changed,
  type FileRow,
  MAX_DELETING_MILLISECONDS,
  MAX_PENDING_MILLISECONDS,
  removeRows,
} from "./files/files.ts";
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

/** Rows of one batch of a step. */
const BATCH_ROWS = 500;
/** A queue takes 100 messages in a call. */
const SEND_CALLS = BATCH_ROWS / 100;
/** R2 deletes 1,000 objects in a call. Files of 500 MB, the largest body that Cloudflare accepts, have up to 100 parts each. */
const ERASE_CALLS = 50;
/** Each row is one query. */
const REENCRYPT_ROWS = 200;
const MAX_RESEND_MILLISECONDS = 15 * 60 * 1000;
/** Urgent steps leave the rest of the budget to clean-up, so that no backlog of theirs lets the database fill up. */
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
  /** Files whose deletion was completed. */
  erased: 0,
  /** Expired session keys. */
  loginsRemoved: 0,
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
  /** What a batch uses at most. */
  cost: Cost;
  batch(): Promise<Batch>;
}

/** A step whose batches have `limit` rows until the last one. */
const stepOf = (
  name: string,
  count: keyof Recovered,
  limit: number,
  cost: Cost,
  take: () => Promise<number>,
): Step => ({
  name,
  count,
  cost,
  batch: async () => {
    const rows = await take();
    return { rows, isLast: rows < limit };
  },
});

/** Work that somebody waits for. */
function urgentSteps(deps: Deps): Step[] {
  const send = { queries: 1, calls: SEND_CALLS, rows: BATCH_ROWS };
  return [
    stepOf("send_pending", "sent", BATCH_ROWS, send, () => sendOverdue(deps, resendPending)),
    stepOf("send_abandoned", "sent", BATCH_ROWS, send, () => sendOverdue(deps, releaseAbandoned)),
    stepOf("assemblies", "assemblies", UPLOAD_ROWS, send, () => enqueueAssemblies(deps)),
    stepOf("webhooks", "webhooks", Infinity, WAKING_COST, () => wakeOverdueWebhooks(deps)),
  ];
}

function cleanUpSteps(deps: Deps): Step[] {
  const erase = { queries: 2, calls: ERASE_CALLS, rows: BATCH_ROWS };
  const leftovers = { queries: 3, calls: LEFTOVER_ROWS * CALLS_PER_LEFTOVER, rows: LEFTOVER_ROWS };
  const purge = { queries: 2 };
  const keys = deps.secrets.olderKeyIds.length;
  const reencrypt = { queries: keys * (1 + REENCRYPT_ROWS), rows: keys * REENCRYPT_ROWS };
  return [
    stepOf("expired_uploads", "uploadsExpired", UPLOAD_ROWS, { queries: 2 }, () => expireUploads(deps)),
    stepOf("finished_uploads", "uploadsRemoved", FINISHED_ROWS, { queries: 1 }, () => deleteFinishedUploads(deps)),
    stepOf("leftovers", "uploadsRemoved", LEFTOVER_ROWS, leftovers, () => deleteLeftovers(deps)),
    stepOf("erase_abandoned", "erased", BATCH_ROWS, erase, () => eraseOverdue(deps, hideAbandoned)),
    stepOf("erase_deleting", "erased", BATCH_ROWS, erase, () => eraseOverdue(deps, retryDeleting)),
    stepOf("logins", "loginsRemoved", BATCH_ROWS, { queries: 1 }, () => removeExpiredLogins(deps, BATCH_ROWS)),
    stepOf("keys", "keysRemoved", BATCH_ROWS, { queries: 1 }, () => removeExpiredKeys(deps, BATCH_ROWS)),
    stepOf("links", "linksRemoved", EXPIRED_LINK_ROWS, { queries: 1 }, () => purgeLinks(deps)),
    { name: "events", count: "purged", cost: purge, batch: purgeEvents(deps) },
    { name: "deliveries_purge", count: "purged", cost: purge, batch: purgeDeliveries(deps) },
    stepOf("tokens", "reencrypted", Infinity, reencrypt, () => reencryptTokens(deps, REENCRYPT_ROWS)),
    stepOf("secrets", "reencrypted", Infinity, reencrypt, () => reencryptSecrets(deps, REENCRYPT_ROWS)),
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
  const hasMore = async ({ name, count, cost, batch }: Step, share: number): Promise<boolean> => {
    if (!budget.take(cost, share)) return false;
    try {
      const { rows, isLast } = await batch();
      counts[count] += rows;
      return !isLast;
    } catch (cause) {
      deps.log("error", "recovery_step_failed", { outcome: name, cause });
      return false;
    }
  };
  const takeTurns = async (steps: Step[], share: number) => {
    for (let open = steps; open.length > 0; ) {
      const next: Step[] = [];
      for (const step of open) if (await hasMore(step, share)) next.push(step);
      open = next;
    }
  };
  await takeTurns(urgentSteps(deps), URGENT_SHARE);
  await takeTurns(cleanUpSteps(deps), 1);
  deps.log("info", "recovery_finished", { counts });
  return counts;
}

/** `updatedAt` is the time of the run. */
type OverdueValues = { updatedAt: number; dueAt: number };

/** The rows of one state that were due first. The state is asked twice: between the two it may have changed. */
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
      .returning({
        id: files.id,
        teamId: files.teamId,
        originalName: files.originalName,
        sizeBytes: files.sizeBytes,
        reservedBytes: files.reservedBytes,
      });
  });
}

/**
 * A file that waits stays as it is; only recovery's next look moves. It comes twice as late each time, up to 15 minutes:
 * the message may merely wait behind others, and a long queue must not be made longer.
 */
const resendPending = overdueFiles("pending", (param) => {
  const waited = sql`${param("updatedAt")} - ${files.updatedAt}`;
  return {
    dueAt: sql`${param("updatedAt")} + min(max(${MAX_PENDING_MILLISECONDS}, ${waited}), ${MAX_RESEND_MILLISECONDS})`,
  };
});
/** Processing under a lease that has run out: pending again. */
const releaseAbandoned = overdueFiles("processing", (param) => ({
  status: "pending",
  leaseEndsAt: null,
  ...given(param, "dueAt"),
  ...changed(param),
}));
const hide = (param: Param<OverdueValues>) => ({
  status: "deleting",
  idempotencyKey: null,
  ...given(param, "dueAt"),
});
const hideAbandoned = overdueFiles("receiving", hide);
const retryDeleting = overdueFiles("deleting", hide);

async function takeOverdue(deps: Deps, take: typeof resendPending, milliseconds: number) {
  const now = deps.system.now();
  const [rows] = await write(deps, [take({ updatedAt: now, dueAt: now + milliseconds })], { isIdempotent: true });
  return rows;
}

/** Should sending fail, the files are overdue again. */
async function sendOverdue(deps: Deps, take: typeof resendPending): Promise<number> {
  const rows = await takeOverdue(deps, take, MAX_PENDING_MILLISECONDS);
  await deps.jobs.sendAll(rows.map(({ teamId, id: fileId }) => ({ teamId, fileId })));
  return rows.length;
}

/** Hidden for good, then the bytes, then the row. */
async function eraseOverdue(deps: Deps, take: typeof resendPending): Promise<number> {
  const rows = await takeOverdue(deps, take, MAX_DELETING_MILLISECONDS);
  await deps.bytes.remove(rows.flatMap(objectKeys));
  await removeRows(
    deps,
    rows.map(({ teamId, id }) => ({ teamId, id })),
  );
  return rows.length;
}
