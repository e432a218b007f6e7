import { type SQL, sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

/** API keys and sessions: the rows that a token identifies. One table, so that authorization reads one row. */
export const apiKeys = sqliteTable(
  "api_keys",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    uuid: text().notNull(),
    name: text().notNull(),
    kind: text({ enum: ["secret", "public", "session"] }).notNull(),
    /** A bit mask, see access/scopes.ts. Null for a user's session, which has the scopes of the user's role. */
    scopes: integer(),
    /** SHA-256 of the token, hex. */
    tokenHash: text("token_hash").notNull(),
    /** Null for a session, whose token is shown only once. */
    encryptedToken: text("encrypted_token"),
    /** The id of the master key that encrypted the token. */
    encryptedWith: text("encrypted_with"),
    /** The key or session that created it. Null for a user's session and for keys that the operator created. */
    createdByKeyId: text("created_by_key_id"),
    /**
     * The first of the keys that replaced each other by rotation until this one. Of a session that a key created, the first of
     * those of that key. Null for a key that replaced none, and for a user's session.
     */
    originId: text("origin_id"),
    /** The user whose session it is, or whose session created it, directly or through other keys. */
    userId: text("user_id"),
    /** Accurate to an hour, see access/last-use.ts. In no index. Null if it was never used. */
    lastUsedAt: integer("last_used_at"),
    /** JSON: the limits of a public key. Null if there are none. */
    limits: text(),
    /** The `User-Agent` of the request that created a session. Null for a key. */
    userAgent: text("user_agent"),
    /** The key that replaced it by the latest rotation. */
    rotatedTo: text("rotated_to"),
    /** JSON: when callers were shown the whole token in the last hour, by the ids of their keys. */
    revealed: text().notNull().default("{}"),
    /** The lifetime at its creation. `expires_at` may be shortened later. */
    lifetimeMilliseconds: integer("lifetime_milliseconds").notNull(),
    createdAt: integer("created_at").notNull(),
    expiresAt: integer("expires_at").notNull(),
    /** When the recovery job next records that the key is about to expire. Null if it has, and for a session. */
    expiryNoticeAt: integer("expiry_notice_at"),
    /** Raised by each change of what a rotation copies. */
    version: integer().notNull().default(0),
  },
  (t) => [
    uniqueIndex("api_keys_token_hash").on(t.tokenHash),
    // Each list skips the rows of the other without reading them.
    index("api_keys_team").on(t.teamId, t.id).where(isApiKey),
    index("api_keys_team_sessions").on(t.teamId, t.id).where(isSession),
    index("api_keys_encrypted_with").on(t.encryptedWith).where(sql`${t.encryptedWith} is not null`),
    index("api_keys_user").on(t.userId).where(sql`${t.userId} is not null`),
    index("api_keys_origin").on(t.originId).where(isSuccessor),
    index("api_keys_team_expiry").on(t.teamId, t.expiresAt).where(isApiKey),
    index("api_keys_expiry").on(t.expiresAt).where(isApiKey),
    index("api_keys_expiring").on(t.expiryNoticeAt).where(isExpiring),
    index("api_keys_session_expiry").on(t.expiresAt).where(isSession),
    // The live sessions of a key are counted without reading the expired ones.
    index("api_keys_session_creator")
      .on(t.createdByKeyId, t.expiresAt)
      .where(sql`${t.kind} = 'session' and ${t.createdByKeyId} is not null`),
  ],
);

// A partial index serves only queries that repeat its condition, so conditions are written out.
export const isApiKey: SQL = sql`${apiKeys.kind} <> 'session'`;
export const isExpiring: SQL = sql`${apiKeys.expiryNoticeAt} is not null`;
export const isSession: SQL = sql`${apiKeys.kind} = 'session'`;
export const isSuccessor: SQL = sql`${apiKeys.originId} is not null and ${apiKeys.kind} <> 'session'`;
