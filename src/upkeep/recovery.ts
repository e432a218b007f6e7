import { ACCOUNT_STEPS } from "../accounts/keys.ts";
import type { Deps } from "../deps.ts";
import { DUE_WAVEFORM_ROWS, resendMeasurements } from "../files/measuring.ts";
import { continueFolderChanges } from "../folders/folder-changes.ts";
import { EXPIRED_LINK_ROWS, purgeLinks } from "../links/links.ts";
import { sizeOf } from "../platform/health.ts";
import { newStep, type RecoveryStep } from "../platform/recovery-step.ts";
import { EXPIRY_STEPS } from "../trash/expiry.ts";
import { FILE_STEPS } from "../trash/file-recovery.ts";
import { UPLOAD_STEPS } from "../uploads/unfinished.ts";
import { EVENT_STEPS } from "../webhooks/event-recovery.ts";
import { Budget, RUN_LIMITS } from "./budget.ts";
import { noteRecovered } from "./heartbeat.ts";
import { TEAM_STEPS } from "./team-deletion.ts";

/** The steps that run first leave the rest of the budget to the others, so that no backlog lets the database fill up. */
const FIRST_SHARE = 0.5;

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
  /** Finished uploads that are no longer remembered for late clients. */
  uploadsRemoved: 0,
  /** Files of deleted teams. Later steps delete their bytes. */
  teamFilesRemoved: 0,
  /** Deleted teams that have nothing left. */
  teamsDeleted: 0,
  /** Files that reached the age of their team's retention. */
  filesAged: 0,
  /** Files whose time to delete them came. */
  filesExpired: 0,
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
  /** Events. */
  purged: 0,
  /** Tokens and webhook secrets encrypted under the current master key. */
  reencrypted: 0,
};
export type Recovered = typeof NOTHING_RECOVERED;

/** Files of deleted teams, expired ones and abandoned uploads leave before the step that erases removed files runs. */
const STEPS: RecoveryStep<keyof Recovered>[] = [
  ...TEAM_STEPS,
  ...UPLOAD_STEPS,
  ...EXPIRY_STEPS,
  ...FILE_STEPS,
  newStep("folders", "folderSteps", 1, continueFolderChanges),
  newStep("waveforms", "waveforms", DUE_WAVEFORM_ROWS, resendMeasurements),
  newStep("links", "linksRemoved", EXPIRED_LINK_ROWS, purgeLinks),
  ...ACCOUNT_STEPS,
  ...EVENT_STEPS,
];

/** From this share of `MAX_DATABASE_BYTES` on, the log warns. It leaves time to add a database. */
const WARNING_SHARE = 0.7;

/** Logs the size of the database. @returns whether it takes no new teams */
async function isFull(deps: Deps): Promise<boolean> {
  const { maxDatabaseBytes } = deps.settings;
  const database = deps.db.number;
  try {
    const bytes = await sizeOf(deps);
    deps.log(bytes < maxDatabaseBytes * WARNING_SHARE ? "info" : "warn", "database_size", { database, bytes });
    return bytes >= maxDatabaseBytes;
  } catch (cause) {
    deps.log("error", "recovery_step_failed", { database, outcome: "size", cause });
    return false;
  }
}

/**
 * Finishes interrupted work in one database, from a queue message that a cron trigger sends. Every step is idempotent and
 * may itself stop at any point: a row's `due_at` changes only in the statement that selects the row, so the next run finds
 * whatever is not done. The steps take turns, one batch each, until nothing is left or the budget of the run is used. A
 * step that fails is logged and does not stop the others. A database above its limit is cleaned up first.
 */
export async function recover(deps: Deps, limits = RUN_LIMITS): Promise<Recovered> {
  const budget = new Budget(deps, limits);
  const counts = { ...NOTHING_RECOVERED };
  /** Gives each step one batch at a time, until none has more to do or the budget does not allow another batch. */
  const runInTurns = async (steps: typeof STEPS, share: number) => {
    let unfinished = steps.map((step) => ({ step, runBatch: step.start(budget.deps) }));
    while (unfinished.length > 0 && budget.allowsBatch(share)) {
      const next: typeof unfinished = [];
      for (const entry of unfinished) {
        const { step, runBatch } = entry;
        if (!budget.allowsBatch(share)) break;
        try {
          const { rows, isLast } = await runBatch();
          counts[step.count] += rows;
          if (!isLast) next.push(entry);
        } catch (cause) {
          deps.log("error", "recovery_step_failed", { database: deps.db.number, outcome: step.name, cause });
        }
      }
      unfinished = next;
    }
  };
  const urgent = STEPS.filter(({ isUrgent }) => isUrgent);
  const cleaning = STEPS.filter(({ isUrgent }) => !isUrgent);
  // The urgent steps write, for which a full database may first need room.
  const [first, second] = (await isFull(deps)) ? [cleaning, urgent] : [urgent, cleaning];
  await runInTurns(first, FIRST_SHARE);
  await runInTurns(second, 1);
  await noteRecovered(deps).catch((cause) =>
    deps.log("error", "recovery_step_failed", { database: deps.db.number, outcome: "recoveredAt", cause }),
  );
  deps.log("info", "recovery_finished", { database: deps.db.number, counts });
  return counts;
}
