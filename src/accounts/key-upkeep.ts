import { and, eq, lt, type SQL, sql } from "drizzle-orm";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { reencryptRows } from "../access/encryption.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { deleteFirst, write } from "../platform/db.ts";
import { DAY } from "../platform/system.ts";
import { decryptToken, encryptionContext } from "./key-rows.ts";
import { apiKeys, isApiKey, isSession } from "./keys.schema.ts";

/* The recovery job on keys and sessions: other master keys, expired ones, and those of deleted teams. */

/** Moves tokens to the current master key. */
const reencryptTokens = async (deps: Deps) => ({
  reencrypted: await reencryptRows(deps, {
    select: (keyId, limit) => deps.db.select().from(apiKeys).where(eq(apiKeys.encryptedWith, keyId)).limit(limit),
    reencrypt(row) {
      const token = decryptToken(deps, row);
      const encrypted = token === null ? null : deps.secrets.encrypt(token, encryptionContext(row));
      return { id: row.id, before: row.encryptedToken, encrypted };
    },
    update: (rows, value) =>
      deps.db
        .update(apiKeys)
        .set({ encryptedToken: value("encrypted"), encryptedWith: value("encryptedWith") })
        .from(rows)
        .where(sql`${apiKeys.id} = ${value("id")} and ${apiKeys.encryptedToken} = ${value("before")}`),
  }),
});

/** Time to see why a client is rejected. */
export const EXPIRED_KEY_DAYS = 30;
/** Time for an upload to finish that began while the session lived. */
const EXPIRED_SESSION_DAYS = 1;
/** Rows of each statement. */
const EXPIRED_ROWS = 500;

/** Removes sessions and keys that have expired for long enough. */
async function removeExpiredKeys(deps: Deps) {
  const remove = (isOfKind: SQL, keptDays: number) => {
    const where = and(isOfKind, lt(apiKeys.expiresAt, deps.system.now() - keptDays * DAY));
    return deleteFirst(deps.db, apiKeys, { where, orderBy: apiKeys.expiresAt, limit: EXPIRED_ROWS });
  };
  const batch = { sessions: remove(isSession, EXPIRED_SESSION_DAYS), keys: remove(isApiKey, EXPIRED_KEY_DAYS) };
  const { sessions, keys } = await write(deps, batch, { isIdempotent: true, caller: null });
  return { sessionsRemoved: sessions.length, keysRemoved: keys.length };
}

export const keysOfDeleted = rowsOfDeleted(apiKeys, { key: [apiKeys.id], isOfKind: isApiKey });
export const sessionsOfDeleted = rowsOfDeleted(apiKeys, { key: [apiKeys.id], isOfKind: isSession });

export const expiredKeys: RecoveryStep = {
  name: "expired keys",
  counts: ["sessionsRemoved", "keysRemoved"],
  runBatch: removeExpiredKeys,
  maxBatches: 10,
  queries: 2,
};

export const reencryption: RecoveryStep = {
  name: "tokens",
  counts: ["reencrypted"],
  runBatch: reencryptTokens,
  maxBatches: 3,
  queries: 5,
};
