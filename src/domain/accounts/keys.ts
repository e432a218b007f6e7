import { and, eq, lt, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import {
  type BoundQuery,
  type Db,
  hasRow,
  insertWhere,
  type Param,
  preparedQuery,
  read,
  rowOf,
} from "../../platform/db.ts";
import { apiKeys, isApiKey, teams, users } from "../../platform/schema.ts";
import { fingerprint } from "../../platform/secrets.ts";
import { DAY, newId, newToken, newUuid } from "../../platform/system.ts";
import type { FileType } from "../audio/media-type.ts";
import { decryptOrLog } from "../encryption.ts";
import { newEvent, writeWithEvent } from "../events/events.ts";
import {
  cutPage,
  type KeysetValues,
  keyset,
  keysetValues,
  listName,
  type Page,
  type PageRequest,
  pageOf,
} from "../paging.ts";
import {
  type Actor,
  authorize,
  authorizeRead,
  type Credential,
  presentScopes,
  refuseNamedTeam,
  teamNotAllowed,
  teamRead,
} from "./authorization.ts";
import { ALL_SCOPES, lacking, maskOf, PUBLIC_SCOPES, type Scope, scopesIn } from "./scopes.ts";
import { isExistingTeam, teamExists } from "./teams.ts";
import { requireScopes } from "./write-authorization.ts";

export const KEY_LIFETIME_DAYS = 365;
export const MAX_KEY_LIFETIME_DAYS = 3650;
/** Far more than a team needs. Without a limit, one caller with `keys:write` could fill the database. */
export const MAX_TEAM_KEYS = 1000;

/** What the holder of a public key may upload. */
export interface KeyLimits {
  maxFiles?: number | undefined;
  maxFileBytes?: number | undefined;
  fileTypes?: FileType[] | undefined;
}

/** A key with its token decrypted. Instants are milliseconds since the epoch. */
export interface ApiKey {
  id: string;
  /** The token, masked if its scopes exceed those of the caller. Empty if it can't be decrypted. */
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
const encryptionContext = ({ id, teamId }: { id: string; teamId: string }) => `api-key/${id}/${teamId}`;

export function viewKey(row: KeyRow, key: string): ApiKey {
  const { id, name, teamId, uuid, kind, scopes, limits, createdByKeyId, userId, lastUsedAt, createdAt, expiresAt } =
    row;
  return {
    ...{ id, key, name, teamId, uuid },
    isPublic: kind === "public",
    scopes: scopesIn(scopes ?? 0),
    limits: limits && JSON.parse(limits),
    createdBy: createdByKeyId === null ? null : { keyId: createdByKeyId, userId },
    ...{ lastUsedAt, createdAt, expiresAt },
  };
}

/** A masked token shows its prefix with 4 of its random characters, and 4 characters of its checksum. */
const SHOWN_START = "stow_sk_".length + 4;
const SHOWN_END = 4;

/** Views a key for a caller, who sees the whole token only if its own scopes cover those of the key. */
function viewFor({ scopes }: Credential, row: KeyRow, token: string): ApiKey {
  const isCovered = lacking(row.scopes ?? 0, scopes).length === 0;
  const masked = `${token.slice(0, SHOWN_START)}…${token.slice(-SHOWN_END)}`;
  return viewKey(row, isCovered || token === "" ? token : masked);
}

export const decryptToken = (deps: Deps, row: KeyRow, encrypted: string): string | null =>
  decryptOrLog(deps, encrypted, encryptionContext(row), "token_unreadable", { keyId: row.id, teamId: row.teamId });

/** Leaves a token that can't be decrypted empty, because the key can still be listed and deleted. */
export const showKey = (deps: Deps, credential: Credential, row: KeyRow): ApiKey =>
  viewFor(credential, row, decryptToken(deps, row, row.encryptedToken ?? "") ?? "");

export const encryptToken = (deps: Deps, key: { id: string; teamId: string }, token: string) =>
  deps.secrets.encrypt(token, encryptionContext(key));

type KeyFields = Pick<KeyRow, "name" | "teamId" | "kind" | "scopes" | "createdByKeyId" | "userId" | "lifetime">;

/** Makes a key or session and its row, which holds the token as a hash only. */
export function newHashedKey(
  { system }: Deps,
  { createdAt = system.now(), ...fields }: KeyFields & Partial<Pick<KeyRow, "limits" | "createdAt">>,
): [ApiKey, KeyRow] {
  const token = newToken(system, fields.kind === "public");
  const row: KeyRow = {
    id: newId(system),
    uuid: newUuid(system),
    limits: null,
    ...fields,
    uploadCount: 0,
    tokenHash: fingerprint(token),
    encryptedToken: null,
    encryptedWith: null,
    lastUsedAt: null,
    createdAt,
    expiresAt: createdAt + fields.lifetime,
  };
  return [viewKey(row, token), row];
}

export interface NewKey {
  name: string;
  isPublic: boolean;
  /** By default those of the caller. A public key always has `PUBLIC_SCOPES`. */
  scopes?: Scope[] | undefined;
  /** Only a public key has limits. */
  limits?: KeyLimits | undefined;
  expiresAt?: number | undefined;
  /** Only the operator may name a team, and must. */
  teamId?: string | undefined;
}

const keyCount = preparedQuery((db, param: Param<{ teamId: string }>) =>
  db.select({ count: teams.apiKeys }).from(teams).where(isExistingTeam(param)),
);

export const teamHasRoom = (param: Param<{ teamId: string }>) => teamExists(param, lt(teams.apiKeys, MAX_TEAM_KEYS));

/**
 * The same statement checks the limit, and that the user of a session still exists, so parallel requests can't get around
 * either. The id makes it idempotent: a repeated insert of the same row changes nothing.
 */
const insertKey = preparedQuery((db, param: Param<KeyRow>) => {
  const ofCreator = db
    .select({ scopes: presentScopes(db) })
    .from(apiKeys)
    .where(eq(apiKeys.id, param("createdByKeyId")));
  const scopes = sql`coalesce(${param("scopes")}, ${ofCreator})`;
  const userExists = hasRow(users, and(eq(users.id, param("userId")), eq(users.teamId, param("teamId"))));
  const hasCreator = sql`(${param("userId")} is null or ${userExists})`;
  const condition = sql`${teamHasRoom(param)} and ${hasCreator} and ${scopes} is not null`;
  return insertWhere(db, apiKeys, { ...rowOf(apiKeys, param), scopes }, condition);
});

/** The row of a new key or session. */
export const newRow = preparedQuery((db, param: Param<{ id: string; teamId: string }>) =>
  db
    .select()
    .from(apiKeys)
    .where(and(eq(apiKeys.id, param("id")), eq(apiKeys.teamId, param("teamId")))),
);

/**
 * The caller must cover the scopes of the key. A key that a user's session creates belongs to the user, and so do the keys
 * that it creates in turn. `insertTeam` creates the key's team in the same batch.
 * @throws `insufficient_scope`; `forbidden` if a team key names a team; `invalid_input` if the expiry is in the past or more than
 *   ten years away; `quota_exceeded`; `not_found` if the operator names an unknown team; `token_invalid` if the caller's
 *   team was just deleted
 */
export async function createKey(
  deps: Deps,
  actor: Actor,
  credential: Credential,
  { name, isPublic, scopes, limits, expiresAt, teamId }: NewKey,
  insertTeam: BoundQuery<unknown>[] = [],
): Promise<ApiKey> {
  const now = deps.system.now();
  if (actor.kind !== "operator" && teamId !== undefined) throw teamNotAllowed();
  if (isPublic && scopes && maskOf(scopes) !== PUBLIC_SCOPES) {
    throw invalidField("scopes", `A public key has ${scopesIn(PUBLIC_SCOPES).join(", ")} only.`);
  }
  if (limits && !isPublic) throw invalidField("limits", "Only a public key has limits.");
  if (expiresAt !== undefined && (expiresAt <= now || expiresAt > now + MAX_KEY_LIFETIME_DAYS * DAY)) {
    const message = `Must be in the future, at most ${MAX_KEY_LIFETIME_DAYS} days from now.`;
    throw invalidField("expiresAt", message);
  }
  const given = isPublic ? scopesIn(PUBLIC_SCOPES) : scopes;
  if (given) requireScopes(deps, credential, given);
  const creator = actor.kind === "operator" ? null : actor;
  const [key, row] = newHashedKey(deps, {
    name,
    kind: isPublic ? "public" : "secret",
    limits: limits && Object.keys(limits).length > 0 ? JSON.stringify(limits) : null,
    scopes: given ? maskOf(given) : creator ? null : ALL_SCOPES,
    // No team has an empty id.
    teamId: creator?.teamId ?? teamId ?? "",
    createdByKeyId: creator?.keyId ?? null,
    userId: creator?.userId ?? null,
    createdAt: now,
    lifetime: expiresAt === undefined ? KEY_LIFETIME_DAYS * DAY : expiresAt - now,
  });
  const encryptedToken = encryptToken(deps, key, key.key);
  const insert = insertKey({ ...row, encryptedToken, encryptedWith: deps.secrets.currentKeyId });
  const event = newEvent(deps, "apikey.created", actor, key);
  const queries = [...insertTeam, insert, newRow(key)];
  const [stored] = (await writeWithEvent(deps, event, queries, { isIdempotent: true })).at(-1) as KeyRow[];
  if (stored) return viewKey(stored, key.key);
  throw await keyInsertError(deps, actor, key);
}

/** Says why a key was not inserted. It costs a separate read, so that creating keys does not pay for it. */
export async function keyInsertError(deps: Deps, { kind }: Actor, key: { teamId: string }): Promise<AppError> {
  const [[team]] = await read(deps, [keyCount(key)]);
  if (!team && kind === "operator") return new AppError("not_found", { message: "No team has this `teamId`." });
  if (!team) return new AppError("token_invalid");
  // Another request has just made room, or ended the key to rotate.
  if (team.count < MAX_TEAM_KEYS) return new AppError("conflict");
  const message = `A team can have at most ${MAX_TEAM_KEYS.toLocaleString("en")} API keys. Delete one and retry.`;
  return new AppError("quota_exceeded", { message });
}

const pageOfKeys = (db: Db, param: Param<KeysetValues>) =>
  pageOf(db.select().from(apiKeys).$dynamic(), keyset(apiKeys.id, "newest first", param), param, isApiKey);
const teamKeys = teamRead(apiKeys.teamId, pageOfKeys);
const allKeys = preparedQuery((db, param: Param<KeysetValues>) => {
  const { query, where } = pageOfKeys(db, param);
  return query.where(where);
});

/** Lists the team's API keys, newest first. For the operator, those of all teams, or of the named one.
 * @throws `forbidden` if a team key names a team; `invalid_input` for a cursor of another list */
export async function listKeys(
  deps: Deps,
  credential: Credential<"keys:read or operator">,
  { teamId, ...request }: PageRequest & { teamId?: string | undefined },
): Promise<Page<ApiKey>> {
  await refuseNamedTeam(deps, credential, teamId);
  const list = listName("keys", { teamId });
  const values = keysetValues(list, "newest first", request);
  const rows =
    credential.tokenHash === null && teamId === undefined
      ? await readAsOperator(deps, credential, allKeys(values))
      : await authorizeRead(deps, credential, teamKeys(values), teamId);
  const { items, next } = cutPage(list, request, rows);
  return { items: items.map((row) => showKey(deps, credential, row)), next };
}

async function readAsOperator<T>(
  deps: Deps,
  credential: Credential<"keys:read or operator">,
  query: BoundQuery<T>,
): Promise<T> {
  await authorize(deps, credential);
  const [rows] = await read(deps, [query]);
  return rows;
}

export const hasId = (param: Param<{ id: string }>) => and(eq(apiKeys.id, param("id")), isApiKey);
const teamKeyById = teamRead(apiKeys.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(apiKeys).$dynamic(),
  where: hasId(param),
}));
export const anyKeyById = preparedQuery((db, param: Param<{ id: string }>) =>
  db.select().from(apiKeys).where(hasId(param)),
);

/** @throws `not_found` */
export async function fetchKey(
  deps: Deps,
  credential: Credential<"keys:read or operator">,
  id: string,
): Promise<ApiKey> {
  const [row] =
    credential.tokenHash === null
      ? await readAsOperator(deps, credential, anyKeyById({ id }))
      : await authorizeRead(deps, credential, teamKeyById({ id }));
  if (!row) throw new AppError("not_found");
  return showKey(deps, credential, row);
}
