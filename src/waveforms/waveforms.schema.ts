import { sql } from "drizzle-orm";
import { blob, index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The waveforms of files, which are objects in R2. A trigger deletes the row of a file that is deleted. */
export const waveforms = sqliteTable(
  "waveforms",
  {
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** The waveform in small, a byte for each peak, see waveforms.ts. Null until the object is stored. */
    peaks: blob({ mode: "buffer" }),
    /** When the last write that may still be in progress began. Null if there is none. */
    writingSince: integer("writing_since"),
    /** How often the service began to measure it. Null once a client has set it: then the service never does. */
    attempts: integer().default(0),
    /** When the recovery job sends the message of the next attempt. Null if there is none to make. */
    dueAt: integer("due_at"),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.fileId] }),
    index("waveforms_due").on(t.dueAt).where(sql`due_at is not null`),
  ],
);
