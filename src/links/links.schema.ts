import { sql } from "drizzle-orm";
import { index, integer, primaryKey, real, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** Revocable download links. A trigger deletes the links of a file with the file. */
export const links = sqliteTable(
  "links",
  {
    id: text().notNull(),
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** SHA-256 of the secret in the link's URL, hex. */
    secretHash: text("secret_hash").notNull(),
    /** Its name on its page and in lists; null for the file's own name. */
    name: text(),
    /** The part that its page opens with. Null: from the start, to the end. */
    startSeconds: real("start_seconds"),
    endSeconds: real("end_seconds"),
    disposition: text({ enum: ["attachment", "inline"] }).notNull(),
    /** Null: never. */
    expiresAt: integer("expires_at"),
    createdAt: integer("created_at").notNull(),
    /** The key that created it, and its user if it was a user's session. */
    keyId: text("key_id").notNull(),
    userId: text("user_id"),
  },
  (t) => [
    primaryKey({ columns: [t.id] }),
    index("links_file").on(t.teamId, t.fileId, t.id),
    index("links_expiry").on(t.expiresAt).where(sql`${t.expiresAt} is not null`),
  ],
);
