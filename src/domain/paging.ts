import { asc, desc, gt, lt, type SQL, type Subquery, sql } from "drizzle-orm";
import { type SQLiteColumn, type SQLiteSelect, unionAll } from "drizzle-orm/sqlite-core";
import { AppError } from "../errors.ts";
import type { Builder, Db, Param } from "../platform/db.ts";
import { fingerprint } from "../platform/secrets.ts";

/** Which part of a list is wanted: by page number at the cost of its depth, or by cursor at no such cost. */
export interface PageRequest {
  limit: number;
  /** From 1; counted from the cursor where one is given. */
  page: number;
  cursor?: string | undefined;
}

export interface Page<T> {
  items: T[];
  /** The cursor of the next page; null on the last. */
  next: string | null;
}

export type Order = "newest first" | "oldest first";

type PageValues = { limit: number; offset: number };

/** The parameters of a query that is built with `keyset`. */
export type KeysetValues = PageValues & { bound: string };

/** The pieces of a keyset query over ids. It always bounds the id, so it is a search of the index and never a scan. */
export function keyset(id: SQLiteColumn, order: Order, param: Param<KeysetValues>) {
  const isNewestFirst = order === "newest first";
  return {
    where: (isNewestFirst ? lt : gt)(id, param("bound")),
    by: [(isNewestFirst ? desc : asc)(id)],
    limit: param("limit"),
    offset: param("offset"),
  };
}

/** The parameters of a query that is built with `nameKeyset`. */
export type NameKeysetValues = PageValues & { nameBound: string; idBound: string; lastName: string };

/** The same over the names that begin with a prefix, in their order, and over the ids where names are equal. */
export function nameKeyset(name: SQLiteColumn, id: SQLiteColumn, param: Param<NameKeysetValues>) {
  const isBehind = sql`(${name}, ${id}) > (${param("nameBound")}, ${param("idBound")})`;
  return {
    where: sql`${isBehind} and ${name} <= ${param("lastName")}`,
    by: [asc(name), asc(id)],
    limit: param("limit"),
    offset: param("offset"),
  };
}

/** One row more than the page says whether another page follows. */
const pageValues = ({ limit, page }: PageRequest): PageValues => ({ limit: limit + 1, offset: (page - 1) * limit });

/** Lies above all ids, as "" lies below them. */
export const ABOVE_ALL_IDS = "g";

/** `start` is where the list begins. @throws `invalid_input` where the cursor is of another list or filter */
export function keysetValues(
  list: string,
  order: Order,
  request: PageRequest,
  start = order === "newest first" ? ABOVE_ALL_IDS : "",
): KeysetValues {
  if (request.cursor === undefined) return { ...pageValues(request), bound: start };
  const { id } = decodeCursor(list, request.cursor);
  if (order === "newest first" ? id > start : id < start) throw foreignCursor();
  return { ...pageValues(request), bound: id };
}

/** SQLite orders text by its UTF-8, in which this is the last character; no name is so long as so many of them. */
const BEHIND_ALL_NAMES = "\u{10ffff}".repeat(100);

/** The same for names. @throws `invalid_input` */
export function nameKeysetValues(list: string, prefix: string, request: PageRequest): NameKeysetValues {
  const { name, id } =
    request.cursor === undefined ? { name: prefix, id: "" } : decodeCursor(list, request.cursor, prefix);
  return { ...pageValues(request), nameBound: name, idBound: id, lastName: prefix + BEHIND_ALL_NAMES };
}

/** Where too few match, the rows are read twice: to filter them, and to find the last. With the credential 1,000 in all. */
const SCANNED_ROWS = 499;

/** The parameters of a query that is built with `scan`, beside its filters. */
export type ScanValues = PageValues & { scanned: number; beforeLast: number };

export const scanBounds = (page: number) => ({ scanned: SCANNED_ROWS * page, beforeLast: SCANNED_ROWS * page - 1 });

/** Whether a row of a scan is not there as a match, but as the last that was looked at. */
type MayBeEnd = { isEnd: 0 | 1 };

/**
 * For filters that no index serves: the rows of a page among the next rows of a query, a bounded number of them. Where too
 * few match, the last one that was looked at follows them.
 */
export function scan<Q extends SQLiteSelect>(
  query: Q,
  db: Db,
  param: Param<ScanValues>,
  isWanted: (looked: ReturnType<Q["as"]>) => SQL | undefined,
) {
  const looked = (query as SQLiteSelect).limit(param("scanned")).as("looked");
  const matching = db
    .select()
    .from(looked)
    .where(isWanted(looked as ReturnType<Q["as"]>))
    .limit(param("limit"))
    .offset(param("offset"));
  const last = db.select().from(looked).limit(1).offset(param("beforeLast"));
  const withEnd = (rows: Subquery, isEnd: 0 | 1) =>
    db.select({ ...(rows._.selectedFields as object), isEnd: sql`${isEnd}` }).from(rows);
  const whole = unionAll(withEnd(matching.as("matching"), 0), withEnd(last.as("last"), 1)).limit(param("limit"));
  return whole as unknown as Builder & PromiseLike<(Awaited<Q>[number] & MayBeEnd)[]>;
}

/** The matches of a scan, and what ended it before its page was full. */
export function splitScan<Row extends MayBeEnd>(rows: Row[]): { matching: Row[]; end: Row | undefined } {
  return { matching: rows.filter(({ isEnd }) => isEnd === 0), end: rows.find(({ isEnd }) => isEnd === 1) };
}

/** Cuts the rows of a keyset query to the page. `nameOf` is given for a list in the order of names. */
export function cutPage<Row extends { id: string }, T>(
  list: string,
  { limit }: PageRequest,
  rows: Row[],
  view: (row: Row) => T,
  nameOf?: (row: Row) => string,
): Page<T> {
  const items = rows.slice(0, limit);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items: items.map(view), next: last ? encodeCursor(list, last.id, nameOf?.(last)) : null };
}

const DIGEST_CHARACTERS = 12;

/** What a list is called in its cursors: with filters, a digest of them too. */
export function listName(list: string, filters: object): string {
  const text = JSON.stringify(filters);
  return text === "{}" ? list : `${list}-${fingerprint(text).slice(0, DIGEST_CHARACTERS)}`;
}

/**
 * A cursor is the list and the place where its next page begins: an id, or a name and an id. It is not signed: every
 * query is limited to the caller's team anyway.
 */
export const encodeCursor = (list: string, id: string, name?: string): string =>
  name === undefined ? `${list}-${id}` : `${list}.${Buffer.from(name).toString("base64url")}-${id}`;

/** `prefix` is given for a list in the order of names. @throws `invalid_input` where the cursor is of another list */
export function decodeCursor(list: string, cursor: string, prefix?: string): { id: string; name: string } {
  const [, encoded = "", id = ""] = /(?:\.([\w-]+))?-([0-9a-f]{24})$/.exec(cursor) ?? [];
  const name = Buffer.from(encoded, "base64url").toString();
  const isOfList = cursor === encodeCursor(list, id, prefix === undefined ? undefined : name);
  if (isOfList && id !== "" && name.startsWith(prefix ?? "")) return { id, name };
  throw foreignCursor();
}

const foreignCursor = () =>
  new AppError("invalid_input", { errors: [{ path: "cursor", message: "Not a cursor of this list." }] });

/** What a cursor of the list looks like, for the API's description. */
export const cursorPattern = (list: string): string =>
  `^${list}(-[0-9a-f]{${DIGEST_CHARACTERS}}(\\.[A-Za-z0-9_-]+)?)?-[0-9a-f]{24}$`;
