import { and, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import type { Query } from "../../platform/db.ts";
import { files, isOwnedInTrash, isTrashed } from "../../platform/schema.ts";
import { authorizeOwnRead, type Credential, type TeamActor } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import { writeWithEvents } from "../events/events.ts";
import { cutPage, type Page, type PageRequest, pageById } from "../paging.ts";
import { keptFiles } from "./deletion.ts";
import { fileEvent } from "./file-events.ts";
import {
  changed,
  enqueuePending,
  type Hold,
  hasBacklog,
  knownFiles,
  LISTED_COLUMNS,
  type ListedRow,
  MAX_PENDING_MILLISECONDS,
  RESTORED_COLUMNS,
  type StoredFile,
  toStoredFile,
} from "./files.ts";
import { columns } from "./lists.ts";
import { isFile } from "./names.ts";

/*
 * The trash. A file in it is hidden like any deleted file, but `trashed_values` keeps what hiding clears, and `due_at` is days
 * away. So no list, link or index has it, nothing can change it, and it counts in the quota. Restoring sets the values again.
 * When it is due, the recovery job deletes it once more, permanently (expiry.ts).
 */

const LIST = "trash";

export interface TrashedFile extends StoredFile {
  trashedAt: number;
  /** When it is erased, unless it is held. */
  eraseAfter: number;
  hold: Hold | null;
}

type TrashRow = ListedRow & Pick<TrashedFile, "trashedAt" | "eraseAfter"> & { hold: string | null };

/** The caller's files in the trash, the latest uploads first. @throws `invalid_input` for a cursor of another list */
export async function listTrash(
  deps: Deps,
  credential: Credential<"files:delete">,
  request: PageRequest,
): Promise<Page<TrashedFile>> {
  const page = pageById(LIST, files.id, "newest first", request);
  const { rows } = await authorizeOwnRead(deps, credential, (viewer): Query<TrashRow[]> => {
    const [index, isInIndex] =
      viewer.ownerId === null ? [sql`files_trash`, isTrashed] : [sql`files_owner_trash`, isOwnedInTrash];
    return deps.db
      .select({
        ...columns,
        trashedAt: sql<number>`trashed_at`.as("trashedAt"),
        eraseAfter: sql<number>`due_at`.as("eraseAfter"),
        hold: sql<string | null>`hold`.as("hold"),
      })
      .from(knownFiles(sql`${files} indexed by ${index} where ${and(filesOf(viewer), isInIndex)}`))
      .where(page.where)
      .orderBy(...page.orderBy)
      .limit(page.limit)
      .offset(page.offset);
  });
  const { items, next } = cutPage(LIST, request, rows);
  return {
    items: items.map(({ trashedAt, eraseAfter, hold, ...row }) => ({
      ...toStoredFile(deps, row),
      ...{ trashedAt, eraseAfter, hold: hold === null ? null : JSON.parse(hold) },
    })),
    next,
  };
}

/** A file is as it was, except for its links and the time to delete it. Processing that was interrupted starts again. */
function fileRestoring(deps: Deps, actor: TeamActor, id: string) {
  const file = { ...actor, id };
  const now = deps.system.now();
  const dueAt = sql`iif(${RESTORED_COLUMNS.status} = 'pending', ${now + MAX_PENDING_MILLISECONDS}, null)`;
  const restore = deps.db
    .update(files)
    .set({
      ...RESTORED_COLUMNS,
      trashedAt: null,
      trashedValues: null,
      dueAt,
      restores: sql`${files.restores} + 1`,
      // As if it came into its folder now: a move or deletion of the folder that is in progress leaves it there.
      folderSince: now,
      ...changed(now),
    })
    .where(and(isFile(file), isTrashed))
    .returning({ ...LISTED_COLUMNS, isBulk: hasBacklog(actor.teamId).as("isBulk") });
  return { event: fileEvent(deps, "file.restored", actor, file), queries: [restore] as const };
}

interface Restored {
  id: string;
  code: "not_found" | "not_in_trash" | null;
  file: StoredFile | undefined;
}

/** Restores each file that is in the trash, in one transaction. @returns a result for each id, in their order */
export async function restoreFiles(deps: Deps, actor: TeamActor, ids: string[]): Promise<Restored[]> {
  const changes = ids.map((id) => fileRestoring(deps, actor, id));
  const {
    rows,
    last: [kept],
    // After a lost response, a repetition would find no file in the trash.
  } = await writeWithEvents(deps, changes, [keptFiles(deps, actor, ids, sql<null>`null`)], { isIdempotent: false });
  enqueuePending(
    deps,
    rows.flatMap(([[row]]) => row ?? []),
  );
  const existing = new Set(kept.map(({ id }) => id));
  return ids.map((id, i) => {
    const row = rows[i]?.[0][0];
    if (!row) return { id, code: existing.has(id) ? "not_in_trash" : "not_found", file: undefined };
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
