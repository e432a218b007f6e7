import { and, asc, eq, isNotNull, lte, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { read, write } from "../../platform/db.ts";
import { files, isErasable, isExpiring, teamOfFile, teams } from "../../platform/schema.ts";
import { DAY, HOUR } from "../../platform/system.ts";
import { actorOf, type Initiator, SYSTEM, writeWithEvents } from "../events/events.ts";
import { newStep } from "../recovery-step.ts";
import { MAX_DELETED_FILES, manyDeletions } from "./deletion.ts";
import { changed } from "./files.ts";
import { fileKey, keyColumns } from "./names.ts";

/*
 * The recovery job deletes files whose `delete_after` has passed, and erases files that were in the trash for long enough.
 * A held file stays until its hold is released.
 *
 * The event of a deletion names who set `delete_after`, and not the job that carries it out.
 *
 * The retention of a team sets `delete_after` of each file that reaches its age, once: `retention_reached` moves on, so a file
 * that is restored later stays.
 */

/** How often the job looks for files of a team's retention, which counts days. */
const AGING_MILLISECONDS = HOUR;
/** Files that one statement marks. */
const AGED_FILES = 500;
/** The files of a team take four queries, and a batch of the recovery job has at most 100. */
const DELETED_TEAMS = 20;

/** Marks files that have reached the age of their team's retention as due for deletion. @returns how many */
async function expireAged(deps: Deps): Promise<number> {
  const { db, system } = deps;
  const now = system.now();
  // Ids begin with the time of creation.
  const reached = sql`printf('%012x', ${now} - ${teams.retentionDays} * ${DAY})`;
  const isDue = and(isNotNull(teams.retentionDueAt), lte(teams.retentionDueAt, now));
  const isAged = sql`${files.id} >= ${teams.retentionReached} and ${files.id} < ${reached}
    and (${files.deleteAfter} is null or ${files.deleteAfter} > ${now}) and ${files.status} <> 'deleting'
    and ${files.hold} is null and ${files.sizeBytes} is not null`;
  const aged = (columns: SQL) => sql`select ${columns} from ${teams} cross join ${files} on ${teamOfFile} = ${teams.id}
    where ${isDue} and ${isAged}`;
  const mark = db
    .update(files)
    .set({
      deleteAfter: now,
      deleteAfterBy: sql`(select ${teams.retentionBy} from ${teams} where ${teams.id} = ${teamOfFile})`,
      ...changed(now),
    })
    .where(sql`${fileKey} in (${aged(keyColumns)} limit ${AGED_FILES})`);
  // A team that has more such files is continued.
  const isDone = sql`not exists (select 1 from ${files} where ${teamOfFile} = ${teams.id} and ${isAged})`;
  const advance = db
    .update(teams)
    .set({ retentionReached: reached, retentionDueAt: now + AGING_MILLISECONDS })
    .where(and(isDue, isDone));
  const [{ meta }] = await write(deps, [mark, advance], { isIdempotent: true });
  return meta.changes;
}

/** Deletes the next files that meet the condition, each with its event. Later steps erase the bytes. @returns how many */
async function deleteNext(
  deps: Deps,
  condition: SQL | undefined,
  order: SQL,
  initiator: Initiator | SQL,
  options: { isPermanent: boolean },
): Promise<number> {
  const next = deps.db
    .select({ id: files.id, teamId: teamOfFile })
    .from(files)
    .where(condition)
    .orderBy(order)
    .limit(MAX_DELETED_FILES);
  const [rows] = await read(deps, [next]);
  const teamsOfFiles = [...Map.groupBy(rows, ({ teamId }) => teamId)].slice(0, DELETED_TEAMS);
  const changes = teamsOfFiles.map(([teamId, ofTeam]) => {
    const ids = JSON.stringify(ofTeam.map(({ id }) => id));
    const isNext = and(eq(teamOfFile, teamId), sql`${files.id} in (select value from json_each(${ids}))`, condition);
    const selected = (columns: SQL) => sql`(select ${columns} from ${files} where ${isNext})`;
    return manyDeletions(deps, initiator, teamId, selected, options);
  });
  if (changes.length > 0) await writeWithEvents(deps, changes, [], { isIdempotent: true });
  return teamsOfFiles.reduce((count, [, ofTeam]) => count + ofTeam.length, 0);
}

/** Moves files whose `delete_after` has passed to the trash, or erases them if there is none. */
function deleteExpired(deps: Deps) {
  const isDue = and(isExpiring, lte(files.deleteAfter, deps.system.now()));
  const initiator = sql`coalesce(${files.deleteAfterBy}, ${actorOf(SYSTEM, null)})`;
  return deleteNext(deps, isDue, asc(files.deleteAfter), initiator, { isPermanent: false });
}

/** Erases files that have been in the trash long enough. */
const emptyTrash = (deps: Deps) =>
  deleteNext(deps, and(isErasable, lte(files.dueAt, deps.system.now())), asc(files.dueAt), SYSTEM, {
    isPermanent: true,
  });

export const EXPIRY_STEPS = [
  newStep("aged_files", "filesAged", AGED_FILES, expireAged),
  // A batch leaves out teams above `DELETED_TEAMS`, so only one without files is the last.
  newStep("expired_files", "filesExpired", 1, deleteExpired),
  newStep("trash", "filesPurged", 1, emptyTrash),
];
