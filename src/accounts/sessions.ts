import { and, desc, eq, gt, gte, isNull, not, sql } from "drizzle-orm";
import {
  type Actor,
  type Credential,
  exceeds,
  isExistingTeam,
  isKey,
  presentScopes,
  readAs,
  refusalError,
  type TeamActor,
  teamExists,
} from "../access/authorization.ts";
import { databaseOf, inDatabase } from "../access/databases.ts";
import { limitFailedLogins, loginFailed } from "../access/login-limits.ts";
import { rehashPassword, verifyPassword } from "../access/passwords.ts";
import { scopesOfRole } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, isError } from "../errors.ts";
import { recorded, SYSTEM, writeWithEvent } from "../events/events.ts";
import { firstOf, hasRow, insertWhere, type Query, read } from "../platform/db.ts";
import { cutScan, type MayBeEnd, type Page, type PageRequest, pageById, scan } from "../platform/paging.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../platform/system.ts";
import { cancelUploadsOfKeys } from "../uploads/unfinished.ts";
import { SESSION_EVENTS, USER_EVENTS } from "./account-event-types.ts";
import { type ApiKey, type KeyRow, keyOf, newKeyRow, storedKey, viewKey } from "./key-rows.ts";
import { apiKeys, isSession } from "./keys.schema.ts";
import { teams } from "./teams.schema.ts";
import { users } from "./users.schema.ts";
import { emailKey, fullNameOf, isKeyOfUser, isUser, replacePassword, type User } from "./users.ts";

/*
 * Sessions: what a person gets by logging in, or with a secret key. They are rows of `api_keys`, so that authorization reads
 * one row, but they are never listed among the keys, and their token is shown once.
 */

export const DEFAULT_SESSION_SECONDS = (12 * HOUR) / SECOND;
export const MIN_SESSION_SECONDS = (5 * MINUTE) / SECOND;
export const MAX_SESSION_SECONDS = (30 * DAY) / SECOND;
/** Each is a person at a browser. Without a limit, a key could fill the database with sessions. */
export const MAX_KEY_SESSIONS = 100;
/** The oldest one ends at the next login. */
export const MAX_USER_SESSIONS = 100;
/** No user has as many keys and sessions. */
const ALL_SESSIONS = 1_000_000;
/** Sessions that a page of the list examines. It may read each twice: with the caller, less than 1,000 rows. */
const EXAMINED_SESSIONS = 490;

export type Session = Pick<
  KeyRow,
  "id" | "userId" | "createdByKeyId" | "createdAt" | "expiresAt" | "lastUsedAt" | "userAgent"
>;

/* Sessions of users */

export interface Login {
  teamId: string;
  email: string;
  password: string;
  expiresInSeconds: number;
  userAgent: string | null;
  /** Null if a backend of the team logs its user in. */
  clientIp: string | null;
}

/**
 * Creates a session named after the user. It is revoked when the user is deleted or gets a new
 * password. A wrong password, an unknown email and an unknown team get the same response after the same work (OWASP,
 * Authentication Cheat Sheet).
 * @throws `login_failed`, `rate_limited`, and `team_suspended` if everything else is correct
 */
export async function logIn(given: Deps, login: Login): Promise<ApiKey> {
  const account = `${login.teamId}/${emailKey(login.email)}`;
  return limitFailedLogins(given, { account, clientIp: login.clientIp }, async () => {
    const deps = inDatabase(given, databaseOf(login.teamId));
    if (!deps) {
      await verifyPassword(given, login.teamId, login.password, null);
      throw new AppError(loginFailed);
    }
    // If the stored hash changed in the meantime, retry once: another login may have rehashed the password.
    const key = (await attemptLogIn(deps, login)) ?? (await attemptLogIn(deps, login));
    if (!key) throw new AppError(loginFailed);
    return key;
  });
}

/** @returns null if the stored hash changed during the check */
async function attemptLogIn(deps: Deps, { teamId, email, password, ...session }: Login): Promise<ApiKey | null> {
  const { db, secrets } = deps;
  const isUserOfTeam = and(eq(users.teamId, teams.id), eq(users.emailKey, emailKey(email)));
  const [account] = await read(
    deps,
    db
      .select({ user: users, teamStatus: teams.status })
      .from(teams)
      .leftJoin(users, isUserOfTeam)
      .where(isExistingTeam(teamId)),
  );
  const user = account?.user;
  const isCorrect = await verifyPassword(deps, teamId, password, user?.password ?? null);
  if (!user || !isCorrect) throw new AppError(loginFailed);
  if (account.teamStatus === "suspended") throw new AppError("team_suspended");

  const hash = secrets.isCurrentHash(user.password) ? user.password : await rehash(deps, user, password);
  // Hashing takes long enough for a change of the password in between.
  const { login, view } = newUserSession(deps, { ...user, password: hash }, session);
  const {
    stored: [stored],
  } = await writeWithEvent(deps, login, { isIdempotent: true, caller: null });
  return stored ? view(stored) : null;
}

/**
 * A batch that creates a session of the user, if the password is still this one, in place of the oldest one if there are
 * `MAX_USER_SESSIONS`. `stored` is its row.
 */
export function newUserSession(
  deps: Deps,
  user: User,
  { userAgent, expiresInSeconds = DEFAULT_SESSION_SECONDS }: { userAgent: string | null; expiresInSeconds?: number },
) {
  const { token, row } = newKeyRow(deps, {
    name: fullNameOf(user) || user.email,
    kind: "session",
    scopes: null,
    teamId: user.teamId,
    createdByKeyId: null,
    userId: user.id,
    userAgent,
    lifetimeMilliseconds: expiresInSeconds * SECOND,
  });
  const isSameUser = hasRow(users, and(isUser(user), eq(users.password, user.password)));
  const initiator = { kind: "user" as const, keyId: row.id, userId: user.id };
  const isAllowed = sql`${isSameUser} and ${teamExists(user.teamId)}`;
  const newest = deps.db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(isKeyOfUser(user), isSession, isNull(apiKeys.createdByKeyId), gt(apiKeys.expiresAt, row.createdAt)))
    .orderBy(desc(apiKeys.id));
  // A repeated batch finds its own row.
  const isNew = not(hasRow(apiKeys, isKey(user.teamId, row.id)));
  const sorted = newest.limit(ALL_SESSIONS).offset(MAX_USER_SESSIONS - 1);
  const isEnded = and(sql`${apiKeys.id} in (select id from ${sorted} sorted)`, isAllowed, isNew);
  const ended = deps.db.select({ id: apiKeys.id }).from(apiKeys).where(isEnded);
  const login = {
    uploads: cancelUploadsOfKeys(deps, user.teamId, sql`${ended}`),
    ended: deps.db.delete(apiKeys).where(isEnded),
    insert: recorded(
      deps,
      { type: USER_EVENTS.logged_in, initiator, subject: user, data: { keyId: row.id } },
      insertWhere(deps.db, apiKeys, row, isAllowed),
    ),
    stored: storedKey(deps, row),
  };
  return {
    initiator,
    login,
    view: (session: KeyRow) => viewKey({ ...session, scopes: scopesOfRole(user.role) }, token),
  };
}

/** Moves the password to the current master key. Only a login knows the password, and a hash can't be re-encrypted. */
async function rehash(deps: Deps, user: Pick<User, "id" | "teamId" | "password">, password: string): Promise<string> {
  const hash = await rehashPassword(deps, user.teamId, password);
  const { id, teamId } = user;
  const replace = replacePassword(deps, user, user.password, hash);
  const rehashed = {
    type: USER_EVENTS.updated,
    initiator: SYSTEM,
    subject: { id, teamId },
    data: { fields: ["password"] },
  };
  await writeWithEvent(deps, recorded(deps, rehashed, replace), { isIdempotent: true, caller: null });
  return hash;
}

/* Sessions of keys */

/**
 * Creates a session with the scopes of the calling key. It expires with the key at the latest.
 * @throws `forbidden` unless the caller is a secret key, `quota_exceeded`
 */
export async function createSession(
  deps: Deps,
  actor: Actor,
  { expiresInSeconds, userAgent }: { expiresInSeconds: number; userAgent: string | null },
): Promise<ApiKey> {
  if (actor.kind !== "secret") {
    throw new AppError("forbidden", { message: "Only a secret key can create a session. Users log in." });
  }
  const { db, system } = deps;
  const { teamId, keyId, userId } = actor;
  const { token, row } = newKeyRow(deps, {
    name: "",
    kind: "session",
    scopes: 0,
    lifetimeMilliseconds: expiresInSeconds * SECOND,
    teamId,
    createdByKeyId: keyId,
    userId,
    userAgent,
  });
  const isCaller = and(isKey(teamId, keyId), gt(apiKeys.expiresAt, system.now()));
  const isLive = sql`${isCaller} and ${teamExists(teamId)}`;
  const sessions = db
    .select({ count: sql`count(*)` })
    .from(apiKeys)
    .where(and(isSession, eq(apiKeys.createdByKeyId, keyId), gt(apiKeys.expiresAt, system.now())));
  const refusal = firstOf({ quota_exceeded: gte(sql`${sessions}`, MAX_KEY_SESSIONS) });
  // Copied from the key as it is now, so that no session outlives it or gets more scopes.
  const copied = {
    name: sql`${apiKeys.name}`,
    scopes: sql`${apiKeys.scopes}`,
    userId: sql`${apiKeys.userId}`,
    originId: sql`coalesce(${apiKeys.originId}, ${apiKeys.id})`,
    expiresAt: sql`min(${apiKeys.expiresAt}, ${row.expiresAt})`,
  };
  const batch = {
    key: db.select({ refusal }).from(apiKeys).where(isLive),
    insert: recorded(
      deps,
      { type: SESSION_EVENTS.created, initiator: actor, subject: keyOf(row) },
      insertWhere(db, apiKeys, { ...row, ...copied }, sql`${isLive} and ${isNull(refusal)}`, sql`${apiKeys}`),
    ),
    stored: storedKey(deps, row),
  };
  const {
    key: [key],
    stored: [stored],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  if (stored) return viewKey(stored, token);
  if (!key) throw new AppError("token_invalid");
  const message = `A key can have at most ${MAX_KEY_SESSIONS} sessions. Revoke one and retry.`;
  throw new AppError("quota_exceeded", { message });
}

/* Both */

/**
 * Lists the team's live sessions, newest first. Expired ones are kept for a day, so it examines a bounded number of rows: after many
 * that have expired, a page can be short or empty and still have a next page.
 */
export async function listSessions(
  deps: Deps,
  credential: Credential<"keys:read">,
  request: PageRequest,
): Promise<Page<Session>> {
  const page = pageById("sessions", apiKeys.id, "newest first", request);
  const { rows } = await readAs(deps, credential, ({ teamId }): Query<(KeyRow & MayBeEnd)[]> => {
    const sessions = deps.db
      .select()
      .from(apiKeys)
      .where(and(eq(apiKeys.teamId, teamId), isSession, page.where))
      .orderBy(...page.orderBy)
      .$dynamic();
    return scan(deps.db, sessions, ({ expiresAt }) => gt(expiresAt, deps.system.now()), page, EXAMINED_SESSIONS);
  });
  return cutScan("sessions", request, rows);
}

/**
 * Ends the session immediately and cancels its unfinished uploads.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the session
 */
export async function revokeSession(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const { db } = deps;
  const { teamId } = actor;
  const isTarget = and(isKey(teamId, id), isSession);
  const scopes = presentScopes(db);
  const refusal = firstOf({ insufficient_scope: exceeds(actor, scopes) });
  const isEnded = and(isTarget, isNull(refusal));
  const session = db.select({ id: apiKeys.id }).from(apiKeys).where(isEnded);
  const batch = {
    found: db
      .select({ refusal, scopes: sql<number>`${scopes}` })
      .from(apiKeys)
      .where(isTarget),
    uploads: cancelUploadsOfKeys(deps, teamId, sql`${session}`),
    deletion: recorded(
      deps,
      { type: SESSION_EVENTS.revoked, initiator: actor, subject: { teamId, id } },
      db.delete(apiKeys).where(isEnded),
    ),
  };
  const {
    found: [found],
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  });
  if (!found) throw new AppError("not_found");
  if (found.refusal !== null) throw refusalError(found.refusal, actor, found.scopes);
}

/** Ends the caller's own session. @throws `forbidden` unless the caller is a session */
export async function logOut(deps: Deps, actor: Actor): Promise<void> {
  if (actor.kind !== "session") {
    throw new AppError("forbidden", { message: "Only a session can log out. Delete an API key instead." });
  }
  try {
    await revokeSession(deps, actor, actor.keyId);
  } catch (error) {
    // The session ended after its token was checked, such as with its user.
    if (isError(error, "not_found")) throw new AppError("token_invalid");
    throw error;
  }
}
