import { and, eq, isNull, lt, type SQL, sql } from "drizzle-orm";
import type { SQLiteUpdateSetSource } from "drizzle-orm/sqlite-core";
import {
  type Actor,
  authorize,
  type Credential,
  checkCovered,
  exceeds,
  isKey,
  readAs,
  refusalError,
  refuseNamedTeam,
  type TeamActor,
  teamNotAllowed,
  type Viewer,
} from "../access/authorization.ts";
import { lacking, maskOf, PUBLIC_SCOPES, type Scope, scopesIn } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import { fieldsOf, recorded, writeWithEvent } from "../events/events.ts";
import { firstOf, hasRow, type Query, read } from "../platform/db.ts";
import { cutPage, listName, type Page, type PageRequest, pageById } from "../platform/paging.ts";
import { isStorageFull } from "../platform/retry.ts";
import { DAY, HOUR } from "../platform/system.ts";
import type { KeyLimits } from "../uploads/quota.ts";
import { cancelUploadsOfKeys } from "../uploads/unfinished.ts";
import { API_KEY_EVENTS } from "./account-event-types.ts";
import {
  type ApiKey,
  insertKey,
  isKeyOf,
  isSessionOfKey,
  keyOf,
  type MadeKey,
  masked,
  maySeeToken,
  newKeyRow,
  noticeAfter,
  tokenOf,
  viewKey,
  viewMaskedKey,
} from "./key-rows.ts";
import { apiKeys, isApiKey } from "./keys.schema.ts";

/*
 * API keys: the tokens of programs. A token is stored as a hash to find it, and encrypted to show it.
 *
 * The caller must cover the scopes of each key that it creates, changes, rotates or deletes. A key that a user's session
 * creates belongs to the user, and so do the keys that it creates in turn: they are deleted with the user.
 */

export const KEY_LIFETIME_DAYS = 365;
export const MAX_KEY_LIFETIME_DAYS = 3650;

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
    expiryNoticeAt: expiresAt === undefined ? undefined : noticeAfter(system.now(), expiresAt),
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
