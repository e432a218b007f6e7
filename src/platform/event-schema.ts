import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

/* The tables of events and webhooks. The conventions are those of schema.ts. */

export const EVENT_TYPES = [
  "file.uploaded",
  "file.completed",
  "file.failed",
  "file.deleted",
  "file.trashed",
  "file.restored",
  "file.held",
  "file.released",
  "file.reprocessed",
  "file.updated",
  "link.created",
  "link.revoked",
  "user.created",
  "user.updated",
  "user.deleted",
  "user.invited",
  "user.logged_in",
  "apikey.created",
  "apikey.updated",
  "apikey.rotated",
  "apikey.revealed",
  "apikey.revoked",
  "session.created",
  "session.revoked",
  "team.created",
  "team.updated",
  "team.suspended",
  "team.deleted",
  "webhook.created",
  "webhook.updated",
  "webhook.deleted",
  "webhook.disabled",
] as const;

/** The event log of each team, and that of the operator, in the order of the commits. */
export const events = sqliteTable(
  "events",
  {
    teamId: text("team_id").notNull(),
    /** Ascends within the team in the order of the commits: microseconds since the epoch, or the last value plus one. */
    seq: integer().notNull(),
    type: text({ enum: EVENT_TYPES }).notNull(),
    createdAt: integer("created_at").notNull(),
    /** JSON, see domain/events/events.ts. */
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

/** The URLs that receive a team's events. */
export const webhooks = sqliteTable(
  "webhooks",
  {
    id: text().notNull(),
    teamId: text("team_id").notNull(),
    url: text().notNull(),
    /** JSON: the types that it receives. Null for all. */
    types: text(),
    description: text().notNull(),
    status: text({ enum: ["enabled", "disabled"] }).notNull(),
    /** The team disabled it, its endpoint responded 410, no attempt succeeded for days, or the user who created it was deleted. */
    disabledReason: text("disabled_reason", { enum: ["requested", "gone", "failing", "creator_deleted"] }),
    /** The key or session that created it, and its user. */
    keyId: text("key_id").notNull().default(""),
    userId: text("user_id"),
    encryptedSecret: text("encrypted_secret").notNull(),
    /** The previous secret also signs until this time. */
    oldEncryptedSecret: text("old_encrypted_secret"),
    oldSecretEndsAt: integer("old_secret_ends_at"),
    /** The id of the master key that encrypted both. */
    encryptedWith: text("encrypted_with").notNull(),
    /** Consecutive failed attempts, and when the first of them was. */
    failures: integer().notNull().default(0),
    failingSince: integer("failing_since"),
    /** The end of its pause: nothing is sent before. Null if it is not paused. */
    resumeAt: integer("resume_at"),
    /** The invocation that sends its deliveries. Null if none does. */
    leaseId: text("lease_id"),
    /** When the lease expires. Without a lease: when its last round, and the rest after it, ended. */
    leaseEndsAt: integer("lease_ends_at").notNull().default(0),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
    /** JSON: its attempts in each hour of the last day, see domain/events/retries.ts. */
    attemptCounts: text("attempt_counts").notNull().default("[]"),
    /** JSON: the response bodies of its latest failures, see domain/events/attempts.ts. */
    failureBodies: text("failure_bodies").notNull().default("[]"),
    /** JSON: the latest attempt, with its response body if it failed. Null before the first. */
    lastResult: text("last_result"),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.id] }), index("webhooks_encrypted_with").on(t.encryptedWith)],
);

/** One event, to be sent to one webhook. */
export const deliveries = sqliteTable(
  "deliveries",
  {
    webhookId: text("webhook_id").notNull(),
    /** The number of the event. */
    seq: integer().notNull(),
    teamId: text("team_id").notNull(),
    type: text({ enum: EVENT_TYPES }).notNull(),
    status: text({ enum: ["pending", "succeeded", "failed"] }).notNull(),
    /** JSON: the latest attempts, see domain/events/attempts.ts. */
    attemptLog: text("attempt_log").notNull().default("[]"),
    /** Attempts since a user last redelivered or replayed it. */
    attemptCount: integer("attempt_count").notNull().default(0),
    /** When the next attempt is due. Null once the delivery has ended. */
    dueAt: integer("due_at"),
    createdAt: integer("created_at").notNull(),
    /** Whether its latest attempt failed. */
    isFailing: integer("is_failing", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.webhookId, t.seq] }),
    index("deliveries_due").on(t.webhookId, t.dueAt).where(sql`due_at is not null`),
    // With `is_failing` among its columns: otherwise SQLite prefers the primary key.
    index("deliveries_failing").on(t.webhookId, t.isFailing, t.seq).where(sql`is_failing = 1`),
  ],
);
