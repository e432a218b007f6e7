import { and, eq, exists, lt, notExists, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import {
  columnsFrom,
  type Db,
  insertWhere,
  type Param,
  preparedQuery,
  rowOf,
  type StoredRow,
} from "../../platform/db.ts";
import { isUniqueViolation } from "../../platform/retry.ts";
import { apiKeys, isApiKey, isSession, teams, users } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import {
  type EventValues,
  eventValues,
  type Initiator,
  insertEvent,
  type NewEvent,
  newEvent,
  writeWithEvent,
} from "../events/events.ts";
import { uploadCancellation } from "../files/unfinished.ts";
import { type ExpectedVersions, hasExpectedVersion, versionsParameter } from "../versions.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "./authorization.ts";
import { hashPassword } from "./passwords.ts";
import { isExistingTeam } from "./teams.ts";

export type UserRow = StoredRow<typeof users>;

/** `password` is its PHC string. Instants are milliseconds since the epoch. */
export type User = Omit<UserRow, "emailKey">;

/** The form in which emails are compared within a team. */
export const emailKey = (email: string): string => email.trim().normalize("NFKC").toLowerCase();

/** The name as people write it. */
export const fullNameOf = ({ firstName, lastName }: { firstName: string; lastName: string }): string =>
  `${firstName} ${lastName}`.trim();

export const viewUser = ({ emailKey: _, ...user }: UserRow): User => user;

type TargetValues = { id: string; teamId: string; versions: string | null };

const targetOf = (actor: TeamActor, id: string, versions: ExpectedVersions): TargetValues => ({
  id,
  teamId: actor.teamId,
  versions: versionsParameter(versions),
});
const isTarget = (param: Param<TargetValues>) => and(eq(users.id, param("id")), eq(users.teamId, param("teamId")));
const isExpected = (param: Param<TargetValues>) => hasExpectedVersion(users.version, param("versions"));

const targetExists = preparedQuery((db, param: Param<TargetValues>) =>
  db.select({ id: users.id }).from(users).where(isTarget(param)),
);

export interface NewUser {
  email: string;
  password: string;
  firstName: string;
  lastName: string;
}

/** Bounds what a team can store, and the length of the whole list. */
export const MAX_TEAM_USERS = 100_000;

/** The unique index and the limit decide in one statement, so parallel requests can't get around either. */
const insertUser = preparedQuery((db, param: Param<UserRow>) => {
  const teamWithRoom = db
    .select({ one: sql`1` })
    .from(teams)
    .where(and(isExistingTeam(param), lt(teams.users, MAX_TEAM_USERS)));
  return insertWhere(db, users, rowOf(users, param), exists(teamWithRoom));
});

const idByEmail = preparedQuery((db, param: Param<{ teamId: string; emailKey: string }>) =>
  db
    .select({ id: users.id })
    .from(users)
    .where(and(eq(users.teamId, param("teamId")), eq(users.emailKey, param("emailKey")))),
);

/** @throws `email_taken`, `quota_exceeded`, `rate_limited` */
export async function createUser(deps: Deps, actor: TeamActor, { password, ...fields }: NewUser): Promise<User> {
  const now = deps.system.now();
  const user: User = {
    id: newId(deps.system),
    teamId: actor.teamId,
    ...fields,
    password: await hashPassword(deps, actor.teamId, password),
    role: "admin",
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  const row = { ...user, emailKey: emailKey(user.email) };
  const event = newEvent(deps, "user.created", actor, user);
  const queries = [insertUser(row), idByEmail(row)] as const;
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
  return viewUser(user);
}

/** The new values. Null leaves a field unchanged. `password` is a hash. */
type ChangeValues = { [F in "firstName" | "lastName" | "email" | "emailKey" | "password"]: string | null };

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
      ...columnsFrom(param, "updatedAt"),
      version: sql`${users.version} + 1`,
    })
    .where(and(isTarget(param), isExpected(param)))
    .returning();
});

const isKeyOfUser = (param: Param<TargetValues>) =>
  and(eq(apiKeys.userId, param("id")), eq(apiKeys.teamId, param("teamId")));

/** The user's sessions, once the password has changed. The salt makes a new hash unique. */
const isEndedSession = (db: Db, param: Param<TargetValues & { password: string }>) => {
  const changed = db
    .select({ id: users.id })
    .from(users)
    .where(and(isTarget(param), eq(users.password, param("password"))));
  return and(isKeyOfUser(param), isSession, exists(changed));
};
const cancelUploadsOfSessions = uploadCancellation((db, param: Param<TargetValues & { password: string }>) => {
  const ids = db.select({ id: apiKeys.id }).from(apiKeys).where(isEndedSession(db, param));
  return sql`${ids}`;
});
const endSessions = preparedQuery((db, param: Param<TargetValues & { password: string }>) =>
  db.delete(apiKeys).where(isEndedSession(db, param)),
);

const insertUpdatedEvent = preparedQuery((db, param: Param<Omit<EventValues, "subjectVersion">>) => {
  const version = sql`(select version from users where id = ${param("subjectId")})`;
  return insertEvent(db, param, { subjectVersion: version, data: sql`${param("data")}` });
});

/** The event names the changed fields without their values. */
export function updatedEvent(
  deps: Deps,
  initiator: Initiator,
  { teamId, id }: { teamId: string; id: string },
  given: Record<string, unknown>,
): NewEvent {
  const fields = Object.keys(given).filter((name) => given[name] !== undefined);
  const data = JSON.stringify({ _id: id, fields });
  return {
    teamId,
    insert: insertUpdatedEvent({ ...eventValues(deps, "user.updated", initiator, { teamId, id }), data }),
  };
}

/** A new password ends the user's sessions and cancels their unfinished uploads. @throws `not_found`, `version_mismatch`, `email_taken`, `rate_limited` */
export async function updateUser(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { firstName, lastName, email, password }: { [Field in keyof NewUser]?: NewUser[Field] | undefined },
  versions?: ExpectedVersions,
): Promise<User> {
  const target = targetOf(actor, id, versions);
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
  const changed = { ...target, password: hash ?? "" };
  const revokeSessions = hash === null ? [] : [...cancelUploadsOfSessions(deps, changed), endSessions(changed)];
  const event = updatedEvent(deps, actor, target, { firstName, lastName, email, password });
  const queries = [update, targetExists(target), ...revokeSessions] as const;
  const [[user], existing] = await writeWithEvent(deps, event, queries, { isIdempotent: false }).catch((error) => {
    throw isUniqueViolation(error) ? new AppError("email_taken") : error;
  });
  if (existing.length === 0) throw new AppError("not_found");
  if (!user) throw new AppError("version_mismatch");
  return viewUser(user);
}

const deleteTarget = preparedQuery((db, param: Param<TargetValues>) =>
  db
    .delete(users)
    .where(and(isTarget(param), isExpected(param)))
    .returning({ id: users.id }),
);

/** Once the user is deleted, the keys that are left. */
const keysOfDeleted = (db: Db, param: Param<TargetValues>) => {
  const remaining = db
    .select({ id: users.id })
    .from(users)
    .where(eq(users.id, param("id")));
  return and(isKeyOfUser(param), notExists(remaining));
};
const cancelUploadsOfDeleted = uploadCancellation((db, param: Param<TargetValues>) => {
  const ids = db.select({ id: apiKeys.id }).from(apiKeys).where(keysOfDeleted(db, param));
  return sql`${ids}`;
});
const revokeKeysOfDeleted = preparedQuery((db, param: Param<TargetValues>) =>
  db.delete(apiKeys).where(keysOfDeleted(db, param)),
);

/**
 * Inserted before the deletion under the same condition, because it needs the version and the keys. A team has at most
 * `MAX_TEAM_KEYS` API keys, so their ids take less than 30 KB.
 */
const insertDeletedEvent = preparedQuery(
  (db, param: Param<TargetValues & Omit<EventValues, "subjectVersion" | "data">>) => {
    const keyIds = db
      .select({ ids: sql`json_group_array(${apiKeys.id})` })
      .from(apiKeys)
      .where(and(isKeyOfUser(param), isApiKey));
    return insertEvent(
      db,
      param,
      {
        subjectVersion: sql`${users.version}`,
        data: sql`json_object('_id', ${param("id")}, 'revokedKeyIds', json(${keyIds}))`,
      },
      sql`from ${users} where ${and(isTarget(param), isExpected(param))}`,
    );
  },
);

/**
 * Deletes the user with their logins and the keys that these created, and cancels the unfinished uploads of both.
 * @throws `not_found`, `version_mismatch`
 */
export async function deleteUser(deps: Deps, actor: TeamActor, id: string, versions?: ExpectedVersions): Promise<void> {
  const target = targetOf(actor, id, versions);
  const insert = insertDeletedEvent({ ...target, ...eventValues(deps, "user.deleted", actor, target) });
  const event = { teamId: actor.teamId, isBefore: true, insert };
  const endKeys = [...cancelUploadsOfDeleted(deps, target), revokeKeysOfDeleted(target)];
  const queries = [deleteTarget(target), targetExists(target), ...endKeys] as const;
  const [deleted, remaining] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (deleted.length > 0) return;
  throw new AppError(remaining.length > 0 ? "version_mismatch" : "not_found");
}
