import { asc, desc, gt, lt, type Placeholder, type SQL, type Subquery, sql } from "drizzle-orm";
import { type SQLiteColumn, type SQLiteSelect, unionAll } from "drizzle-orm/sqlite-core";
import { invalidField } from "../errors.ts";
import { grouped } from "../numbers.ts";
import type { Builder, Db } from "./db.ts";
import { fingerprint } from "./secrets.ts";

/** The requested part of a list. A page number costs a read for every row before the page; a cursor does not. */
export interface PageRequest {
  limit: number;
  /** From 1, counted from the cursor if there is one. */
  page: number;
  cursor?: string | undefined;
}

export interface Page<T> {
  items: T[];
  /** The cursor of the next page; null on the last page. */
  next: string | null;
}

type Order = "newest first" | "oldest first";

/** The largest `page × limit`. D1 reads every row that an OFFSET skips, so this bounds the cost of a numbered page. */
export const MAX_NUMBERED_ROWS = 1000;

/** The clauses of a page. */
export interface PageClauses {
  where: SQL;
  orderBy: SQL[];
  limit: number;
  offset: number;
}

/** Orders rows by id. The id is always bounded, so the query is a search of an index and never a scan. */
export function orderById(id: SQLiteColumn, order: Order, bound: string | Placeholder) {
  const isNewestFirst = order === "newest first";
  return { where: (isNewestFirst ? lt : gt)(id, bound), orderBy: [(isNewestFirst ? desc : asc)(id)] };
}

/**
 * The clauses of a page in the order of the ids.
 * @param start where the list starts
 * @throws `invalid_input` for a page that is too deep, or a cursor of another list or filter
 */
export function pageById(list: string, id: SQLiteColumn, order: Order, request: PageRequest, start?: string) {
  const { bound, ...rows } = keysetValues(list, order, request, start);
  return { ...orderById(id, order, bound), ...rows };
}

/** The clauses of a page of the names that begin with `prefix`, ordered by name and then by id. @throws as `pageById` does */
export function pageByName(
  list: string,
  { name, id }: { name: SQLiteColumn; id: SQLiteColumn },
  prefix: string,
  request: PageRequest,
  { isDescending = false } = {},
): PageClauses {
  const lastName = prefix + AFTER_ALL_NAMES;
  const rows = pageValues(request);
  const start = { name: isDescending ? lastName : prefix, id: "" };
  const bound = request.cursor === undefined ? start : decodeCursor(list, request.cursor, prefix);
  if (isDescending) {
    const where = sql`(${name}, ${id}) < (${bound.name}, ${bound.id}) and ${name} >= ${prefix}`;
    return { where, orderBy: [desc(name), desc(id)], ...rows };
  }
  const where = sql`(${name}, ${id}) > (${bound.name}, ${bound.id}) and ${name} <= ${lastName}`;
  return { where, orderBy: [asc(name), asc(id)], ...rows };
}

/** @throws `invalid_input` for a page that is too deep */
export function checkPage({ limit, page }: PageRequest): void {
  if (page * limit <= MAX_NUMBERED_ROWS) return;
  const rows = grouped(MAX_NUMBERED_ROWS);
  throw invalidPage(`\`page\` × \`limit\` can be at most ${rows}. Follow the Link header to go further.`);
}

/** One extra row shows whether another page follows. @throws `invalid_input` for a page that is too deep */
function pageValues(request: PageRequest): { limit: number; offset: number } {
  checkPage(request);
  return { limit: request.limit + 1, offset: (request.page - 1) * request.limit };
}

const invalidPage = (message: string) => invalidField("page", message);

/** Every id is less than this text, and greater than "". */
export const ABOVE_ALL_IDS = "g";

/** SQLite compares text as UTF-8, in which this is the greatest character. No name has this many of them. */
export const AFTER_ALL_NAMES = "\u{10ffff}".repeat(100);

/** Rows that a scan examines. A scan may read each row twice. 2 × 499 rows plus the key stay under 1,000. */
export const SCANNED_ROWS = 499;

/** True for the row of a scan that is returned as the last examined one, not as a match. */
export type MayBeEnd = { isEnd?: 0 | 1 };

/**
 * For filters that no index serves: examines the next `maxRows` rows of a query and returns a page of the matches
 * among them. If the matches do not fill the page, the last examined row follows them.
 */
export function scan<Q extends SQLiteSelect>(
  db: Db,
  query: Q,
  isMatch: (examined: ReturnType<Q["as"]>) => SQL | undefined,
  { limit, offset }: Pick<PageClauses, "limit" | "offset">,
  maxRows = SCANNED_ROWS,
) {
  const examined = (query as SQLiteSelect).limit(maxRows).as("examined");
  const matching = db
    .select()
    .from(examined)
    .where(isMatch(examined as ReturnType<Q["as"]>))
    .limit(limit)
    .offset(offset);
  const last = db
    .select()
    .from(examined)
    .limit(1)
    .offset(maxRows - 1);
  const withEnd = (rows: Subquery, isEnd: 0 | 1) =>
    db.select({ ...(rows._.selectedFields as object), isEnd: sql`${isEnd}`.as("isEnd") }).from(rows);
  const union = unionAll(withEnd(matching.as("matching"), 0), withEnd(last.as("last"), 1)).limit(limit);
  return union as unknown as Builder & PromiseLike<(Awaited<Q>[number] & MayBeEnd)[]>;
}

/** Separates the matches of a scan from the last examined row, which is present if the page is not full. */
export function splitScan<Row extends MayBeEnd>(rows: Row[]): { matching: Row[]; end: Row | undefined } {
  return { matching: rows.filter(({ isEnd }) => isEnd !== 1), end: rows.find(({ isEnd }) => isEnd === 1) };
}

/** Makes a page from the rows of a keyset query. Lists ordered by name pass `nameOf`. */
export function cutPage<Row extends { id: string }>(
  list: string,
  { limit }: Pick<PageRequest, "limit">,
  rows: Row[],
  nameOf?: (row: Row) => string,
): Page<Row> {
  const items = rows.slice(0, limit);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items, next: last ? encodeCursor(list, last.id, nameOf?.(last)) : null };
}

/**
 * Makes a page from the rows of a scan. It can be short or empty and still have a next page.
 * @throws `invalid_input` for a page number beyond what the scan has examined
 */
export function cutScan<Row extends { id: string } & MayBeEnd>(
  list: string,
  request: PageRequest,
  rows: Row[],
  nameOf?: (row: Row) => string,
): Page<Row> {
  /** `end` is the last examined row, if there are more. */
  const { matching, end } = splitScan(rows);
  if (end && matching.length === 0 && request.page > 1) {
    throw invalidPage("This page can't be requested by number. Follow the Link header from an earlier page.");
  }
  const { items, next } = cutPage(list, request, matching, nameOf);
  return { items, next: next ?? (end ? encodeCursor(list, end.id, nameOf?.(end)) : null) };
}

/** In cursors of lists whose items have only a name: folders and tags. */
export const NO_ID = "0".repeat(24);

const DIGEST_CHARACTERS = 12;

/** The list's name in its cursors. If the list has filters, the name includes a digest of them. */
export function listName(list: string, filters: object): string {
  const text = JSON.stringify(filters);
  return text === "{}" ? list : `${list}-${fingerprint(text).slice(0, DIGEST_CHARACTERS)}`;
}

/**
 * A cursor names the list and the last row of the page: its id, or its name and id. It is unsigned because every query is
 * limited to the caller's team anyway.
 */
export const encodeCursor = (list: string, id: string, name?: string): string =>
  name === undefined ? `${list}-${id}` : `${list}.${Buffer.from(name).toString("base64url")}-${id}`;

/** Lists ordered by name pass `prefix`. @throws `invalid_input` for a cursor of another list */
export function decodeCursor(list: string, cursor: string, prefix?: string): { id: string; name: string } {
  const [, encoded = "", id = ""] = /(?:\.([\w-]+))?-([0-9a-f]{24})$/.exec(cursor) ?? [];
  const name = Buffer.from(encoded, "base64url").toString();
  const isOfList = cursor === encodeCursor(list, id, prefix === undefined ? undefined : name);
  if (isOfList && id !== "" && name.startsWith(prefix ?? "")) return { id, name };
  throw invalidCursor();
}

const invalidCursor = () => invalidField("cursor", "Not a cursor of this list.");

/** A regular expression for the list's cursors, for OpenAPI. */
export const cursorPattern = (list: string): string =>
  `^${list}(-[0-9a-f]{${DIGEST_CHARACTERS}})?(\\.[A-Za-z0-9_-]+)?-[0-9a-f]{24}$`;

/** Where a page by id begins, and how many rows it reads. */
export type KeysetValues = { limit: number; offset: number; bound: string };

/**
 * @param start where the list starts
 * @throws `invalid_input` for a page that is too deep, or a cursor of another list or filter
 */
export function keysetValues(
  list: string,
  order: Order,
  request: PageRequest,
  start = order === "newest first" ? ABOVE_ALL_IDS : "",
): KeysetValues {
  if (request.cursor === undefined) return { ...pageValues(request), bound: start };
  const { id } = decodeCursor(list, request.cursor);
  if (order === "newest first" ? id > start : id < start) throw invalidCursor();
  return { ...pageValues(request), bound: id };
}
