import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The event log of each team, and that of the operator, in the order of the commits. */
export const events = sqliteTable(
  "events",
  {
    teamId: text("team_id").notNull(),
    /** Ascends within the team in the order of the commits: microseconds since the epoch, or the last value plus one. */
    seq: integer().notNull(),
    type: text().notNull(),
    createdAt: integer("created_at").notNull(),
    /** JSON, see events/events.ts. */
    actor: text().notNull(),
    subjectId: text("subject_id").notNull(),
    /** Null if the subject has no version. */
    subjectVersion: integer("subject_version"),
    /** JSON. */
    data: text().notNull(),
    /**
     * The number of file and link events up to this one, which `MAX_TEAM_EVENTS` limits. Only the oldest of them are ever
     * deleted, so the first and the last position give the count, with no counter to write and no rows to scan.
     */
    position: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.seq] })],
);
