import { type SQL, sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";

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

export const isOfContributor: SQL = sql`${folders.ownerId} <> ''`;

/**
 * The folder that a team is moving or deleting, and one for each contributor, see folders/folder-changes.ts. The row is
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
    /** JSON: who requested it, for its events. */
    initiator: text().notNull(),
    /** The principal that must still be allowed to request it, see `principalOf`. */
    requestedBy: text("requested_by").notNull(),
    createdAt: integer("created_at").notNull(),
    /** JSON: folder key and id of the last file that the steps before have examined. */
    position: text().notNull().default('["",""]'),
    /** The same of the step that runs. Null in the last step. */
    stepEnd: text("step_end"),
    dueAt: integer("due_at").notNull(),
  },
  (t) => [primaryKey({ columns: [t.teamId, t.ownerId] }), index("folder_changes_due").on(t.dueAt)],
);
