import { and, eq, inArray, ne, not, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import type { Deps } from "../deps.ts";
import { type Builder, type Db, hasRow, type Param, preparedQuery, write } from "../platform/db.ts";
import { deliveries, events, webhooks } from "../platform/event-schema.ts";
import { apiKeys, files, isApiKey, isSession, teams, users } from "../platform/schema.ts";
import { uploads } from "../platform/upload-schema.ts";
import type { Batch } from "./events/purge.ts";
import { hidden, MAX_DELETING_MILLISECONDS } from "./files/deletion.ts";
import { fileKey, isFileOfUpload } from "./files/names.ts";
import { endedUpload, MAX_FENCED_MILLISECONDS } from "./files/resumable-rows.ts";

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

/** Triggers delete up to 100 links and 20 tags with each file, so this bounds a statement to 24,000 rows. */
const HIDDEN_FILES = 200;
export const HIDING_COST = { queries: 2 };
/** Rows of a statement that deletes, each with a few index rows. D1 runs one statement at a time. */
const DELETED_ROWS = 1000;

type NowValues = { now: number };

/** Rows of a table that belong to deleted teams. Starts at the teams, so that it reads no row of another team. */
const ofDeletedTeams = (columns: SQL, table: SQLiteTable, teamId: SQLiteColumn, isSelected: SQL = sql`1`) =>
  sql`select ${columns} from ${teams} cross join ${table} on ${teamId} = ${teams.id}
    where ${teams.status} = 'deleting' and ${isSelected}`;

/** Files that a form upload or a waveform write may still be storing stay out until they are due. */
const nextFiles = (param: Param<NowValues>, columns: SQL) =>
  sql`(${ofDeletedTeams(
    columns,
    files,
    files.teamId,
    sql`not (${files.status} = 'deleting' and ${files.dueAt} > ${param("now")})`,
  )} limit ${HIDDEN_FILES})`;

const endUploads = preparedQuery((db, param: Param<NowValues>) =>
  db
    .update(uploads)
    .set(endedUpload(param))
    .where(
      and(
        sql`${uploads.fileId} in ${nextFiles(param, sql`${files.id}`)}`,
        // A finished one would otherwise stay for a day. One that was ended while a request wrote is due soon.
        sql`(not ${uploads.isFinished} or ${uploads.dueAt} > ${param("now")} + ${MAX_FENCED_MILLISECONDS})`,
      ),
    ),
);

const hideFiles = preparedQuery((db, param: Param<NowValues>) => {
  const now = sql`${param("now")}`;
  const isResumable = hasRow(uploads, isFileOfUpload);
  const isWritingWaveform = sql`${files.waveformWritingSince} > ${now} - ${MAX_DELETING_MILLISECONDS}`;
  const dueAt = sql`case when ${files.sizeBytes} is null and not ${isResumable} then ${files.dueAt}
    when ${isWritingWaveform} then ${now} + ${MAX_DELETING_MILLISECONDS} else ${now} end`;
  return db
    .update(files)
    .set(hidden(dueAt))
    .where(
      and(sql`${fileKey} in ${nextFiles(param, sql`${files.teamId}, ${files.id}`)}`, ne(files.status, "deleting")),
    );
});

/** Hides files of deleted teams, and ends their uploads. @returns how many files were hidden */
export async function hideFilesOfDeletedTeams(deps: Deps): Promise<number> {
  const values = { now: deps.system.now() };
  const [, hiddenFiles] = await write(deps, [endUploads(values), hideFiles(values)], { isIdempotent: true });
  return hiddenFiles.meta.changes;
}

const deletion = (build: (db: Db) => Builder & PromiseLike<D1Result>) =>
  preparedQuery((db, _: Param<object>) => build(db));
const deleteKeys = (isOfKind: SQL) =>
  deletion((db) =>
    db
      .delete(apiKeys)
      .where(
        sql`${apiKeys.id} in (${ofDeletedTeams(sql`${apiKeys.id}`, apiKeys, apiKeys.teamId, isOfKind)} limit ${DELETED_ROWS})`,
      ),
  );
const deleteUsers = deletion((db) =>
  db
    .delete(users)
    .where(sql`${users.id} in (${ofDeletedTeams(sql`${users.id}`, users, users.teamId)} limit ${DELETED_ROWS})`),
);

const oldestEvents = (columns: SQL) => sql`${ofDeletedTeams(columns, events, events.teamId)} limit ${DELETED_ROWS}`;
/**
 * Deliveries have no index by team, so they are found by their webhooks. A deleted webhook is known by the event of its
 * deletion, which is later than its deliveries, so that event is deleted after them.
 */
const nextDeliveries = sql`select d.webhook_id, d.seq from
  (${ofDeletedTeams(sql`${webhooks.id} as webhook_id`, webhooks, webhooks.teamId)} union all
  select subject_id from (${oldestEvents(sql`${events.subjectId}, ${events.type}`)}) oldest where type = 'webhook.deleted') w
  cross join ${deliveries} d on d.webhook_id = w.webhook_id`;
const deleteDeliveries = deletion((db) =>
  db.delete(deliveries).where(sql`(webhook_id, seq) in (${nextDeliveries} limit ${DELETED_ROWS})`),
);
const hasNoDeliveries = sql`not exists (${nextDeliveries})`;
const deleteEvents = deletion((db) =>
  db
    .delete(events)
    .where(sql`(team_id, seq) in (${oldestEvents(sql`${events.teamId}, ${events.seq}`)}) and ${hasNoDeliveries}`),
);
const deleteWebhooks = deletion((db) =>
  db.delete(webhooks).where(
    sql`(team_id, id) in (${ofDeletedTeams(sql`${webhooks.teamId}, ${webhooks.id}`, webhooks, webhooks.teamId)})
        and ${hasNoDeliveries}`,
  ),
);

/** The rows of uploads, parts, and links are gone with those of their files. */
const deleteTeams = deletion((db) => {
  const hasNone = (table: SQLiteTable, teamId: SQLiteColumn, isOfKind?: SQL) =>
    not(hasRow(table, and(eq(teamId, teams.id), isOfKind)));
  const isEmpty = and(
    hasNone(files, files.teamId),
    hasNone(apiKeys, apiKeys.teamId, isApiKey),
    hasNone(apiKeys, apiKeys.teamId, isSession),
    hasNone(users, users.teamId),
    hasNone(events, events.teamId),
    hasNone(webhooks, webhooks.teamId),
  );
  const empty = db
    .select({ id: teams.id })
    .from(teams)
    .where(and(eq(teams.status, "deleting"), isEmpty))
    .limit(DELETED_ROWS);
  return db.delete(teams).where(inArray(teams.id, empty));
});

const DELETIONS = [
  ...[deleteKeys(isApiKey), deleteKeys(isSession), deleteUsers, deleteDeliveries, deleteEvents, deleteWebhooks],
  deleteTeams,
];
export const DELETION_COST = { queries: DELETIONS.length };

/** Deletes a batch of rows of each kind. @returns how many teams are gone */
export async function deleteRowsOfDeletedTeams(deps: Deps): Promise<Batch> {
  const results = await write(
    deps,
    DELETIONS.map((query) => query({})),
    { isIdempotent: true },
  );
  return { rows: results.at(-1)?.meta.changes ?? 0, isLast: results.every(({ meta }) => meta.changes === 0) };
}
