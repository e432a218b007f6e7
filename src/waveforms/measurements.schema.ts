import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The files whose waveforms the service measures. A trigger deletes the row of a file that is deleted. */
export const measurements = sqliteTable(
  "measurements",
  {
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** How often it began, since the file was last completed. */
    attempts: integer().notNull(),
    /** When the recovery job sends the message of the next attempt. Null if there is none to make. */
    dueAt: integer("due_at"),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.fileId] }),
    index("measurements_due").on(t.dueAt).where(sql`${t.dueAt} is not null`),
  ],
);
