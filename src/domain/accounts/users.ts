import { and, eq, lt, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import {
  type BoundQuery,
  columnsFrom,
  type Db,
  hasRow,
  insertWhere,
  type Param,
  preparedQuery,
  rowOf,
  type StoredRow,
} from "../../platform/db.ts";
import { isUniqueViolation } from "../../platform/retry.ts";
import { apiKeys, isSession, teams, users } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import { fieldsOf, newEvent, writeWithEvent } from "../events/events.ts";
import { uploadCancellation } from "../files/unfinished.ts";
import { type ExpectedVersions, hasExpectedVersion, versionsParameter } from "../versions.ts";
import { authorizeRead, type Credential, checkCovered, isCovered, type TeamActor, teamRead } from "./authorization.ts";
import { hashPassword } from "./passwords.ts";
import { highestRole, maskOf, maskOfRole, ROLES, type Role } from "./scopes.ts";
import { teamExists } from "./teams.ts";
import { ensureAuthorized, requireScopes } from "./write-authorization.ts";

/** `password` is its PHC string. Instants are milliseconds since the epoch. */
export type User = StoredRow<typeof users>;

/** The form in which emails are compared within a team. */
export const emailKey = (email: string): string => email.trim().normalize("NFKC").toLowerCase();

/** The name as people write it. */
export const fullNameOf = ({ firstName, lastName }: { firstName: string; lastName: string }): string =>
  `${firstName} ${lastName}`.trim();

export type TargetValues = {
  id: string;
  teamId: string;
  versions: string | null;
  callerKeyId: string;
  /** The new role. Null if it doesn't change, and `DELETED` for a deletion. */
  role: Role | typeof DELETED | null;
  isSecretKey: boolean;
};
export const DELETED = "deleted";

export const targetOf = (
  { teamId, keyId, kind }: TeamActor,
  id: string,
  versions: ExpectedVersions,
  role: TargetValues["role"],
): TargetValues => ({
  ...{ id, teamId, role, callerKeyId: keyId },
  versions: versionsParameter(versions),
  isSecretKey: kind === "secret",
});
export type UserKey = { id: string; teamId: string };
export const isUser = (param: Param<UserKey>) => and(eq(users.id, param("id")), eq(users.teamId, param("teamId")));

/** Replaces the password only if it is still the verified one. */
export const replacePassword = preparedQuery(
  (db, param: Param<UserKey & { before: string; password: string; updatedAt: number }>) =>
    db
      .update(users)
      .set({ ...columnsFrom(param, "password", "updatedAt"), version: sql`${users.version} + 1` })
      .where(and(isUser(param), eq(users.password, param("before"))))
      .returning({ id: users.id }),
);

/** The conditions of every change, which `changeError` checks in turn to find the one that failed. */
export function isChangeable(db: Db, param: Param<TargetValues>) {
  const admins = db
    .select({ admins: teams.admins })
    .from(teams)
    .where(eq(teams.id, param("teamId")));
  const staysAdmin = sql`coalesce(${param("role")}, ${users.role}) = 'admin'`;
  const leavesAdmin = sql`(${users.role} <> 'admin' or ${staysAdmin} or ${param("isSecretKey")} or ${admins} > 1)`;
  return and(
    isUser(param),
    hasExpectedVersion(users.version, param("versions")),
    isCovered(db, param, maskOfRole(users.role)),
    leavesAdmin,
  );
}

export const targetState = preparedQuery((db, param: Param<TargetValues>) =>
  db.select({ version: users.version, role: users.role }).from(users).where(isUser(param)),
);

/** Says why a user was not changed. */
export function changeError(
  credential: Credential,
  versions: ExpectedVersions,
  state: { version: number; role: Role } | undefined,
): AppError {
  if (!state) return new AppError("not_found");
  checkCovered(credential, maskOf(ROLES[state.role]));
  return new AppError(versions && !versions.includes(state.version) ? "version_mismatch" : "last_admin");
}

export interface NewUser {
  email: string;
  password: string;
  firstName: string;
  lastName: string;
  /** By default the role with the most scopes that the caller covers. */
  role?: Role | undefined;
}

/** Bounds what a team can store, and the length of the whole list. */
export const MAX_TEAM_USERS = 100_000;

/** The unique index and the limit decide in one statement, so parallel requests can't get around either. */
const insertUser = preparedQuery((db, param: Param<User>) => {
  const teamHasRoom = teamExists(param, lt(teams.users, MAX_TEAM_USERS));
  return insertWhere(db, users, rowOf(users, param), teamHasRoom);
});

const idByEmail = preparedQuery((db, param: Param<{ teamId: string; emailKey: string }>) =>
  db
    .select({ id: users.id })
    .from(users)
    .where(and(eq(users.teamId, param("teamId")), eq(users.emailKey, param("emailKey")))),
);

/** @throws `insufficient_scope` if the caller doesn't cover the role, `email_taken`, `quota_exceeded`, `rate_limited` */
export async function createUser(
  deps: Deps,
  actor: TeamActor,
  credential: Credential,
  { password, role: given, ...fields }: NewUser,
): Promise<User> {
  await ensureAuthorized(deps);
  const role = given ?? highestRole(credential.scopes) ?? "viewer";
  requireScopes(deps, credential, ROLES[role]);
  const now = deps.system.now();
  const user: User = {
    id: newId(deps.system),
    teamId: actor.teamId,
    ...fields,
    emailKey: emailKey(fields.email),
    password: await hashPassword(deps, actor.teamId, password),
    role,
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  const event = newEvent(deps, "user.created", actor, user);
  const queries = [insertUser(user), idByEmail(user)] as const;
  const [, [stored]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (stored?.id === user.id) return user;
  if (stored) throw new AppError("email_taken");
  const message = `A team can have at most ${MAX_TEAM_USERS.toLocaleString("en")} users. Delete one and retry.`;
  throw new AppError("quota_exceeded", { message });
}

const userById = teamRead(users.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(users).$dynamic(),
  where: eq(users.id, param("id")),
}));

/** @throws `not_found` */
export async function fetchUser(deps: Deps, credential: Credential<"users:read">, id: string): Promise<User> {
  const [user] = await authorizeRead(deps, credential, userById({ id }));
  if (!user) throw new AppError("not_found");
  return user;
}

/** The new values. Null leaves a field unchanged. `password` is a hash. */
type ChangeValues = { [F in "firstName" | "lastName" | "email" | "emailKey" | "password" | "role"]: string | null };

const updateTarget = preparedQuery((db, param: Param<TargetValues & ChangeValues & { updatedAt: number }>) => {
  const changed = (name: keyof ChangeValues) => sql`coalesce(${param(name)}, ${users[name]})`;
  return db
    .update(users)
    .set({
      firstName: changed("firstName"),
      lastName: changed("lastName"),
      email: changed("email"),
      emailKey: changed("emailKey"),
      password: changed("password"),
      role: changed("role"),
      ...columnsFrom(param, "updatedAt"),
      version: sql`${users.version} + 1`,
    })
    .where(isChangeable(db, param))
    .returning();
});

export const isKeyOfUser = (param: Param<UserKey>) =>
  and(eq(apiKeys.userId, param("id")), eq(apiKeys.teamId, param("teamId")));

type EndingValues = { id: string; teamId: string; password: string; keptKeyId: string | null };

/** The user's sessions, except the kept one, once the password has changed. The salt makes a new hash unique. */
const isEndedSession = (param: Param<EndingValues>) => {
  const isChanged = hasRow(users, and(isUser(param), eq(users.password, param("password"))));
  return and(isKeyOfUser(param), isSession, sql`${apiKeys.id} is not ${param("keptKeyId")}`, isChanged);
};
const cancelUploadsOfEnded = uploadCancellation((db, param: Param<EndingValues>) => {
  const ids = db.select({ id: apiKeys.id }).from(apiKeys).where(isEndedSession(param));
  return sql`${ids}`;
});
const deleteEnded = preparedQuery((db, param: Param<EndingValues>) => db.delete(apiKeys).where(isEndedSession(param)));

/** Ends the user's sessions and cancels their unfinished uploads, after an update to that password in the same batch. */
export const endSessions = (deps: Deps, ended: EndingValues): BoundQuery<unknown>[] => [
  ...cancelUploadsOfEnded(deps, ended),
  deleteEnded(ended),
];

/**
 * A new password ends the user's sessions and cancels their unfinished uploads.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the old and the new role, `last_admin`,
 *   `version_mismatch`, `email_taken`, `rate_limited`
 */
export async function updateUser(
  deps: Deps,
  actor: TeamActor,
  credential: Credential,
  id: string,
  changes: { [Field in keyof NewUser]?: NewUser[Field] | undefined },
  versions?: ExpectedVersions,
): Promise<User> {
  const { firstName, lastName, email, password, role } = changes;
  const target = targetOf(actor, id, versions, role ?? null);
  if (role !== undefined) requireScopes(deps, credential, ROLES[role]);
  const hash = password === undefined ? null : await hashPassword(deps, actor.teamId, password);
  const update = updateTarget({
    ...target,
    firstName: firstName ?? null,
    lastName: lastName ?? null,
    email: email ?? null,
    emailKey: email === undefined ? null : emailKey(email),
    password: hash,
    updatedAt: deps.system.now(),
  });
  const revokeSessions = hash === null ? [] : endSessions(deps, { ...target, password: hash, keptKeyId: null });
  const event = newEvent(deps, "user.updated", actor, target, { fields: fieldsOf(changes) });
  const queries = [update, targetState(target), ...revokeSessions] as const;
  const [[user], [state]] = await writeWithEvent(deps, event, queries, { isIdempotent: false }).catch((error) => {
    throw isUniqueViolation(error) ? new AppError("email_taken") : error;
  });
  if (!user) throw changeError(credential, versions, state);
  return user;
}
