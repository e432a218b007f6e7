import { databaseOf, inDatabase } from "../access/databases.ts";
import type { Deps } from "../deps.ts";
import { failExhaustedFile, processFile } from "../files/processing.ts";
import type { JobOutcome } from "../platform/jobs.ts";
import type { FileJob, Job } from "../platform/messages.ts";
import { assembleUpload } from "../uploads/unfinished.ts";
import { measureWaveform } from "../waveforms/measuring.ts";
import { recover } from "./recovery.ts";

/** Handles a message from any queue, in the database of its team. The kind of id in it names the task. */
export async function handleJob(given: Deps, queue: string, job: Job): Promise<JobOutcome> {
  const number = "database" in job ? job.database : databaseOf(job.teamId);
  const deps = inDatabase(given, number);
  // It was removed after the message was sent.
  if (!deps) return "database_not_bound";
  if ("database" in job) return runRecovery(deps);
  return "attempt" in job ? measureWaveform(deps, job) : handleFileJob(deps, queue, job);
}

async function handleFileJob(deps: Deps, queue: string, job: FileJob): Promise<JobOutcome> {
  if (queue === deps.settings.deadLetterQueue) return failExhaustedFile(deps, job);
  const outcome = await processFile(deps, job);
  return outcome === "not_claimed" ? assembleUpload(deps, job) : outcome;
}

async function runRecovery(deps: Deps): Promise<JobOutcome> {
  await recover(deps);
  return "recovered";
}

/** Starts the recovery job of every database: a message each, so that none waits for another. */
export const startRecovery = ({ databases, recoveryJobs }: Deps): Promise<void> =>
  recoveryJobs.sendAll([...databases.keys()].map((database) => ({ database })));
