import { integer, sqliteTable } from "drizzle-orm/sqlite-core";

/** A single row: whether the recovery job runs in this database, see upkeep/heartbeat.ts. */
export const recovery = sqliteTable("recovery", {
  id: integer().primaryKey(),
  /** When the last run ended, or when a new database was first checked. */
  recoveredAt: integer("recovered_at").notNull(),
  /** When a request last asked for a run that was overdue. */
  requestedAt: integer("requested_at").notNull(),
});
