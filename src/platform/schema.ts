import { sql } from "drizzle-orm";
import { blob, index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";

// Instants are milliseconds since the epoch. `version` is what the API calls `__v`.
// Tables whose key is named by `primaryKey` are WITHOUT ROWID in the migrations: a row and its key are one row written.

// A partial index serves only queries that repeat its condition, so conditions are written out.
export const isApiKey = sql`kind <> 'session'`;
export const isSession = sql`kind = 'session'`;

/** API keys and sessions: the rows that a token identifies. One table, so that authorization reads one row. */
export const apiKeys = sqliteTable(
  "api_keys",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    uuid: text().notNull(),
    name: text().notNull(),
    kind: text({ enum: ["secret", "public", "session"] }).notNull(),
    /** A bit mask, see domain/access/scopes.ts. Null for a user's session, which has the scopes of the user's role. */
    scopes: integer(),
    /** SHA-256 of the token, hex. */
    tokenHash: text("token_hash").notNull(),
    /** Null for a session, whose token is shown only once. */
    encryptedToken: text("encrypted_token"),
    /** The id of the master key that encrypted the token. */
    encryptedWith: text("encrypted_with"),
    /** The key or session that created it. Null for a user's session and for keys that the operator created. */
    createdByKeyId: text("created_by_key_id"),
    /** The user whose session it is, or whose session created it, directly or through other keys. */
    userId: text("user_id"),
    /** Accurate to an hour, see domain/access/last-use.ts. In no index. Null if it was never used. */
    lastUsedAt: integer("last_used_at"),
    /** JSON: the limits of a public key. Null if there are none. */
    limits: text(),
    /** What it was created for. `expires_at` may be shortened later. */
    lifetimeMilliseconds: integer("lifetime_milliseconds").notNull(),
    createdAt: integer("created_at").notNull(),
    expiresAt: integer("expires_at").notNull(),
  },
  (t) => [
    uniqueIndex("api_keys_token_hash").on(t.tokenHash),
    // Each list skips the rows of the other without reading them.
    index("api_keys_team").on(t.teamId, t.id).where(isApiKey),
    index("api_keys_team_sessions").on(t.teamId, t.id).where(isSession),
    index("api_keys_id").on(t.id).where(isApiKey),
    index("api_keys_encrypted_with").on(t.encryptedWith).where(sql`encrypted_with is not null`),
    index("api_keys_user").on(t.userId).where(sql`user_id is not null`),
    index("api_keys_team_expiry").on(t.teamId, t.expiresAt).where(isApiKey),
    index("api_keys_expiry").on(t.expiresAt).where(isApiKey),
    index("api_keys_session_expiry").on(t.expiresAt).where(isSession),
    index("api_keys_session_creator")
      .on(t.createdByKeyId)
      .where(sql`kind = 'session' and created_by_key_id is not null`),
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
    role: text({ enum: ["admin", "member", "contributor", "viewer"] }).notNull(),
    createdAt: integer("created_at").notNull(),
    updatedAt: integer("updated_at").notNull(),
    version: integer().notNull().default(0),
    /** SHA-256 of the secret of the only valid invitation, hex. Null if there is none, see domain/accounts/invitations.ts. */
    invitationHash: text("invitation_hash"),
    invitationEndsAt: integer("invitation_ends_at"),
    /** A caller created it, and not a forgotten password. */
    invitationIsByCaller: integer("invitation_is_by_caller", { mode: "boolean" }).notNull().default(false),
    /** The folders that they created as a contributor. Only triggers write it. */
    folders: integer().notNull().default(0),
    /** First and last name. It is computed, and stored only in its index. */
    fullName: text("full_name").generatedAlwaysAs(sql`trim(first_name || ' ' || last_name)`, { mode: "virtual" }),
  },
  (t) => [
    uniqueIndex("users_team_email").on(t.teamId, t.emailKey),
    index("users_team").on(t.teamId, t.id),
    index("users_name").on(t.teamId, t.fullName, t.id),
  ],
);

const FILE_STATES = ["receiving", "pending", "processing", "completed", "failed", "deleting"] as const;

/** The states in which a file exists for its team. */
export const isListed = sql`status not in ('receiving', 'deleting')`;
export const isTrashed = sql`trashed_at is not null`;
/** Has a time at which the recovery job takes the next step, other than to erase it from the trash. */
export const isAwaitingStep = sql`due_at is not null and trashed_at is null`;
/** Listed, or in the trash: the bytes and the waveform stay. */
export const isKept = sql`(${isListed} or ${isTrashed})`;

// No index of a list has a file that is still received, or hidden: hiding clears the indexed columns. A condition on the status
// would rewrite index entries whenever it changes.
/** In the indexes of all files, by id and by name. */
export const isNamed = sql`size_bytes is not null and name_key <> ''`;
/** Stored, and pending or processing. */
export const isUnprocessed = sql`size_bytes is not null and processed_at is null and name_key <> ''`;
export const isFailed = sql`status = 'failed'`;
export const isNotAudio = sql`file_type <> 'audio file'`;
export const isInFolder = sql`size_bytes is not null and folder <> ''`;
export const hasReference = sql`size_bytes is not null and reference is not null`;
/** Has an owner, who is a user, see domain/access/own-files.ts. */
export const isOwned = sql`size_bytes is not null and user_id is not null and name_key <> ''`;
export const isOwnedInFolder = sql`size_bytes is not null and user_id is not null and folder <> ''`;
export const isOwnedInTrash = sql`trashed_at is not null and user_id is not null`;
/** Stored, with a time to delete it, and no hold that forbids it. */
export const isExpiring = sql`delete_after is not null and hold is null and size_bytes is not null`;
export const isHeld = sql`hold is not null`;
/** In the trash, without a hold that forbids to erase it. */
export const isErasable = sql`trashed_at is not null and hold is null`;

/**
 * Other text that a search finds: title, artist, reference, folder, and tags, as text that begins and separates each
 * with a character that no query has. The tags are an object of each tag and its folded form.
 */
const searchText = (() => {
  const tags = sql`nullif(search_keys ->> 'tags', '{}')`;
  const inner = sql`substr(${tags}, 3, length(${tags}) - 4)`;
  const separated = sql`replace(replace(${inner}, '":"', char(1)), '","', char(1))`;
  const unescaped = sql`replace(replace(${separated}, '\\"', '"'), '\\\\', '\\')`;
  return sql`ifnull(search_keys ->> 'title', '') || char(1) || ifnull(search_keys ->> 'artist', '') || char(1) || ifnull(search_keys ->> 'reference', '') || char(1) || ifnull(search_keys ->> 'folder', '') || char(1) || ifnull(${unescaped}, '')`;
})();

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
    fileType: text("file_type"),
    /** Null until every byte is stored, like `sha256`, `etag`, `mimeType` and `fileType`. */
    sizeBytes: integer("size_bytes"),
    /** Null until processed. */
    processedAt: integer("processed_at"),
    /** Its owner: the user whose session or key began the upload. Null for a key without a user. */
    userId: text("user_id"),
    /** The bytes that count against the team's quota: an upper bound during the upload, then the size. */
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
    /** Null without a waveform, 0 once it is stored. Otherwise the time at which the write in progress began. */
    waveformWritingSince: integer("waveform_writing_since"),
    /** When the recovery job moves it to the trash, or without one deletes it. Null: never. */
    deleteAfter: integer("delete_after"),
    /** JSON: who set `delete_after`, or the retention that did. Null if `delete_after` is. */
    deleteAfterBy: text("delete_after_by"),
    /** When it was moved to the trash. Null unless it is there: then it is hidden, and `due_at` is when it is erased. */
    trashedAt: integer("trashed_at"),
    /** How often it was restored from the trash. Signed links of an earlier number are invalid. */
    restores: integer().notNull().default(0),
    mimeType: text("mime_type"),
    failureCode: text("failure_code"),
    originalName: text("original_name").notNull(),
    /** The display and download name. Null for the original name. */
    name: text(),
    /** The name as it is filtered, sorted and searched, see domain/files/names.ts. */
    nameKey: text("name_key").notNull().default(""),
    /** The path without a slash at either end. Empty for a file outside all folders. */
    folder: text().notNull().default(""),
    /** When it came into its folder. A change of the folder that was requested before does not move it. */
    folderSince: integer("folder_since").notNull().default(0),
    /** The team's own id for the file. */
    reference: text(),
    /** Hex, of the received bytes. For a resumable upload, of the bytes read back, and null until then. */
    sha256: text(),
    etag: text(),
    /** The SHA-256 that the client of a resumable upload stated, hex. Processing compares it with the stored bytes. */
    statedSha256: text("stated_sha256"),
    /** The key or session that began the upload. */
    keyId: text("key_id").notNull(),
    /** A public key or an upload token began the upload. */
    isPublic: integer("is_public", { mode: "boolean" }).notNull().default(false),
    /** The upload token that began the upload, and the one that finished it. */
    uploadTokenId: text("upload_token_id"),
    finishedByTokenId: text("finished_by_token_id"),
    idempotencyKey: text("idempotency_key"),
    failureMessage: text("failure_message"),
    /** JSON: the file types that this key may upload. Null for all. */
    allowedTypes: text("allowed_types"),
    /** The waveform in small, a byte for each peak, see domain/files/waveforms.ts. Null without a waveform. */
    peaks: blob({ mode: "buffer" }),
    /** A JSON array of strings. Triggers keep the same tags in `file_tags`. */
    tags: text().notNull().default("[]"),
    /** A JSON object that the team sets. */
    metadata: text().notNull().default("{}"),
    /** A JSON object: what a search finds besides the name, folded, see domain/files/names.ts. */
    searchKeys: text("search_keys").notNull().default("{}"),
    /** JSON, see domain/audio/inspect.ts. */
    audio: text(),
    /** JSON, see domain/files/holds.ts. Null if nothing forbids the deletion. */
    hold: text(),
    /** JSON: the values of a file in the trash that hiding has cleared, see domain/files/trash.ts. */
    trashedValues: text("trashed_values"),
    /** It is computed, and stored only in the indexes that a search reads. */
    searchText: text("search_text").generatedAlwaysAs(searchText, { mode: "virtual" }),
    /** The path with a separator that sorts before every other character: a folder and those below it are one range. */
    folderKey: text("folder_key").generatedAlwaysAs(sql`replace(folder, '/', char(1))`, { mode: "virtual" }),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.id] }),
    // The default list. It also skips the files in the trash, which may be most of a team's.
    index("files_listed").on(t.teamId, t.id).where(isNamed),
    // A search reads only this index, or that of an owner.
    index("files_name").on(t.teamId, t.nameKey, t.id, t.searchText).where(isNamed),
    // Each of these three costs a row only for a file that has a folder or a reference.
    index("files_folder").on(t.teamId, t.folderKey, t.id).where(isInFolder),
    index("files_folder_name").on(t.teamId, t.folderKey, t.nameKey, t.id).where(isInFolder),
    index("files_reference").on(t.teamId, t.reference, t.id).where(hasReference),
    // Most files are completed audio files, and the index of all files serves their lists. A claim changes none of these indexes.
    index("files_unprocessed").on(t.teamId, t.id).where(isUnprocessed),
    index("files_failed").on(t.teamId, t.id).where(isFailed),
    index("files_type").on(t.teamId, t.fileType, t.id).where(isNotAudio),
    // Each of these costs a row only for a file that has an owner.
    index("files_owner").on(t.teamId, t.userId, t.id, t.sizeBytes).where(isOwned),
    index("files_owner_name").on(t.teamId, t.userId, t.nameKey, t.id, t.searchText).where(isOwned),
    index("files_owner_folder").on(t.teamId, t.userId, t.folderKey, t.id).where(isOwnedInFolder),
    // A file in the trash is in no index of lists, but in these.
    index("files_trash").on(t.teamId, t.id).where(isTrashed),
    index("files_owner_trash").on(t.teamId, t.userId, t.id, t.sizeBytes).where(isOwnedInTrash),
    index("files_expiring").on(t.deleteAfter).where(isExpiring),
    index("files_held").on(t.teamId, t.folderKey, t.id).where(isHeld),
    index("files_upload_token").on(t.uploadTokenId).where(sql`upload_token_id is not null`),
    // Apart, so that no step reads past the others' rows: when a large folder was deleted, its files leave the trash together.
    index("files_due").on(t.dueAt).where(isAwaitingStep),
    index("files_trash_due").on(t.dueAt).where(isErasable),
    uniqueIndex("files_idempotency").on(t.teamId, t.idempotencyKey).where(sql`idempotency_key is not null`),
  ],
);

/**
 * The files. Their type lacks `teamId`, because a caller may not see all files of its team: a query for a caller takes its
 * condition from domain/access/own-files.ts.
 */
export const files: Omit<typeof filesTable, "teamId"> = filesTable;
/** For own-files.ts, joins, and jobs. */
export const teamOfFile = filesTable.teamId;

export const isOfContributor = sql`owner_id <> ''`;
/** Folders that were created, which exist without files, too. */
export const folders = sqliteTable(
  "folders",
  {
    teamId: text("team_id").notNull(),
    /** The contributor who created it. Empty for a folder that another caller created. */
    ownerId: text("owner_id").notNull(),
    /** As in `files`. */
    folderKey: text("folder_key").notNull(),
    createdAt: integer("created_at").notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.teamId, t.folderKey, t.ownerId] }),
    // Costs a row only for a folder that a contributor created.
    index("folders_owner").on(t.teamId, t.ownerId, t.folderKey).where(isOfContributor),
  ],
);

/**
 * The folder that a team is moving or deleting, and one for each contributor, see domain/files/folder-changes.ts. The row is
 * deleted with the last step.
 */
export const folderChanges = sqliteTable(
  "folder_changes",
  {
    teamId: text("team_id").notNull(),
    id: text().notNull(),
    /** Changes only the files of this contributor. Empty for those of the team. */
    ownerId: text("owner_id").notNull(),
    folder: text().notNull(),
    /** Null for a deletion. */
    target: text(),
    /** JSON: who requested it. */
    initiator: text().notNull(),
    createdAt: integer("created_at").notNull(),
    /** JSON: folder key and id of the last file that the steps before have examined. */
    position: text().notNull().default('["",""]'),
    /** The same of the step that runs. Null in the last step. */
    stepEnd: text("step_end"),
    dueAt: integer("due_at").notNull(),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.ownerId] }), index("folder_changes_due").on(t.dueAt)],
);

/** The files of each tag. Only triggers write it. A hidden file has no row. */
export const fileTags = sqliteTable(
  "file_tags",
  { teamId: text("team_id").notNull(), tag: text().notNull(), fileId: text("file_id").notNull() },
  (t) => [primaryKey({ columns: [t.teamId, t.tag, t.fileId] })],
);

/** The teams. Only triggers write the usage counters, which count hidden files and exclude sessions. No index has one. */
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
    /** Files of this age are deleted. Null: never. */
    retentionDays: integer("retention_days"),
    /** JSON: who set it. Null if nobody did. */
    retentionBy: text("retention_by"),
    /** The files with lower ids had this age before, see domain/files/expiry.ts. */
    retentionReached: text("retention_reached").notNull().default(""),
    /** When the recovery job looks for files of this age. Null: never. */
    retentionDueAt: integer("retention_due_at"),
    /** The bytes that unfinished uploads of public keys reserve. */
    publicBytes: integer("public_bytes").notNull().default(0),
    apiKeys: integer("api_keys").notNull().default(0),
    links: integer().notNull().default(0),
    folders: integer().notNull().default(0),
    users: integer().notNull().default(0),
    /** File and link events up to this number are deleted: they were above `MAX_TEAM_EVENTS`. */
    eventsPurgedTo: integer("events_purged_to").notNull().default(0),
    /** The users with the role `admin`. Only a secret key can remove the last one, see domain/accounts/users.ts. */
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
    index("teams_retention").on(t.retentionDueAt).where(sql`retention_due_at is not null`),
  ],
);

/** One row: whether the recovery job runs in this database, see domain/recovery/heartbeat.ts. */
export const recovery = sqliteTable("recovery", {
  id: integer().primaryKey(),
  /** When the last run ended, or when a new database was first looked at. */
  recoveredAt: integer("recovered_at").notNull(),
  /** When a request last asked for a run that was overdue. */
  requestedAt: integer("requested_at").notNull(),
});

/** Revocable download links. A trigger deletes the links of a file when the file is hidden. */
export const links = sqliteTable(
  "links",
  {
    id: text().notNull(),
    teamId: text("team_id").notNull(),
    fileId: text("file_id").notNull(),
    /** SHA-256 of the secret in the link's URL, hex. */
    secretHash: text("secret_hash").notNull(),
    /** The download name; null for the file's own name. */
    name: text(),
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
    index("links_expiry").on(t.expiresAt).where(sql`expires_at is not null`),
  ],
);
