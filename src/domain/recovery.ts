import { and, asc, eq, inArray, isNotNull, lt, lte, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { retrying } from "../platform/db.ts";
import { apiKeys, files } from "../platform/schema.ts";
import { DELETING_MILLISECONDS, type FileRow, objectKey, PENDING_MILLISECONDS, removeRows } from "./files.ts";
import { resealTokens } from "./keys.ts";

/** A run takes so many of each kind, well inside Cloudflare's limits for an invocation; the next run goes on. */
const BATCH_ROWS = 500;
const MOST_BATCHES = 10;
const RESEAL_ROWS = 200;

export interface Recovered extends Record<string, number> {
  /** Files sent to the queue again: never sent, sent in vain, or left by a worker whose lease ran out. */
  sent: number;
  /** Files whose deletion, or whose broken upload, was brought to its end. */
  erased: number;
  /** Expired keys of logins, removed. */
  loginsRemoved: number;
  /** Tokens sealed anew under the current master key. */
  resealed: number;
}

/**
 * Finishes what was left unfinished, from a cron trigger. Every step is idempotent and may itself be cut off anywhere:
 * a row's `due_at` moves only in the update that takes the row's next step, so what is not done is found again.
 * A step that fails leaves the others to be tried; its error is logged.
 */
export async function recover(deps: Deps): Promise<Recovered> {
  const step = async (name: string, batch: () => Promise<number>) => {
    let done = 0;
    try {
      for (let batches = 0; batches < MOST_BATCHES && done === batches * BATCH_ROWS; batches++) done += await batch();
    } catch (cause) {
      deps.log("error", "recovery step failed", { outcome: name, cause });
    }
    return done;
  };
  const counts: Recovered = {
    sent:
      (await step("send", () => sendOverdue(deps, "pending"))) +
      (await step("send", () => sendOverdue(deps, "processing"))),
    erased:
      (await step("erase", () => eraseOverdue(deps, "receiving"))) +
      (await step("erase", () => eraseOverdue(deps, "deleting"))),
    loginsRemoved: await step("logins", () => removeExpiredLogins(deps)),
    resealed: await step("reseal", () => resealTokens(deps, RESEAL_ROWS)),
  };
  deps.log("info", "recovery", { counts });
  return counts;
}

/** The rows of one state that were due first. The state is asked twice: between the two it may have changed. */
function overdue(deps: Deps, state: FileRow["status"]) {
  const due = deps.db
    .select({ id: files.id })
    .from(files)
    .where(and(eq(files.status, state), isNotNull(files.dueAt), lte(files.dueAt, deps.system.now())))
    .orderBy(asc(files.dueAt))
    .limit(BATCH_ROWS);
  return and(inArray(files.id, due), eq(files.status, state));
}

/** Pending for too long, or processing under a lease that has run out: pending, and its message sent. */
async function sendOverdue(deps: Deps, state: "pending" | "processing"): Promise<number> {
  const { db, system } = deps;
  const now = system.now();
  const rows = await retrying(system, () =>
    db
      .update(files)
      .set({
        status: "pending",
        dueAt: now + PENDING_MILLISECONDS,
        updatedAt: now,
        version: sql`${files.version} + 1`,
      })
      .where(overdue(deps, state))
      .returning({ id: files.id }),
  );
  // Should sending fail, the files are overdue again in two minutes.
  await deps.jobs.sendAll(rows.map((row) => row.id));
  return rows.length;
}

/** Receiving for a day, or deleting: hidden for good, then the bytes, then the row. */
async function eraseOverdue(deps: Deps, state: "receiving" | "deleting"): Promise<number> {
  const { db, system } = deps;
  const rows = await retrying(system, () =>
    db
      .update(files)
      .set({
        status: "deleting",
        idempotencyKey: null,
        dueAt: system.now() + DELETING_MILLISECONDS,
        version: sql`${files.version} + 1`,
      })
      .where(overdue(deps, state))
      .returning({ id: files.id, teamId: files.teamId, originalName: files.originalName }),
  );
  await deps.bytes.remove(rows.map(objectKey));
  await removeRows(
    deps,
    rows.map((row) => row.id),
  );
  return rows.length;
}

async function removeExpiredLogins(deps: Deps): Promise<number> {
  const { db, system } = deps;
  const expired = db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(isNotNull(apiKeys.userId), lt(apiKeys.expiresAt, system.now())))
    .orderBy(asc(apiKeys.expiresAt))
    .limit(BATCH_ROWS);
  const rows = await retrying(system, () =>
    db.delete(apiKeys).where(inArray(apiKeys.id, expired)).returning({ id: apiKeys.id }),
  );
  return rows.length;
}
