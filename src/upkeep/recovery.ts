import type { Deps } from "../deps.ts";
import { sizeOf } from "../platform/health.ts";
import { noteRecovered } from "./heartbeat.ts";

/** How much each step did, by the names of its counts. */
export type Recovered = Record<string, number>;

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
  const { recoverySteps } = deps.service;
  const counts: Recovered = Object.fromEntries(recoverySteps.flatMap((step) => step.counts.map((name) => [name, 0])));
  let isUnfinished = false;
  const attempt = async (name: string, act: () => Promise<void>) => {
    try {
      await act();
    } catch (cause) {
      deps.log("error", "recovery_step_failed", { database, outcome: name, cause });
    }
  };
  await attempt("size", () => logSize(deps));
  for (const { name, runBatch, maxBatches } of recoverySteps) {
    await attempt(name, async () => {
      for (let batch = 1; batch <= maxBatches; batch++) {
        const done = Object.entries(await runBatch(deps));
        for (const [count, rows] of done) counts[count] = (counts[count] ?? 0) + rows;
        if (done.every(([, rows]) => rows === 0)) return;
      }
      // A step with a single batch does not continue.
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
