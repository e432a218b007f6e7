import { and, eq, inArray, type SQL, sql } from "drizzle-orm";
import { DELETED_ROWS, hasNone, ofDeletedTeams } from "../access/deleted-teams.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { erase, leaveMany, MAX_DELETED_FILES, removedKey } from "../files/deletion.ts";
import { cancelUploads } from "../files/ending.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { isTrashed, removed, teamOfRemoved } from "../files/removed.schema.ts";
import { write } from "../platform/db.ts";
import { isCommitted, uploads } from "../uploads/uploads.schema.ts";

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

/** An upload that must be canceled, or a receipt. */
const isOpen = sql`(${uploads.status} = 'receiving' or ${uploads.status} = 'committed' and ${uploads.dueAt} > 0)`;

/** Removes files of deleted teams, also from the trash, and cancels their uploads. @returns how many */
async function removeFiles(deps: Deps): Promise<number> {
  const nextFiles = (columns: SQL) => sql`(${ofDeletedTeams(columns, files, teamOfFile)} limit ${MAX_DELETED_FILES})`;
  const trashed = ofDeletedTeams(sql`${teamOfRemoved}, ${removed.id}`, removed, teamOfRemoved, isTrashed);
  const isNext = sql`${removedKey} in (${trashed} limit ${MAX_DELETED_FILES})`;
  const nextUploads = ofDeletedTeams(sql`${uploads.teamId}, ${uploads.fileId}`, uploads, uploads.teamId, isOpen);
  const isNextUpload = sql`(team_id, file_id) in (${nextUploads} limit ${MAX_DELETED_FILES})`;
  const batch = {
    files: leaveMany(deps, nextFiles),
    trashed: erase(deps, isNext, deps.system.now()),
    uploads: cancelUploads(deps, isNextUpload),
    receipts: deps.db.update(uploads).set({ dueAt: 0 }).where(and(isCommitted, isNextUpload)),
  };
  const done = await write(deps, batch, { isIdempotent: true, caller: null });
  const changes = [done.files.leave, done.trashed, done.uploads, done.receipts];
  return changes.reduce((sum, { meta }) => sum + meta.changes, 0);
}

/** What the team of a row of `teams` has besides its `teamRows`. The rows of parts and links go with those of their uploads and files. */
const HAS_NO_FILES = and(hasNone(files, teamOfFile), hasNone(removed, teamOfRemoved), hasNone(uploads, uploads.teamId));

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
    teamFilesRemoved: await removeFiles(deps),
  };
}

export const deletedTeams: RecoveryStep = {
  name: "teams",
  counts: ["teamFilesRemoved", "teamRowsRemoved", "teamsDeleted"],
  runBatch: deleteTeams,
  maxBatches: 5,
  queries: 16,
};
