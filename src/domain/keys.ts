import { and, eq, exists, inArray, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Db, insertWhere, once, retrying, type Slot } from "../platform/db.ts";
import { apiKeys, users } from "../platform/schema.ts";
import { CannotOpen, fingerprint } from "../platform/secrets.ts";
import { newId, newToken, newUuid } from "../platform/system.ts";
import type { Actor } from "./actor.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, type Page, type PageRequest } from "./paging.ts";
import { type Caller, prove, scopedRead } from "./proof.ts";
import { emailKey } from "./users.ts";

const DAY_MILLISECONDS = 24 * 60 * 60 * 1000;
export const KEY_LIFETIME_DAYS = 365;
export const KEY_LONGEST_LIFETIME_DAYS = 3650;
const LOGIN_LIFETIME_MILLISECONDS = 12 * 60 * 60 * 1000;

/** A key with its token opened. Instants are milliseconds since the epoch. */
export interface ApiKey {
  id: string;
  /** The token; empty in a list or a deletion where it can't be opened. */
  key: string;
  name: string;
  teamId: string;
  uuid: string;
  isPublic: boolean;
  createdAt: number;
  expiresAt: number;
}

type KeyRow = typeof apiKeys.$inferSelect;

const sealingContext = ({ id, teamId }: { id: string; teamId: string }) => `api-key/${id}/${teamId}`;

function view({ id, name, teamId, uuid, isPublic, createdAt, expiresAt }: KeyRow, key: string): ApiKey {
  return { id, key, name, teamId, uuid, isPublic, createdAt, expiresAt };
}

const openKey = (deps: Deps, row: KeyRow) => view(row, deps.secrets.open(row.sealedToken, sealingContext(row)));

/** For a list or a deletion, which one token that can't be opened must not stop: it is shown empty, and logged. */
function openKeyOrBlank(deps: Deps, row: KeyRow): ApiKey {
  try {
    return openKey(deps, row);
  } catch (cause) {
    if (!(cause instanceof CannotOpen)) throw cause;
    deps.log("error", "sealed token can't be opened", { keyId: row.id, teamId: row.teamId, cause });
    return view(row, "");
  }
}

/** The columns that a new token fills. */
function sealToken(deps: Deps, id: string, teamId: string, token: string) {
  return {
    tokenHash: fingerprint(token),
    sealedToken: deps.secrets.seal(token, sealingContext({ id, teamId })),
    sealedWith: deps.secrets.currentKeyId,
  };
}

function mintKey(
  deps: Deps,
  wish: Pick<ApiKey, "name" | "teamId" | "isPublic" | "createdAt" | "expiresAt">,
): [ApiKey, KeyRow] {
  const { system } = deps;
  const key: ApiKey = {
    id: newId(system),
    key: newToken(system, wish.isPublic),
    uuid: newUuid(system),
    ...wish,
  };
  const { key: token, ...columns } = key;
  return [key, { ...columns, ...sealToken(deps, key.id, key.teamId, token), userId: null }];
}

function notYourChoice(): AppError {
  const errors = [{ path: "teamId", message: "Only the operator chooses the team." }];
  return new AppError("invalid_input", { errors });
}

export interface NewKey {
  name: string;
  isPublic: boolean;
  expiresAt?: number | undefined;
  /** The operator's alone; left out by the operator, a new team is founded. */
  teamId?: string | undefined;
}

/** @throws `invalid_input` where a team's key names a team, or the expiry is past or over ten years away */
export async function createKey(deps: Deps, actor: Actor, { name, isPublic, expiresAt, teamId }: NewKey) {
  const now = deps.system.now();
  if (actor.kind !== "operator" && teamId !== undefined) {
    throw notYourChoice();
  }
  if (expiresAt !== undefined && (expiresAt <= now || expiresAt > now + KEY_LONGEST_LIFETIME_DAYS * DAY_MILLISECONDS)) {
    const message = `Must be in the future, at most ${KEY_LONGEST_LIFETIME_DAYS} days from now.`;
    throw new AppError("invalid_input", { errors: [{ path: "expiresAt", message }] });
  }
  const [key, row] = mintKey(deps, {
    name,
    isPublic,
    teamId: actor.kind === "operator" ? (teamId ?? newId(deps.system)) : actor.teamId,
    createdAt: now,
    expiresAt: expiresAt ?? now + KEY_LIFETIME_DAYS * DAY_MILLISECONDS,
  });
  // The id makes it idempotent: a repeated insert of the same row changes nothing.
  await retrying(deps.system, () => deps.db.insert(apiKeys).values(row).onConflictDoNothing({ target: apiKeys.id }));
  return key;
}

function selectPage(db: Db, slot: Slot<KeysetValues>, ofTeam: SQL | undefined) {
  const { where, by, limit, offset } = keyset(apiKeys.id, "newest first", slot);
  return db.select().from(apiKeys).where(where(ofTeam)).orderBy(by).limit(limit).offset(offset);
}
const keysPage = scopedRead((db, scope, slot: Slot<KeysetValues>) => selectPage(db, slot, scope(apiKeys.teamId)));
/** For the operator; of a key's caller it would find the team's own at most. */
const keysPageOfTeam = scopedRead((db, scope, slot: Slot<KeysetValues & { teamId: string }>) =>
  selectPage(db, slot, and(eq(apiKeys.teamId, slot("teamId")), scope(apiKeys.teamId))),
);

/**
 * Keys of the caller's team, newest first; for the operator of all teams, or of the one named.
 * @throws `invalid_input` where a team's key names a team
 */
export async function listKeys(
  deps: Deps,
  caller: Caller,
  { teamId, ...request }: PageRequest & { teamId?: string | undefined },
): Promise<Page<ApiKey>> {
  if (teamId !== undefined && caller.kind !== "operator") {
    await prove(deps, caller, "keys");
    throw notYourChoice();
  }
  const values = keysetValues("newest first", request);
  const wanted = teamId === undefined ? keysPage(values) : keysPageOfTeam({ ...values, teamId });
  const [actor, rows] = await prove(deps, caller, "keys", wanted);
  const list = `keys/${actor.kind === "operator" ? (teamId ?? "all") : actor.teamId}`;
  const page = cutPage(deps.secrets, list, request, rows);
  return { ...page, items: page.items.map((row) => openKeyOrBlank(deps, row)) };
}

const keyById = scopedRead((db, scope, slot: Slot<{ id: string }>) =>
  db
    .select()
    .from(apiKeys)
    .where(and(eq(apiKeys.id, slot("id")), scope(apiKeys.teamId))),
);

/** @throws `not_found`, `unavailable` where the token can't be opened */
export async function fetchKey(deps: Deps, caller: Caller, id: string): Promise<ApiKey> {
  const [, [row]] = await prove(deps, caller, "keys", keyById({ id }));
  if (!row) throw new AppError("not_found");
  try {
    return openKey(deps, row);
  } catch (cause) {
    throw cause instanceof CannotOpen ? new AppError("unavailable", { cause }) : cause;
  }
}

/** Revokes the key from the next request on, and returns what it was. @throws `not_found` */
export async function deleteKey(deps: Deps, actor: Actor, id: string): Promise<ApiKey> {
  const team = actor.kind === "operator" ? undefined : eq(apiKeys.teamId, actor.teamId);
  const [row] = await once(() =>
    deps.db
      .delete(apiKeys)
      .where(and(eq(apiKeys.id, id), team))
      .returning(),
  );
  if (!row) throw new AppError("not_found");
  return openKeyOrBlank(deps, row);
}

export interface Login {
  teamId: string;
  email: string;
  password: string;
}

/**
 * A key named after the user that lives 12 hours and dies with the user or the password. A wrong password, an unknown
 * email and an unknown team get the same answer after the same work (OWASP, Authentication Cheat Sheet).
 * @throws `login_failed`
 */
export async function logIn(deps: Deps, login: Login): Promise<ApiKey> {
  // Where the stored hash changed in between, it is looked at once more: another login may have renewed it.
  const key = (await tryLogIn(deps, login)) ?? (await tryLogIn(deps, login));
  if (!key) throw new AppError("login_failed");
  return key;
}

/** @returns null where the stored hash changed while it was being checked */
async function tryLogIn(deps: Deps, { teamId, email, password }: Login): Promise<ApiKey | null> {
  const { db, secrets, system } = deps;
  const [user] = await retrying(system, () =>
    db
      .select()
      .from(users)
      .where(and(eq(users.teamId, teamId), eq(users.emailKey, emailKey(email)))),
  );
  const isRight = await secrets.verifyPassword(password, user?.password ?? null);
  if (!user || !isRight) throw new AppError("login_failed");

  const hash = secrets.isCurrentHash(user.password) ? user.password : await renewHash(deps, user, password);
  const now = system.now();
  const [key, row] = mintKey(deps, {
    name: `${user.firstName} ${user.lastName}`.trim() || user.email,
    teamId: user.teamId,
    isPublic: false,
    createdAt: now,
    expiresAt: now + LOGIN_LIFETIME_MILLISECONDS,
  });
  // Only while the password is still the one that was checked: hashing it took long enough for a change to slip in.
  const stillValid = db
    .select({ id: users.id })
    .from(users)
    .where(and(eq(users.id, user.id), eq(users.password, hash)));
  const [, stored] = await retrying(system, () =>
    db.batch([
      insertWhere(db, apiKeys, { ...row, userId: user.id }, exists(stillValid)),
      db.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, key.id)),
    ]),
  );
  return stored.length > 0 ? key : null;
}

/** A hash can't be moved to another master key; the password, which only a login brings, can be hashed again. */
async function renewHash(deps: Deps, user: { id: string; password: string }, password: string): Promise<string> {
  const { db, secrets, system } = deps;
  const hash = await secrets.hashPassword(password);
  await retrying(system, () =>
    db
      .update(users)
      .set({ password: hash, updatedAt: system.now(), version: sql`${users.version} + 1` })
      .where(and(eq(users.id, user.id), eq(users.password, user.password))),
  );
  return hash;
}

/** Stands in `sealed_with` for a key that did not open, so that no later run stumbles over it. The value itself stays. */
const UNOPENABLE = "unopenable";

/**
 * Seals tokens anew that an older master key sealed, so that it can be retired.
 * @returns how many were sealed anew; one that can't be opened is logged, and left out from then on
 */
export async function resealTokens(deps: Deps, most: number): Promise<number> {
  const { db, secrets, system } = deps;
  if (secrets.olderKeyIds.length === 0) return 0;
  const rows = await retrying(system, () =>
    db.select().from(apiKeys).where(inArray(apiKeys.sealedWith, secrets.olderKeyIds)).limit(most),
  );
  let resealed = 0;
  const updates = rows.map((row) => {
    const { key } = openKeyOrBlank(deps, row);
    if (key !== "") resealed++;
    return db
      .update(apiKeys)
      .set(key === "" ? { sealedWith: UNOPENABLE } : sealToken(deps, row.id, row.teamId, key))
      .where(and(eq(apiKeys.id, row.id), eq(apiKeys.sealedToken, row.sealedToken)));
  });
  const [first, ...rest] = updates;
  if (first) await retrying(system, () => db.batch([first, ...rest]));
  return resealed;
}
