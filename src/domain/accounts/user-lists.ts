import { and, eq } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import type { Db, Param } from "../../platform/db.ts";
import { users } from "../../platform/schema.ts";
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
import { authorizeRead, type Credential, teamRead } from "./authorization.ts";
import { emailKey, fullNameOf, type User, viewUser } from "./users.ts";

/**
 * Rows of one step of the whole list: about 0.5 MB in memory. Each step costs two of the 1,000 queries that D1 allows an
 * invocation, so the largest team takes 200 of them.
 */
const STREAM_STEP_ROWS = 1000;

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
/** Finds at most one user, because an email is unique in its team. */
const usersByEmail = teamRead(users.teamId, (db, param: Param<KeysetValues & { emailKey: string }>) => {
  const { where, ...page } = keyset(users.id, "oldest first", param);
  return { query: selectPage(db, page), where: and(eq(users.emailKey, param("emailKey")), where) };
});

/** Filters of a list of users. A user must match all of them. */
export interface UserFilters {
  /** The whole email, in any case. */
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
  const filters = { emailKey: email === undefined ? undefined : emailKey(email), name };
  const list = listName("users", filters);
  if (filters.emailKey !== undefined) {
    const values = { ...keysetValues(list, "oldest first", request), emailKey: filters.emailKey };
    const rows = await authorizeRead(deps, credential, usersByEmail(values));
    const named = rows.filter((row) => fullNameOf(row).startsWith(name ?? ""));
    return cutPage(list, request, named, viewUser);
  }
  const wanted =
    name === undefined
      ? usersById(keysetValues(list, "oldest first", request))
      : usersByName(nameKeysetValues(list, name, request));
  const rows = await authorizeRead(deps, credential, wanted);
  return cutPage(list, request, rows, viewUser, name === undefined ? undefined : fullNameOf);
}

/**
 * Streams the whole team, oldest first, in steps. Authorizes the caller and reads the first step before it resolves, and
 * each further step on demand.
 */
export async function streamUsers(deps: Deps, credential: Credential<"users:read">): Promise<AsyncIterable<User[]>> {
  const request: PageRequest = { limit: STREAM_STEP_ROWS, page: 1 };
  const first = await listUsers(deps, credential, {}, request);
  return (async function* () {
    let page = first;
    yield page.items;
    // If the key expires or is revoked in the meantime, the stream fails, because the key's requests are rejected.
    while (page.next !== null) {
      page = await listUsers(deps, credential, {}, { ...request, cursor: page.next });
      yield page.items;
    }
  })();
}
