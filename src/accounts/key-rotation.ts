import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { SQLiteUpdateSetSource } from "drizzle-orm/sqlite-core";
import { type Actor, checkCovered, isKey, stillAllowed, type TeamActor, teamExists } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { hasRow, read, write } from "../platform/db.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../platform/system.ts";
import { API_KEY_EVENTS } from "./account-event-types.ts";
import {
  type ApiKey,
  decryptToken,
  insertKey,
  isSessionOfKey,
  type KeyRow,
  newKeyRow,
  noticeAfter,
  viewKey,
} from "./key-rows.ts";
import { apiKeys, isApiKey } from "./keys.schema.ts";

/* Rotation of an API key: a new key replaces an old one, and both work during an overlap. */

/** Time to roll the new key out to every server. */
export const DEFAULT_OVERLAP_SECONDS = DAY / SECOND;
export const MAX_OVERLAP_SECONDS = (30 * DAY) / SECOND;

/** Each change of the old key at the same time costs an attempt. */
const MAX_ROTATION_ATTEMPTS = 3;
/** How long a caller who did not get the response can repeat the request. */
export const REPEAT_SECONDS = HOUR / SECOND;
/** The overlap at least of a key that rotates itself, because it could not repeat a request whose response was lost. */
export const MIN_OWN_OVERLAP_SECONDS = MINUTE / SECOND;

/**
 * Creates a key with the name, scopes, limits, lifetime and user of the old one, regardless of who rotates it: the user of a contributor's
 * key decides which files it sees. The old one expires after the overlap. If the response is lost, no client has the token that replaces
 * the old one. So a repetition by the same caller returns the same new key, until that is used, for an hour.
 * @throws `not_found`, `insufficient_scope` unless the caller covers the key's scopes, `conflict` if the key has expired or
 *   keeps changing, `too_many_keys`
 */
export async function rotateKey(
  deps: Deps,
  actor: Actor,
  oldId: string,
  overlapSeconds: number,
  attempts = MAX_ROTATION_ATTEMPTS,
): Promise<ApiKey> {
  const { db, system } = deps;
  const isOfTeam = actor.kind === "operator" ? undefined : eq(apiKeys.teamId, actor.teamId);
  const isOldKey = and(eq(apiKeys.id, oldId), isApiKey, isOfTeam);
  const found = and(isOldKey, teamExists(apiKeys.teamId));
  const latest = db.select({ id: apiKeys.rotatedTo }).from(apiKeys).where(isOldKey);
  const {
    old: [old],
    successor: [successor],
  } = await read(deps, {
    old: db.select().from(apiKeys).where(found),
    successor: db.select().from(apiKeys).where(sql`${apiKeys.id} = ${latest}`),
  });
  if (!old) throw new AppError("not_found");
  const { name, kind, teamId, scopes, limits, userId, lifetimeMilliseconds, version } = old;
  const originId = old.originId ?? old.id;
  checkCovered(actor, scopes ?? 0);
  const createdAt = system.now();
  const caller = actor.kind === "operator" ? null : actor;
  const isOwn = caller !== null && (await isKeyOrItsSession(deps, caller, oldId));
  const overlapEndsAt = createdAt + Math.max(overlapSeconds, isOwn ? MIN_OWN_OVERLAP_SECONDS : 0) * SECOND;
  const endAfterOverlap = (newId: string) => {
    const isRotated = hasRow(apiKeys, eq(apiKeys.id, newId));
    const isEarlier = sql`${apiKeys.expiresAt} > ${overlapEndsAt}`;
    const expiryNoticeAt = sql`iif(${isEarlier}, ${noticeAfter(createdAt, overlapEndsAt)}, ${apiKeys.expiryNoticeAt})`;
    const end = (isEnding: SQL | undefined, rotated: SQLiteUpdateSetSource<typeof apiKeys>) =>
      db
        .update(apiKeys)
        .set({ ...rotated, expiresAt: sql`min(${apiKeys.expiresAt}, ${overlapEndsAt})` })
        .where(and(isEnding, isRotated));
    return {
      key: end(isOldKey, { rotatedTo: newId, expiryNoticeAt }),
      sessions: end(isSessionOfKey(teamId, oldId), {}),
    };
  };
  if (successor && isRepeatable(deps, successor, caller)) {
    // The caller may have been narrowed since.
    checkCovered(actor, successor.scopes ?? 0);
    const token = decryptToken(deps, successor);
    if (token !== null) {
      // It may ask for a shorter overlap.
      const right = stillAllowed(deps, actor, { granted: (scopes ?? 0) | (successor.scopes ?? 0) });
      await write(deps, endAfterOverlap(successor.id), { isIdempotent: true, caller: right });
      return viewKey(successor, token);
    }
  }
  if (old.expiresAt <= createdAt) throw new AppError("conflict", { message: "The key has expired. Create a new one." });
  const copied = { name, kind, teamId, scopes, limits, originId, userId, lifetimeMilliseconds };
  const made = newKeyRow(deps, { ...copied, createdByKeyId: null, createdAt });
  const rotation = {
    type: API_KEY_EVENTS.rotated,
    initiator: actor,
    subject: { teamId, id: oldId },
    data: { newKeyId: made.row.id },
  };
  const rotated = await insertKey(deps, actor, made, rotation, {
    // A user who is deleted, or becomes a contributor, changes the version of a key. Of several rotations at once, the first one
    // wins, and the others are its repetitions.
    condition: hasRow(
      apiKeys,
      and(
        isOldKey,
        eq(apiKeys.version, version),
        gt(apiKeys.expiresAt, createdAt),
        sql`(${apiKeys.rotatedTo} is ${old.rotatedTo} or ${apiKeys.rotatedTo} = ${made.row.id})`,
      ),
    ),
    userId,
    further: endAfterOverlap(made.row.id),
  });
  if (rotated) return rotated;
  if (attempts === 1) throw new AppError("conflict");
  return rotateKey(deps, actor, oldId, overlapSeconds, attempts - 1);
}

/** Whether the successor of a rotated key may be returned again: to the caller who rotated the key, and has perhaps not seen it. */
const isRepeatable = ({ system }: Deps, successor: KeyRow, caller: TeamActor | null): boolean =>
  successor.createdByKeyId === (caller?.keyId ?? null) &&
  successor.lastUsedAt === null &&
  successor.expiresAt > system.now() &&
  successor.createdAt > system.now() - REPEAT_SECONDS * SECOND;

async function isKeyOrItsSession(deps: Deps, { teamId, keyId, kind }: TeamActor, id: string): Promise<boolean> {
  if (kind !== "session" || keyId === id) return keyId === id;
  const isItsSession = and(isKey(teamId, keyId), isSessionOfKey(teamId, id));
  const found = await read(deps, deps.db.select({ id: apiKeys.id }).from(apiKeys).where(isItsSession));
  return found.length > 0;
}
