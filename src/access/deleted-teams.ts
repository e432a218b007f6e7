import { and, eq, not, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import { teams } from "../accounts/teams.schema.ts";
import type { TeamRows } from "../deps.ts";
import { hasRow } from "../platform/db.ts";

/* How the rows of teams with the status `deleting` are found, see upkeep/team-deletion.ts. */

/** Rows of a statement that deletes, each with a few index rows. D1 runs one statement at a time. */
export const DELETED_ROWS = 1000;

/** Rows of a table that belong to deleted teams. Starts at the teams, so that it reads no row of another team. */
export const ofDeletedTeams = (columns: SQL, table: SQLiteTable, teamId: SQLiteColumn, isSelected: SQL = sql`1`) =>
  sql`select ${columns} from ${teams} cross join ${table} on ${teamId} = ${teams.id}
    where ${teams.status} = 'deleting' and ${isSelected}`;

/** Whether the team of a row of `teams` has no such row left. */
export const hasNone = (table: SQLiteTable, teamId: SQLiteColumn, isOfKind?: SQL) =>
  not(hasRow(table, and(eq(teamId, teams.id), isOfKind)));

interface RowsOfDeleted {
  /** The columns that identify a row. */
  key: [SQLiteColumn, ...SQLiteColumn[]];
  /** Only rows of this kind. */
  isOfKind?: SQL;
  /** Only rows of this kind can be deleted now. */
  isDeletable?: SQL;
}

/** The rows of a table that belong to deleted teams. */
export function rowsOfDeleted(
  table: SQLiteTable & { teamId: SQLiteColumn },
  { key, isOfKind, isDeletable = isOfKind }: RowsOfDeleted,
): TeamRows {
  const columns = sql.join(key, sql`, `);
  return {
    remove({ db }) {
      const next = ofDeletedTeams(columns, table, table.teamId, isDeletable);
      return [db.delete(table).where(sql`(${columns}) in (${next} limit ${DELETED_ROWS})`)];
    },
    isGone: hasNone(table, table.teamId, isOfKind),
  };
}
