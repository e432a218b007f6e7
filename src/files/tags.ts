import { and, eq, type SQL, sql } from "drizzle-orm";
import { type Credential, readAs } from "../access/authorization.ts";
import type { FilesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import {
  ABOVE_ALL_IDS,
  AFTER_ALL_NAMES,
  decodeCursor,
  encodeCursor,
  listName,
  NO_ID,
  type Page,
  type PageRequest,
} from "../platform/paging.ts";
import { fileTags, isOwnedTag } from "./files.schema.ts";
import { nameKey } from "./names.ts";

/** A place in the list. */
interface Place {
  key: string;
  tag: string;
}

/** The tags behind a place: one search of the index for each (a skip scan), however many files have it. */
function tagsAfter({ db }: Deps, { teamId, ownerId }: FilesOf, after: Place, lastKey: string, limit: number) {
  const { tagKey, tag, fileId, userId } = fileTags;
  const index = ownerId === null ? sql`${fileTags}` : sql`${fileTags} indexed by file_tags_owner`;
  const isVisible = and(
    eq(fileTags.teamId, sql`(select id from team)`),
    ownerId === null ? undefined : and(isOwnedTag, eq(userId, ownerId)),
  );
  // SQLite begins a comparison of rows at those that are equal, so without the id it would read every file of the last tag.
  const next = (key: SQL, last: SQL) => sql`(select json_array(${tagKey}, ${tag}) from ${index}
    where ${isVisible} and (${tagKey}, ${tag}, ${fileId}) > (${key}, ${last}, ${ABOVE_ALL_IDS}) order by ${tagKey}, ${tag} limit 1)`;
  // The end is compared with the result of a search: as a condition of it, it would read all tags behind the end.
  const isWithin = sql`found ->> 0 <= ${lastKey}`;
  return db.select({ tag: sql<string>`tag` }).from(sql`(
    with recursive team (id) as (select ${teamId}), tagged (found) as (
      select ${next(sql`${after.key}`, sql`${after.tag}`)}
      union all
      select ${next(sql`found ->> 0`, sql`found ->> 1`)} from tagged where ${isWithin} limit ${limit}
    )
    select found ->> 1 as tag from tagged where ${isWithin})`);
}

/** The tags of the files that the caller sees, in the order of names. @throws `invalid_input` for a cursor of another list */
export async function listTags(
  deps: Deps,
  credential: Credential<"files:read">,
  { prefix }: { prefix: string },
  { limit, cursor }: Omit<PageRequest, "page">,
): Promise<Page<string>> {
  const list = listName("tags", { ...(prefix !== "" && { prefix }) });
  const start = nameKey(prefix);
  const last = cursor === undefined ? undefined : decodeCursor(list, cursor, "").name;
  const after = last === undefined ? { key: start, tag: "" } : { key: nameKey(last), tag: last };
  const { rows } = await readAs(deps, credential, (viewer) =>
    tagsAfter(deps, viewer, after, start + AFTER_ALL_NAMES, limit + 1),
  );
  const tags = rows.map(({ tag }) => tag);
  const items = tags.slice(0, limit);
  const next = tags.length > limit ? encodeCursor(list, NO_ID, items.at(-1)) : null;
  return { items, next };
}
