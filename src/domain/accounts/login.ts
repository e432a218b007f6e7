import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { hasRow, insertWhere, type Param, preparedQuery, read, rowOf } from "../../platform/db.ts";
import { apiKeys, teams, users } from "../../platform/schema.ts";
import { newEvent, SYSTEM, writeWithEvent } from "../events/events.ts";
import { type ApiKey, newHashedKey, newRow, viewKey } from "./keys.ts";
import { rehashPassword, verifyPassword } from "./passwords.ts";
import { maskOf, ROLES } from "./scopes.ts";
import { SESSION_MILLISECONDS } from "./sessions.ts";
import { isExistingTeam, teamExists } from "./teams.ts";
import { emailKey, fullNameOf, replacePassword } from "./users.ts";

export interface Login {
  teamId: string;
  email: string;
  password: string;
}

/**
 * Creates a session named after the user. It expires in 12 hours, and is revoked when the user is deleted or gets a new
 * password. A wrong password, an unknown email and an unknown team get the same response after the same work (OWASP,
 * Authentication Cheat Sheet).
 * @throws `login_failed`, `rate_limited`, and `team_suspended` if everything else is correct
 */
export async function logIn(deps: Deps, login: Login): Promise<ApiKey> {
  // If the stored hash changed in the meantime, retry once: another login may have rehashed the password.
  const key = (await attemptLogIn(deps, login)) ?? (await attemptLogIn(deps, login));
  if (!key) throw new AppError("login_failed");
  return key;
}

/** The team, with its user of this email if there is one. */
const accountByEmail = preparedQuery((db, param: Param<{ teamId: string; emailKey: string }>) =>
  db
    .select({ user: users, teamStatus: teams.status })
    .from(teams)
    .leftJoin(users, and(eq(users.teamId, teams.id), eq(users.emailKey, param("emailKey"))))
    .where(isExistingTeam(param)),
);

type SessionValues = Omit<typeof apiKeys.$inferSelect, "userId"> & { userId: string; password: string };

/** Inserts only if the password is still the verified one, because hashing takes long enough for a change in between. */
const insertSession = preparedQuery((db, param: Param<SessionValues>) => {
  const isSameUser = hasRow(users, and(eq(users.id, param("userId")), eq(users.password, param("password"))));
  return insertWhere(db, apiKeys, rowOf(apiKeys, param), sql`${isSameUser} and ${teamExists(param)}`);
});

/** @returns null if the stored hash changed during the check */
async function attemptLogIn(deps: Deps, { teamId, email, password }: Login): Promise<ApiKey | null> {
  const [[account]] = await read(deps, [accountByEmail({ teamId, emailKey: emailKey(email) })]);
  const user = account?.user;
  const isCorrect = await verifyPassword(deps, account ? teamId : null, password, user?.password ?? null);
  if (!user || !isCorrect) throw new AppError("login_failed");
  if (account.teamStatus === "suspended") throw new AppError("team_suspended");

  const hash = deps.secrets.isCurrentHash(user.password) ? user.password : await rehash(deps, user, password);
  const [key, row] = newHashedKey(deps, {
    name: fullNameOf(user) || user.email,
    kind: "session",
    scopes: null,
    teamId: user.teamId,
    createdByKeyId: null,
    userId: user.id,
    lifetime: SESSION_MILLISECONDS,
  });
  const insert = insertSession({ ...row, userId: user.id, password: hash });
  const initiator = { kind: "user" as const, keyId: key.id, userId: user.id };
  const event = newEvent(deps, "user.logged_in", initiator, user, { keyId: key.id });
  const [, [stored]] = await writeWithEvent(deps, event, [insert, newRow(key)], { isIdempotent: true });
  return stored ? viewKey({ ...stored, scopes: maskOf(ROLES[user.role]) }, key.key) : null;
}

/** Moves the password to the current master key. Only a login knows the password, and a hash can't be re-encrypted. */
async function rehash(
  deps: Deps,
  user: { id: string; teamId: string; password: string },
  password: string,
): Promise<string> {
  const hash = await rehashPassword(deps, user.teamId, password);
  const { id, teamId, password: before } = user;
  const values = { id, teamId, before, password: hash, updatedAt: deps.system.now() };
  const event = newEvent(deps, "user.updated", SYSTEM, user, { fields: ["password"] });
  await writeWithEvent(deps, event, [replacePassword(values)], { isIdempotent: true });
  return hash;
}
