import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The readers of a team's log: each row is a Durable Object that is woken by the events of its types. */
export const followers = sqliteTable(
  "followers",
  {
    teamId: text("team_id").notNull(),
    /** Leads to the class of its object, see `followers` in service.ts. */
    kind: text().notNull(),
    id: text().notNull(),
    /** JSON: the types that wake it. Null for all. */
    types: text(),
    /** It follows the events with greater numbers: the last one when it began. */
    since: integer().notNull(),
    /** The last event that its object has read, by number, as last reported. Some minutes old. 0 before the first report. */
    cursor: integer().notNull().default(0),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.kind, t.id] })],
);

export type FollowerKey = Pick<typeof followers.$inferSelect, "teamId" | "kind" | "id">;
