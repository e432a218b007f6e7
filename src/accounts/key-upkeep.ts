import { and, eq, gt, lt, lte, type SQL, sql } from "drizzle-orm";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { reencryptRows } from "../access/encryption.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { recordedEach, SYSTEM, writeWithEvent } from "../events/events.ts";
import { deleteFirst, isOneOf, read, write } from "../platform/db.ts";
import { DAY } from "../platform/system.ts";
import { API_KEY_EVENTS } from "./account-event-types.ts";
import { decryptToken, encryptionContext, nextNotice } from "./key-rows.ts";
import { apiKeys, isApiKey, isExpiring, isSession } from "./keys.schema.ts";
import { consoleUrl, type Notice, notifyTeams } from "./mails.ts";

/* The recovery job on keys and sessions: other master keys, those about to expire, expired ones, and those of deleted teams. */

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

/** Keys of a batch, and teams whose keys it takes: about 1,700 teams a day. */
const EXPIRING_KEYS = 100;
const EXPIRING_TEAMS = 6;

/**
 * Records that keys are about to expire, each once for a notice that has become due. After an outage it skips the notices that a
 * later one has overtaken, and those of keys that have expired.
 */
async function announceExpiry(deps: Deps) {
  const { db } = deps;
  const now = deps.system.now();
  const isDue = and(isExpiring, lte(apiKeys.expiryNoticeAt, now));
  const { id, teamId, name, expiresAt } = apiKeys;
  const due = db
    .select({ id, teamId, name, expiresAt })
    .from(apiKeys)
    .where(isDue)
    .orderBy(apiKeys.expiryNoticeAt)
    .limit(EXPIRING_KEYS);
  const rows = await read(deps, due);
  const ofTeams = [...Map.groupBy(rows, (row) => row.teamId)].slice(0, EXPIRING_TEAMS);
  const areDue = (keys: { id: string }[]) =>
    and(
      isOneOf(
        id,
        keys.map((key) => key.id),
      ),
      isDue,
    );
  const expiry = sql`strftime('%Y-%m-%dT%H:%M:%fZ', ${expiresAt} / 1000.0, 'unixepoch')`;
  const events = ofTeams.map(([ofTeam, keys]) => {
    const what = {
      type: API_KEY_EVENTS.expiring,
      initiator: SYSTEM,
      subject: { teamId: ofTeam, id: sql`${id}`, version: sql`null` },
      data: sql`json_object('_id', ${id}, 'expiresAt', ${expiry})`,
      from: sql`${apiKeys}`,
      where: and(eq(teamId, ofTeam), areDue(keys), gt(expiresAt, now)),
      reads: "before",
    } as const;
    return recordedEach(deps, what, []);
  });
  if (events.length === 0) return { expiriesAnnounced: 0 };
  const announced = ofTeams.flatMap(([, keys]) => keys);
  const note = db
    .update(apiKeys)
    .set({ expiryNoticeAt: nextNotice(now) })
    .where(areDue(announced));
  const done = await writeWithEvent(deps, { events, note }, { isIdempotent: true, caller: null });
  // As in the events, without the keys that have expired.
  const live = Map.groupBy(
    announced.filter((key) => key.expiresAt > now),
    (key) => key.teamId,
  );
  deps.after(
    notifyTeams(
      deps,
      Array.from(live, ([ofTeam, keys]) => expiryNotice(deps, ofTeam, keys)),
    ),
  );
  return { expiriesAnnounced: done.note.meta.changes };
}

function expiryNotice(deps: Deps, teamId: string, keys: { name: string; expiresAt: number }[]): Notice {
  const lines = keys.map(({ name, expiresAt }) => `- ${name}: ${new Date(expiresAt).toUTCString()}`);
  const text = `These API keys expire soon:\n\n${lines.join("\n")}\n\nRotate them, or create others: ${consoleUrl(deps, "/keys")}`;
  return { teamId, subject: "an API key expires soon", text };
}

export const expiringKeys: RecoveryStep = {
  name: "expiring keys",
  counts: ["expiriesAnnounced"],
  runBatch: announceExpiry,
  maxBatches: 1,
  queries: 16,
};

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
