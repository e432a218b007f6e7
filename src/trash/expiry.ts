import { and, asc, eq, isNotNull, lte, type SQL, sql } from "drizzle-orm";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { actorOf, SYSTEM, writeWithEvent } from "../events/events.ts";
import { DELETED_TEAMS, MAX_DELETED_FILES, manyDeletions } from "../files/deletion.ts";
import { files, isExpiring, teamOfFile } from "../files/files.schema.ts";
import { fileKey, keyColumns } from "../files/names.ts";
import { isOneOf, read, write } from "../platform/db.ts";
import { DAY, HOUR } from "../platform/system.ts";

/*
 * The recovery job deletes files whose `delete_after` has passed. A held file stays until its hold is released.
 *
 * The event of a deletion names who set `delete_after`, and not the job that carries it out.
 *
 * The retention of a team sets `delete_after` of each file that reaches its age, once: `retention_reached` moves on, so a file
 * that is restored later stays. Marking does not change the version: the deletion follows, with a version and an event.
 */

/** How often the job looks for files of a team's retention, which counts days. */
const AGING_MILLISECONDS = HOUR;
/** Files that one statement marks. */
const AGED_FILES = 500;

/** Marks files that have reached the age of their team's retention as due for deletion. @returns how many */
async function expireAged(deps: Deps): Promise<number> {
  const { db, system } = deps;
  const now = system.now();
  // Ids begin with the time of creation.
  const reached = sql`printf('%012x', ${now} - ${teams.retentionDays} * ${DAY})`;
  const isDue = and(isNotNull(teams.retentionDueAt), lte(teams.retentionDueAt, now));
  const isAged = sql`${files.id} >= ${teams.retentionReached} and ${files.id} < ${reached}
    and (${files.deleteAfter} is null or ${files.deleteAfter} > ${now})
    and ${files.hold} is null`;
  const aged = (columns: SQL) => sql`select ${columns} from ${teams} cross join ${files} on ${teamOfFile} = ${teams.id}
    where ${isDue} and ${isAged}`;
  const mark = db
    .update(files)
    .set({
      deleteAfter: now,
      deleteAfterBy: sql`(select ${teams.retentionBy} from ${teams} where ${teams.id} = ${teamOfFile})`,
    })
    .where(sql`${fileKey} in (${aged(keyColumns)} limit ${AGED_FILES})`);
  // A team that has more such files is continued.
  const isDone = sql`not exists (select 1 from ${files} where ${teamOfFile} = ${teams.id} and ${isAged})`;
  const advance = db
    .update(teams)
    .set({ retentionReached: reached, retentionDueAt: now + AGING_MILLISECONDS })
    .where(and(isDue, isDone));
  const done = await write(deps, { mark, advance }, { isIdempotent: true, caller: null });
  return done.mark.meta.changes;
}

/** Moves files whose `delete_after` has passed to the trash, or erases them if there is none, each with its event. @returns how many */
async function deleteExpired(deps: Deps): Promise<number> {
  const isDue = and(isExpiring, lte(files.deleteAfter, deps.system.now()));
  const initiator = sql`coalesce(${files.deleteAfterBy}, ${actorOf(SYSTEM, null)})`;
  const next = deps.db
    .select({ id: files.id, teamId: teamOfFile })
    .from(files)
    .where(isDue)
    .orderBy(asc(files.deleteAfter))
    .limit(MAX_DELETED_FILES);
  const rows = await read(deps, next);
  const teamsOfFiles = [...Map.groupBy(rows, ({ teamId }) => teamId)].slice(0, DELETED_TEAMS);
  const changes = teamsOfFiles.map(([teamId, ofTeam]) => {
    const ids = ofTeam.map(({ id }) => id);
    const isNext = and(eq(teamOfFile, teamId), isOneOf(files.id, ids), isDue);
    const selected = (columns: SQL) => sql`(select ${columns} from ${files} where ${isNext})`;
    return manyDeletions(deps, initiator, teamId, selected);
  });
  if (changes.length === 0) return 0;
  const { expired } = await writeWithEvent(deps, { expired: changes }, { isIdempotent: true, caller: null });
  // A full database moves none.
  return expired.reduce((count, { change }) => count + change.leave.meta.changes, 0);
}

/** Marks aged files, then deletes those that are due. */
const expireFiles = async (deps: Deps) => ({
  filesAged: await expireAged(deps),
  filesExpired: await deleteExpired(deps),
});

export const expiredFiles: RecoveryStep = {
  name: "expiry",
  counts: ["filesAged", "filesExpired"],
  runBatch: expireFiles,
  maxBatches: 4,
  queries: 23,
};
