import { lt, lte, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { write } from "../platform/db.ts";
import { isOverdue, MAX_RECOVERY_AGE_MILLISECONDS } from "../platform/health.ts";
import { MINUTE } from "../platform/system.ts";
import { recovery } from "./recovery.schema.ts";

/*
 * Whether the recovery job runs. A cron trigger can stop silently, so each run stores when it ended, and requests look
 * whether one has. A new database has no row: the first look inserts it, and from then on a run has 15 minutes to end.
 */

/** How often an isolate looks, and after how long a run that was asked for may be asked for again. */
const CHECK_MILLISECONDS = 5 * MINUTE;
const ONLY_ROW = 1;

/** Stores that a run ends now. @returns whether no other has ended since this one started */
export async function noteRecovered(deps: Deps, startedAt: number): Promise<boolean> {
  const recoveredAt = deps.system.now();
  const store = deps.db
    .insert(recovery)
    .values({ id: ONLY_ROW, recoveredAt, requestedAt: 0 })
    .onConflictDoUpdate({ target: recovery.id, set: { recoveredAt }, setWhere: lte(recovery.recoveredAt, startedAt) })
    .returning({ id: recovery.id });
  const stored = await write(deps, store, { isIdempotent: true, caller: null });
  return stored.length > 0;
}

/** Looks after the response whether the recovery job of `deps.db` runs, and starts a run if it does not. */
export function watchRecovery(deps: Deps): void {
  const number = String(deps.db.number);
  const now = deps.system.now();
  const checkedAt = deps.recoveryChecks.get(number);
  if (checkedAt !== undefined && now - checkedAt < CHECK_MILLISECONDS) return;
  deps.recoveryChecks.set(number, now);
  const database = deps.db.number;
  deps.after(startOverdue(deps).catch((cause) => deps.log("warn", "recovery_check_failed", { database, cause })));
}

/** Many isolates may look at once. The update that claims the overdue run lets one of them start it. */
async function startOverdue(deps: Deps): Promise<void> {
  const { db, system, recoveryJobs } = deps;
  const now = system.now();
  const isOld = lt(recovery.recoveredAt, now - MAX_RECOVERY_AGE_MILLISECONDS);
  const isClaimable = sql`${isOld} and ${lt(recovery.requestedAt, now - CHECK_MILLISECONDS)}`;
  const claim = db
    .insert(recovery)
    .values({ id: ONLY_ROW, recoveredAt: now, requestedAt: 0 })
    .onConflictDoUpdate({ target: recovery.id, set: { requestedAt: now }, setWhere: isClaimable })
    .returning({ recoveredAt: recovery.recoveredAt });
  const [claimed] = await write(deps, claim, { isIdempotent: false, caller: null });
  if (!claimed || !isOverdue(claimed.recoveredAt, now)) return;
  deps.log("warn", "recovery_overdue", { database: db.number });
  await recoveryJobs.sendAll([{ database: db.number }]);
}
