import { eq } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Param, preparedQuery, read } from "../platform/db.ts";
import type { JobOutcome, ReceivedFileJob, ReceivedJob } from "../platform/jobs.ts";
import { files } from "../platform/schema.ts";
import { deliver } from "./events/sending.ts";
import { giveUpFile, processFile } from "./files/processing.ts";

/** Takes a message of any queue: what it names says what is to be done. */
export function handleJob(deps: Deps, queue: string, job: ReceivedJob): Promise<JobOutcome> {
  return "fileId" in job ? handleFileJob(deps, queue, job) : deliver(deps, job);
}

async function handleFileJob(
  deps: Deps,
  queue: string,
  { fileId, teamId: named }: ReceivedFileJob,
): Promise<JobOutcome> {
  const teamId = named ?? (await findTeam(deps, fileId));
  if (teamId === undefined) return "not ours";
  const handle = queue === deps.settings.deadLetterQueue ? giveUpFile : processFile;
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
