import { type SQL, sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

export const FILE_STATES = ["pending", "processing", "completed", "failed"] as const;

/** The texts of `search_keys` that a search finds, separated by a character that no query has. SQLite forbids to name the table here. */
const searchText = sql`ifnull(search_keys ->> 'title', '') || char(1) || ifnull(search_keys ->> 'artist', '') || char(1) || ifnull(search_keys ->> 'reference', '') || char(1) || ifnull(search_keys ->> 'folder', '') || char(1) || ifnull(search_keys ->> 'tagText', '')`;

/** A brand that no plain string has: a condition on the team of a file compiles only in own-files.ts. */
export type TeamOfFile = string & { readonly isTeamOfFile: true };

/**
 * SQLite keeps the beginning of a row in its page, and the rest of a long row in other pages. What lists filter by comes
 * first, and long texts come last, so skipping a row reads one page.
 */
const filesTable = sqliteTable(
  "files",
  {
    id: text().notNull(),
    teamId: text("team_id").notNull().$type<TeamOfFile>(),
    status: text({ enum: FILE_STATES }).notNull(),
    fileType: text("file_type").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    /** Null until processed. */
    processedAt: integer("processed_at"),
    /** Its owner: the user whose session or key began the upload. Null for a key without a user. */
    userId: text("user_id"),
    /** Whether a transcript is current among the objects beside it, see beside-writes.ts. */
    hasTranscript: integer("has_transcript", { mode: "boolean" }).notNull().default(false),
    /** The bytes that count against the team's quota: those of the file and of its transcript. */
    reservedBytes: integer("reserved_bytes").notNull(),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    /** +1 with every visible change. */
    version: integer().notNull().default(0),
    /** Claims since a user last reprocessed the file. The limit ends a file that kills its worker each time. */
    attempts: integer().notNull().default(0),
    /** +1 with every claim. It is the fencing token of the worker that processes the file. */
    claim: integer().notNull().default(0),
    /** When the recovery job takes the next step for the file. Null if there is none. */
    dueAt: integer("due_at"),
    /** When the lease of the worker that processes the file expires. */
    leaseEndsAt: integer("lease_ends_at"),
    /** When the recovery job moves it to the trash, or without one deletes it. Null: never. */
    deleteAfter: integer("delete_after"),
    /** JSON: who set `delete_after`, or the retention that did. Null if `delete_after` is. */
    deleteAfterBy: text("delete_after_by"),
    /** How often it was restored from the trash. Signed links of an earlier number are invalid. */
    restores: integer().notNull().default(0),
    mimeType: text("mime_type").notNull(),
    failureCode: text("failure_code"),
    originalName: text("original_name").notNull(),
    /** The display and download name. Null for the original name. */
    name: text(),
    /** The name as it is filtered, sorted and searched, see files/names.ts. */
    nameKey: text("name_key").notNull().default(""),
    /** The path without a slash at either end. Empty for a file outside all folders. */
    folder: text().notNull().default(""),
    /** When it came into its folder. A change of the folder that was requested before does not move it. */
    folderSince: integer("folder_since").notNull().default(0),
    /** The team's own id for the file. */
    reference: text(),
    /** Hex, of the received bytes. For a resumable upload, of the bytes read back, and null until then. */
    sha256: text(),
    etag: text().notNull(),
    /** The SHA-256 that the client of a resumable upload stated, hex. Processing compares it with the stored bytes. */
    statedSha256: text("stated_sha256"),
    /** The key or session that began the upload. */
    keyId: text("key_id").notNull(),
    /** The upload token that began its upload, or the owner of that token. */
    uploadTokenId: text("upload_token_id"),
    failureMessage: text("failure_message"),
    /** JSON: the file types that this key may upload. Processing compares them with what it finds. Null for all. */
    allowedTypes: text("allowed_types"),
    /** A JSON array of strings. Triggers keep the same tags in `file_tags`. */
    tags: text().notNull().default("[]"),
    /** A JSON object that the team sets. */
    metadata: text().notNull().default("{}"),
    /** A JSON object: what a search finds besides the name, folded, see files/names.ts. */
    searchKeys: text("search_keys").notNull().default("{}"),
    /** JSON, see audio/inspect.ts. */
    audio: text(),
    /** JSON, see files/holds.ts. Null if nothing forbids the deletion. */
    hold: text(),
    /** It is computed, and stored only in the indexes that a search reads. */
    searchText: text("search_text").generatedAlwaysAs(searchText, { mode: "virtual" }),
    /** The path with a separator that sorts before every other character: a folder and those below it are one range. */
    folderKey: text("folder_key").generatedAlwaysAs(sql`replace(folder, '/', char(1))`, { mode: "virtual" }),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.id] }),
    // The primary key serves the list of all files.
    // A search reads only this index, or that of an owner.
    index("files_name").on(t.teamId, t.nameKey, t.id, t.searchText),
    // Each of these three costs a row only for a file that has a folder or a reference.
    index("files_folder").on(t.teamId, t.folderKey, t.id).where(isInFolder),
    index("files_folder_name").on(t.teamId, t.folderKey, t.nameKey, t.id).where(isInFolder),
    index("files_reference").on(t.teamId, t.reference, t.id).where(hasReference),
    // Most files are completed audio files, and the index of all files serves their lists. A claim changes none of these indexes.
    index("files_unprocessed").on(t.teamId, t.id).where(isUnprocessed),
    index("files_failed").on(t.teamId, t.id).where(isFailed),
    index("files_type").on(t.teamId, t.fileType, t.id).where(isNotAudio),
    index("files_transcribed").on(t.teamId, t.id).where(isTranscribed),
    // Each of these costs a row only for a file that has an owner.
    index("files_owner").on(t.teamId, t.userId, t.id, t.sizeBytes).where(isOwned),
    index("files_owner_name").on(t.teamId, t.userId, t.nameKey, t.id, t.searchText).where(isOwned),
    index("files_owner_folder").on(t.teamId, t.userId, t.folderKey, t.id).where(isOwnedInFolder),
    index("files_expiring").on(t.deleteAfter).where(isExpiring),
    index("files_held").on(t.teamId, t.folderKey, t.id).where(isHeld),
    index("files_due").on(t.dueAt).where(isAwaitingStep),
  ],
);

/**
 * The files. Their type lacks `teamId`, because a caller may not see all files of its team: a query for a caller takes its
 * condition from access/own-files.ts.
 */
export const files: Omit<typeof filesTable, "teamId"> = filesTable;
/** For own-files.ts, joins, and jobs. */
export const teamOfFile = filesTable.teamId;

/** Has a time at which the recovery job takes the next step. */
export const isAwaitingStep: SQL = sql`${files.dueAt} is not null`;
/** Pending or processing. A condition on the status would rewrite the index entry whenever it changes. */
export const isUnprocessed: SQL = sql`${files.processedAt} is null`;
export const isFailed: SQL = sql`${files.status} = 'failed'`;
export const isNotAudio: SQL = sql`${files.fileType} <> 'audio file'`;
export const isTranscribed: SQL = sql`${files.hasTranscript}`;
export const isInFolder: SQL = sql`${files.folder} <> ''`;
export const hasReference: SQL = sql`${files.reference} is not null`;
/** Has an owner, who is a user, see access/own-files.ts. */
export const isOwned: SQL = sql`${files.userId} is not null`;
export const isOwnedInFolder: SQL = sql`${files.userId} is not null and ${files.folder} <> ''`;
/** Has a time to delete it, and no hold that forbids it. */
export const isExpiring: SQL = sql`${files.deleteAfter} is not null and ${files.hold} is null`;
export const isHeld: SQL = sql`${files.hold} is not null`;

/** The files of each tag, and the tags of each owner. Only triggers write it. */
export const fileTags = sqliteTable(
  "file_tags",
  {
    teamId: text("team_id").notNull(),
    /** The tag as it is sorted and found, see files/names.ts. */
    tagKey: text("tag_key").notNull(),
    tag: text().notNull(),
    fileId: text("file_id").notNull(),
    /** The owner of the file. */
    userId: text("user_id"),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.tagKey, t.tag, t.fileId] }),
    // Costs a row only for the tag of a file that has an owner.
    index("file_tags_owner").on(t.teamId, t.userId, t.tagKey, t.tag).where(isOwnedTag),
  ],
);

/** Selects files that have an owner. */
export const isOwnedTag: SQL = sql`${fileTags.userId} is not null`;
