import { and, eq, exists, notExists, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Db, given, type Param, preparedQuery, rowOf, type StoredRow } from "../../platform/db.ts";
import { isUniqueViolation } from "../../platform/retry.ts";
import { apiKeys, users } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import {
  type Doer,
  type EventValues,
  eventValues,
  insertEvent,
  type NewEvent,
  newEvent,
  writeWithEvent,
} from "../events/events.ts";
import {
  cutPage,
  type KeysetValues,
  keyset,
  keysetValues,
  listName,
  type NameKeysetValues,
  nameKeyset,
  nameKeysetValues,
  type Page,
  type PageRequest,
} from "../paging.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "./authorization.ts";
import { hashPassword } from "./passwords.ts";

/** Rows of one step of a streamed list: few round trips, and some 250 KB in memory. */
const STREAM_STEP_ROWS = 500;

type UserRow = StoredRow<typeof users>;

/** `password` is its PHC string. Instants are milliseconds since the epoch. */
export type User = Omit<UserRow, "emailKey">;

/** As an email is compared within its team. */
export const emailKey = (email: string): string => email.trim().normalize("NFKC").toLowerCase();

/** As people write it. */
export const fullNameOf = ({ firstName, lastName }: { firstName: string; lastName: string }): string =>
  `${firstName} ${lastName}`.trim();

const view = ({ emailKey: _, ...user }: UserRow): User => user;

/** The versions that will do, from `If-Match`; undefined asks for none. */
export type ExpectedVersions = number[] | undefined;

type TargetValues = { id: string; teamId: string; versions: string | null };

/** `versions` is one parameter, however many there are: D1 takes 100 in a query. */
const targetOf = (actor: TeamActor, id: string, versions: ExpectedVersions): TargetValues => ({
  id,
  teamId: actor.teamId,
  versions: versions ? `,${versions.join()},` : null,
});
const isTarget = (param: Param<TargetValues>) => and(eq(users.id, param("id")), eq(users.teamId, param("teamId")));
const hasExpectedVersion = (param: Param<TargetValues>) =>
  sql`(${param("versions")} is null or instr(${param("versions")}, ',' || ${users.version} || ',') > 0)`;

const targetExists = preparedQuery((db, param: Param<TargetValues>) =>
  db.select({ id: users.id }).from(users).where(isTarget(param)),
);

export interface NewUser {
  email: string;
  password: string;
  firstName: string;
  lastName: string;
}

const insertUser = preparedQuery((db, param: Param<UserRow>) => db.insert(users).values(rowOf(users, param)));

/** @throws `email_taken`: the unique index decides, also between two requests at once */
export async function createUser(deps: Deps, actor: TeamActor, { password, ...wish }: NewUser): Promise<User> {
  const now = deps.system.now();
  const user: User = {
    id: newId(deps.system),
    teamId: actor.teamId,
    ...wish,
    password: await hashPassword(deps, actor.teamId, password),
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  const insert = insertUser({ ...user, emailKey: emailKey(user.email) });
  const event = newEvent(deps, "user.created", actor, user);
  await refuseTakenEmail(() => writeWithEvent(deps, event, [insert], { isIdempotent: false }));
  return user;
}

async function refuseTakenEmail<T>(change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    throw isUniqueViolation(error) ? new AppError("email_taken") : error;
  }
}

const selectPage = (db: Db, { by, limit, offset }: Omit<ReturnType<typeof keyset>, "where">) =>
  db
    .select()
    .from(users)
    .orderBy(...by)
    .limit(limit)
    .offset(offset)
    .$dynamic();

const usersById = teamRead(users.teamId, (db, param: Param<KeysetValues>) => {
  const { where, ...page } = keyset(users.id, "oldest first", param);
  return { query: selectPage(db, page), where };
});
const usersByName = teamRead(users.teamId, (db, param: Param<NameKeysetValues>) => {
  const { where, ...page } = nameKeyset(users.fullName, users.id, param);
  return { query: selectPage(db, page), where };
});
/** One at most: an email is unique in its team. */
const usersByEmail = teamRead(users.teamId, (db, param: Param<KeysetValues & { emailKey: string }>) => {
  const { where, ...page } = keyset(users.id, "oldest first", param);
  return { query: selectPage(db, page), where: and(eq(users.emailKey, param("emailKey")), where) };
});

/** Filters on a list of users; all of them must hold. */
export interface UserFilters {
  /** The whole of it, compared as emails are. */
  email?: string | undefined;
  /** What the full name begins with. */
  name?: string | undefined;
}

/** Oldest first; in the order of full names where those are filtered. @throws `invalid_input` for a foreign cursor */
export async function listUsers(
  deps: Deps,
  credential: Credential<"team">,
  { email, name }: UserFilters,
  request: PageRequest,
): Promise<Page<User>> {
  const filters = { emailKey: email === undefined ? undefined : emailKey(email), name };
  const list = listName("users", filters);
  if (filters.emailKey !== undefined) {
    const values = { ...keysetValues(list, "oldest first", request), emailKey: filters.emailKey };
    const rows = await authorizeRead(deps, credential, usersByEmail(values));
    const named = rows.filter((row) => fullNameOf(row).startsWith(name ?? ""));
    return cutPage(list, request, named, view);
  }
  const wanted =
    name === undefined
      ? usersById(keysetValues(list, "oldest first", request))
      : usersByName(nameKeysetValues(list, name, request));
  const rows = await authorizeRead(deps, credential, wanted);
  return cutPage(list, request, rows, view, name === undefined ? undefined : fullNameOf);
}

/**
 * The whole team, oldest first, in steps: the caller is authorised, and the first step read, before this resolves;
 * each further step is read when it is asked for.
 */
export async function streamUsers(deps: Deps, credential: Credential<"team">): Promise<AsyncIterable<User[]>> {
  const request: PageRequest = { limit: STREAM_STEP_ROWS, page: 1 };
  const first = await listUsers(deps, credential, {}, request);
  return (async function* () {
    let page = first;
    yield page.items;
    // The key may expire or be revoked meanwhile: then the stream breaks off, as every request of it would be refused.
    while (page.next !== null) {
      page = await listUsers(deps, credential, {}, { ...request, cursor: page.next });
      yield page.items;
    }
  })();
}

const userById = teamRead(users.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(users).$dynamic(),
  where: eq(users.id, param("id")),
}));

/** @throws `not_found` */
export async function fetchUser(deps: Deps, credential: Credential<"team">, id: string): Promise<User> {
  const [user] = await authorizeRead(deps, credential, userById({ id }));
  if (!user) throw new AppError("not_found");
  return view(user);
}

/** What may change; null leaves a field as it is. `password` is a hash. */
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
      ...given(param, "updatedAt"),
      version: sql`${users.version} + 1`,
    })
    .where(and(isTarget(param), hasExpectedVersion(param)))
    .returning();
});

/** The salt makes a new hash unique: it is there only if the update took place. */
const endLoginsOfNewPassword = preparedQuery((db, param: Param<TargetValues & { password: string }>) => {
  const changed = db
    .select({ id: users.id })
    .from(users)
    .where(and(isTarget(param), eq(users.password, param("password"))));
  return db.delete(apiKeys).where(and(eq(apiKeys.userId, param("id")), exists(changed)));
});

const insertUpdatedEvent = preparedQuery((db, param: Param<Omit<EventValues, "subjectVersion">>) => {
  const version = sql`(select version from users where id = ${param("subjectId")})`;
  return insertEvent(db, param, { subjectVersion: version, data: sql`${param("data")}` });
});

/** It names the fields that were given, and holds none of their values. */
export function updatedEvent(
  deps: Deps,
  doer: Doer,
  { teamId, id }: { teamId: string; id: string },
  given: Record<string, unknown>,
): NewEvent {
  const fields = Object.keys(given).filter((name) => given[name] !== undefined);
  const data = JSON.stringify({ _id: id, fields });
  return { teamId, insert: insertUpdatedEvent({ ...eventValues(deps, "user.updated", doer, { teamId, id }), data }) };
}

/**
 * A new password ends the keys that logging in with the old one gave.
 * @throws `not_found`, `version_mismatch`, `email_taken`
 */
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
  const endLogins = hash === null ? [] : [endLoginsOfNewPassword({ ...target, password: hash })];
  const event = updatedEvent(deps, actor, target, { firstName, lastName, email, password });
  const [[user], existing] = await refuseTakenEmail(() =>
    writeWithEvent(deps, event, [update, targetExists(target), ...endLogins], { isIdempotent: false }),
  );
  if (existing.length === 0) throw new AppError("not_found");
  if (!user) throw new AppError("version_mismatch");
  return view(user);
}

const deleteTarget = preparedQuery((db, param: Param<TargetValues>) =>
  db
    .delete(users)
    .where(and(isTarget(param), hasExpectedVersion(param)))
    .returning({ id: users.id }),
);

const endLoginsOfDeleted = preparedQuery((db, param: Param<TargetValues>) => {
  const remaining = db
    .select({ id: users.id })
    .from(users)
    .where(eq(users.id, param("id")));
  return db.delete(apiKeys).where(and(eq(apiKeys.userId, param("id")), notExists(remaining)));
});

/** The keys that the user's logins gave go with the user. @throws `not_found`, `version_mismatch` */
export async function deleteUser(deps: Deps, actor: TeamActor, id: string, versions?: ExpectedVersions): Promise<void> {
  const target = targetOf(actor, id, versions);
  const event = newEvent(deps, "user.deleted", actor, target);
  const queries = [deleteTarget(target), targetExists(target), endLoginsOfDeleted(target)] as const;
  const [deleted, remaining] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (deleted.length > 0) return;
  throw new AppError(remaining.length > 0 ? "version_mismatch" : "not_found");
}
