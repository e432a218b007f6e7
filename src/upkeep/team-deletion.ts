import { and, eq, inArray, not, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import { apiKeys, isApiKey, isSession } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { Deps } from "../deps.ts";
import { events } from "../events/events.schema.ts";
import { wakeWebhooks } from "../events/events.ts";
import { cancelUploads } from "../files/ending.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { isOneOfKeys } from "../files/names.ts";
import { folderChanges, folders } from "../folders/folders.schema.ts";
import { type Db, hasRow, read, write } from "../platform/db.ts";
import { erase, leaveMany, MAX_DELETED_FILES, removedKey } from "../trash/deletion.ts";
import { isTrashed, removed, teamOfRemoved } from "../trash/trash.schema.ts";
import { isCommitted, uploads } from "../uploads/uploads.schema.ts";
import { type WebhookKey, webhooks } from "../webhooks/webhooks.schema.ts";

/*
 * Part of the recovery job: deletes everything that teams with the status `deleting` have, in bounded batches.
 *
 *   1. files     are removed, and uploads canceled. Other steps then delete bytes, parts, and rows, as for any file
 *   2. rows      of keys, sessions, users, events, and webhooks are deleted
 *   3. the team  is deleted once nothing refers to it
 *
 * Every insert for a team requires that it is not `deleting`, and every event a change to one of its rows. So nothing
 * refers to a team whose row is gone. An upload in progress keeps its row, and so the team's, until its requests
 * have ended, or for 15 minutes if a Worker died: it may be about to store the bytes.
 */

/** Rows of a statement that deletes, each with a few index rows. D1 runs one statement at a time. */
const DELETED_ROWS = 1000;
/** Webhooks of a batch. Each is a call to its object. */
const WOKEN_WEBHOOKS = 100;

/** An upload that must be canceled, or a receipt. */
const isOpen = sql`(${uploads.status} = 'receiving' or ${uploads.status} = 'committed' and ${uploads.dueAt} > 0)`;

/** Rows of a table that belong to deleted teams. Starts at the teams, so that it reads no row of another team. */
const ofDeletedTeams = (columns: SQL, table: SQLiteTable, teamId: SQLiteColumn, isSelected: SQL = sql`1`) =>
  sql`select ${columns} from ${teams} cross join ${table} on ${teamId} = ${teams.id}
    where ${teams.status} = 'deleting' and ${isSelected}`;

/** Removes files of deleted teams, also from the trash, and cancels their uploads. @returns how many */
async function removeFiles(deps: Deps): Promise<number> {
  const nextFiles = (columns: SQL) => sql`(${ofDeletedTeams(columns, files, teamOfFile)} limit ${MAX_DELETED_FILES})`;
  const trashed = ofDeletedTeams(sql`${teamOfRemoved}, ${removed.id}`, removed, teamOfRemoved, isTrashed);
  const isNext = sql`${removedKey} in (${trashed} limit ${MAX_DELETED_FILES})`;
  const nextUploads = ofDeletedTeams(sql`${uploads.teamId}, ${uploads.fileId}`, uploads, uploads.teamId, isOpen);
  const isNextUpload = sql`(team_id, file_id) in (${nextUploads} limit ${MAX_DELETED_FILES})`;
  const queries = [
    ...leaveMany(deps, nextFiles),
    erase(deps, isNext, deps.system.now()),
    cancelUploads(deps, isNextUpload),
    deps.db.update(uploads).set({ dueAt: 0 }).where(and(isCommitted, isNextUpload)),
  ] as const;
  const changes = await write(deps, queries, { isIdempotent: true, caller: null });
  return changes.slice(1).reduce((sum, { meta }) => sum + meta.changes, 0);
}

/** The statements that delete a batch of rows of each kind, and last the teams that have nothing left. */
function deletions(db: Db, woken: WebhookKey[]) {
  const deleteKeys = (isOfKind: SQL) => {
    const next = ofDeletedTeams(sql`${apiKeys.id}`, apiKeys, apiKeys.teamId, isOfKind);
    return db.delete(apiKeys).where(sql`${apiKeys.id} in (${next} limit ${DELETED_ROWS})`);
  };
  // Folders first, because a trigger deletes those of a user: up to a thousand.
  const hasNoFolders = not(hasRow(folders, eq(folders.teamId, users.teamId)));
  const nextUsers = ofDeletedTeams(sql`${users.id}`, users, users.teamId, hasNoFolders);
  const nextFolders = ofDeletedTeams(
    sql`${folders.teamId}, ${folders.folderKey}, ${folders.ownerId}`,
    folders,
    folders.teamId,
  );
  const nextEvents = sql`${ofDeletedTeams(sql`${events.teamId}, ${events.seq}`, events, events.teamId)} limit ${DELETED_ROWS}`;
  // The rows of parts and links are gone with those of their uploads and files.
  const hasNone = (table: SQLiteTable, teamId: SQLiteColumn, isOfKind?: SQL) =>
    not(hasRow(table, and(eq(teamId, teams.id), isOfKind)));
  const isEmpty = and(
    hasNone(files, teamOfFile),
    hasNone(removed, teamOfRemoved),
    hasNone(uploads, uploads.teamId),
    hasNone(apiKeys, apiKeys.teamId, isApiKey),
    hasNone(apiKeys, apiKeys.teamId, isSession),
    hasNone(users, users.teamId),
    hasNone(folders, folders.teamId),
    hasNone(events, events.teamId),
    hasNone(webhooks, webhooks.teamId),
  );
  const empty = db
    .select({ id: teams.id })
    .from(teams)
    .where(and(eq(teams.status, "deleting"), isEmpty))
    .limit(DELETED_ROWS);
  return [
    deleteKeys(isApiKey),
    deleteKeys(isSession),
    db.delete(folders).where(sql`(team_id, folder_key, owner_id) in (${nextFolders} limit ${DELETED_ROWS})`),
    db.delete(users).where(sql`${users.id} in (${nextUsers} limit ${DELETED_ROWS})`),
    db
      .delete(folderChanges)
      .where(sql`team_id in (${ofDeletedTeams(sql`${folderChanges.teamId}`, folderChanges, folderChanges.teamId)})`),
    db.delete(events).where(sql`(team_id, seq) in (${nextEvents})`),
    db.delete(webhooks).where(isOneOfKeys(sql`(team_id, id)`, woken)),
    db.delete(teams).where(inArray(teams.id, empty)),
  ];
}

/** Deletes a batch of rows and files of deleted teams. Rows first: a full database may have no space to move files. */
export async function deleteTeams(deps: Deps) {
  const columns = sql`${webhooks.teamId} as team_id, ${webhooks.id} as id`;
  const next = sql`(${ofDeletedTeams(columns, webhooks, webhooks.teamId)} limit ${WOKEN_WEBHOOKS})`;
  const [found] = await read(deps, [deps.db.select({ teamId: sql<string>`team_id`, id: sql<string>`id` }).from(next)]);
  // The row goes once its object will notice that, and delete the deliveries.
  const woken = await wakeWebhooks(deps, found, true);
  const results = await write(deps, deletions(deps.db, woken), { isIdempotent: true, caller: null });
  const changes = results.map(({ meta }) => meta.changes);
  const teamsDeleted = changes.pop() ?? 0;
  const teamRowsRemoved = changes.reduce((sum, n) => sum + n, 0);
  return { teamRowsRemoved, teamsDeleted, teamFilesRemoved: await removeFiles(deps) };
}
