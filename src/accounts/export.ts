import { and, getTableColumns, inArray, sql } from "drizzle-orm";
import type { Credential } from "../access/authorization.ts";
import { SCOPES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { eventsNaming, findExportStarts } from "../events/event-log.ts";
import type { Event } from "../events/events.ts";
import { read } from "../platform/db.ts";
import { type ApiKey, type KeyRow, viewMaskedKey } from "./key-rows.ts";
import { apiKeys } from "./keys.schema.ts";
import type { Session } from "./sessions.ts";
import { fetchUser, isKeyOfUser, type User } from "./users.ts";

/** Rows of one batch: about 0.3 MB. */
const EXPORTED_ROWS = 500;

/** Everything that names a person. The lists are read as they are consumed, in constant memory. */
export interface UserExport {
  user: User;
  sessions: AsyncIterable<Session>;
  keys: AsyncIterable<ApiKey>;
  events: AsyncIterable<Event>;
  /** Whether the team has older events since the user was created, which an export doesn't examine. */
  hasOlderEvents: boolean;
}

/** An export shows what otherwise needs these. */
const FURTHER_SCOPES = SCOPES["events:read"] | SCOPES["keys:read"];

/** @throws `not_found`, `insufficient_scope` */
export async function exportUser(deps: Deps, credential: Credential<"users:read">, id: string): Promise<UserExport> {
  const user = await fetchUser(deps, credential, id, FURTHER_SCOPES);
  const starts = await findExportStarts(deps, user);
  return {
    user,
    sessions: rowsOf(deps, user, ["session"]),
    keys: keysOf(deps, user),
    events: eventsNaming(deps, user, starts),
    hasOlderEvents: starts.first !== null,
  };
}

async function* keysOf(deps: Deps, user: User): AsyncGenerator<ApiKey> {
  for await (const row of rowsOf(deps, user, ["secret", "public"])) yield viewMaskedKey(deps, row);
}

async function* rowsOf(deps: Deps, user: User, kinds: KeyRow["kind"][]): AsyncGenerator<KeyRow> {
  for (let [after, isMore] = [0, true]; isMore; ) {
    // The index of users ends with the rowid.
    const rows = await read(
      deps,
      deps.db
        .select({ ...getTableColumns(apiKeys), rowid: sql<number>`rowid` })
        .from(apiKeys)
        .where(and(isKeyOfUser(user), inArray(apiKeys.kind, kinds), sql`rowid > ${after}`))
        .orderBy(sql`rowid`)
        .limit(EXPORTED_ROWS),
    );
    yield* rows;
    after = rows.at(-1)?.rowid ?? after;
    isMore = rows.length === EXPORTED_ROWS;
  }
}
