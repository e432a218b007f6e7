import { eq } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Param, preparedQuery, read } from "../platform/db.ts";
import type { DeliveryJob, JobOutcome, ReceivedFileJob, ReceivedJob } from "../platform/jobs.ts";
import { files } from "../platform/schema.ts";
import { deliver } from "./events/sending.ts";
import { enqueueDeliveries } from "./events/turns.ts";
import { failExhaustedFile, processFile } from "./files/processing.ts";

/** Takes a message of any queue: what it names says what is to be done. */
export function handleJob(deps: Deps, queue: string, job: ReceivedJob): Promise<JobOutcome> {
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

async function handleFileJob(
  deps: Deps,
  queue: string,
  { fileId, teamId: named }: ReceivedFileJob,
): Promise<JobOutcome> {
  const teamId = named ?? (await findTeam(deps, fileId));
  if (teamId === undefined) return "not ours";
  const handle = queue === deps.settings.deadLetterQueue ? failExhaustedFile : processFile;
  return handle(deps, { teamId, fileId });
}

const teamOfFile = preparedQuery((db, param: Param<{ id: string }>) =>
  db
    .select({ teamId: files.teamId })
    .from(files)
    .where(eq(files.id, param("id"))),
);

/** For a message that names no team. It scans: only those that were under way while a release took over cost that. */
async function findTeam(deps: Deps, id: string): Promise<string | undefined> {
  const [[row]] = await read(deps, [teamOfFile({ id })]);
  return row?.teamId;
}
