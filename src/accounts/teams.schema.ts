import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The teams. Only triggers write the usage counters, which count removed files until their bytes are gone, and exclude sessions. No index has one. */
export const teams = sqliteTable(
  "teams",
  {
    id: text().notNull(),
    name: text().notNull(),
    /** `deleting` is final: the recovery job deletes everything that the team has, and then this row. */
    status: text({ enum: ["active", "suspended", "deleting"] }).notNull(),
    /** The quota. Null: `MAX_TEAM_BYTES` and `MAX_TEAM_FILES`. */
    maxBytes: integer("max_bytes"),
    maxFiles: integer("max_files"),
    files: integer().notNull().default(0),
    bytes: integer().notNull().default(0),
    /** The part of both that is in the trash. */
    trashFiles: integer("trash_files").notNull().default(0),
    trashBytes: integer("trash_bytes").notNull().default(0),
    /** Gets an email if a key is about to expire, or a webhook is disabled. Null: no one does. */
    notificationEmail: text("notification_email"),
    /** Files of this age are deleted. Null: never. */
    retentionDays: integer("retention_days"),
    /** JSON: the actor who set it. Null if it is not set. */
    retentionBy: text("retention_by"),
    /** The files with lower ids had this age before, see trash/expiry.ts. */
    retentionReached: text("retention_reached").notNull().default(""),
    /** When the recovery job looks for files of this age. Null: never. */
    retentionDueAt: integer("retention_due_at"),
    /** The bytes that unfinished uploads of visitors reserve. */
    publicBytes: integer("public_bytes").notNull().default(0),
    /** Resumable uploads that have not ended, and how many of them are visitors'. */
    unfinishedUploads: integer("unfinished_uploads").notNull().default(0),
    visitorUploads: integer("visitor_uploads").notNull().default(0),
    apiKeys: integer("api_keys").notNull().default(0),
    links: integer().notNull().default(0),
    folders: integer().notNull().default(0),
    users: integer().notNull().default(0),
    /** File and link events up to this number are deleted: they were above `MAX_TEAM_EVENTS`. */
    eventsPurgedTo: integer("events_purged_to").notNull().default(0),
    /** The share of a day that account events used, see events/events.ts. Only a trigger writes it. */
    accountEventsUntil: integer("account_events_until").notNull().default(0),
    /** The users with the role `admin`. Only a secret key can remove the last one, see accounts/users.ts. */
    admins: integer().notNull().default(0),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
  },
  (t) => [
    primaryKey({ columns: [t.id] }),
    index("teams_name").on(t.name, t.id),
    index("teams_status").on(t.status, t.id),
    index("teams_status_name").on(t.status, t.name, t.id),
    index("teams_retention").on(t.retentionDueAt).where(sql`${t.retentionDueAt} is not null`),
  ],
);
