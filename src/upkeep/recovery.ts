import { reencryptTokens, removeExpiredKeys } from "../accounts/keys.ts";
import { removeOldMails } from "../accounts/mails.ts";
import type { Deps } from "../deps.ts";
import { PURGE_QUERIES, purgeEvents } from "../events/purge.ts";
import { continueFolderChanges } from "../folders/folder-changes.ts";
import { removeExpiredLinks } from "../links/links.ts";
import { write } from "../platform/db.ts";
import { sizeOf } from "../platform/health.ts";
import { expireFiles } from "../trash/expiry.ts";
import { continueFiles, eraseRemoved } from "../trash/file-recovery.ts";
import { continueUploads } from "../uploads/unfinished.ts";
import { WAKE_QUERIES, wakeBehind } from "../webhooks/event-recovery.ts";
import { reencryptSecrets } from "../webhooks/signing.ts";
import { noteRecovered } from "./heartbeat.ts";
import { deleteTeams } from "./team-deletion.ts";

export const NOTHING_RECOVERED = {
  /** Files sent to the queue again: their message was lost, or their worker's lease expired. */
  sent: 0,
  /** Complete uploads that a consumer was asked to assemble. */
  assemblies: 0,
  /** Waveforms that a consumer was asked to measure again. */
  waveforms: 0,
  /** Webhooks that had not read the latest events, and were woken. */
  webhooks: 0,
  /** Incomplete uploads that expired, or whose Worker died. */
  uploadsExpired: 0,
  /** Rows of uploads that ended: canceled ones without bytes, and receipts that no client may ask for any more. */
  uploadsRemoved: 0,
  /** Files of deleted teams. Later steps delete their bytes. */
  teamFilesRemoved: 0,
  /** Their other rows: keys, users, folders, events and webhooks. */
  teamRowsRemoved: 0,
  /** Deleted teams that have nothing left. */
  teamsDeleted: 0,
  /** Files that reached the age of their team's retention. */
  filesAged: 0,
  /** Files whose time to delete them came. */
  filesExpired: 0,
  /** Files whose time in the trash is over. */
  trashEmptied: 0,
  /** Files whose bytes and row were deleted. */
  filesDeleted: 0,
  /** Steps of moving or deleting folders. */
  folderSteps: 0,
  /** Expired sessions. */
  sessionsRemoved: 0,
  /** API keys that expired 30 days ago. */
  keysRemoved: 0,
  /** Expired links. */
  linksRemoved: 0,
  /** Emails of more than a day ago, which no limit counts. */
  mailsRemoved: 0,
  /** Events. */
  purged: 0,
  /** Tokens and webhook secrets encrypted under the current master key. */
  reencrypted: 0,
};
export type Recovered = typeof NOTHING_RECOVERED;

/** Deletes what has expired, one kind of row in each statement. */
async function removeExpired(deps: Deps): Promise<Partial<Recovered>> {
  const queries = [...removeExpiredKeys(deps), removeExpiredLinks(deps), removeOldMails(deps)] as const;
  const [sessions, keys, links, mails] = await write(deps, queries, { isIdempotent: true, caller: null });
  return {
    sessionsRemoved: sessions.length,
    keysRemoved: keys.length,
    linksRemoved: links.length,
    mailsRemoved: mails.length,
  };
}

const reencrypt = async (deps: Deps) => ({
  reencrypted: (await reencryptTokens(deps)) + (await reencryptSecrets(deps)),
});

/** A kind of work. A batch takes what has been due longest, up to a fixed number of rows, and may die at any point. */
interface Step {
  name: string;
  /** Does the next batch. @returns how much it changed */
  runBatch(deps: Deps): Promise<Partial<Recovered>>;
  /** How many batches a run does at most. Together, they send fewer than the 1,000 queries that D1 allows an invocation. */
  maxBatches: number;
  /** How many queries a batch sends at most. */
  queries: number;
}

/** Files of deleted teams and expired ones leave before the step that erases removed files runs. */
export const STEPS: Step[] = [
  { name: "teams", runBatch: deleteTeams, maxBatches: 5, queries: 14 },
  { name: "uploads", runBatch: continueUploads, maxBatches: 20, queries: 7 },
  { name: "expiry", runBatch: expireFiles, maxBatches: 4, queries: 23 },
  { name: "files", runBatch: continueFiles, maxBatches: 20, queries: 2 },
  { name: "removed", runBatch: eraseRemoved, maxBatches: 8, queries: 15 },
  { name: "folders", runBatch: continueFolderChanges, maxBatches: 2, queries: 45 },
  { name: "expired", runBatch: removeExpired, maxBatches: 10, queries: 4 },
  { name: "events", runBatch: purgeEvents, maxBatches: 2, queries: PURGE_QUERIES },
  { name: "secrets", runBatch: reencrypt, maxBatches: 3, queries: 10 },
  // It looks at all webhooks each time.
  { name: "webhooks", runBatch: wakeBehind, maxBatches: 1, queries: WAKE_QUERIES },
];

/** From this share of `MAX_DATABASE_BYTES` on, the log warns. It leaves time to add a database. */
const WARNING_SHARE = 0.7;

async function logSize(deps: Deps): Promise<void> {
  const bytes = await sizeOf(deps);
  const isSmall = bytes < deps.settings.maxDatabaseBytes * WARNING_SHARE;
  deps.log(isSmall ? "info" : "warn", "database_size", { database: deps.db.number, bytes });
}

/**
 * Finishes interrupted work in one database, from a queue message that a cron trigger sends. Each step repeats its batch until
 * that changes nothing, or `maxBatches` times: then the message is sent again, and the next run continues. Whatever a run does
 * not do stays due. A step that fails is logged, and stops neither the others nor asks for another run.
 */
export async function recover(deps: Deps): Promise<Recovered> {
  const database = deps.db.number;
  const startedAt = deps.system.now();
  const counts = { ...NOTHING_RECOVERED };
  let isUnfinished = false;
  const attempt = async (name: string, act: () => Promise<void>) => {
    try {
      await act();
    } catch (cause) {
      deps.log("error", "recovery_step_failed", { database, outcome: name, cause });
    }
  };
  await attempt("size", () => logSize(deps));
  for (const { name, runBatch, maxBatches } of STEPS) {
    await attempt(name, async () => {
      for (let batch = 1; batch <= maxBatches; batch++) {
        const done = Object.entries(await runBatch(deps)) as [keyof Recovered, number][];
        for (const [count, rows] of done) counts[count] += rows;
        if (done.every(([, rows]) => rows === 0)) return;
      }
      // One that has a single batch does not continue.
      if (maxBatches > 1) isUnfinished = true;
    });
  }
  await attempt("recoveredAt", async () => {
    const isNewest = await noteRecovered(deps, startedAt);
    // If another run ended in the meantime, that one continues, so a long backlog does not add a run every 5 minutes.
    if (isUnfinished && isNewest) await deps.recoveryJobs.sendAll([{ database }]);
  });
  deps.log("info", "recovery_finished", { database, counts });
  return counts;
}
