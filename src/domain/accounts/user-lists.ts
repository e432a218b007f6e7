import { eq } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import type { Param } from "../../platform/db.ts";
import { users } from "../../platform/schema.ts";
import {
  cutPage,
  keyset,
  type ListPosition,
  listName,
  listPosition,
  nameKeyset,
  type Page,
  type PageRequest,
  pageOf,
} from "../paging.ts";
import { authorizeRead, type Credential, teamRead } from "./authorization.ts";
import { emailKey, fullNameOf, type User } from "./users.ts";

/**
 * Rows of one step of the whole list: about 0.5 MB in memory. Each step costs two of the 1,000 queries that D1 allows an
 * invocation, so the largest team takes 200 of them.
 */
const STREAM_STEP_ROWS = 1000;

/** An email finds at most one user, because it is unique in its team. */
const pageOfUsers = (isByName: boolean, hasEmail: boolean) =>
  teamRead(users.teamId, (db, param: Param<ListPosition & { emailKey: string | null }>) => {
    const clauses = isByName ? nameKeyset(users.fullName, users.id, param) : keyset(users.id, "oldest first", param);
    const condition = hasEmail ? eq(users.emailKey, param("emailKey")) : undefined;
    return pageOf(db.select().from(users).$dynamic(), clauses, param, condition);
  });
const BY_ID = { all: pageOfUsers(false, false), ofEmail: pageOfUsers(false, true) };
const BY_NAME = { all: pageOfUsers(true, false), ofEmail: pageOfUsers(true, true) };

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
  const values = { ...listPosition(list, "oldest first", name, request), emailKey: filters.emailKey ?? null };
  const query = (name === undefined ? BY_ID : BY_NAME)[email === undefined ? "all" : "ofEmail"];
  const rows = await authorizeRead(deps, credential, query(values));
  return cutPage(list, request, rows, name === undefined ? undefined : fullNameOf);
}

/**
 * Streams the whole team, oldest first, in steps. Authorizes the caller and reads the first step before it resolves, and
 * each further step on demand, once `countStep` has counted its rows.
 */
export async function streamUsers(
  deps: Deps,
  credential: Credential<"users:read">,
  countStep: (rows: number) => Promise<void>,
): Promise<AsyncIterable<User[]>> {
  const request: PageRequest = { limit: STREAM_STEP_ROWS, page: 1 };
  const first = await listUsers(deps, credential, {}, request);
  return (async function* () {
    let page = first;
    yield page.items;
    // If the key expires or is revoked in the meantime, the stream fails, because the key's requests are rejected.
    while (page.next !== null) {
      await countStep(STREAM_STEP_ROWS);
      page = await listUsers(deps, credential, {}, { ...request, cursor: page.next });
      yield page.items;
    }
  })();
}
