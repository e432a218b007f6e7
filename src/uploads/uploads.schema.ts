import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

export const isUnfinished = sql`is_finished = 0`;
export const isFinished = sql`is_finished = 1`;
/** Counts against the limits of unfinished uploads: also one that was canceled, until its bytes are gone. */
export const holdsQuota = sql`(is_finished = 0 or is_canceled = 1)`;
export const isIncomplete = sql`is_finished = 0 and offset_bytes < size_bytes`;

/** Resumable uploads. A finished one stays for a day to answer clients that missed the last response. */
export const uploads = sqliteTable(
  "uploads",
  {
    fileId: text("file_id").notNull(),
    teamId: text("team_id").notNull(),
    /** The API key that created the upload, and whether a visitor did: with a public key, or an upload token that it issued. */
    keyId: text("key_id").notNull(),
    isPublic: integer("is_public", { mode: "boolean" }).notNull(),
    /** The user of that key, as in the file. A creation counts the uploads of a contributor. */
    userId: text("user_id"),
    /** SHA-256 of the secret in the upload URL, hex. */
    secretHash: text("secret_hash").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    /** The bytes stored in parts and chunks. A reported offset never decreases. */
    offsetBytes: integer("offset_bytes").notNull().default(0),
    partBytes: integer("part_bytes").notNull(),
    /** `Upload-Metadata` as the client sent it. */
    metadata: text().notNull(),
    /** These three are null until the first part is full. `multipart_id` is null again once the parts are assembled. */
    multipartId: text("multipart_id"),
    mimeType: text("mime_type"),
    fileType: text("file_type"),
    /** No two requests use the same number, so an older request cannot replace the parts of a newer one. */
    nextPart: integer("next_part").notNull().default(1),
    /** JSON: the chunks that hold the bytes after the last full part, see platform/part.ts. Null if there are none. */
    chunks: text("chunks"),
    /** +1 with every request that writes. The newest wins, and older ones are fenced off. */
    epoch: integer().notNull().default(0),
    /** A request is writing, or died while it did. */
    isWriting: integer("is_writing", { mode: "boolean" }).notNull().default(false),
    /** The file is committed or deleted, and further bytes are rejected. */
    isFinished: integer("is_finished", { mode: "boolean" }).notNull().default(false),
    createdAt: integer("created_at").notNull(),
    /** When the recovery job takes the next step: assemble the upload, expire it, or delete the row. */
    dueAt: integer("due_at").notNull(),
    /** R2 may hold chunks that no row names: a request left one, spilled a part there, or died. */
    hasLeftovers: integer("has_leftovers", { mode: "boolean" }).notNull().default(false),
    /** It ended before its file was committed. Its quota is given back when its row is deleted, after its bytes. */
    isCanceled: integer("is_canceled", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.fileId] }),
    // Users wait for unfinished ones, which must not wait behind those that are only deleted. One index of both that began with
    // `is_finished` would be searched by other queries, which would then read the uploads of all teams.
    index("uploads_unfinished_due").on(t.dueAt).where(isUnfinished),
    index("uploads_finished_due").on(t.dueAt).where(isFinished),
    // In the order of the list, and with the columns that a creation counts.
    index("uploads_unfinished").on(t.teamId, t.fileId, t.isPublic, t.keyId, t.userId).where(holdsQuota),
  ],
);

/** The full parts of an unfinished upload, which R2 can't list. Each except the last has the upload's `part_bytes`. */
export const uploadParts = sqliteTable(
  "upload_parts",
  {
    fileId: text("file_id").notNull(),
    /** In the order of the bytes, with gaps. */
    number: integer().notNull(),
    etag: text().notNull(),
    /** MD5 of the sent bytes, hex. */
    md5: text().notNull(),
  },
  (t) => [primaryKey({ columns: [t.fileId, t.number] })],
);
