import { fillPlaceholders, getTableColumns, type Placeholder, type Query, type SQL, sql } from "drizzle-orm";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { AppError } from "../errors.ts";
import type { System } from "./system.ts";

export type Db = DrizzleD1Database & { $client: D1Database };

/**
 * D1 through Drizzle, one for each isolate. Without a session every query goes to the primary, so a caller reads what
 * was just written, also once the database has replicas (Cloudflare's documentation of D1's read replication).
 */
export function openDb(binding: D1Database): Db {
  return drizzle(binding);
}

/** Writes statements and has no database to run them on. */
const writer = openDb({ prepare: () => undefined } as unknown as D1Database);

/** `slot("id")` stands in a statement for the value `id`, which is known when it runs. */
export type Slot<V> = <Name extends keyof V & string>(name: Name) => Placeholder<Name, V[Name]>;

/** What Drizzle's builders make; its rows are what awaiting it would give. */
export interface Builder extends PromiseLike<unknown> {
  prepare(): { getQuery(): Query; mapResult(result: unknown, isFromBatch: boolean): unknown };
}

/** A statement with its values, for `runBatch`. */
export interface Bound<T> {
  sql: string;
  values: unknown[];
  rows(result: D1Result): T;
}

/**
 * A statement whose SQL is written once for each isolate, when it is first used: to write it takes Drizzle longer than
 * all else that a read does beside its round trip. `write` must not depend on anything that differs between requests.
 */
export function statement<V extends object, B extends Builder>(
  write: (db: Db, slot: Slot<V>) => B,
): (values: V) => Bound<Awaited<B>> {
  let written: ReturnType<Builder["prepare"]> | undefined;
  return (values) => {
    written ??= write(writer, (name) => sql.placeholder(name)).prepare();
    const prepared = written;
    const query = prepared.getQuery();
    return {
      sql: query.sql,
      values: fillPlaceholders(query.params, values as Record<string, unknown>),
      rows: (result) => prepared.mapResult(result, true) as Awaited<B>,
    };
  };
}

/**
 * Runs statements in one round trip and one transaction, and answers with the rows of each. They must be idempotent
 * together: see `retrying`.
 */
export async function runBatch<S extends readonly Bound<unknown>[]>(
  { db: { $client: d1 }, system }: { db: Db; system: System },
  statements: readonly [...S],
): Promise<{ [I in keyof S]: S[I] extends Bound<infer T> ? T : never }> {
  const prepared = statements.map((one) => d1.prepare(one.sql).bind(...one.values));
  const results = await retrying(system, () => d1.batch(prepared));
  return statements.map((one, i) => one.rows(results[i] as D1Result)) as never;
}

/** Inserts the row only where the condition holds, which the same statement decides; a row of that key is left as it is. */
export function insertWhere<T extends SQLiteTable>(
  db: Db,
  table: T,
  row: { [Column in keyof T["$inferInsert"]]: T["$inferInsert"][Column] | Placeholder },
  condition: SQL,
) {
  const values = Object.entries(getTableColumns(table)).map(([name, column]) => {
    const value = (row as Record<string, unknown>)[name] ?? column.default ?? null;
    return sql`${sql.param(value, column)}`;
  });
  return db
    .insert(table)
    .select(sql`select ${sql.join(values, sql`, `)} where ${condition}`)
    .onConflictDoNothing();
}

const TRIES = 3;
const LONGEST_PAUSE_MILLISECONDS = 2_000;
const PASSING =
  /network connection lost|storage caused object to be reset|reset because its code was updated|internal error|timed? ?out|overloaded|too many requests|\b(10001|10043|10058)\b/i;

function* causes(error: unknown): Generator<Error> {
  for (let e = error; e instanceof Error; e = e.cause) yield e;
}

/** What the binding itself said. Above it, Drizzle's message holds the SQL and its values, which callers write. */
function reason(error: unknown): string {
  return [...causes(error)].at(-1)?.message ?? String(error);
}

/** Whether the write was refused by a unique index. */
export function isUniqueViolation(error: unknown): boolean {
  return reason(error).includes("UNIQUE constraint failed");
}

/** Not the binding's doing: a refusal that the caller judges, or a bug. */
const isNotTrouble = (error: unknown) =>
  error instanceof AppError || error instanceof TypeError || isUniqueViolation(error);

function unavailable(error: unknown): AppError {
  return new AppError("unavailable", { retryAfterSeconds: 2, cause: new Error(reason(error)) });
}

/**
 * Runs work on D1 or R2 that may not be repeated. A failing binding becomes `unavailable`;
 * a unique violation stays what it is, for the caller to judge.
 */
export async function once<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw isNotTrouble(error) ? error : unavailable(error);
  }
}

/**
 * The same for reads and idempotent writes: three tries on the errors that Cloudflare says pass, with full jitter
 * between them (D1 itself retries reads only).
 */
export async function retrying<T>(system: System, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (isNotTrouble(error)) throw error;
      if (attempt === TRIES || !PASSING.test(reason(error))) throw unavailable(error);
      const [random = 0] = system.randomBytes(1);
      await system.sleep((random / 255) * Math.min(100 * 4 ** attempt, LONGEST_PAUSE_MILLISECONDS));
    }
  }
}
