import { type SQL, sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

/**
 * The uploads: one that is arriving, and for a day one that has ended, if someone may ask for it. The commit inserts the file, and
 * deletes the row in the same batch or keeps it as a receipt: of a resumable upload, of one with an idempotency key, and of
 * one with an upload token. It counts in the usage of its team until it is committed, or its bytes are gone.
 */
export const uploads = sqliteTable(
  "uploads",
  {
    teamId: text("team_id").notNull(),
    /** The id that the file has once it is committed. */
    fileId: text("file_id").notNull(),
    /** A canceled one waits for its bytes to be deleted. */
    status: text({ enum: ["receiving", "committed", "canceled"] })
      .notNull()
      .default("receiving"),
    /** The API key or session that began the upload, and whether a visitor did: with a public key, or an upload token that it issued. */
    keyId: text("key_id").notNull(),
    isPublic: integer("is_public", { mode: "boolean" }).notNull(),
    /** The user of that key. A creation counts the uploads of a contributor. */
    userId: text("user_id"),
    /** The upload token that began the upload, and the one that finished it. */
    uploadTokenId: text("upload_token_id"),
    finishedByTokenId: text("finished_by_token_id"),
    /** The identity that the upload counts for among the visitors, see `visitors`. Null if no visitor began it. */
    visitorId: text("visitor_id"),
    idempotencyKey: text("idempotency_key"),
    originalName: text("original_name").notNull(),
    /** An upper bound, if it is a form upload. */
    sizeBytes: integer("size_bytes").notNull(),
    /** The bytes that count against the quota of the team: all, or those that the announcement of a visitor reserves. */
    reservedBytes: integer("reserved_bytes").notNull().default(0),
    /** JSON: the file types that this key may upload. Null for all. */
    allowedTypes: text("allowed_types"),
    createdAt: integer("created_at").notNull(),
    /** When a form upload with an idempotency key last recorded that it receives bytes. */
    updatedAt: integer("updated_at").notNull(),
    /** When the recovery job takes the next step: assemble the upload, cancel it, or delete the row. */
    dueAt: integer("due_at").notNull(),

    /* Only resumable uploads have these. */

    /** SHA-256 of the secret in the upload URL, hex. Null for a form upload. */
    secretHash: text("secret_hash"),
    /** The bytes stored in parts and chunks. A reported offset never decreases. */
    offsetBytes: integer("offset_bytes").notNull().default(0),
    /** When it last made progress, see room.ts, and how many bytes it had received then. */
    progressAt: integer("progress_at").notNull().default(0),
    progressBytes: integer("progress_bytes").notNull().default(0),
    partBytes: integer("part_bytes").notNull().default(0),
    /** `Upload-Metadata` as the client sent it. */
    metadata: text().notNull().default(""),
    /** JSON: the columns of the file that the creation set, see uploads/upload.ts. Null once the upload has ended. */
    properties: text(),
    /** The SHA-256 that the client stated, hex. */
    statedSha256: text("stated_sha256"),
    /** These three are null until the first part is full. `multipart_id` is null again once the parts are assembled. */
    multipartId: text("multipart_id"),
    mimeType: text("mime_type"),
    fileType: text("file_type"),
    /** No two requests use the same number, so an older request cannot replace the parts of a newer one. */
    nextPart: integer("next_part").notNull().default(1),
    /** JSON: the chunks that hold the bytes after the last full part, see platform/part.ts. Null if there are none. */
    chunks: text(),
    /** +1 with every request that writes. The newest wins, and older ones are fenced off. */
    epoch: integer().notNull().default(0),
    /** The newest request is writing, or died while it did. */
    isWriting: integer("is_writing", { mode: "boolean" }).notNull().default(false),
    /** Requests that a newer one has fenced off while they were writing, and that have not ended yet, or died. */
    fencedOff: integer("fenced_off").notNull().default(0),
    /** R2 may hold chunks that no row names: a request left one, spilled a part there, or died. */
    hasLeftovers: integer("has_leftovers", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.fileId] }),
    // Users wait for uploads to assemble, which must not wait behind rows that are only deleted. One index of both that began with
    // the status would be searched by other queries, which would then read the uploads of all teams.
    index("uploads_receiving_due").on(t.dueAt).where(isReceiving),
    index("uploads_ended_due").on(t.dueAt).where(isEnded),
    index("uploads_unfinished").on(t.teamId, t.keyId, t.visitorId).where(isUnfinishedResumable),
    // In the order in which visitors' uploads give way to others.
    index("uploads_silent").on(t.teamId, t.progressAt).where(givesWay),
    // In the order of the list, with the column by which it selects.
    index("uploads_reserved").on(t.teamId, t.fileId, t.userId).where(isReserved),
    index("uploads_visitor").on(t.teamId, t.visitorId).where(sql`${t.uploadTokenId} is not null`),
    uniqueIndex("uploads_idempotency").on(t.teamId, t.idempotencyKey).where(sql`${t.idempotencyKey} is not null`),
  ],
);

export const isReceiving: SQL = sql`${uploads.status} = 'receiving'`;
export const isCommitted: SQL = sql`${uploads.status} = 'committed'`;
export const isCanceled: SQL = sql`${uploads.status} = 'canceled'`;
export const isEnded: SQL = sql`${uploads.status} <> 'receiving'`;
export const isResumable: SQL = sql`${uploads.secretHash} is not null`;
/** Some request is writing, or died while it did: the upload may not be removed yet. */
export const hasWriters: SQL = sql`(${uploads.isWriting} or ${uploads.fencedOff} > 0)`;
/** Holds quota: is arriving, or canceled, until its bytes are gone. */
export const isReserved: SQL = sql`${uploads.status} <> 'committed'`;
/** Counts against the limits of unfinished uploads: also one that was canceled, until its bytes are gone. */
export const isUnfinishedResumable: SQL = sql`(${uploads.status} <> 'committed' and ${uploads.secretHash} is not null)`;
/** Has none of its bytes, or not all. Those of a form upload are not counted before its commit. */
export const isIncomplete: SQL = sql`${uploads.status} = 'receiving' and ${uploads.offsetBytes} < ${uploads.sizeBytes}`;

/** Half of it or less has arrived, or less than 64 KiB, which cost little to repeat. SQLite finds no index by a condition with "or". */
const isMostlyMissing = sql`${uploads.offsetBytes} <= max(65535, ${uploads.sizeBytes} / 2)`;
/** The upload of a visitor that gives way to others once it is silent, see room.ts. */
export const givesWay: SQL = sql`${uploads.isPublic} and ${uploads.secretHash} is not null and ${isIncomplete} and ${isMostlyMissing}`;

/** The uploads of an upload token. By itself, SQLite would read all of the team. */
export const visitorUploads = sql`${uploads} indexed by uploads_visitor`;

/** The uploads that may give way, in the order of their progress. */
export const silentUploads = sql`${uploads} indexed by uploads_silent`;

/** A query of the unfinished uploads of a key reads only this index. By itself, SQLite would read the receipts, too. */
export const unfinishedUploads = sql`${uploads} indexed by uploads_unfinished`;

/** The same for every upload that holds quota. */
export const reservedUploads = sql`${uploads} indexed by uploads_reserved`;

/**
 * The visitors of a team, with whom a limit of one visitor counts its uploads: the page's visitor that upload tokens name, one upload
 * token, or a public key. Triggers write the counters, and a repeated creation takes back what they counted.
 */
export const visitors = sqliteTable(
  "visitors",
  {
    teamId: text("team_id").notNull(),
    id: text().notNull(),
    /** The public key, or the key or session that issued the upload tokens. */
    keyId: text("key_id").notNull(),
    /** Resumable uploads that have not ended. */
    unfinishedUploads: integer("unfinished_uploads").notNull(),
    /** All uploads, also those that have left no trace. One that is created again with its idempotency key counts once. */
    begunUploads: integer("begun_uploads").notNull(),
    /** When no limit counts them any more. The row is deleted once the visitor has no unfinished upload either. */
    dueAt: integer("due_at").notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.id] }),
    // Finds who has the most.
    index("visitors_unfinished").on(t.teamId, t.unfinishedUploads).where(sql`${t.unfinishedUploads} > 1`),
    index("visitors_due").on(t.dueAt).where(sql`${t.unfinishedUploads} = 0`),
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
