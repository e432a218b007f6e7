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
 * Rows of one step of the whole list: about 1 MB in memory. Each step costs two of the 1,000 queries that D1 allows an
 * invocation, so the largest team takes 100 of them.
 */
const STREAM_STEP_ROWS = 2000;

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
