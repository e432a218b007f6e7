import { and, eq, gt, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Db, hasRow, insertWhere, type Param, preparedQuery, rowOf } from "../../platform/db.ts";
import { apiKeys, isSession } from "../../platform/schema.ts";
import { HOUR } from "../../platform/system.ts";
import { newEvent, writeWithEvent } from "../events/events.ts";
import { uploadCancellation } from "../files/unfinished.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, type Page, type PageRequest, pageOf } from "../paging.ts";
import {
  type Actor,
  authorizeRead,
  type Credential,
  checkCovered,
  isCovered,
  presentScopes,
  type TeamActor,
  teamRead,
} from "./authorization.ts";
import { type ApiKey, type KeyRow, newHashedKey, viewKey } from "./keys.ts";
import { teamExists } from "./teams.ts";

/*
 * Sessions: what a person gets by logging in (login.ts), or with a secret key. They are rows of `api_keys`, so that
 * authorization reads one row, but they are never listed among the keys, and their token is shown once.
 */

export const SESSION_MILLISECONDS = 12 * HOUR;
/** Each is a person at a browser. Without a limit, a key could fill the database with sessions. */
export const MAX_KEY_SESSIONS = 100;

export type Session = Pick<KeyRow, "id" | "userId" | "createdByKeyId" | "createdAt" | "expiresAt" | "lastUsedAt">;

type NewSession = KeyRow & { createdByKeyId: string };

/** Copies what may change from the key in the same statement, so that no session outlives it or gets more scopes. */
const insertSession = preparedQuery((db, param: Param<NewSession>) => {
  const key = and(eq(apiKeys.id, param("createdByKeyId")), eq(apiKeys.teamId, param("teamId")));
  const keyIsLive = hasRow(apiKeys, and(key, gt(apiKeys.expiresAt, param("createdAt"))));
  const count = sql`(select count(*) from ${apiKeys} where ${isSession} and ${apiKeys.createdByKeyId} = ${param("createdByKeyId")})`;
  const row = {
    ...rowOf(apiKeys, param),
    name: sql`(select ${apiKeys.name} from ${apiKeys} where ${key})`,
    scopes: sql`(select ${apiKeys.scopes} from ${apiKeys} where ${key})`,
    expiresAt: sql`(select min(${apiKeys.expiresAt}, ${param("expiresAt")}) from ${apiKeys} where ${key})`,
  };
  const condition = sql`${keyIsLive} and ${teamExists(param)} and ${count} < ${MAX_KEY_SESSIONS}`;
  return insertWhere(db, apiKeys, row, condition);
});
const isSessionOf = (param: Param<{ id: string; teamId: string }>) =>
  and(eq(apiKeys.id, param("id")), eq(apiKeys.teamId, param("teamId")), isSession);
const sessionRow = preparedQuery((db, param: Param<{ id: string; teamId: string }>) =>
  db.select().from(apiKeys).where(isSessionOf(param)),
);
const callerExists = preparedQuery((db, param: Param<{ createdByKeyId: string }>) =>
  db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(eq(apiKeys.id, param("createdByKeyId"))),
);

/**
 * Creates a session with the scopes of the calling key. It expires after 12 hours, or with the key.
 * @throws `forbidden` unless the caller is a secret key, `quota_exceeded`, `token_invalid` if the key was just revoked
 */
export async function createSession(deps: Deps, actor: Actor): Promise<ApiKey> {
  if (actor.kind !== "secret") {
    throw new AppError("forbidden", { message: "Only a secret key can create a session. Users log in." });
  }
  const { teamId, keyId: createdByKeyId, userId } = actor;
  const [session, row] = newHashedKey(deps, {
    ...{ name: "", kind: "session", scopes: 0, lifetime: SESSION_MILLISECONDS },
    ...{ teamId, createdByKeyId, userId },
  });
  const queries = [
    insertSession({ ...row, createdByKeyId }),
    sessionRow(row),
    callerExists({ createdByKeyId }),
  ] as const;
  const event = newEvent(deps, "session.created", actor, row);
  const [, [stored], [caller]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (stored) return viewKey(stored, session.key);
  if (!caller) throw new AppError("token_invalid");
  const message = `A key can have at most ${MAX_KEY_SESSIONS} sessions. Revoke one and retry.`;
  throw new AppError("quota_exceeded", { message });
}

const teamSessions = teamRead(apiKeys.teamId, (db, param: Param<KeysetValues>) =>
  pageOf(db.select().from(apiKeys).$dynamic(), keyset(apiKeys.id, "newest first", param), param, isSession),
);

/** Lists the team's sessions, newest first. An expired one may be listed for a few minutes. */
export async function listSessions(
  deps: Deps,
  credential: Credential<"keys:read">,
  request: PageRequest,
): Promise<Page<Session>> {
  const rows = await authorizeRead(deps, credential, teamSessions(keysetValues("sessions", "newest first", request)));
  return cutPage("sessions", request, rows);
}

type TargetValues = { id: string; teamId: string; callerKeyId: string };
const isDeletable = (db: Db, param: Param<TargetValues>) =>
  and(isSessionOf(param), isCovered(db, param, presentScopes(db)));
const deleteSession = preparedQuery((db, param: Param<TargetValues>) =>
  db.delete(apiKeys).where(isDeletable(db, param)).returning({ id: apiKeys.id }),
);
const scopesOfSession = preparedQuery((db, param: Param<TargetValues>) =>
  db
    .select({ scopes: presentScopes(db) })
    .from(apiKeys)
    .where(isSessionOf(param)),
);
/** Runs before the deletion. If there is no session to delete, cancels nothing. */
const cancelUploadsOfSession = uploadCancellation((db, param: Param<TargetValues>) => {
  const session = db.select({ id: apiKeys.id }).from(apiKeys).where(isDeletable(db, param));
  return sql`${session}`;
});

/**
 * Ends the session immediately and cancels its unfinished uploads.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the session
 */
export async function revokeSession(deps: Deps, actor: TeamActor, credential: Credential, id: string): Promise<void> {
  const session = { id, teamId: actor.teamId, callerKeyId: actor.keyId };
  const cancelUploads = cancelUploadsOfSession(deps, session);
  const queries = [...cancelUploads, deleteSession(session), scopesOfSession(session)] as const;
  const event = { ...newEvent(deps, "session.revoked", actor, session), position: cancelUploads.length + 1 };
  const [, , deleted, [remaining]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (deleted.length > 0) return;
  if (remaining) checkCovered(credential, remaining.scopes);
  throw new AppError("not_found");
}

/** Ends the caller's own session. @throws `forbidden` unless the caller is a session */
export async function logOut(deps: Deps, actor: Actor, credential: Credential): Promise<void> {
  if (actor.kind !== "session") {
    throw new AppError("forbidden", { message: "Only a session can log out. Delete an API key instead." });
  }
  await revokeSession(deps, actor, credential, actor.keyId);
}
