import { sql } from "drizzle-orm";
import { blob, index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

/** The objects in R2 beside the bytes of files: a row for each, from before its first byte until after its last. See beside-writes.ts. */
export const fileObjects = sqliteTable(
  "file_objects",
  {
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** Random, and part of the object's key: an object is never overwritten. */
    version: text().notNull(),
    /** A key of `KINDS` in beside.ts. */
    kind: text().notNull(),
    /** Distinguishes objects of one kind. */
    name: text().notNull().default(""),
    /** A file has at most one current object of a kind and name, and every read opens that one. */
    state: text({ enum: ["writing", "current", "replaced"] }).notNull(),
    /** When the recovery job takes the next step for the object. Null for a current one. */
    dueAt: integer("due_at"),
    /** When it became current. Null if it never has. */
    updatedAt: integer("updated_at"),
    /** The bytes that count against the quota until it is replaced: those of the object, or 0 for a kind that doesn't count. */
    reservedBytes: integer("reserved_bytes").notNull(),
    /** The service may replace it: the service itself has made it, or a visitor. */
    isProvisional: integer("is_provisional", { mode: "boolean" }).notNull().default(false),
    /** A BCP 47 tag. Null if it was not given. */
    language: text(),
    /** The number of cues of a transcript, and of those that were sent and that no player shows. */
    cues: integer(),
    skippedCues: integer("skipped_cues"),
    /** The summary of the object that lists show. Null if they show none. */
    preview: blob({ mode: "buffer" }),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.fileId, t.version] }),
    uniqueIndex("file_objects_current").on(t.teamId, t.fileId, t.kind, t.name).where(sql`${t.state} = 'current'`),
    index("file_objects_due").on(t.dueAt).where(sql`${t.dueAt} is not null`),
    // For the files that have one: most objects are waveforms.
    index("file_objects_transcripts")
      .on(t.teamId, t.fileId)
      .where(sql`${t.kind} = 'transcript' and ${t.state} = 'current'`),
  ],
);
