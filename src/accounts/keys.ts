import { and, eq, gt, gte, inArray, isNull, lt, lte, notInArray, type SQL, sql } from "drizzle-orm";
import type { SQLiteUpdateSetSource } from "drizzle-orm/sqlite-core";
import {
  type Actor,
  authorize,
  type Credential,
  checkCovered,
  exceeds,
  isExistingTeam,
  isKey,
  readAs,
  refusalError,
  refuseNamedTeam,
  stillAllowed,
  type TeamActor,
  teamExists,
  teamNotAllowed,
  type Viewer,
} from "../access/authorization.ts";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { decryptOrLog, reencryptRows } from "../access/encryption.ts";
import { lacking, maskOf, PUBLIC_SCOPES, type Scope, scopesIn } from "../access/scopes.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError, errorCode, invalidField } from "../errors.ts";
import { fieldsOf, type Recorded, recorded, writeWithEvent } from "../events/events.ts";
import { type Batch, firstOf, hasRow, insertWhere, type Query, read, write } from "../platform/db.ts";
import { cutPage, listName, type Page, type PageRequest, pageById } from "../platform/paging.ts";
import { isStorageFull } from "../platform/retry.ts";
import { fingerprint } from "../platform/secrets.ts";
import { DAY, HOUR, MINUTE, newId, newToken, newUuid, SECOND } from "../platform/system.ts";
import type { KeyLimits } from "../uploads/quota.ts";
import { cancelUploadsOfKeys } from "../uploads/unfinished.ts";
import { isReceiving, isUnfinishedResumable, unfinishedUploads, uploads } from "../uploads/uploads.schema.ts";
import { API_KEY_EVENTS } from "./account-event-types.ts";
import { apiKeys, isApiKey, isSession } from "./keys.schema.ts";
import { teams } from "./teams.schema.ts";

/*
 * API keys: the tokens of programs. A token is stored as a hash to find it, and encrypted to show it.
 *
 * The caller must cover the scopes of each key that it creates, changes, rotates or deletes. A key that a user's session
 * creates belongs to the user, and so do the keys that it creates in turn: they are deleted with the user.
 */

export const tooManyKeys = errorCode("too_many_keys", 409, "The team has too many API keys. Delete one and retry.");

export const KEY_LIFETIME_DAYS = 365;
export const MAX_KEY_LIFETIME_DAYS = 3650;
/** Far more than a team needs. Without a limit, one caller with `keys:write` could fill the database. */
export const MAX_TEAM_KEYS = 1000;
/** Time to roll the new key out to every server. */
export const DEFAULT_OVERLAP_SECONDS = DAY / SECOND;
export const MAX_OVERLAP_SECONDS = (30 * DAY) / SECOND;

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

const encryptionContext = ({ id, teamId }: { id: string; teamId: string }) => `api-key/${id}/${teamId}`;

const decryptToken = (deps: Deps, row: KeyRow): string | null =>
  decryptOrLog(deps, row.encryptedToken ?? "", encryptionContext(row), "token_unreadable", {
    keyId: row.id,
    teamId: row.teamId,
  });

/** A token that can't be decrypted is empty, because its key can still be listed and deleted. */
const tokenOf = (deps: Deps, row: KeyRow): string => decryptToken(deps, row) ?? "";

/** A masked token shows its prefix with 4 of its random characters, and 4 characters of its checksum. */
const SHOWN_START = "stow_sk_".length + 4;
const SHOWN_END = 4;
const masked = (token: string): string =>
  token === "" ? "" : `${token.slice(0, SHOWN_START)}…${token.slice(-SHOWN_END)}`;

export const viewMaskedKey = (deps: Deps, row: KeyRow): ApiKey => viewKey(row, masked(tokenOf(deps, row)));

/**
 * One leaked token must not open every other key. So the caller must cover the key, and the operator token, which sees the
 * keys of all teams, reveals none.
 */
const maySeeToken = ({ kind, scopes }: Actor, row: KeyRow): boolean =>
  kind !== "operator" && lacking(row.scopes ?? 0, scopes).length === 0;

/* Creation */

type KeyFields = Pick<
  KeyRow,
  "name" | "teamId" | "kind" | "scopes" | "createdByKeyId" | "userId" | "lifetimeMilliseconds"
>;

/** For events: those of keys don't have the version. */
export const keyOf = ({ id, teamId }: KeyRow) => ({ id, teamId });

interface MadeKey {
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
    expiresAt: createdAt + fields.lifetimeMilliseconds,
    version: 0,
  };
  return { token, row };
}

export interface NewKey {
  name: string;
  isPublic: boolean;
  /** By default those of the caller. A public key always has `PUBLIC_SCOPES`. */
  scopes?: Scope[] | undefined;
  /** Only a public key has limits. */
  limits?: KeyLimits | undefined;
  expiresAt?: number | undefined;
}

/**
 * Makes a key of a team, with its token and row, as if the operator created it.
 * @throws `insufficient_scope`; `invalid_input` if the expiry is in the past or more than ten years away
 */
export function makeKey(
  deps: Deps,
  actor: Actor,
  { name, isPublic, scopes, limits, expiresAt }: NewKey,
  teamId: string,
): MadeKey {
  const now = deps.system.now();
  if (isPublic && scopes && maskOf(scopes) !== PUBLIC_SCOPES) {
    throw invalidField("scopes", `A public key has ${scopesIn(PUBLIC_SCOPES).join(", ")} only.`);
  }
  if (limits && !isPublic) throw invalidField("limits", "Only a public key has limits.");
  if (expiresAt !== undefined && (expiresAt <= now || expiresAt > now + MAX_KEY_LIFETIME_DAYS * DAY)) {
    const message = `Must be in the future, at most ${MAX_KEY_LIFETIME_DAYS} days from now.`;
    throw invalidField("expiresAt", message);
  }
  const ownOrGiven = scopes ? maskOf(scopes) : actor.scopes;
  const mask = isPublic ? PUBLIC_SCOPES : ownOrGiven;
  checkCovered(actor, mask);
  return newKeyRow(deps, {
    name,
    kind: isPublic ? "public" : "secret",
    limits: limits && Object.keys(limits).length > 0 ? JSON.stringify(limits) : null,
    scopes: mask,
    teamId,
    createdByKeyId: null,
    userId: null,
    createdAt: now,
    lifetimeMilliseconds: expiresAt === undefined ? KEY_LIFETIME_DAYS * DAY : expiresAt - now,
  });
}

/**
 * Only live keys count towards `MAX_TEAM_KEYS`: in a team that has as many rows, the key that expired first is deleted. A key
 * that began an unfinished upload stays, because the upload may still be finished.
 */
function roomForKey({ db, system }: Deps, teamId: string) {
  const isFull = gte(teams.apiKeys, MAX_TEAM_KEYS);
  const uploading = db
    .select({ keyId: sql`${uploads.keyId}` })
    .from(unfinishedUploads)
    .where(and(eq(uploads.teamId, teamId), isUnfinishedResumable, isReceiving));
  const isReplaceable = and(
    eq(apiKeys.teamId, teamId),
    isApiKey,
    lte(apiKeys.expiresAt, system.now()),
    notInArray(apiKeys.id, uploading),
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
async function insertKey(
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
    const message = `A team can have at most ${MAX_TEAM_KEYS.toLocaleString("en")} API keys. Delete one and retry.`;
    throw new AppError(tooManyKeys, { message });
  }
  return null;
}

/**
 * Creates a key of the caller's team, or of the team that the operator names.
 * @throws as `makeKey` does; `forbidden` if a team key names a team; `too_many_keys`; `not_found` if the operator names an
 *   unknown team; `token_invalid` if the caller has lost its access in the meantime
 */
export async function createKey(
  deps: Deps,
  actor: Actor,
  { teamId: named, ...fields }: NewKey & { teamId?: string | undefined },
): Promise<ApiKey> {
  if (actor.kind !== "operator" && named !== undefined) throw teamNotAllowed();
  // No team has an empty id.
  const teamId = actor.kind === "operator" ? (named ?? "") : actor.teamId;
  const made = makeKey(deps, actor, fields, teamId);
  // Since the caller was authorized, its user may have been deleted, and its key kept.
  const users = deps.db.select({ userId: apiKeys.userId }).from(apiKeys);
  const userId = actor.kind === "operator" ? null : sql`${users.where(isKey(actor.teamId, actor.keyId))}`;
  const created = { type: API_KEY_EVENTS.created, initiator: actor, subject: keyOf(made.row) };
  const key = await insertKey(deps, actor, made, created, { userId });
  if (key) return key;
  if (actor.kind !== "operator") throw new AppError("token_invalid");
  throw new AppError("not_found", { message: "No team has this `teamId`." });
}

/* Reads */

/** Callers that a key remembers to have shown its token to. If more fetch it in an hour, some are recorded twice. */
const NOTED_READERS = 100;

type KeyAccess = { scope: "keys:read"; also: "operator" };

/**
 * Lists API keys with masked tokens, newest first.
 * @throws `forbidden` if a team key names a team; `invalid_input` for a cursor of another list, or if the operator names no
 *   team
 */
export async function listKeys(
  deps: Deps,
  credential: Credential<KeyAccess>,
  { teamId, ...request }: PageRequest & { teamId?: string | undefined },
): Promise<Page<ApiKey>> {
  await refuseNamedTeam(deps, credential, teamId);
  if (credential.tokenHash === null && teamId === undefined) {
    throw invalidField("teamId", "Required: name the team whose keys to list.");
  }
  const list = listName("keys", { teamId });
  const page = pageById(list, apiKeys.id, "newest first", request);
  const keys = (viewer: Viewer) =>
    deps.db
      .select()
      .from(apiKeys)
      .where(and(eq(apiKeys.teamId, viewer.teamId), isApiKey, page.where))
      .orderBy(...page.orderBy)
      .limit(page.limit)
      .offset(page.offset);
  const { rows } = await readAs(deps, credential, keys, teamId);
  const { items, next } = cutPage(list, request, rows);
  return { items: items.map((row) => viewMaskedKey(deps, row)), next };
}

/** Reads a key of the caller's team. The operator reads that of any team. */
async function readKey<T>(
  deps: Deps,
  credential: Credential<KeyAccess>,
  select: (isOfTeam: SQL | undefined) => Query<T>,
): Promise<{ actor: Actor; rows: T }> {
  if (credential.tokenHash !== null) {
    return readAs(deps, credential, ({ teamId }) => select(eq(apiKeys.teamId, teamId)));
  }
  const actor = await authorize(deps, credential);
  const rows = await read(deps, select(undefined));
  return { actor, rows };
}

/**
 * Fetches a key. A caller that covers the key's scopes sees the whole token, which is recorded first, once an hour. A full
 * database can't record it, so there the token stays masked, and so it does unless the response is shown.
 * @throws `not_found`
 */
export async function fetchKey(
  deps: Deps,
  credential: Credential<KeyAccess>,
  id: string,
  { isShown }: { isShown: boolean },
): Promise<ApiKey> {
  const hasId = and(isApiKey, eq(apiKeys.id, id));
  const select = (isOfTeam: SQL | undefined) => deps.db.select().from(apiKeys).where(and(isOfTeam, hasId));
  const {
    actor,
    rows: [row],
  } = await readKey(deps, credential, select);
  if (!row) throw new AppError("not_found");
  const token = tokenOf(deps, row);
  if (!isShown || token === "" || !maySeeToken(actor, row)) return viewKey(row, masked(token));
  // A team's caller, because the operator sees no token.
  const { keyId } = actor as TeamActor;
  const now = deps.system.now();
  const isUnknown = sql`not exists (select 1 from json_each(${apiKeys.revealed}) where key = ${keyId} and value > ${now - HOUR})`;
  const others = sql`select key, value from json_each(${apiKeys.revealed}) where key <> ${keyId} and value > ${now - HOUR}
    limit ${NOTED_READERS - 1}`;
  const revealed = sql`json_patch((select json_group_object(key, value) from (${others}) sorted), json_object(${keyId}, ${now}))`;
  const note = deps.db
    .update(apiKeys)
    .set({ revealed })
    .where(and(isKeyOf(row.teamId, id), isUnknown));
  const batch = recorded(deps, { type: API_KEY_EVENTS.revealed, initiator: actor, subject: keyOf(row) }, note);
  const isRecorded = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor }).then(
    () => true,
    (error) => {
      if (!isStorageFull(error)) throw error;
      return false;
    },
  );
  return viewKey(row, isRecorded ? token : masked(token));
}

/* Changes */

/** The team of the key: the operator changes keys of any team. @throws `not_found` */
async function teamOfKey(deps: Deps, actor: Actor, id: string): Promise<string> {
  if (actor.kind !== "operator") return actor.teamId;
  const hasId = and(eq(apiKeys.id, id), isApiKey);
  const [key] = await read(deps, deps.db.select({ teamId: apiKeys.teamId }).from(apiKeys).where(hasId));
  if (!key) throw new AppError("not_found");
  return key.teamId;
}

const isKeyOf = (teamId: string, id: string) => and(isKey(teamId, id), isApiKey);
const isSessionOfKey = (teamId: string, id: string) =>
  and(isSession, eq(apiKeys.createdByKeyId, id), eq(apiKeys.teamId, teamId));

export interface KeyChanges {
  name?: string | undefined;
  scopes?: Scope[] | undefined;
  expiresAt?: number | undefined;
}

/**
 * Renames the key, or narrows its scopes or lifetime, and those of the sessions that it created.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the key, `invalid_input` if a change would widen it
 */
export async function updateKey(deps: Deps, actor: Actor, id: string, changes: KeyChanges): Promise<ApiKey> {
  const { db, system } = deps;
  const { name, expiresAt } = changes;
  if (expiresAt !== undefined && expiresAt <= system.now()) {
    throw invalidField("expiresAt", "Must be in the future. To end the key now, delete it.");
  }
  const scopes = changes.scopes && maskOf(changes.scopes);
  const teamId = await teamOfKey(deps, actor, id);
  const isTarget = isKeyOf(teamId, id);
  const refusal = firstOf({
    insufficient_scope: exceeds(actor, sql`${apiKeys.scopes}`),
    ...(scopes !== undefined && { widens: sql`(${scopes} & ~${apiKeys.scopes}) <> 0` }),
    ...(expiresAt !== undefined && { prolongs: lt(apiKeys.expiresAt, expiresAt) }),
  });
  const narrowed: SQLiteUpdateSetSource<typeof apiKeys> = {
    name,
    scopes,
    expiresAt,
    version: sql`${apiKeys.version} + 1`,
  };
  const update = db
    .update(apiKeys)
    .set(narrowed)
    .where(and(isTarget, isNull(refusal)))
    .returning();
  const event = {
    type: API_KEY_EVENTS.updated,
    initiator: actor,
    subject: { teamId, id },
    data: { fields: fieldsOf(changes) },
  };
  const batch = {
    found: db.select({ refusal, scopes: apiKeys.scopes }).from(apiKeys).where(isTarget),
    update: recorded(deps, event, update),
    sessions: narrowSessions(deps, teamId, id),
  };
  const {
    found: [found],
    update: {
      change: [updated],
    },
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  });
  if (updated) return viewMaskedKey(deps, updated);
  if (!found) throw new AppError("not_found");
  if (found.refusal === "widens") {
    const added = lacking(scopes ?? 0, found.scopes ?? 0).join(", ");
    throw invalidField("scopes", `The key doesn't have ${added}. Scopes can only be removed.`);
  }
  if (found.refusal === "prolongs") {
    throw invalidField("expiresAt", "The key expires earlier. A lifetime can only be shortened.");
  }
  throw refusalError(found.refusal ?? "conflict", actor, found.scopes);
}

/** Narrows the sessions of the key to what the key may do now. */
function narrowSessions({ db }: Deps, teamId: string, id: string) {
  const ofKey = (column: typeof apiKeys.scopes | typeof apiKeys.expiresAt) =>
    sql`${db.select({ value: column }).from(apiKeys).where(isKeyOf(teamId, id))}`;
  const [scopes, expiresAt] = [ofKey(apiKeys.scopes), ofKey(apiKeys.expiresAt)];
  const isWider = sql`((${apiKeys.scopes} & ~${scopes}) <> 0 or ${apiKeys.expiresAt} > ${expiresAt})`;
  return db
    .update(apiKeys)
    .set({ scopes: sql`${apiKeys.scopes} & ${scopes}`, expiresAt: sql`min(${apiKeys.expiresAt}, ${expiresAt})` })
    .where(and(isSessionOfKey(teamId, id), isWider));
}

/**
 * Revokes the key and the sessions that it created, immediately, and cancels their unfinished uploads.
 * @returns the deleted key, with its whole token unless the operator deletes it
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the key
 */
export async function deleteKey(deps: Deps, actor: Actor, id: string): Promise<ApiKey> {
  const { db } = deps;
  const teamId = await teamOfKey(deps, actor, id);
  const isTarget = isKeyOf(teamId, id);
  const refusal = firstOf({ insufficient_scope: exceeds(actor, sql`${apiKeys.scopes}`) });
  const isDeleted = and(isTarget, isNull(refusal));
  const key = db.select({ id: apiKeys.id }).from(apiKeys).where(isDeleted);
  const sessions = db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(isSessionOfKey(teamId, id), hasRow(apiKeys, isDeleted)));
  const batch = {
    found: db.select({ refusal, scopes: apiKeys.scopes }).from(apiKeys).where(isTarget),
    uploads: cancelUploadsOfKeys(deps, teamId, sql`${key.unionAll(sessions)}`),
    // Before the key, so that nothing is deleted if the key isn't.
    sessions: db.delete(apiKeys).where(and(isSessionOfKey(teamId, id), hasRow(apiKeys, isDeleted))),
    deletion: recorded(
      deps,
      { type: API_KEY_EVENTS.revoked, initiator: actor, subject: { teamId, id } },
      db.delete(apiKeys).where(isDeleted).returning(),
    ),
  };
  const {
    found: [found],
    deletion: {
      change: [row],
    },
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  });
  if (!found) throw new AppError("not_found");
  if (!row) throw refusalError(found.refusal ?? "conflict", actor, found.scopes);
  const token = tokenOf(deps, row);
  return viewKey(row, maySeeToken(actor, row) ? token : masked(token));
}

/* Rotation: a new key replaces an old one, and both work during an overlap. */

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
    const end = (isEnding: SQL | undefined, rotated: { rotatedTo?: string }) =>
      db
        .update(apiKeys)
        .set({ ...rotated, expiresAt: sql`min(${apiKeys.expiresAt}, ${overlapEndsAt})` })
        .where(and(isEnding, isRotated));
    return { key: end(isOldKey, { rotatedTo: newId }), sessions: end(isSessionOfKey(teamId, oldId), {}) };
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

/* For the recovery job */

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
    const expired = deps.db
      .select({ id: apiKeys.id })
      .from(apiKeys)
      .where(and(isOfKind, lt(apiKeys.expiresAt, deps.system.now() - keptDays * DAY)))
      .orderBy(apiKeys.expiresAt)
      .limit(EXPIRED_ROWS);
    return deps.db.delete(apiKeys).where(inArray(apiKeys.id, expired)).returning({ id: apiKeys.id });
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
