import type { Deps } from "../deps.ts";
import type { JobOutcome, ReceivedJob } from "../platform/jobs.ts";
import { deliver } from "./events/sending.ts";
import { handleFileJob } from "./files/processing.ts";

/** Takes a message of any queue: what it names says what is to be done. */
export function handleJob(deps: Deps, queue: string, job: ReceivedJob): Promise<JobOutcome> {
  return "fileId" in job ? handleFileJob(deps, queue, job) : deliver(deps, job);
}
