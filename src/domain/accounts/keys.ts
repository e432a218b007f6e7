import { and, eq } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { given, type Param, preparedQuery, read, rowOf, write } from "../../platform/db.ts";
import { apiKeys } from "../../platform/schema.ts";
import { DecryptionError, fingerprint } from "../../platform/secrets.ts";
import { newId, newToken, newUuid } from "../../platform/system.ts";
import { newEvent, writeWithEvent } from "../events/events.ts";
import { cancelUploadsOfKey } from "../files/unfinished.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, listName, type Page, type PageRequest } from "../paging.ts";
import { type Actor, authorizeRead, type Credential, namesTeam, refuseNamedTeam, teamRead } from "./authorization.ts";

const DAY_MILLISECONDS = 24 * 60 * 60 * 1000;
export const KEY_LIFETIME_DAYS = 365;
export const MAX_KEY_LIFETIME_DAYS = 3650;

/** A key with its token decrypted. Instants are milliseconds since the epoch. */
export interface ApiKey {
  id: string;
  /** The token; empty in a list or a deletion where it can't be decrypted. */
  key: string;
  name: string;
  teamId: string;
  uuid: string;
  isPublic: boolean;
  createdAt: number;
  expiresAt: number;
}

type KeyRow = typeof apiKeys.$inferSelect;

const encryptionContext = ({ id, teamId }: { id: string; teamId: string }) => `api-key/${id}/${teamId}`;

function view({ id, name, teamId, uuid, isPublic, createdAt, expiresAt }: KeyRow, key: string): ApiKey {
  return { id, key, name, teamId, uuid, isPublic, createdAt, expiresAt };
}

const decryptKey = (deps: Deps, row: KeyRow) =>
  view(row, deps.secrets.decrypt(row.encryptedToken, encryptionContext(row)));

/** For a list or a deletion, which one token that can't be decrypted must not stop: it is shown empty, and logged. */
function decryptKeyOrBlank(deps: Deps, row: KeyRow): ApiKey {
  try {
    return decryptKey(deps, row);
  } catch (cause) {
    if (!(cause instanceof DecryptionError)) throw cause;
    deps.log("error", "token can't be decrypted", { keyId: row.id, teamId: row.teamId, cause });
    return view(row, "");
  }
}

/** The columns that depend on the master key. */
function encryptToken(deps: Deps, key: { id: string; teamId: string }, token: string) {
  return {
    encryptedToken: deps.secrets.encrypt(token, encryptionContext(key)),
    encryptedWith: deps.secrets.currentKeyId,
  };
}

/** A key that is not stored yet, and the row to store. */
export function newKey(
  deps: Deps,
  wish: Pick<ApiKey, "name" | "teamId" | "isPublic" | "createdAt" | "expiresAt">,
): [ApiKey, KeyRow] {
  const { system } = deps;
  const { key: token, ...columns } = {
    id: newId(system),
    key: newToken(system, wish.isPublic),
    uuid: newUuid(system),
    ...wish,
  };
  const row = { ...columns, tokenHash: fingerprint(token), ...encryptToken(deps, columns, token), userId: null };
  return [{ key: token, ...columns }, row];
}

export interface NewKey {
  name: string;
  isPublic: boolean;
  expiresAt?: number | undefined;
  /** The operator's alone; left out by the operator, a new team is founded. */
  teamId?: string | undefined;
}

/** The id makes it idempotent: a repeated insert of the same row changes nothing. */
const insertKey = preparedQuery((db, param: Param<KeyRow>) =>
  db.insert(apiKeys).values(rowOf(apiKeys, param)).onConflictDoNothing({ target: apiKeys.id }),
);

/** @throws `forbidden` where a team's key names a team; `invalid_input` where the expiry is past or ten years away */
export async function createKey(
  deps: Deps,
  actor: Actor,
  { name, isPublic, expiresAt, teamId }: NewKey,
): Promise<ApiKey> {
  const now = deps.system.now();
  if (actor.kind !== "operator" && teamId !== undefined) throw namesTeam();
  if (expiresAt !== undefined && (expiresAt <= now || expiresAt > now + MAX_KEY_LIFETIME_DAYS * DAY_MILLISECONDS)) {
    const message = `Must be in the future, at most ${MAX_KEY_LIFETIME_DAYS} days from now.`;
    throw new AppError("invalid_input", { errors: [{ path: "expiresAt", message }] });
  }
  const [key, row] = newKey(deps, {
    name,
    isPublic,
    teamId: actor.kind === "operator" ? (teamId ?? newId(deps.system)) : actor.teamId,
    createdAt: now,
    expiresAt: expiresAt ?? now + KEY_LIFETIME_DAYS * DAY_MILLISECONDS,
  });
  await writeWithEvent(deps, newEvent(deps, "apikey.created", actor, key), [insertKey(row)], { isIdempotent: true });
  return key;
}

const keysPage = teamRead(apiKeys.teamId, (db, param: Param<KeysetValues>) => {
  const { where, by, limit, offset } = keyset(apiKeys.id, "newest first", param);
  const query = db
    .select()
    .from(apiKeys)
    .orderBy(...by);
  return { query: query.limit(limit).offset(offset).$dynamic(), where };
});

/**
 * Keys of the caller's team, newest first; for the operator of all teams, or of the one named.
 * @throws `forbidden` where a team's key names a team; `invalid_input` for a cursor of another list
 */
export async function listKeys(
  deps: Deps,
  credential: Credential<"keys">,
  { teamId, ...request }: PageRequest & { teamId?: string | undefined },
): Promise<Page<ApiKey>> {
  await refuseNamedTeam(deps, credential, teamId);
  const list = listName("keys", { teamId });
  const values = keysetValues(list, "newest first", request);
  const rows = await authorizeRead(deps, credential, keysPage(values), teamId);
  return cutPage(list, request, rows, (row) => decryptKeyOrBlank(deps, row));
}

const keyById = teamRead(apiKeys.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(apiKeys).$dynamic(),
  where: eq(apiKeys.id, param("id")),
}));

/** @throws `not_found` */
export async function fetchKey(deps: Deps, credential: Credential<"keys">, id: string): Promise<ApiKey> {
  const [row] = await authorizeRead(deps, credential, keyById({ id }));
  if (!row) throw new AppError("not_found");
  return decryptKey(deps, row);
}

const teamOfKey = preparedQuery((db, param: Param<{ id: string }>) =>
  db
    .select({ teamId: apiKeys.teamId })
    .from(apiKeys)
    .where(eq(apiKeys.id, param("id"))),
);
const deleteKeyById = preparedQuery((db, param: Param<{ id: string; teamId: string }>) =>
  db
    .delete(apiKeys)
    .where(and(eq(apiKeys.id, param("id")), eq(apiKeys.teamId, param("teamId"))))
    .returning(),
);

/**
 * Revokes the key from the next request on, cancels its unfinished resumable uploads, and returns what it was.
 * @throws `not_found`
 */
export async function deleteKey(deps: Deps, actor: Actor, id: string): Promise<ApiKey> {
  const [[found]] = actor.kind === "operator" ? await read(deps, [teamOfKey({ id })]) : [[actor]];
  if (!found) throw new AppError("not_found");
  const key = { id, teamId: found.teamId };
  const event = newEvent(deps, "apikey.revoked", actor, key);
  const [[row]] = await writeWithEvent(deps, event, [deleteKeyById(key), ...cancelUploadsOfKey(deps, key)], {
    isIdempotent: false,
  });
  if (!row) throw new AppError("not_found");
  return decryptKeyOrBlank(deps, row);
}

/** Stands in `encryptedWith` for a token that can't be decrypted, so that no later run stumbles over it. */
const UNREADABLE = "unreadable";

const keysEncryptedWith = preparedQuery((db, param: Param<{ keyId: string; limit: number }>) =>
  db
    .select()
    .from(apiKeys)
    .where(eq(apiKeys.encryptedWith, param("keyId")))
    .limit(param("limit")),
);

type Reencryption = Pick<KeyRow, "id" | "encryptedToken" | "encryptedWith"> & { before: string };
const replaceEncryptedToken = preparedQuery((db, param: Param<Reencryption>) =>
  db
    .update(apiKeys)
    .set(given(param, "encryptedToken", "encryptedWith"))
    .where(and(eq(apiKeys.id, param("id")), eq(apiKeys.encryptedToken, param("before")))),
);

/**
 * Encrypts tokens anew that an older master key encrypted, so that it can be retired.
 * @returns how many; one that can't be decrypted is logged, and left out from then on
 */
export async function reencryptTokens(deps: Deps, limit: number): Promise<number> {
  const { secrets } = deps;
  const queries = secrets.olderKeyIds.map((keyId) => keysEncryptedWith({ keyId, limit }));
  const rows = queries.length === 0 ? [] : (await read(deps, queries)).flat();
  if (rows.length === 0) return 0;
  let count = 0;
  const updates = rows.map((row) => {
    const { key: token } = decryptKeyOrBlank(deps, row);
    if (token !== "") count++;
    const columns =
      token === "" ? { encryptedToken: row.encryptedToken, encryptedWith: UNREADABLE } : encryptToken(deps, row, token);
    return replaceEncryptedToken({ id: row.id, before: row.encryptedToken, ...columns });
  });
  await write(deps, updates, { isIdempotent: true });
  return count;
}
