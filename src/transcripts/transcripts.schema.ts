import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The transcripts of files, which are objects in R2. A trigger deletes the row of a file that is deleted. */
export const transcripts = sqliteTable(
  "transcripts",
  {
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** A BCP 47 tag. Null if it was not given. */
    language: text(),
    /** Null if there is none: none is stored yet, or it was deleted. `updatedAt` is, too. */
    sizeBytes: integer("size_bytes"),
    updatedAt: integer("updated_at"),
    /** When the last write that may still be in progress began. Null if there is none. */
    writingSince: integer("writing_since"),
    /** Random: another one for every write that begins, so that a claim can be repeated. */
    version: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.fileId] })],
);
