import { and, sql } from "drizzle-orm";
import { apiKeys } from "../accounts/keys.schema.ts";
import type { Deps } from "../deps.ts";
import { write } from "../platform/db.ts";
import { HOUR } from "../platform/system.ts";
import { isKey, type TeamActor } from "./authorization.ts";

/** Precise enough to find unused keys. A more precise time would cost a row written for every request. */
const LAST_USED_PRECISION_MILLISECONDS = HOUR;

/**
 * Notes that a key or session was used. Costs an isolate at most one round trip for each key and hour, which no request
 * waits for, and D1 one row written for each key and hour.
 */
export function noteUse(deps: Deps, { keyId, teamId }: TeamActor): void {
  const lastUsedAt = deps.system.now();
  const noted = deps.notedUses.get(keyId);
  if (noted !== undefined && lastUsedAt - noted < LAST_USED_PRECISION_MILLISECONDS) return;
  deps.notedUses.set(keyId, lastUsedAt);
  const isStale = sql`coalesce(${apiKeys.lastUsedAt}, 0) <= ${lastUsedAt - LAST_USED_PRECISION_MILLISECONDS}`;
  const store = deps.db
    .update(apiKeys)
    .set({ lastUsedAt })
    .where(and(isKey(teamId, keyId), isStale));
  const stored = write(deps, store, { isIdempotent: true, caller: null });
  deps.after(stored.catch((cause) => deps.log("warn", "last_use_failed", { keyId, teamId, cause })));
}
