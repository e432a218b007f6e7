import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { columnsFrom, type Param, preparedQuery, write } from "../../platform/db.ts";
import { apiKeys } from "../../platform/schema.ts";
import { HOUR } from "../../platform/system.ts";
import type { TeamActor } from "./authorization.ts";

/** Precise enough to find unused keys. A more precise time would cost a row written for every request. */
const LAST_USED_PRECISION_MILLISECONDS = HOUR;

const storeUse = preparedQuery((db, param: Param<{ keyId: string; teamId: string; lastUsedAt: number }>) =>
  db
    .update(apiKeys)
    .set(columnsFrom(param, "lastUsedAt"))
    .where(
      and(
        eq(apiKeys.id, param("keyId")),
        eq(apiKeys.teamId, param("teamId")),
        sql`coalesce(${apiKeys.lastUsedAt}, 0) <= ${param("lastUsedAt")} - ${LAST_USED_PRECISION_MILLISECONDS}`,
      ),
    ),
);

/**
 * Notes that a key or session was used. Costs an isolate at most one round trip for each key and hour, which no request
 * waits for, and D1 one row written for each key and hour.
 */
export function noteUse({ guard: _, ...deps }: Deps, { keyId, teamId }: TeamActor): void {
  const lastUsedAt = deps.system.now();
  const noted = deps.notedUses.get(keyId);
  if (noted !== undefined && lastUsedAt - noted < LAST_USED_PRECISION_MILLISECONDS) return;
  deps.notedUses.set(keyId, lastUsedAt);
  const stored = write(deps, [storeUse({ keyId, teamId, lastUsedAt })], { isIdempotent: true });
  deps.after(stored.catch((cause) => deps.log("warn", "last_use_failed", { keyId, teamId, cause })));
}
