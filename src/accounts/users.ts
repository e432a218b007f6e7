import { and, eq, gte, inArray, isNull, ne, not, type SQL, sql } from "drizzle-orm";
import {
  type Credential,
  checkCovered,
  exceeds,
  isExistingTeam,
  readAs,
  refusalError,
  type TeamActor,
} from "../access/authorization.ts";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { hashPassword } from "../access/passwords.ts";
import {
  DEFAULT_ROLE,
  maskOfRole,
  OWN_FILES_ROLE,
  OWN_FILES_SCOPES,
  type Role,
  scopesOfRole,
} from "../access/scopes.ts";
import type { AfterLoss, Deps, LossOfAccess } from "../deps.ts";
import { AppError, errorCode, invalidField } from "../errors.ts";
import { fieldsOf, recorded, writeWithEvent } from "../events/events.ts";
import { grouped } from "../numbers.ts";
import { firstOf, hasRow, insertWhere, type Param, preparedQuery, type Query, type StoredRow } from "../platform/db.ts";
import { cutPage, listName, type Page, type PageRequest, pageById, pageByName } from "../platform/paging.ts";
import { isUniqueViolation } from "../platform/retry.ts";
import { isUnknownPassword } from "../platform/secrets.ts";
import { newId } from "../platform/system.ts";
import { type ExpectedVersions, isExpectedVersion } from "../platform/versions.ts";
import { cancelUploadsOfKeys } from "../uploads/unfinished.ts";
import { USER_EVENTS } from "./account-event-types.ts";
import { apiKeys, isSession } from "./keys.schema.ts";
import { teams } from "./teams.schema.ts";
import { users } from "./users.schema.ts";

export const emailTaken = errorCode("email_taken", 409, "A user with this email already exists.");
export const lastAdmin = errorCode(
  "last_admin",
  409,
  "This is the last admin of the team. Make another user an admin, or use a secret key.",
);

/* Users: people in a team, who log in. The caller must cover the role of each user that it creates, changes or deletes. */

/** `password` is its PHC string. Instants are milliseconds since the epoch. */
export type User = StoredRow<typeof users>;

/** Bounds what a team can store. */
export const MAX_TEAM_USERS = 100_000;
/** The longest list without pages. A user takes at most 2 KB of the response. */
export const MAX_LISTED_USERS = 1000;

/** The form in which emails are compared within a team. */
export const emailKey = (email: string): string => email.trim().normalize("NFKC").toLowerCase();

/** The name as people write it. */
export const fullNameOf = ({ firstName, lastName }: { firstName: string; lastName: string }): string =>
  `${firstName} ${lastName}`.trim();

export type UserKey = Pick<User, "id" | "teamId">;
export const isUser = ({ id, teamId }: UserKey) => and(eq(users.id, id), eq(users.teamId, teamId));

/** Whether the user has ever had a password. One that was invited has none until the invitation is accepted. */
export const hasPassword = ({ password }: Pick<User, "password">): boolean => !isUnknownPassword(password);

/* Creation */

export interface NewUser {
  email: string;
  /** Undefined if the user has none yet: the user is invited afterwards. */
  password?: string | undefined;
  firstName: string;
  lastName: string;
  /** Default: `DEFAULT_ROLE`. */
  role?: Role | undefined;
}

/**
 * Creates a user. One batch checks the email and the limit and inserts, so parallel requests can't get around either.
 * @throws `insufficient_scope` if the caller doesn't cover the role, `email_taken`, `quota_exceeded`, `rate_limited`
 */
export async function createUser(
  deps: Deps,
  actor: TeamActor,
  { password, role = DEFAULT_ROLE, ...fields }: NewUser,
): Promise<User> {
  const { db, system } = deps;
  const { teamId } = actor;
  const granted = scopesOfRole(role);
  checkCovered(actor, granted);
  const hash = password === undefined ? deps.secrets.unknownPassword() : await hashPassword(deps, teamId, password);
  const now = system.now();
  const user: User = {
    id: newId(system, db.number),
    teamId,
    ...fields,
    emailKey: emailKey(fields.email),
    password: hash,
    role,
    createdAt: now,
    updatedAt: now,
    version: 0,
    invitationHash: null,
    invitationEndsAt: null,
    invitationBy: null,
    folders: 0,
    unfinishedUploads: 0,
    accountEventsUntil: 0,
  };
  // A repeated batch finds its own row.
  const hasEmail = and(eq(users.teamId, teamId), eq(users.emailKey, user.emailKey), ne(users.id, user.id));
  const refusal = firstOf({
    email_taken: hasRow(users, hasEmail),
    quota_exceeded: gte(teams.users, MAX_TEAM_USERS),
  });
  const isAllowed = sql`${isExistingTeam(teamId)} and ${isNull(refusal)}`;
  const batch = {
    team: db.select({ refusal }).from(teams).where(isExistingTeam(teamId)),
    insert: recorded(
      deps,
      { type: USER_EVENTS.created, initiator: actor, subject: user },
      insertWhere(db, users, user, isAllowed, sql`${teams}`),
    ),
  };
  const {
    team: [team],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor, granted });
  if (!team) throw new AppError("token_invalid");
  if (team.refusal === "quota_exceeded") {
    const message = `A team can have at most ${grouped(MAX_TEAM_USERS)} users. Delete one and retry.`;
    throw new AppError("quota_exceeded", { message });
  }
  if (team.refusal === "email_taken") throw new AppError(emailTaken);
  return user;
}

/* Reads */

const userById = preparedQuery((db, param: Param<{ id: string; teamId: string }>) =>
  db
    .select()
    .from(users)
    .where(and(eq(users.id, param("id")), eq(users.teamId, param("teamId")))),
);

/** `furtherScopes` is a mask of scopes that the caller needs, too. @throws `not_found`, `insufficient_scope` */
export async function fetchUser(
  deps: Deps,
  credential: Credential<"users:read">,
  id: string,
  furtherScopes = 0,
): Promise<User> {
  const {
    actor,
    rows: [user],
  } = await readAs(deps, credential, ({ teamId }) => userById({ teamId, id }));
  checkCovered(actor, furtherScopes);
  if (!user) throw new AppError("not_found");
  return user;
}

/** Filters of a list of users. A user must match all of them. */
export interface UserFilters {
  /** The whole email, in any case. An email finds at most one user, because it is unique in its team. */
  email?: string | undefined;
  /** A prefix of the full name. */
  name?: string | undefined;
}

/** Lists users, oldest first, or by full name if `name` is given. @throws `invalid_input` for a cursor of another list */
export async function listUsers(
  deps: Deps,
  credential: Credential<"users:read">,
  { email, name }: UserFilters,
  request: PageRequest,
): Promise<Page<User>> {
  const key = email === undefined ? undefined : emailKey(email);
  const list = listName("users", { emailKey: key, name });
  const page =
    name === undefined
      ? pageById(list, users.id, "oldest first", request)
      : pageByName(list, { name: users.fullName, id: users.id }, name, request);
  const { rows } = await readAs(deps, credential, ({ teamId }) =>
    deps.db
      .select()
      .from(users)
      .where(and(eq(users.teamId, teamId), key === undefined ? undefined : eq(users.emailKey, key), page.where))
      .orderBy(...page.orderBy)
      .limit(page.limit)
      .offset(page.offset),
  );
  return cutPage(list, request, rows, name === undefined ? undefined : fullNameOf);
}

/** All users of the team, oldest first. @throws `invalid_input` if they are more than `MAX_LISTED_USERS` */
export async function listAllUsers(deps: Deps, credential: Credential<"users:read">): Promise<User[]> {
  const { items, next } = await listUsers(deps, credential, {}, { limit: MAX_LISTED_USERS, page: 1 });
  if (next === null) return items;
  const limit = grouped(MAX_LISTED_USERS);
  throw invalidField("limit", `Required: the team has more than ${limit} users. Follow \`Link\` to the next page.`);
}

/* Changes */

type Refusal = "insufficient_scope" | "version_mismatch" | "last_admin";

/**
 * The reason not to change or delete the user of a row. `role` is the new role: undefined if it stays, null for a deletion.
 * Only a secret key may leave a team without an admin.
 */
function refusalOf({ db }: Deps, actor: TeamActor, versions: ExpectedVersions, role: Role | null | undefined) {
  const admins = db.select({ admins: teams.admins }).from(teams).where(eq(teams.id, actor.teamId));
  const endsAdmin = role !== undefined && role !== "admin";
  return firstOf({
    insufficient_scope: exceeds(actor, maskOfRole(users.role)),
    ...(versions && { version_mismatch: not(isExpectedVersion(users.version, versions)) }),
    ...(endsAdmin && actor.kind !== "secret" && { last_admin: sql`${users.role} = 'admin' and ${admins} <= 1` }),
  });
}

/** Why the user was not changed. `found` is what the query of the refusal found. */
function changeError(actor: TeamActor, found: { refusal: Refusal | null; role: Role } | undefined): AppError {
  if (!found) return new AppError("not_found");
  if (found.refusal === "last_admin") return new AppError(lastAdmin);
  return refusalError(found.refusal ?? "conflict", actor, scopesOfRole(found.role));
}

/**
 * A new password ends the user's sessions and cancels their unfinished uploads. Another email, role or password ends the
 * user's invitation. If the user becomes a contributor, their keys keep only the
 * scopes of that role, also if it changes again, and what they left behind ends, such as their webhooks (`userLosesAccess`).
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the old and the new role, `last_admin`,
 *   `version_mismatch`, `email_taken`, `rate_limited`
 */
export async function updateUser(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { password, ...fields }: { [Field in keyof NewUser]?: NewUser[Field] | undefined },
  versions?: ExpectedVersions,
): Promise<User> {
  const { db, system } = deps;
  const target = { id, teamId: actor.teamId };
  const { email, role } = fields;
  const granted = role === undefined ? 0 : scopesOfRole(role);
  checkCovered(actor, granted);
  const hash = password === undefined ? undefined : await hashPassword(deps, actor.teamId, password);
  const refusal = refusalOf(deps, actor, versions, role);
  const isChanged = and(isUser(target), isNull(refusal));
  const isDemoting = role === OWN_FILES_ROLE;
  const losses = isDemoting ? lossesOf(deps, actor, target, "demoted", isChanged) : [];
  const key = email === undefined ? undefined : emailKey(email);
  const isInvitationKept = and(
    hash === undefined ? undefined : sql`false`,
    key === undefined ? undefined : eq(users.emailKey, key),
    role === undefined ? undefined : eq(users.role, role),
  );
  const update = db
    .update(users)
    .set({
      ...fields,
      ...(key !== undefined && { emailKey: key }),
      ...(hash !== undefined && { password: hash }),
      ...(isInvitationKept && { invitationHash: sql`iif(${isInvitationKept}, ${users.invitationHash}, null)` }),
      updatedAt: system.now(),
      version: sql`${users.version} + 1`,
    })
    .where(isChanged)
    .returning();
  const updated = {
    type: USER_EVENTS.updated,
    initiator: actor,
    subject: target,
    data: { fields: fieldsOf({ ...fields, password }) },
  };
  const batch = {
    losses: losses.map(({ before }) => before),
    found: db.select({ refusal, role: users.role }).from(users).where(isUser(target)),
    update: recorded(deps, updated, update),
    sessions: hash === undefined ? [] : endSessions(deps, target, hash),
    keys: isDemoting ? narrowKeys(deps, target) : [],
  };
  const {
    losses: lost,
    found: [found],
    update: {
      change: [user],
    },
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  }).catch((error) => {
    throw isUniqueViolation(error) ? new AppError(emailTaken) : error;
  });
  if (!user) throw changeError(actor, found);
  await endLosses(losses, lost);
  return user;
}

/** The consequences in other folders if the user is deleted or demoted. */
const lossesOf = (
  deps: Deps,
  actor: TeamActor,
  user: UserKey,
  cause: LossOfAccess["cause"],
  isChanged: SQL | undefined,
): AfterLoss[] =>
  deps.service.userLosesAccess.map((afterLoss) =>
    afterLoss(deps, { actor, user, cause, willLose: hasRow(users, isChanged) }),
  );

/** The work that is awaited once the batch is committed. `rows` are those of each part, in the same order. */
const endLosses = (losses: AfterLoss[], rows: Parameters<AfterLoss["committed"]>[0][]) =>
  Promise.all(losses.map(({ committed }, i) => committed(rows[i] ?? {})));

/**
 * Takes from the keys of a contributor, and from the sessions of these, the scopes that the role lacks, after an update of the role
 * in the same batch. Nobody who lacks a scope can give it back, by another role or by deleting the user.
 */
function narrowKeys({ db }: Deps, user: UserKey): Query {
  const isContributor = hasRow(users, and(isUser(user), eq(users.role, OWN_FILES_ROLE)));
  const isWider = sql`(${apiKeys.scopes} & ~${OWN_FILES_SCOPES}) <> 0`;
  return db
    .update(apiKeys)
    .set({ scopes: sql`${apiKeys.scopes} & ${OWN_FILES_SCOPES}`, version: sql`${apiKeys.version} + 1` })
    .where(and(isKeyOfUser(user), isWider, isContributor));
}

/** Replaces the password only if it is still the verified one. */
export const replacePassword = (
  { db, system }: Deps,
  target: UserKey,
  before: string,
  password: string,
  changes: { invitationHash?: null } = {},
) =>
  db
    .update(users)
    .set({ ...changes, password, updatedAt: system.now(), version: sql`${users.version} + 1` })
    .where(and(isUser(target), eq(users.password, before)))
    .returning({ id: users.id });

export const isKeyOfUser = ({ id, teamId }: UserKey) => and(eq(apiKeys.userId, id), eq(apiKeys.teamId, teamId));

/**
 * Ends the user's sessions, except the kept one, and cancels their unfinished uploads, after an update to that password in
 * the same batch. The salt makes a new hash unique.
 */
export function endSessions(deps: Deps, user: UserKey, password: string, keptKeyId?: string): Query[] {
  const isChanged = hasRow(users, and(isUser(user), eq(users.password, password)));
  const isKept = keptKeyId === undefined ? undefined : ne(apiKeys.id, keptKeyId);
  const isEnded = and(isKeyOfUser(user), isSession, isKept, isChanged);
  const ended = deps.db.select({ id: apiKeys.id }).from(apiKeys).where(isEnded);
  return [cancelUploadsOfKeys(deps, user.teamId, sql`${ended}`), deps.db.delete(apiKeys).where(isEnded)];
}

/* Deletion */

/**
 * Deletes the user with their sessions, and the keys that these created unless `keepKeys`, and cancels the unfinished uploads
 * of what it deletes. A kept key no longer belongs to anyone. What the user left behind ends unless `keepKeys`, such as webhooks
 * (`userLosesAccess`). A trigger deletes the folders that the user created as a contributor.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the user's role, `last_admin`, `version_mismatch`
 */
export async function deleteUser(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { versions, keepKeys }: { versions: ExpectedVersions; keepKeys: boolean },
): Promise<void> {
  const { db } = deps;
  const target = { id, teamId: actor.teamId };
  const refusal = refusalOf(deps, actor, versions, null);
  const isDeleted = and(isUser(target), isNull(refusal));
  // The records of a user whose keys are kept continue, too.
  const losses = keepKeys ? [] : lossesOf(deps, actor, target, "deleted", isDeleted);
  const isRevoked = keepKeys ? isSession : undefined;
  // Once the user is deleted, in the same batch.
  const isLeft = and(isKeyOfUser(target), not(hasRow(users, isUser(target))));
  const revoked = db.select({ id: apiKeys.id }).from(apiKeys).where(and(isLeft, isRevoked));
  // A team has at most 1,000 keys: 30 KB of ids.
  const revokedKeys = db
    .select({ ids: sql`json_group_array(${apiKeys.id})` })
    .from(apiKeys)
    // Not `isApiKey`, with which SQLite would search all keys of the team.
    .where(and(isKeyOfUser(target), inArray(apiKeys.kind, ["secret", "public"]), isRevoked));
  const deleted = {
    type: USER_EVENTS.deleted,
    initiator: actor,
    subject: { ...target, version: sql`${users.version}` },
    data: sql`json_object('_id', ${id}, 'revokedKeyIds', json(${revokedKeys}))`,
    from: sql`${users}`,
    where: isDeleted,
    reads: "before",
  } as const;
  const batch = {
    losses: losses.map(({ before }) => before),
    found: db.select({ refusal, role: users.role }).from(users).where(isUser(target)),
    deletion: recorded(deps, deleted, db.delete(users).where(isDeleted).returning({ id: users.id })),
    uploads: cancelUploadsOfKeys(deps, target.teamId, sql`${revoked}`),
    keys: db.delete(apiKeys).where(and(isLeft, isRevoked)),
    keptKeys: db
      .update(apiKeys)
      .set({ userId: null, version: sql`${apiKeys.version} + 1` })
      .where(isLeft),
  };
  const {
    losses: lost,
    found: [found],
    deletion: {
      change: [user],
    },
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  });
  if (!user) throw changeError(actor, found);
  await endLosses(losses, lost);
}

/** The users of deleted teams, once their folders are gone: a trigger deletes up to a thousand of each. */
export const usersOfDeleted = rowsOfDeleted(users, { key: [users.id], isDeletable: eq(users.folders, 0) });
