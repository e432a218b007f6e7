import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

// Instants are milliseconds since the epoch. `version` is what the interface calls `__v`.

export const apiKeys = sqliteTable(
  "api_keys",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    uuid: text().notNull(),
    name: text().notNull(),
    isPublic: integer("is_public", { mode: "boolean" }).notNull(),
    /** SHA-256 of the token, hex. */
    tokenHash: text("token_hash").notNull(),
    encryptedToken: text("sealed_token").notNull(),
    /** The id of the master key that encrypted it. */
    encryptedWith: text("sealed_with").notNull(),
    /** Set on a key that a login made: it dies with the user. */
    userId: text("user_id"),
    createdAt: integer("created_at").notNull(),
    expiresAt: integer("expires_at").notNull(),
  },
  (t) => [
    uniqueIndex("api_keys_token_hash").on(t.tokenHash),
    index("api_keys_team").on(t.teamId, t.id),
    index("api_keys_sealed_with").on(t.encryptedWith),
    index("api_keys_user").on(t.userId).where(sql`user_id is not null`),
    index("api_keys_login_expiry").on(t.expiresAt).where(sql`user_id is not null`),
  ],
);

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
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
  },
  (t) => [uniqueIndex("users_team_email").on(t.teamId, t.emailKey), index("users_team").on(t.teamId, t.id)],
);

export const FILE_STATES = ["receiving", "pending", "processing", "completed", "failed", "deleting"] as const;

/** In which states a file exists for its team. Written out, since an index serves only a query that repeats its text. */
export const isListed = sql`status not in ('receiving', 'deleting')`;

export const files = sqliteTable(
  "files",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    originalName: text("original_name").notNull(),
    status: text({ enum: FILE_STATES }).notNull(),
    /** What the file counts for in the team's quota: an upper bound while it is received, its size from then on. */
    reservedBytes: integer("reserved_bytes").notNull(),
    /** These five are null until every byte is stored. */
    sizeBytes: integer("size_bytes"),
    /** Hex, of the bytes as they came in; of a resumable upload as they were read back, and null until then. */
    sha256: text(),
    etag: text(),
    mimeType: text("mime_type"),
    fileType: text("file_type"),
    idempotencyKey: text("idempotency_key"),
    /** JSON, see domain/audio/inspect.ts. */
    audio: text(),
    failureCode: text("failure_code"),
    failureMessage: text("failure_message"),
    processedAt: integer("processed_at"),
    /** Claims since the file was last made pending by a person: one that kills its worker each time must end. */
    attempts: integer().notNull().default(0),
    /** When recovery is to look at the file; null once nothing is owed. While processing, the end of the lease. */
    dueAt: integer("due_at"),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    /** +1 with every change that shows; also the fencing token of a processing claim. */
    version: integer().notNull().default(0),
  },
  (t) => [
    index("files_team_listed").on(t.teamId, t.id).where(isListed),
    index("files_due").on(t.status, t.dueAt).where(sql`due_at is not null`),
    uniqueIndex("files_idempotency").on(t.teamId, t.idempotencyKey).where(sql`idempotency_key is not null`),
  ],
);

/** What a team's rows in `files` add up to, hidden ones included. Triggers keep it; nothing else writes it. */
export const teamUsage = sqliteTable("team_usage", {
  teamId: text("team_id").primaryKey(),
  files: integer().notNull(),
  bytes: integer().notNull(),
});

/** Written out for the same reason. */
export const isUnfinished = sql`is_finished = 0`;

/** A resumable upload, and for a day after its end what answers a client that missed the last answer. */
export const uploads = sqliteTable(
  "uploads",
  {
    fileId: text("file_id").primaryKey(),
    teamId: text("team_id").notNull(),
    /** SHA-256 of the secret in the upload's address, hex. */
    secretHash: text("secret_hash").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    /** What is stored for good, in parts and in the stash: an offset that was told never falls. */
    offsetBytes: integer("offset_bytes").notNull().default(0),
    partBytes: integer("part_bytes").notNull(),
    /** `Upload-Metadata`, as it was sent. */
    metadata: text().notNull(),
    /** What the client says the SHA-256 is, hex. */
    sha256: text(),
    /** These three are null until the first part is full. */
    multipartId: text("multipart_id"),
    mimeType: text("mime_type"),
    fileType: text("file_type"),
    /** No number is used by two requests: what an older one still sends can't replace what a newer one has sent. */
    nextPart: integer("next_part").notNull().default(1),
    /** Which object has the bytes behind the last full part; null where there are none. */
    stash: text(),
    /** +1 with every request that writes: the newest wins, and an older one finds itself fenced off. */
    epoch: integer().notNull().default(0),
    /** A request is writing, or died while it did. */
    isWriting: integer("is_writing", { mode: "boolean" }).notNull().default(false),
    isFinished: integer("is_finished", { mode: "boolean" }).notNull().default(false),
    createdAt: integer("created_at").notNull(),
    /** When recovery is to look: the upload expires, has not been put together, or need not be remembered any longer. */
    dueAt: integer("due_at").notNull(),
  },
  (t) => [index("uploads_due").on(t.dueAt), index("uploads_unfinished").on(t.teamId).where(isUnfinished)],
);

/** The full parts of an unfinished upload; R2 can't list them. Each has the upload's `part_bytes`, but the last. */
export const uploadParts = sqliteTable(
  "upload_parts",
  {
    fileId: text("file_id").notNull(),
    /** They ascend as the bytes do, with gaps. */
    number: integer().notNull(),
    etag: text().notNull(),
    /** Of what was sent, hex. */
    md5: text().notNull(),
  },
  (t) => [primaryKey({ columns: [t.fileId, t.number] })],
);
