import { asc, desc, gt, lt } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { AppError } from "../errors.ts";
import type { Param } from "../platform/db.ts";

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

/** The parameters of a query that is built with `keyset`. */
export type KeysetValues = { bound: string; limit: number; offset: number };

/** The pieces of a keyset query over ids. It always bounds the id, so it is a search of the index and never a scan. */
export function keyset(id: SQLiteColumn, order: Order, param: Param<KeysetValues>) {
  const isNewestFirst = order === "newest first";
  return {
    where: (isNewestFirst ? lt : gt)(id, param("bound")),
    by: (isNewestFirst ? desc : asc)(id),
    limit: param("limit"),
    offset: param("offset"),
  };
}

/**
 * One row more than the page says whether another page follows. `list` names the list and the filters on it.
 * @throws `invalid_input` where the cursor is of another list or filter
 */
export function keysetValues(list: string, order: Order, { limit, page, cursor }: PageRequest): KeysetValues {
  // "g" lies above all hex.
  const start = order === "newest first" ? "g" : "";
  return {
    bound: cursor === undefined ? start : decodeCursor(list, cursor),
    limit: limit + 1,
    offset: (page - 1) * limit,
  };
}

/** Cuts the rows of a keyset query to the page. */
export function cutPage<Row extends { id: string }, T>(
  list: string,
  { limit }: PageRequest,
  rows: Row[],
  view: (row: Row) => T,
): Page<T> {
  const items = rows.slice(0, limit);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items: items.map(view), next: last ? encodeCursor(list, last.id) : null };
}

export const encodeCursor = (list: string, lastId: string): string => `${list}-${lastId}`;

/**
 * A cursor is the list and the id of the last item of the page before. It is not signed: every query is limited to the
 * caller's team anyway.
 */
export function decodeCursor(list: string, cursor: string): string {
  const id = cursor.slice(-24);
  if (cursor === encodeCursor(list, id) && /^[0-9a-f]{24}$/.test(id)) return id;
  throw new AppError("invalid_input", { errors: [{ path: "cursor", message: "Not a cursor of this list." }] });
}

/** What a cursor of the list looks like, for the API's description. */
export const cursorPattern = (list: string): string => `^${list}-[0-9a-f]{24}$`;
