import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

export const users = sqliteTable(
  "users",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    firstName: text("first_name").notNull(),
    lastName: text("last_name").notNull(),
    email: text().notNull(),
    /** The email as it is compared: NFKC, lower case. */
    emailKey: text("email_key").notNull(),
    /** A PHC string. */
    password: text().notNull(),
    role: text({ enum: ["admin", "member", "contributor", "viewer"] }).notNull(),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
    /** SHA-256 of the secret of the only valid invitation, hex. Null if there is none, see accounts/invitations.ts. */
    invitationHash: text("invitation_hash"),
    invitationEndsAt: integer("invitation_ends_at"),
    /** Its creator, see `principalOf`. Null for a reset that the user asked for. */
    invitationBy: text("invitation_by"),
    /** The folders that they created as a contributor. Only triggers write it. */
    folders: integer().notNull().default(0),
    /** Their resumable uploads that have not ended, also those of upload tokens that they issued. Only triggers write it. */
    unfinishedUploads: integer("unfinished_uploads").notNull().default(0),
    /** The share of a day that the user's account events used, see events/events.ts. Only a trigger writes it. */
    accountEventsUntil: integer("account_events_until").notNull().default(0),
    /** First and last name. It is computed, and stored only in its index. */
    fullName: text("full_name").generatedAlwaysAs(sql`trim(first_name || ' ' || last_name)`, { mode: "virtual" }),
  },
  (t) => [
    uniqueIndex("users_team_email").on(t.teamId, t.emailKey),
    index("users_team").on(t.teamId, t.id),
    index("users_name").on(t.teamId, t.fullName, t.id),
  ],
);
