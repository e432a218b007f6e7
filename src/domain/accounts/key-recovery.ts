import { and, eq, inArray, lt, type SQL } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { columnsFrom, type Param, preparedQuery, write } from "../../platform/db.ts";
import { apiKeys, isApiKey, isSession } from "../../platform/schema.ts";
import { DAY } from "../../platform/system.ts";
import { reencryptRows } from "../encryption.ts";
import { decryptToken, encryptToken } from "./keys.ts";

/* Keys and sessions in the recovery job: re-encrypts their tokens, and removes expired ones. */

/** Time to see why a client is rejected. */
const EXPIRED_KEY_DAYS = 30;

const keysEncryptedWith = preparedQuery((db, param: Param<{ keyId: string; limit: number }>) =>
  db
    .select()
    .from(apiKeys)
    .where(eq(apiKeys.encryptedWith, param("keyId")))
    .limit(param("limit")),
);

type Reencryption = { id: string; encryptedToken: string; encryptedWith: string; before: string };
const replaceEncryptedToken = preparedQuery((db, param: Param<Reencryption>) =>
  db
    .update(apiKeys)
    .set(columnsFrom(param, "encryptedToken", "encryptedWith"))
    .where(and(eq(apiKeys.id, param("id")), eq(apiKeys.encryptedToken, param("before")))),
);

/** Moves tokens to the current master key. @returns how many */
export const reencryptTokens = (deps: Deps, limit: number): Promise<number> =>
  reencryptRows(deps, limit, {
    select: keysEncryptedWith,
    reencrypt(row) {
      const token = decryptToken(deps, row, row.encryptedToken ?? "");
      return token === null ? null : encryptToken(deps, row, token);
    },
    update({ id, encryptedToken }, encrypted, encryptedWith) {
      const before = encryptedToken ?? "";
      return replaceEncryptedToken({ id, before, encryptedToken: encrypted ?? before, encryptedWith });
    },
  });

/** Removes expired keys of a kind. @returns how many, at most `limit` */
function expiredKeyRemoval(isOfKind: SQL, keptDays: number) {
  const query = preparedQuery((db, param: Param<{ expiredBefore: number; limit: number }>) => {
    const expired = db
      .select({ id: apiKeys.id })
      .from(apiKeys)
      .where(and(isOfKind, lt(apiKeys.expiresAt, param("expiredBefore"))))
      .orderBy(apiKeys.expiresAt)
      .limit(param("limit"));
    return db.delete(apiKeys).where(inArray(apiKeys.id, expired)).returning({ id: apiKeys.id });
  });
  return async (deps: Deps, limit: number): Promise<number> => {
    const expiredBefore = deps.system.now() - keptDays * DAY;
    const [rows] = await write(deps, [query({ expiredBefore, limit })], { isIdempotent: true });
    return rows.length;
  };
}
export const removeExpiredSessions = expiredKeyRemoval(isSession, 0);
export const removeExpiredKeys = expiredKeyRemoval(isApiKey, EXPIRED_KEY_DAYS);
