import { and, asc, eq, isNotNull, lte, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { given, type Param, preparedQuery, write } from "../platform/db.ts";
import { files } from "../platform/schema.ts";
import { reencryptTokens, removeExpiredKeys, removeExpiredLogins } from "./accounts/keys.ts";
import { reencryptSecrets } from "./events/signing.ts";
import { PURGE_ROWS, purgeTrail } from "./events/trail.ts";
import { DUE_DELIVERIES, sendDueDeliveries } from "./events/turns.ts";
import {
  changed,
  type FileRow,
  MAX_DELETING_MILLISECONDS,
  MAX_PENDING_MILLISECONDS,
  removeRows,
} from "./files/files.ts";
import { fileKey, objectKeys } from "./files/names.ts";
import { isAbandoned } from "./files/processing.ts";
import { recoverUploads } from "./files/resumable.ts";
import { MAX_OVERDUE_UPLOADS } from "./files/resumable-rows.ts";

/** A run takes so many of each kind, well inside Cloudflare's limits for an invocation; the next run goes on. */
const BATCH_ROWS = 500;
const MAX_BATCHES = 10;
/** Each row is a query, of which D1 takes 1,000 in an invocation: one batch of them in a run. */
const REENCRYPT_ROWS = 200;
const MAX_RESEND_MILLISECONDS = 15 * 60 * 1000;

export interface Recovered extends Record<string, number> {
  /** Files sent to the queue again: never sent, sent in vain, or left by a worker whose lease ran out. */
  sent: number;
  /** Files whose deletion, or whose broken upload, was brought to its end; and resumable uploads whose time was over. */
  erased: number;
  /** Expired keys of logins, removed. */
  loginsRemoved: number;
  /** API keys removed 30 days after they expired. */
  keysRemoved: number;
  /** Deliveries whose messages were sent: for a later try, never sent, or sent in vain. */
  deliveries: number;
  /** Events, and deliveries, that were older than the trail is kept. */
  purged: number;
  /** Tokens, and secrets of webhooks, encrypted anew under the current master key. */
  reencrypted: number;
}

/**
 * Finishes what was left unfinished, from a cron trigger. Every step is idempotent and may itself be cut off anywhere:
 * a row's `due_at` moves only in the update that takes the row's next step, so what is not done is found again.
 * A step that fails leaves the others to be tried; its error is logged.
 */
export async function recover(deps: Deps): Promise<Recovered> {
  const step = async (name: string, batch: () => Promise<number>, batchRows = BATCH_ROWS, maxBatches = MAX_BATCHES) => {
    let done = 0;
    try {
      for (let batches = 0; batches < maxBatches && done === batches * batchRows; batches++) done += await batch();
    } catch (cause) {
      deps.log("error", "recovery step failed", { outcome: name, cause });
    }
    return done;
  };
  const counts: Recovered = {
    sent:
      (await step("send", () => sendOverdue(deps, resendPending))) +
      (await step("send", () => sendOverdue(deps, releaseAbandoned))),
    erased:
      (await step("uploads", () => recoverUploads(deps), MAX_OVERDUE_UPLOADS)) +
      (await step("erase", () => eraseOverdue(deps, hideAbandoned))) +
      (await step("erase", () => eraseOverdue(deps, retryDeleting))),
    loginsRemoved: await step("logins", () => removeExpiredLogins(deps, BATCH_ROWS)),
    keysRemoved: await step("keys", () => removeExpiredKeys(deps, BATCH_ROWS)),
    deliveries: await step("deliveries", () => sendDueDeliveries(deps), DUE_DELIVERIES),
    purged: await step("purge", () => purgeTrail(deps), PURGE_ROWS),
    reencrypted:
      (await step("reencrypt", () => reencryptTokens(deps, REENCRYPT_ROWS), REENCRYPT_ROWS, 1)) +
      (await step("reencrypt", () => reencryptSecrets(deps, REENCRYPT_ROWS), REENCRYPT_ROWS, 1)),
  };
  deps.log("info", "recovery", { counts });
  return counts;
}

/** `updatedAt` is the time of the run. */
type OverdueValues = { updatedAt: number; dueAt: number };

/** The rows of one state that were due first. The state is asked twice: between the two it may have changed. */
function overdueFiles(state: FileRow["status"], change: (param: Param<OverdueValues>) => Record<string, unknown>) {
  return preparedQuery((db, param: Param<OverdueValues>) => {
    const isInState = and(eq(files.status, state), state === "processing" ? isAbandoned(param) : undefined);
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
