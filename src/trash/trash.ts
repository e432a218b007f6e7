import { and, sql } from "drizzle-orm";
import { type Credential, readAs } from "../access/authorization.ts";
import { removedOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { type Hold, type ListedRow, type StoredFile, toStoredFile, trashedFiles } from "../files/files.ts";
import { columns } from "../files/lists.ts";
import { isOwnedInTrash, isTrashed, removed, teamOfRemoved } from "../files/removed.schema.ts";
import { type Query, qualified } from "../platform/db.ts";
import { cutScan, type MayBeEnd, type Page, type PageRequest, pageById, scan } from "../platform/paging.ts";

/*
 * The trash. A file in it has left `files` like any deleted file, but its row in `removed` keeps what it had, and `due_at` is days
 * away. So no list, link or index of files has it, only holds change it, and it counts in the quota. Restoring (files/restoring.ts) moves it back.
 * When it is due, the recovery job erases it (files/erasure.ts).
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
  const { rows } = await readAs(deps, credential, (viewer): Query<(TrashRow & MayBeEnd)[]> => {
    const isOwner = viewer.ownerId !== null;
    // For a team, it examines rows, of which those that wait for their bytes to be deleted do not match.
    const examined = deps.db
      .select({
        fileId: qualified(removed.id).as("fileId"),
        team: qualified(teamOfRemoved).as("team"),
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
      trashedAt,
      eraseAfter,
      hold: hold === null ? null : JSON.parse(hold),
    })),
    next,
  };
}
