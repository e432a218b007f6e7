import { and, eq, exists, notExists, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { isUniqueViolation, once, type Slot } from "../platform/db.ts";
import { apiKeys, users } from "../platform/schema.ts";
import { newId } from "../platform/system.ts";
import type { TeamActor } from "./actor.ts";
import { cutPage, type KeysetValues, keyset, keysetValues, type Page, type PageRequest } from "./paging.ts";
import { type Caller, prove, scopedRead } from "./proof.ts";

/** Rows of one step of a streamed list: few round trips, and some 250 KB in memory. */
const STREAM_STEP_ROWS = 500;

/** `password` is its PHC string. Instants are milliseconds since the epoch. */
export type User = Omit<typeof users.$inferSelect, "emailKey">;

/** As an email is compared within its team. */
export const emailKey = (email: string): string => email.trim().normalize("NFKC").toLowerCase();

const view = ({ emailKey: _, ...user }: typeof users.$inferSelect): User => user;

/** What was sent in `If-Match`: the versions that will do; undefined asks for none. */
export type ExpectedVersions = number[] | undefined;

const own = (actor: TeamActor, id: string) => and(eq(users.id, id), eq(users.teamId, actor.teamId));
/** One parameter, however many versions there are: D1 takes 100 in a statement. */
const expected = (versions: ExpectedVersions) =>
  versions && sql`instr(${`,${versions.join()},`}, ',' || ${users.version} || ',') > 0`;

export interface NewUser {
  email: string;
  password: string;
  firstName: string;
  lastName: string;
}

/** @throws `email_taken`: the unique index decides, also between two requests at once */
export async function createUser(deps: Deps, actor: TeamActor, { password, ...wish }: NewUser): Promise<User> {
  const now = deps.system.now();
  const user: User = {
    id: newId(deps.system),
    teamId: actor.teamId,
    ...wish,
    password: await deps.secrets.hashPassword(password),
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  await refuseTakenEmail(() => deps.db.insert(users).values({ ...user, emailKey: emailKey(user.email) }));
  return user;
}

async function refuseTakenEmail<T>(write: () => Promise<T>): Promise<T> {
  try {
    return await once(write);
  } catch (error) {
    throw isUniqueViolation(error) ? new AppError("email_taken") : error;
  }
}

const usersPage = scopedRead((db, scope, slot: Slot<KeysetValues>) => {
  const { where, by, limit, offset } = keyset(users.id, "oldest first", slot);
  return db
    .select()
    .from(users)
    .where(where(scope(users.teamId)))
    .orderBy(by)
    .limit(limit)
    .offset(offset);
});

/** Oldest first. */
export async function listUsers(deps: Deps, caller: Caller, request: PageRequest): Promise<Page<User>> {
  const [actor, rows] = await prove(deps, caller, "team", usersPage(keysetValues("oldest first", request)));
  const page = cutPage(deps.secrets, `users/${actor.teamId}`, request, rows);
  return { ...page, items: page.items.map(view) };
}

/**
 * The whole team, oldest first, in steps: the caller is proven, and the first step read, before this resolves;
 * each further step is read when it is asked for.
 */
export async function streamUsers(deps: Deps, caller: Caller): Promise<AsyncIterable<User[]>> {
  const request: PageRequest = { limit: STREAM_STEP_ROWS, page: 1 };
  const first = await listUsers(deps, caller, request);
  return (async function* () {
    let page = first;
    yield page.items;
    // The key may expire or be revoked meanwhile: then the stream breaks off, as every request of it would be refused.
    while (page.next !== null) {
      page = await listUsers(deps, caller, { ...request, cursor: page.next });
      yield page.items;
    }
  })();
}

const userById = scopedRead((db, scope, slot: Slot<{ id: string }>) =>
  db
    .select()
    .from(users)
    .where(and(eq(users.id, slot("id")), scope(users.teamId))),
);

/** @throws `not_found` */
export async function fetchUser(deps: Deps, caller: Caller, id: string): Promise<User> {
  const [, [user]] = await prove(deps, caller, "team", userById({ id }));
  if (!user) throw new AppError("not_found");
  return view(user);
}

/**
 * A new password ends the keys that logging in with the old one gave.
 * @throws `not_found`, `version_mismatch`, `email_taken`
 */
export async function updateUser(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: { [Field in keyof NewUser]?: NewUser[Field] | undefined },
  versions?: ExpectedVersions,
): Promise<User> {
  const { db, secrets, system } = deps;
  const password = changes.password === undefined ? undefined : await secrets.hashPassword(changes.password);
  const update = db
    .update(users)
    .set({
      ...changes,
      ...(changes.email === undefined ? {} : { emailKey: emailKey(changes.email) }),
      ...(password === undefined ? {} : { password }),
      updatedAt: system.now(),
      version: sql`${users.version} + 1`,
    })
    .where(and(own(actor, id), expected(versions)))
    .returning();
  const found = db.select({ id: users.id }).from(users).where(own(actor, id));
  const [existing, [user]] = await refuseTakenEmail(async () =>
    password === undefined
      ? await db.batch([found, update])
      : await db.batch([
          found,
          update,
          // The salt makes the new hash unique: it is there only if the update took place.
          db.delete(apiKeys).where(
            and(
              eq(apiKeys.userId, id),
              exists(
                db
                  .select({ id: users.id })
                  .from(users)
                  .where(and(own(actor, id), eq(users.password, password))),
              ),
            ),
          ),
        ]),
  );
  if (existing.length === 0) throw new AppError("not_found");
  if (!user) throw new AppError("version_mismatch");
  return view(user);
}

/** The keys that the user's logins gave go with the user. @throws `not_found`, `version_mismatch` */
export async function deleteUser(deps: Deps, actor: TeamActor, id: string, versions?: ExpectedVersions): Promise<void> {
  const { db } = deps;
  const [existing, deleted] = await once(() =>
    db.batch([
      db.select({ id: users.id }).from(users).where(own(actor, id)),
      db
        .delete(users)
        .where(and(own(actor, id), expected(versions)))
        .returning({ id: users.id }),
      db
        .delete(apiKeys)
        .where(and(eq(apiKeys.userId, id), notExists(db.select({ id: users.id }).from(users).where(eq(users.id, id))))),
    ]),
  );
  if (existing.length === 0) throw new AppError("not_found");
  if (deleted.length === 0) throw new AppError("version_mismatch");
}
