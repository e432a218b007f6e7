import type { Deps } from "../deps.ts";
import type { JobOutcome } from "../platform/jobs.ts";
import { sendDueDeliveries } from "./events/sending.ts";
import { failExhaustedFile, processFile } from "./files/processing.ts";
import type { FileJob, Job } from "./jobs.ts";
import { assembleUpload } from "./uploads/unfinished.ts";

/** Handles a message from any queue. The kind of id in it names the task. */
export function handleJob(deps: Deps, queue: string, job: Job): Promise<JobOutcome> {
  return "fileId" in job ? handleFileJob(deps, queue, job) : sendDueDeliveries(deps, job);
}

async function handleFileJob(deps: Deps, queue: string, job: FileJob): Promise<JobOutcome> {
  if (queue === deps.settings.deadLetterQueue) return failExhaustedFile(deps, job);
  const outcome = await processFile(deps, job);
  return outcome === "not_claimed" ? assembleUpload(deps, job) : outcome;
}
