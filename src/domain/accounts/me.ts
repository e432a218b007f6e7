import { and, eq, isNull } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import { type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys, users } from "../../platform/schema.ts";
import { newEvent, writeWithEvent } from "../events/events.ts";
import { type Actor, authorize, authorizeRead, type Credential, teamRead } from "./authorization.ts";
import { hashPassword, verifyPassword } from "./passwords.ts";
import { type Role, type Scope, scopesIn } from "./scopes.ts";
import { endSessions, isUser, replacePassword, type UserKey } from "./users.ts";
import { ensureAuthorized } from "./write-authorization.ts";

/* Operations on the caller itself, which need no scope. */

/** The caller. Fields that do not apply to its kind are null. */
export interface Me {
  kind: Actor["kind"];
  teamId: string | null;
  keyId: string | null;
  userId: string | null;
  role: Role | null;
  scopes: Scope[] | null;
  expiresAt: number | null;
}

const ownRow = teamRead(apiKeys.teamId, (db, param: Param<{ tokenHash: string }>) => ({
  query: db
    .select({ expiresAt: apiKeys.expiresAt, role: users.role })
    .from(apiKeys)
    .leftJoin(users, and(eq(users.id, apiKeys.userId), isNull(apiKeys.scopes)))
    .$dynamic(),
  where: eq(apiKeys.tokenHash, param("tokenHash")),
}));

export async function fetchMe(deps: Deps, credential: Credential<"any token">): Promise<Me> {
  const { tokenHash } = credential;
  const nothing = { teamId: null, keyId: null, userId: null, role: null, scopes: null, expiresAt: null };
  if (tokenHash === null) return { ...nothing, ...(await authorize(deps, credential)) };
  const [row] = await authorizeRead(deps, credential, ownRow({ tokenHash }));
  return { kind: "secret", ...nothing, ...credential.actor, ...row, scopes: scopesIn(credential.scopes) };
}

const passwordOf = preparedQuery((db, param: Param<UserKey>) =>
  db.select({ password: users.password }).from(users).where(isUser(param)),
);

/**
 * Changes the password of the user whose session calls, and ends the user's other sessions.
 * @throws `forbidden` unless a user's session calls; `invalid_input` if the current password is wrong; `rate_limited`;
 *   `conflict` if the password was changed at the same time
 */
export async function changeOwnPassword(
  deps: Deps,
  actor: Actor,
  { currentPassword, newPassword }: { currentPassword: string; newPassword: string },
): Promise<void> {
  if (actor.kind !== "session" || actor.userId === null) {
    throw new AppError("forbidden", { message: "Only the session of a user can change the user's password." });
  }
  const { teamId, userId: id, keyId } = actor;
  await ensureAuthorized(deps);
  // A stolen session must not become a way to guess the password.
  if (!(await deps.limiter.login(`password/${id}`))) throw new AppError("rate_limited", { limit: "login" });
  const [[user]] = await read(deps, [passwordOf({ id, teamId })]);
  if (!(await verifyPassword(deps, teamId, currentPassword, user?.password ?? null)) || !user) {
    throw invalidField("currentPassword", "Incorrect password.");
  }
  const password = await hashPassword(deps, teamId, newPassword);
  const values = { id, teamId, before: user.password, password, updatedAt: deps.system.now() };
  const event = newEvent(deps, "user.updated", actor, { id, teamId }, { fields: ["password"] });
  const queries = [replacePassword(values), ...endSessions(deps, { ...values, keptKeyId: keyId })] as const;
  const [[changed]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (!changed) throw new AppError("conflict");
}
