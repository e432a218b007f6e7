import {
  type DriverValueDecoder,
  fillPlaceholders,
  getTableColumns,
  is,
  type Placeholder,
  type Query,
  SQL,
  sql,
} from "drizzle-orm";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { once, retrying } from "./retry.ts";
import type { System } from "./system.ts";

export type Db = DrizzleD1Database & { $client: D1Database };

/**
 * D1 through Drizzle, one for each isolate. Without a session every query goes to the primary, so a caller reads what
 * was just written, also once the database has replicas (Cloudflare's documentation of D1's read replication).
 */
export function createDb(binding: D1Database): Db {
  return drizzle(binding);
}

/** In a prepared query, `param("id")` is the placeholder of the value `id`, which is passed when the query runs. */
export type Param<V> = <Name extends keyof V & string>(name: Name) => Placeholder<Name, V[Name]>;

/** A query that Drizzle has built. `fields` are the columns of its rows; absent if it returns none. */
interface Prepared {
  fields?: { path: string[]; field: unknown }[];
  getQuery(): Query;
  mapResult(result: unknown, isFromBatch: boolean): unknown;
}

/** The common part of Drizzle's query builders. Awaiting one would return its rows. */
export interface Builder extends PromiseLike<unknown> {
  prepare(): Prepared;
}

/**
 * Returns the mapping of a result to rows. Drizzle's own searches the decoder of every cell, and takes four times as long:
 * 0.2 ms for a list of 20 files. Only nested columns, which joins return, need it.
 */
function mappingOf(query: Prepared): (result: D1Result) => unknown {
  const { fields } = query;
  if (!fields || fields.some(({ path }) => path.length > 1)) return (result) => query.mapResult(result, true);
  const columns = fields.map(({ path, field }) => {
    const column = is(field, SQL.Aliased) ? field.sql : field;
    return {
      name: path[0] ?? "",
      decoder: (is(column, SQL) ? Reflect.get(column, "decoder") : column) as DriverValueDecoder<unknown, unknown>,
    };
  });
  return ({ results }) =>
    results.map((row) => {
      const values = Object.values(row as object);
      const mapped: Record<string, unknown> = {};
      columns.forEach(({ name, decoder }, i) => {
        mapped[name] = values[i] === null ? null : decoder.mapFromDriverValue(values[i]);
      });
      return mapped;
    });
}

/** A prepared query with the values of its parameters. */
export interface BoundQuery<T> {
  bindTo(db: Db): { statement: D1PreparedStatement; rows(result: D1Result): T };
}

/**
 * A query whose SQL Drizzle builds once per isolate, when it first runs. Building SQL takes longer than the rest of a read
 * except its round trip. `build` must not depend on anything that differs between requests.
 */
export function preparedQuery<V extends object, B extends Builder>(
  build: (db: Db, param: Param<V>) => B,
): (values: V) => BoundQuery<Awaited<B>> {
  const prepared = new WeakMap<Db, Query & { rows(result: D1Result): unknown }>();
  const prepare = (db: Db) => {
    const query = build(db, (name) => sql.placeholder(name)).prepare();
    return { ...query.getQuery(), rows: mappingOf(query) };
  };
  return (values) => ({
    bindTo(db) {
      const query = prepared.get(db) ?? prepare(db);
      prepared.set(db, query);
      const params = fillPlaceholders(query.params, values as Record<string, unknown>);
      return {
        statement: db.$client.prepare(query.sql).bind(...params),
        rows: (result) => query.rows(result) as Awaited<B>,
      };
    },
  });
}

type Queries = readonly BoundQuery<unknown>[];
export type RowsOf<Q extends Queries> = { [I in keyof Q]: Q[I] extends BoundQuery<infer T> ? T : never };
/** A condition of a batch: `query` fails the batch unless it holds, and the transaction is rolled back. */
export interface Guard {
  query: BoundQuery<unknown>;
  /** Whether the next batch runs under the guard. */
  isDue: boolean;
  /** Whether the condition has held before. */
  hasPassed: boolean;
  /** Called with the rows of the query when such a batch has succeeded. */
  onPassed(rows: unknown): void;
}

interface Database {
  db: Db;
  system: System;
  guard?: Guard;
}

async function runBatch<Q extends Queries>(
  { db, system, guard }: Database,
  queries: Q,
  isIdempotent: boolean,
): Promise<RowsOf<Q>> {
  const guards = guard?.isDue ? [guard.query] : [];
  const bound = [...guards, ...queries].map((query) => query.bindTo(db));
  const batch = () => db.$client.batch(bound.map(({ statement }) => statement));
  const results = await (isIdempotent ? retrying(system, batch) : once(batch));
  const [guardRows, ...rest] = bound.map(({ rows }, i) => rows(results[i] as D1Result));
  if (!guard || guards.length === 0) return [guardRows, ...rest] as unknown as RowsOf<Q>;
  guard.isDue = false;
  guard.hasPassed = true;
  guard.onPassed(guardRows);
  return rest as unknown as RowsOf<Q>;
}

/** Runs read queries in one round trip, and returns the rows of each. */
export function read<const Q extends Queries>(database: Database, queries: Q): Promise<RowsOf<Q>> {
  return runBatch(database, queries, true);
}

/**
 * Changes state. Runs queries in one round trip and one transaction, and returns the rows of each. A transient error is
 * retried only if the batch is idempotent, because the first attempt may have taken effect. The retry has the guard too:
 * if the first attempt took effect and the caller's access ended before the retry, the caller gets 401 for a change that
 * persists.
 */
export function write<const Q extends Queries>(
  database: Database,
  queries: Q,
  { isIdempotent }: { isIdempotent: boolean },
): Promise<RowsOf<Q>> {
  return runBatch(database, queries, isIdempotent);
}

/** A row of a table without generated columns. */
export type StoredRow<T extends SQLiteTable> = Pick<
  T["$inferSelect"],
  keyof T["$inferInsert"] & keyof T["$inferSelect"]
>;

/** A row to insert: every stored column as a parameter of the same name. */
export function rowOf<T extends SQLiteTable>(table: T, param: Param<StoredRow<T>>) {
  const stored = Object.entries(getTableColumns(table)).filter(([, column]) => !column.generated);
  const names = stored.map(([name]) => name as keyof StoredRow<T> & string);
  type Row = { [Column in keyof StoredRow<T> & string]: Placeholder<Column, StoredRow<T>[Column]> };
  return Object.fromEntries(names.map((name) => [name, param(name)])) as Row;
}

/** Whether the table has such a row, as a condition of another query. */
export const hasRow = (table: SQLiteTable, condition: SQL | undefined) =>
  sql`exists (select 1 from ${table} where ${condition})`;

/** Sets columns to the parameters of the same names. In an update, Drizzle accepts SQL but not placeholders. */
export function columnsFrom<V, Name extends keyof V & string>(param: Param<V>, ...names: Name[]): Record<Name, SQL> {
  return Object.fromEntries(names.map((name) => [name, sql`${param(name)}`])) as Record<Name, SQL>;
}

/**
 * Inserts the row if the condition holds, in one statement. An existing row with the same key is left unchanged. Values and
 * condition may use columns of `from`.
 */
export function insertWhere<T extends SQLiteTable>(
  db: Db,
  table: T,
  row: { [Column in keyof T["$inferInsert"]]: T["$inferInsert"][Column] | Placeholder | SQL },
  condition: SQL,
  from?: SQL,
) {
  const stored = Object.entries(getTableColumns(table)).filter(([, column]) => !column.generated);
  const values = stored.map(([name, column]) => {
    const value = (row as Record<string, unknown>)[name] ?? column.default ?? null;
    return is(value, SQL) ? value : sql`${sql.param(value, column)}`;
  });
  return db
    .insert(table)
    .select(sql`select ${sql.join(values, sql`, `)} ${from ? sql`from ${from}` : sql``} where ${condition}`)
    .onConflictDoNothing();
}
