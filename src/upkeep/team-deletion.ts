import { and, eq, inArray, not, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import { apiKeys, isApiKey, isSession } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { Deps } from "../deps.ts";
import { events } from "../events/events.schema.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { folderChanges, folders } from "../folders/folders.schema.ts";
import { type Db, hasRow, write } from "../platform/db.ts";
import { type Batch, newStep, type RecoveryStep } from "../platform/recovery-step.ts";
import { eraseMany, MAX_DELETED_FILES } from "../trash/deletion.ts";
import { deliveries, webhooks } from "../webhooks/webhooks.schema.ts";

/*
 * Part of the recovery job: deletes everything that teams with the status `deleting` have, in bounded batches.
 *
 *   1. files     are hidden, and their uploads ended. Other steps then delete bytes, parts, and rows, as for any file
 *   2. rows      of keys, sessions, users, events, and webhooks are deleted
 *   3. the team  is deleted once nothing refers to it
 *
 * Every insert for a team requires that it is not `deleting`, and every event a change to one of its rows. So nothing
 * refers to a team whose row is gone. A form upload that was in progress may keep its row, and so the team's, until the
 * slowest client would be done: its Worker may be about to store the bytes.
 */

/** Rows of a statement that deletes, each with a few index rows. D1 runs one statement at a time. */
const DELETED_ROWS = 1000;

/** Rows of a table that belong to deleted teams. Starts at the teams, so that it reads no row of another team. */
const ofDeletedTeams = (columns: SQL, table: SQLiteTable, teamId: SQLiteColumn, isSelected: SQL = sql`1`) =>
  sql`select ${columns} from ${teams} cross join ${table} on ${teamId} = ${teams.id}
    where ${teams.status} = 'deleting' and ${isSelected}`;

/** Files that a form upload, or a write of a waveform or transcript, may still be storing stay out until they are due. */
const nextFiles = (columns: SQL, now: number) =>
  sql`(${ofDeletedTeams(
    columns,
    files,
    teamOfFile,
    sql`not (${files.status} = 'deleting' and ${files.trashedAt} is null and ${files.dueAt} > ${now})`,
  )} limit ${MAX_DELETED_FILES})`;

/** Hides files of deleted teams, and ends their uploads. @returns how many files were hidden */
async function hideFiles(deps: Deps): Promise<number> {
  const now = deps.system.now();
  const queries = eraseMany(deps, (columns) => nextFiles(columns, now));
  const [, { meta }] = await write(deps, queries, { isIdempotent: true });
  return meta.changes;
}

/** The statements that delete a batch of rows of each kind, and last the teams that have nothing left. */
function deletions(db: Db) {
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
  const oldestEvents = (columns: SQL) => sql`${ofDeletedTeams(columns, events, events.teamId)} limit ${DELETED_ROWS}`;
  // Deliveries have no index by team, so they are found by their webhooks. A deleted webhook is known by the event of its
  // deletion, which is later than its deliveries, so that event is deleted after them.
  const nextDeliveries = sql`select d.webhook_id, d.seq from
    (${ofDeletedTeams(sql`${webhooks.id} as webhook_id`, webhooks, webhooks.teamId)} union all
    select subject_id from (${oldestEvents(sql`${events.subjectId}, ${events.type}`)}) oldest where type = 'webhook.deleted') w
    cross join ${deliveries} d on d.webhook_id = w.webhook_id`;
  const hasNoDeliveries = sql`not exists (${nextDeliveries})`;
  const nextEvents = oldestEvents(sql`${events.teamId}, ${events.seq}`);
  const nextWebhooks = ofDeletedTeams(sql`${webhooks.teamId}, ${webhooks.id}`, webhooks, webhooks.teamId);
  // The rows of uploads, parts, and links are gone with those of their files.
  const hasNone = (table: SQLiteTable, teamId: SQLiteColumn, isOfKind?: SQL) =>
    not(hasRow(table, and(eq(teamId, teams.id), isOfKind)));
  const isEmpty = and(
    hasNone(files, teamOfFile),
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
    db.delete(deliveries).where(sql`(webhook_id, seq) in (${nextDeliveries} limit ${DELETED_ROWS})`),
    db.delete(events).where(sql`(team_id, seq) in (${nextEvents}) and ${hasNoDeliveries}`),
    db.delete(webhooks).where(sql`(team_id, id) in (${nextWebhooks}) and ${hasNoDeliveries}`),
    db.delete(teams).where(inArray(teams.id, empty)),
  ];
}

/** Deletes a batch of rows of each kind. @returns how many teams are gone */
async function deleteRows(deps: Deps): Promise<Batch> {
  const results = await write(deps, deletions(deps.db), { isIdempotent: true });
  return { rows: results.at(-1)?.meta.changes ?? 0, isLast: results.every(({ meta }) => meta.changes === 0) };
}

export const TEAM_STEPS: RecoveryStep<"teamFilesHidden" | "teamsDeleted">[] = [
  newStep("team_files", "teamFilesHidden", 1, hideFiles),
  { name: "team_rows", count: "teamsDeleted", isUrgent: false, start: (deps) => () => deleteRows(deps) },
];
