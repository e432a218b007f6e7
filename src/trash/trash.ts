import { and, sql } from "drizzle-orm";
import { authorizeOwnRead, type Credential, stillAllowed, type TeamActor } from "../access/authorization.ts";
import { filesOf, removedOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { writeWithEvent } from "../events/events.ts";
import { FILE_EVENTS } from "../files/file-event-types.ts";
import { fileEvents } from "../files/file-events.ts";
import { files } from "../files/files.schema.ts";
import {
  enqueuePending,
  type Hold,
  hasBacklog,
  LISTED_COLUMNS,
  type ListedRow,
  MAX_PENDING_MILLISECONDS,
  type StoredFile,
  toStoredFile,
  trashedColumns,
  trashedFiles,
} from "../files/files.ts";
import { columns } from "../files/lists.ts";
import { isOneOf, type Query } from "../platform/db.ts";
import { cutScan, type MayBeEnd, type Page, type PageRequest, pageById, scan } from "../platform/paging.ts";
import { placesOf } from "./deletion.ts";
import { isOwnedInTrash, isTrashed, removed, teamOfRemoved } from "./trash.schema.ts";

/*
 * The trash. A file in it has left `files` like any deleted file, but its row in `removed` keeps what it had, and `due_at` is days
 * away. So no list, link or index of files has it, only holds change it, and it counts in the quota. Restoring moves it back.
 * When it is due, the recovery job erases it (file-recovery.ts).
 */

const LIST = "trash";

export interface TrashedFile extends StoredFile {
  trashedAt: number;
  /** When it is erased, unless it is held. */
  eraseAfter: number;
  hold: Hold | null;
}

type TrashRow = ListedRow & Pick<TrashedFile, "trashedAt" | "eraseAfter"> & { hold: string | null };

/**
 * The caller's files in the trash, the latest uploads first.
 * @throws `invalid_input` for a cursor of another list, or a page number beyond what the list examines
 */
export async function listTrash(
  deps: Deps,
  credential: Credential<"files:delete">,
  request: PageRequest,
): Promise<Page<TrashedFile>> {
  const page = pageById(LIST, removed.id, "newest first", request);
  const { rows } = await authorizeOwnRead(deps, credential, (viewer): Query<(TrashRow & MayBeEnd)[]> => {
    const isOwner = viewer.ownerId !== null;
    // For a team, it examines rows, of which those that wait for their bytes to be deleted do not match.
    const examined = deps.db
      .select({
        fileId: sql`${sql`${removed.id}`}`.as("fileId"),
        team: sql`${sql`${teamOfRemoved}`}`.as("team"),
        isMatch: sql`${isTrashed}`.as("isMatch"),
      })
      .from(isOwner ? sql`${removed} indexed by removed_owner` : removed)
      .where(and(removedOf(viewer), isOwner ? isOwnedInTrash : undefined, page.where))
      .orderBy(...page.orderBy)
      .$dynamic();
    const found = sql`(${scan(deps.db, examined, ({ isMatch }) => sql`${isMatch}`, page)}) found`;
    const source = sql`${found} cross join ${removed} on ${teamOfRemoved} = found.team and ${removed.id} = found.fileId`;
    return deps.db
      .select({
        ...columns,
        trashedAt: sql<number>`trashed_at`.as("trashedAt"),
        eraseAfter: sql<number>`due_at`.as("eraseAfter"),
        hold: sql<string | null>`hold`.as("hold"),
        isEnd: sql<0 | 1>`isEnd`.as("isEnd"),
      })
      .from(trashedFiles(source, sql`, trashed_at, isEnd`));
  });
  const { items, next } = cutScan(LIST, request, rows);
  return {
    items: items.map(({ trashedAt, eraseAfter, hold, isEnd, ...row }) => ({
      ...toStoredFile(deps, row),
      ...{ trashedAt, eraseAfter, hold: hold === null ? null : JSON.parse(hold) },
    })),
    next,
  };
}

/** The columns of a restored file: as they were, except for its links and the time to delete it. Interrupted processing starts again. */
const restoredColumns = (now: number) =>
  trashedColumns({
    due_at: sql`iif(file ->> '$.status' = 'pending', ${now + MAX_PENDING_MILLISECONDS}, null)`,
    restores: sql`(file ->> '$.restores') + 1`,
    // As if it came into its folder now: a move or deletion of the folder that is in progress leaves it there.
    folder_since: sql`${now}`,
    version: sql`(file ->> '$.version') + 1`,
    updated_at: sql`${now}`,
  });

interface Restored {
  id: string;
  code: "not_found" | "not_in_trash" | null;
  file: StoredFile | undefined;
}

/** Restores each file that is in the trash, in one transaction. @returns a result for each id, in their order */
export async function restoreFiles(deps: Deps, actor: TeamActor, ids: string[]): Promise<Restored[]> {
  const { db } = deps;
  const isInTrash = and(removedOf(actor), isOneOf(removed.id, ids), isTrashed);
  const restoring = sql`select ${restoredColumns(deps.system.now())} from ${removed} where ${isInTrash}`;
  const event = fileEvents(deps, FILE_EVENTS.restored, actor, actor.teamId, undefined, sql`(${restoring}) ${files}`);
  const batch = {
    event,
    restored: db.insert(files).select(restoring).returning({ id: files.id }),
    removed: db.delete(removed).where(isInTrash),
    listed: db
      .select({ ...LISTED_COLUMNS, isBulk: hasBacklog(actor.teamId).as("isBulk") })
      .from(files)
      .where(and(filesOf(actor), isOneOf(files.id, ids))),
    left: placesOf(deps, actor, ids).left,
  };
  // After a lost response, a repetition would find no file in the trash.
  const { restored, listed, left } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: stillAllowed(deps, actor),
  });
  const isRestored = new Set(restored.map(({ id }) => id));
  const rows = new Map(listed.map((row) => [row.id, row]));
  enqueuePending(
    deps,
    listed.filter(({ id }) => isRestored.has(id)),
  );
  const existing = new Set([...rows.keys(), ...left.flatMap(({ id, trashedAt }) => (trashedAt === null ? [] : id))]);
  return ids.map((id) => {
    const row = rows.get(id);
    if (!row || !isRestored.has(id)) {
      return { id, code: existing.has(id) ? "not_in_trash" : "not_found", file: undefined };
    }
    const { isBulk, ...listed } = row;
    return { id, code: null, file: toStoredFile(deps, listed) };
  });
}

/** @throws `not_found`, `not_in_trash` */
export async function restoreFile(deps: Deps, actor: TeamActor, id: string): Promise<StoredFile> {
  const [result] = await restoreFiles(deps, actor, [id]);
  if (result?.file) return result.file;
  throw new AppError(result?.code ?? "not_found");
}
