import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

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
    /**
     * Null while it is enabled: then it follows the log of its team (a row of `followers`). The team disabled it, its endpoint
     * responded 410, no attempt succeeded for days, or the user who created or redirected it is gone.
     */
    disabledReason: text("disabled_reason", {
      enum: ["requested", "gone", "failing", "creator_deleted", "creator_demoted"],
    }),
    /** The key or session that created it, and its user. */
    keyId: text("key_id").notNull().default(""),
    userId: text("user_id"),
    /**
     * JSON: who last changed its URL, secret or status (`keyId`, `userId`), and the users who set the present `url`, `secret` and
     * `status`, unless that was its creator or a key without a user. `rotatedBy`: the key or session of the last rotation.
     */
    changedBy: text("changed_by").notNull(),
    encryptedSecret: text("encrypted_secret").notNull(),
    /** The previous secret also signs until this time. */
    oldEncryptedSecret: text("old_encrypted_secret"),
    oldSecretEndsAt: integer("old_secret_ends_at"),
    /** The id of the master key that encrypted both. */
    encryptedWith: text("encrypted_with").notNull(),
    /** +1 when it is enabled or its URL changes: its object then forgets the failures. */
    epoch: integer().notNull().default(0),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.id] }), index("webhooks_encrypted_with").on(t.encryptedWith)],
);

export type WebhookKey = Pick<typeof webhooks.$inferSelect, "teamId" | "id">;
