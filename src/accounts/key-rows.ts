import { and, eq, gte, isNull, lte, not, type SQL, sql } from "drizzle-orm";
import { type Actor, isExistingTeam, isKey } from "../access/authorization.ts";
import { decryptOrLog } from "../access/encryption.ts";
import { lacking, type Scope, scopesIn } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { type Recorded, recorded, writeWithEvent } from "../events/events.ts";
import { grouped } from "../numbers.ts";
import { type Batch, firstOf, hasRow, insertWhere } from "../platform/db.ts";
import { fingerprint } from "../platform/secrets.ts";
import { DAY, newId, newToken, newUuid } from "../platform/system.ts";
import type { KeyLimits } from "../uploads/quota.ts";
import { hasUnfinished } from "../uploads/unfinished.ts";
import { apiKeys, isApiKey, isSession } from "./keys.schema.ts";
import { teams } from "./teams.schema.ts";

/* The rows of API keys and sessions: their tokens, and the insert of a key. */

export const tooManyKeys = errorCode("too_many_keys", 409, "The team has too many API keys. Delete one and retry.");

/** Far more than a team needs. Without a limit, one caller with `keys:write` could fill the database. */
export const MAX_TEAM_KEYS = 1000;

/** Instants are milliseconds since the epoch. */
export interface ApiKey {
  id: string;
  /** The token, or its masked form. Empty if it can't be decrypted. */
  key: string;
  name: string;
  teamId: string;
  uuid: string;
  isPublic: boolean;
  scopes: Scope[];
  limits: KeyLimits | null;
  /** Null if the operator created it. */
  createdBy: { keyId: string; userId: string | null } | null;
  lastUsedAt: number | null;
  createdAt: number;
  expiresAt: number;
}

export type KeyRow = typeof apiKeys.$inferSelect;

export function viewKey(row: KeyRow, key: string): ApiKey {
  const { id, name, teamId, uuid, kind, scopes, limits, createdByKeyId, userId } = row;
  const { lastUsedAt, createdAt, expiresAt } = row;
  return {
    id,
    key,
    name,
    teamId,
    uuid,
    isPublic: kind === "public",
    scopes: scopesIn(scopes ?? 0),
    limits: limits && JSON.parse(limits),
    createdBy: createdByKeyId === null ? null : { keyId: createdByKeyId, userId },
    lastUsedAt,
    createdAt,
    expiresAt,
  };
}

export const encryptionContext = ({ id, teamId }: { id: string; teamId: string }) => `api-key/${id}/${teamId}`;

export const decryptToken = (deps: Deps, row: KeyRow): string | null =>
  decryptOrLog(deps, row.encryptedToken ?? "", encryptionContext(row), "token_unreadable", {
    keyId: row.id,
    teamId: row.teamId,
  });

/** A token that can't be decrypted is empty, because its key can still be listed and deleted. */
export const tokenOf = (deps: Deps, row: KeyRow): string => decryptToken(deps, row) ?? "";

/** A masked token shows its prefix with 4 of its random characters, and 4 characters of its checksum. */
const SHOWN_START = "stow_sk_".length + 4;
const SHOWN_END = 4;
export const masked = (token: string): string =>
  token === "" ? "" : `${token.slice(0, SHOWN_START)}…${token.slice(-SHOWN_END)}`;

export const viewMaskedKey = (deps: Deps, row: KeyRow): ApiKey => viewKey(row, masked(tokenOf(deps, row)));

/**
 * One leaked token must not open every other key. So the caller must cover the key, and the operator token, which sees the
 * keys of all teams, reveals none.
 */
export const maySeeToken = ({ kind, scopes }: Actor, row: KeyRow): boolean =>
  kind !== "operator" && lacking(row.scopes ?? 0, scopes).length === 0;

/** When the log says that a key is about to expire: with time to replace it, and at last. */
const EXPIRY_NOTICES_MILLISECONDS = [30 * DAY, 3 * DAY];

/** The first notice of an expiry that is due after this instant. Null if there is none. */
export const noticeAfter = (instant: number, expiresAt: number): number | null =>
  EXPIRY_NOTICES_MILLISECONDS.map((before) => expiresAt - before).find((at) => at > instant) ?? null;

/** The same for each row of a statement. */
export function nextNotice(instant: number): SQL<number | null> {
  const times = EXPIRY_NOTICES_MILLISECONDS.map((before) => sql`${apiKeys.expiresAt} - ${before}`);
  return sql`case ${sql.join(
    times.map((at) => sql`when ${at} > ${instant} then ${at}`),
    sql` `,
  )} end`;
}

type KeyFields = Pick<
  KeyRow,
  "name" | "teamId" | "kind" | "scopes" | "createdByKeyId" | "userId" | "lifetimeMilliseconds"
>;

/** For events: those of keys don't have the version. */
export const keyOf = ({ id, teamId }: KeyRow) => ({ id, teamId });

export interface MadeKey {
  token: string;
  row: KeyRow;
}

/** Makes a token and the row of its key or session. A session has its token as a hash only. */
export function newKeyRow(
  { system, db, secrets }: Deps,
  {
    createdAt = system.now(),
    ...fields
  }: KeyFields & Partial<Pick<KeyRow, "limits" | "createdAt" | "originId" | "userAgent">>,
): MadeKey {
  const token = newToken(system, fields.kind, db.number);
  const id = newId(system, db.number);
  const isHashedOnly = fields.kind === "session";
  const expiresAt = createdAt + fields.lifetimeMilliseconds;
  const row: KeyRow = {
    id,
    uuid: newUuid(system),
    limits: null,
    userAgent: null,
    rotatedTo: null,
    revealed: "{}",
    originId: null,
    ...fields,
    tokenHash: fingerprint(token),
    encryptedToken: isHashedOnly ? null : secrets.encrypt(token, encryptionContext({ id, teamId: fields.teamId })),
    encryptedWith: isHashedOnly ? null : secrets.currentKeyId,
    lastUsedAt: null,
    createdAt,
    expiresAt,
    expiryNoticeAt: fields.kind === "session" ? null : noticeAfter(createdAt, expiresAt),
    version: 0,
  };
  return { token, row };
}

/**
 * Only live keys count towards `MAX_TEAM_KEYS`: in a team that has as many rows, the key that expired first is deleted. A key
 * that began an unfinished upload stays, because the upload may still be finished.
 */
function roomForKey({ db, system }: Deps, teamId: string) {
  const isFull = gte(teams.apiKeys, MAX_TEAM_KEYS);
  const isReplaceable = and(
    eq(apiKeys.teamId, teamId),
    isApiKey,
    lte(apiKeys.expiresAt, system.now()),
    not(hasUnfinished(teamId, apiKeys.id)),
  );
  return {
    /** A reason to refuse a new key. */
    tooManyKeys: sql`${isFull} and not ${hasRow(apiKeys, isReplaceable)}`,
    /** Part of the batch, before the insert. Changes nothing unless the team is full and the key is inserted. */
    makeRoom(isInserted: SQL | undefined) {
      const isNeeded = hasRow(teams, and(isExistingTeam(teamId), isFull, isInserted));
      const firstExpired = db
        .select({ id: apiKeys.id })
        .from(apiKeys)
        .where(isReplaceable)
        .orderBy(apiKeys.expiresAt)
        .limit(1);
      return db.delete(apiKeys).where(sql`${apiKeys.id} = iif(${isNeeded}, ${firstExpired}, null)`);
    },
  };
}

/** The row of a key or session that this batch inserts. */
export const storedKey = ({ db }: Deps, { id, teamId }: KeyRow) => db.select().from(apiKeys).where(isKey(teamId, id));

/**
 * Inserts a key of this caller if the condition holds, with its event, and then runs further queries. `userId` is whom the key
 * belongs to, which the batch may read.
 * @returns null if the condition doesn't hold, or there is no such team
 * @throws `too_many_keys`
 */
export async function insertKey(
  deps: Deps,
  actor: Actor,
  { row, token }: MadeKey,
  event: Recorded,
  { userId, condition, further = [] }: { userId: string | SQL | null; condition?: SQL; further?: Batch },
): Promise<ApiKey | null> {
  const { db } = deps;
  const isTeam = isExistingTeam(row.teamId);
  const room = roomForKey(deps, row.teamId);
  const caller = actor.kind === "operator" ? null : actor;
  const refusal = firstOf({
    too_many_keys: room.tooManyKeys,
  });
  const created = { ...row, createdByKeyId: caller?.keyId ?? null, userId };
  const canInsert = and(isNull(refusal), condition);
  const batch = {
    team: db.select({ refusal }).from(teams).where(isTeam),
    room: room.makeRoom(canInsert),
    insert: recorded(deps, event, insertWhere(db, apiKeys, created, and(isTeam, canInsert), sql`${teams}`)),
    further,
    stored: storedKey(deps, row),
  };
  const { team, stored } = await writeWithEvent(deps, batch, {
    isIdempotent: true,
    caller: actor,
    granted: row.scopes ?? 0,
  });
  if (stored[0]) return viewKey(stored[0], token);
  const reason = team[0]?.refusal;
  if (reason === "too_many_keys") {
    const message = `A team can have at most ${grouped(MAX_TEAM_KEYS)} API keys. Delete one and retry.`;
    throw new AppError(tooManyKeys, { message });
  }
  return null;
}

export const isKeyOf = (teamId: string, id: string) => and(isKey(teamId, id), isApiKey);
export const isSessionOfKey = (teamId: string, id: string) =>
  and(isSession, eq(apiKeys.createdByKeyId, id), eq(apiKeys.teamId, teamId));
