import { type SQL, sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import type { TeamOfFile } from "./files.schema.ts";

/**
 * The files that have left `files`: those in the trash, and those that only wait for their bytes to be deleted. A file is in
 * one of the two tables. It counts in the usage of its team until its row here is deleted, after its bytes.
 */
const removedTable = sqliteTable(
  "removed",
  {
    teamId: text("team_id").notNull().$type<TeamOfFile>(),
    id: text().notNull(),
    /** The user whose file it is, as in `files`. */
    userId: text("user_id"),
    /** It names the objects in R2. */
    originalName: text("original_name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    reservedBytes: integer("reserved_bytes").notNull(),
    /** When the recovery job erases it. */
    dueAt: integer("due_at").notNull(),
    /** When it was moved to the trash. Null if it is not there: then it only waits for its bytes to be deleted. */
    trashedAt: integer("trashed_at"),
    /** JSON, see files/holds.ts. Only a file in the trash has one. */
    hold: text(),
    /** JSON: the other columns of the file, from which it is restored. Null if it is not in the trash. */
    file: text(),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.id] }),
    index("removed_due").on(t.dueAt).where(isErasable),
    // Costs a row only for a file that has an owner. The primary key serves the list of the team.
    index("removed_owner").on(t.teamId, t.userId, t.id, t.sizeBytes).where(isOwnedInTrash),
    index("removed_held").on(t.teamId).where(isHeldInTrash),
  ],
);

/** Like `files`, its type lacks `teamId`: see access/own-files.ts. */
export const removed: Omit<typeof removedTable, "teamId"> = removedTable;
/** For own-files.ts, joins, and jobs. */
export const teamOfRemoved = removedTable.teamId;

export const isTrashed: SQL = sql`${removed.trashedAt} is not null`;
/** In the trash of an owner, who is a user, see access/own-files.ts. */
export const isOwnedInTrash: SQL = sql`${removed.trashedAt} is not null and ${removed.userId} is not null`;
export const isHeldInTrash: SQL = sql`${removed.hold} is not null`;
/** Without a hold that forbids to erase it. */
export const isErasable: SQL = sql`${removed.hold} is null`;
