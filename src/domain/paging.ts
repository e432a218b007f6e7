import { and, asc, desc, gt, lt, type SQL } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { AppError } from "../errors.ts";
import type { Slot } from "../platform/db.ts";
import type { Secrets } from "../platform/secrets.ts";

/** Which part of a list is wanted: by page number at the cost of its depth, or by cursor at no such cost. */
export interface PageRequest {
  limit: number;
  /** From 1. */
  page: number;
  cursor?: string | undefined;
}

export interface Page<T> {
  items: T[];
  /** The cursor of the next page; null on the last. */
  next: string | null;
}

export type Order = "newest first" | "oldest first";

/** The values of a statement that is made with `keyset`. */
export type KeysetValues = { bound: string; limit: number; offset: number };

/** The pieces of a keyset query over ids. */
export function keyset(id: SQLiteColumn, order: Order, slot: Slot<KeysetValues>) {
  const isNewestFirst = order === "newest first";
  return {
    /** Always bounds the id, so the query is a search of the index and never a scan. */
    where: (...conditions: (SQL | undefined)[]) => and(...conditions, (isNewestFirst ? lt : gt)(id, slot("bound"))),
    by: (isNewestFirst ? desc : asc)(id),
    limit: slot("limit"),
    offset: slot("offset"),
  };
}

/** One row more than the page says whether another page follows. */
export function keysetValues(order: Order, { limit, page, cursor }: PageRequest): KeysetValues {
  // "g" lies above all hex.
  const start = order === "newest first" ? "g" : "";
  const bound = cursor === undefined ? start : parseCursor(cursor).id;
  return { bound, limit: limit + 1, offset: (page - 1) * limit };
}

function parseCursor(cursor: string): { id: string; signature: string } {
  const [id = "", signature = ""] = cursor.split(".", 2);
  return { id, signature };
}

/**
 * Cuts the rows of a page query to the page. `list` names the list and its team: a cursor is signed for both, and one
 * that this list did not give out is refused with `invalid_input`.
 */
export function cutPage<T extends { id: string }>(
  secrets: Secrets,
  list: string,
  { limit, cursor }: PageRequest,
  rows: T[],
): Page<T> {
  if (cursor !== undefined) {
    const { id, signature } = parseCursor(cursor);
    if (!secrets.isSigned(`${list}/${id}`, signature)) {
      throw new AppError("invalid_input", { errors: [{ path: "cursor", message: "Not a cursor of this list." }] });
    }
  }
  const items = rows.slice(0, limit);
  const last = rows.length > limit ? items.at(-1) : undefined;
  return { items, next: last ? `${last.id}.${secrets.sign(`${list}/${last.id}`)}` : null };
}
