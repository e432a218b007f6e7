import type { Deps } from "../deps.ts";
import type { DeliveryJob, FileJob, Job, JobOutcome } from "../platform/jobs.ts";
import { deliver } from "./events/sending.ts";
import { enqueueDeliveries } from "./events/turns.ts";
import { failExhaustedFile, processFile } from "./files/processing.ts";
import { assembleUpload } from "./files/upload-recovery.ts";

/** Handles a message of any queue. The fields that it has determine the work. */
export function handleJob(deps: Deps, queue: string, job: Job): Promise<JobOutcome> {
  return "fileId" in job ? handleFileJob(deps, queue, job) : handleDeliveryJob(deps, job);
}

/** A batch ends with the slowest of its messages, so a try whose receiver takes its time goes on without its message. */
async function handleDeliveryJob(deps: Deps, job: DeliveryJob): Promise<JobOutcome> {
  const outcome = await deliver(deps, job);
  if (typeof outcome === "string" || !("rest" in outcome)) return outcome;
  deps.after(endSlowTry(deps, job, outcome.rest));
  return "receiver slow";
}

/** What fails here leaves the delivery due, for recovery. */
async function endSlowTry(deps: Deps, job: DeliveryJob, rest: Promise<JobOutcome>): Promise<void> {
  const { webhookId } = job;
  try {
    const outcome = await rest;
    if (typeof outcome !== "string") await enqueueDeliveries(deps, [job], outcome.retryAfterSeconds);
    deps.log("info", "slow try", { webhookId, outcome: typeof outcome === "string" ? outcome : "retried" });
  } catch (cause) {
    deps.log("error", "slow try failed", { webhookId, outcome: "left to recovery", cause });
  }
}

async function handleFileJob(deps: Deps, queue: string, job: FileJob): Promise<JobOutcome> {
  if (queue === deps.settings.deadLetterQueue) return failExhaustedFile(deps, job);
  const outcome = await processFile(deps, job);
  return outcome === "not ours" ? assembleUpload(deps, job) : outcome;
}
