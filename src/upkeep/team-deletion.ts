import { and, eq, inArray } from "drizzle-orm";
import { DELETED_ROWS } from "../access/deleted-teams.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { HAS_NO_FILES, removeFilesOfDeleted } from "../files/deleted-teams.ts";
import { write } from "../platform/db.ts";

/*
 * Part of the recovery job: deletes everything that teams with the status `deleting` have, in bounded batches.
 *
 *   1. files     are removed, and uploads canceled. Other steps then delete bytes, parts, and rows, as for any file
 *   2. rows      of the other tables are deleted, see `teamRows` in service.ts
 *   3. the team  is deleted once nothing refers to it
 *
 * Every insert for a team requires that it is not `deleting`, and every event a change to one of its rows. So nothing
 * refers to a team whose row is gone. An upload in progress keeps its row, and so the team's, until its requests
 * have ended, or for 15 minutes if a Worker died: it may be about to store the bytes.
 */

/** Deletes a batch of rows and files of deleted teams. Rows first: a full database may have no space to move files. */
async function deleteTeams(deps: Deps) {
  const { teamRows } = deps.service;
  const empty = deps.db
    .select({ id: teams.id })
    .from(teams)
    .where(and(eq(teams.status, "deleting"), HAS_NO_FILES, ...teamRows.map(({ isGone }) => isGone)))
    .limit(DELETED_ROWS);
  const rows = (await Promise.all(teamRows.map((one) => one.remove(deps)))).flat();
  const batch = { rows, team: deps.db.delete(teams).where(inArray(teams.id, empty)) };
  const done = await write(deps, batch, { isIdempotent: true, caller: null });
  return {
    teamRowsRemoved: done.rows.reduce((sum, { meta }) => sum + meta.changes, 0),
    teamsDeleted: done.team.meta.changes,
    teamFilesRemoved: await removeFilesOfDeleted(deps),
  };
}

export const deletedTeams: RecoveryStep = {
  name: "teams",
  counts: ["teamFilesRemoved", "teamRowsRemoved", "teamsDeleted"],
  runBatch: deleteTeams,
  maxBatches: 5,
  queries: 16,
};
