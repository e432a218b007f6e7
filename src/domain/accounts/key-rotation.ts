import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { hasRow, insertWhere, type Param, preparedQuery, read, rowOf } from "../../platform/db.ts";
import { apiKeys, isApiKey, isSession } from "../../platform/schema.ts";
import { DAY, SECOND } from "../../platform/system.ts";
import { newEvent, writeWithEvent } from "../events/events.ts";
import { type Actor, type Credential, checkCovered, isCovered } from "./authorization.ts";
import {
  type ApiKey,
  encryptToken,
  type KeyRow,
  keyInsertError,
  newHashedKey,
  newRow,
  teamHasRoom,
  viewKey,
} from "./keys.ts";

/*
 * Rotation: a new key replaces an old one, and both work during an overlap. The old key then expires by its `expires_at`,
 * like any key, so there is no second deadline.
 */

/** Time to roll the new key out to every server. */
export const DEFAULT_OVERLAP_SECONDS = DAY / SECOND;
export const MAX_OVERLAP_SECONDS = (30 * DAY) / SECOND;

/** `teamId` is null for the operator, who rotates keys of any team, and so is `callerKeyId`. */
type TargetValues = { oldId: string; callerTeamId: string | null; callerKeyId: string | null };
const isTarget = (param: Param<TargetValues>) =>
  and(
    eq(apiKeys.id, param("oldId")),
    isApiKey,
    sql`coalesce(${param("callerTeamId")}, ${apiKeys.teamId}) = ${apiKeys.teamId}`,
  );
const targetRow = preparedQuery((db, param: Param<TargetValues>) => db.select().from(apiKeys).where(isTarget(param)));

type NewRow = KeyRow & TargetValues;

/** Copies what may change in the meantime from the old key, which must still be live, and covered by the caller. */
const insertNewKey = preparedQuery((db, param: Param<NewRow>) => {
  const ofOld = (column: SQL) => sql`(select ${column} from ${apiKeys} where ${isTarget(param)})`;
  const covered = isCovered(db, param, ofOld(sql`${apiKeys.scopes}`));
  const isLive = hasRow(apiKeys, and(isTarget(param), gt(apiKeys.expiresAt, param("createdAt"))));
  const row = {
    ...rowOf(apiKeys, param),
    name: ofOld(sql`${apiKeys.name}`),
    scopes: ofOld(sql`${apiKeys.scopes}`),
    limits: ofOld(sql`${apiKeys.limits}`),
    uploadCount: ofOld(sql`${apiKeys.uploadCount}`),
  };
  return insertWhere(db, apiKeys, row, sql`${isLive} and ${teamHasRoom(param)} and ${covered}`);
});

type OverlapValues = TargetValues & { id: string; endsAt: number };
/** Ends the old key after the overlap, if the new one was inserted, and its sessions with it. Never prolongs anything. */
const endAfterOverlap = (isSelected: (param: Param<OverlapValues>) => SQL | undefined) =>
  preparedQuery((db, param: Param<OverlapValues>) =>
    db
      .update(apiKeys)
      .set({ expiresAt: sql`min(${apiKeys.expiresAt}, ${param("endsAt")})` })
      .where(and(isSelected(param), hasRow(apiKeys, eq(apiKeys.id, param("id"))))),
  );
const endOldKey = endAfterOverlap(isTarget);
const endItsSessions = endAfterOverlap((param) => and(isSession, eq(apiKeys.createdByKeyId, param("oldId"))));

/**
 * Creates a key with the name, scopes, limits, and upload count of the old one, which expires after the overlap. The new
 * key lives as long as the old one was created for.
 * @throws `not_found`, `insufficient_scope` unless the caller covers the key's scopes, `conflict` if the key has expired,
 *   `quota_exceeded`
 */
export async function rotateKey(
  deps: Deps,
  actor: Actor,
  credential: Credential,
  oldId: string,
  overlapSeconds: number,
): Promise<ApiKey> {
  const caller = actor.kind === "operator" ? null : actor;
  const target = { oldId, callerTeamId: caller?.teamId ?? null, callerKeyId: caller?.keyId ?? null };
  const [[old]] = await read(deps, [targetRow(target)]);
  if (!old) throw new AppError("not_found");
  checkCovered(credential, old.scopes ?? 0);
  const now = deps.system.now();
  if (old.expiresAt <= now) throw new AppError("conflict", { message: "The key has expired. Create a new one." });

  const { name, kind, scopes, limits, teamId, lifetime } = old;
  // The new key is deleted with the user whose session rotates it, because the user has seen it.
  const userId = caller?.userId ?? old.userId;
  const createdByKeyId = caller?.keyId ?? null;
  const fields = { name, kind, scopes, limits, teamId, createdByKeyId, userId, lifetime, createdAt: now };
  const [made, row] = newHashedKey(deps, fields);
  const encrypted = { encryptedToken: encryptToken(deps, made, made.key), encryptedWith: deps.secrets.currentKeyId };
  const overlap = { ...target, id: row.id, endsAt: now + overlapSeconds * SECOND };
  const event = newEvent(deps, "apikey.rotated", actor, { teamId, id: oldId }, { newKeyId: row.id });
  const insert = insertNewKey({ ...row, ...encrypted, ...target });
  const queries = [insert, endOldKey(overlap), endItsSessions(overlap), newRow(row)] as const;
  const [, , , [stored]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (!stored) throw await keyInsertError(deps, actor, row);
  return viewKey(stored, made.key);
}
