import { and, eq, lte, sql } from "drizzle-orm";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { write } from "../platform/db.ts";
import { visitors } from "./uploads.schema.ts";

/* How the rows of visitors end, who have uploaded nothing for a day and have no unfinished upload. */

/** Rows of a statement. */
const REMOVED_VISITORS = 500;

async function removeUnusedVisitors(deps: Deps) {
  const isUnused = and(eq(visitors.unfinishedUploads, 0), lte(visitors.dueAt, deps.system.now()));
  const unused = deps.db
    .select({ teamId: visitors.teamId, id: visitors.id })
    .from(visitors)
    .where(isUnused)
    .orderBy(visitors.dueAt)
    .limit(REMOVED_VISITORS);
  const remove = deps.db.delete(visitors).where(sql`(${visitors.teamId}, ${visitors.id}) in ${unused}`);
  return { visitorsRemoved: (await write(deps, remove, { isIdempotent: true, caller: null })).meta.changes };
}

export const unusedVisitors: RecoveryStep = {
  name: "visitors",
  counts: ["visitorsRemoved"],
  runBatch: removeUnusedVisitors,
  maxBatches: 5,
  queries: 1,
};

/** The visitors of deleted teams. */
export const visitorsOfDeleted = rowsOfDeleted(visitors, { key: [visitors.teamId, visitors.id] });
