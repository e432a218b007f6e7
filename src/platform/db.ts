import {
  Column,
  type Query as DrizzleQuery,
  eq,
  fillPlaceholders,
  getTableColumns,
  inArray,
  is,
  type Placeholder,
  SQL,
  type SQLWrapper,
  sql,
} from "drizzle-orm";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import { type SelectedFields, type SQLiteColumn, SQLiteInsertBase, type SQLiteTable } from "drizzle-orm/sqlite-core";
import type { AppError } from "../errors.ts";
import { withTimeout } from "../timeout.ts";
import { once, reasonOf, retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** A database. Each has whole teams; the number is part of their ids and tokens (system.ts). */
export type Db = DrizzleD1Database & { $client: D1Database; number: number };

/**
 * D1 through Drizzle, one for each database and isolate. Without a session every query goes to the primary, so a caller
 * reads the latest writes, also once the database has replicas (Cloudflare's documentation of D1's read replication).
 */
export function createDb(binding: D1Database, number: number): Db {
  return Object.assign(drizzle(binding), { number });
}

/** The databases by their numbers, in ascending order. */
export type Databases = ReadonlyMap<number, Db>;

/** The bindings of databases, of which `DB` has the number 0, and `DB_1` to `DB_999` have theirs. */
const DATABASE_NAME = /^DB(?:_([1-9]\d{0,2}))?$/;

/** The numbers and bindings of the databases in an environment. */
export const databaseBindings = (env: object): [number: number, binding: D1Database][] =>
  Object.entries(env)
    .flatMap(([name, binding]): [number, D1Database][] => {
      const found = DATABASE_NAME.exec(name);
      return found ? [[Number(found[1] ?? 0), binding]] : [];
    })
    .sort(([a], [b]) => a - b);

export const createDatabases = (env: object): Databases =>
  new Map(databaseBindings(env).map(([number, binding]) => [number, createDb(binding, number)]));

const noClient = new Proxy({} as D1Database, {
  get(_, name) {
    throw new Error(`No database was chosen before ${String(name)}.`);
  },
});

/** Stands in until an id or a token has chosen the database. Every use is a bug. */
export const NO_DB: Db = createDb(noClient, -1);

/** A query of Drizzle's, as `db.select()…` returns it. Pass it to `read` or `write`: awaiting it would send it separately. */
export interface Builder<T = unknown> extends PromiseLike<T> {
  prepare(): { getQuery(): DrizzleQuery; mapResult(result: unknown, isFromBatch: boolean): unknown };
}

/** In a prepared query, `param("id")` is the placeholder of the value `id`, which is passed when the query runs. */
export type Param<V> = <Name extends keyof V & string>(name: Name) => Placeholder<Name, V[Name]>;

/** A prepared query with the values of its parameters. */
export interface BoundQuery<T> {
  bindTo(db: Db): BoundStatement<T>;
}

interface BoundStatement<T> {
  statement: D1PreparedStatement;
  rows(result: D1Result): T;
}

/**
 * A query whose SQL Drizzle builds once per isolate, when it first runs. Use it only where building the SQL for each
 * request is measurable: authorization and the most frequent reads (`npm run bench -- --only overhead`). `build` must not
 * depend on anything that differs between requests.
 */
export function preparedQuery<V extends object, B extends Builder>(
  build: (db: Db, param: Param<V>) => B,
): (values: V) => BoundQuery<Awaited<B>> {
  const prepared = new WeakMap<Db, { query: DrizzleQuery; readRow: (row: object) => unknown }>();
  const prepare = (db: Db) => {
    const built = build(db, (name) => sql.placeholder(name)).prepare();
    // A write that returns no rows has no fields.
    const { fields = [] } = built as unknown as { fields?: SelectedField[] };
    return { query: built.getQuery(), readRow: rowReader(fields) };
  };
  return (values) => ({
    bindTo(db) {
      const found = prepared.get(db) ?? prepare(db);
      prepared.set(db, found);
      const params = fillPlaceholders(found.query.params, values as Record<string, unknown>);
      return {
        statement: db.$client.prepare(found.query.sql).bind(...params),
        rows: ({ results }) => (results as object[]).map(found.readRow) as Awaited<B>,
      };
    },
  });
}

/** A column, or SQL that may have a name, as Drizzle keeps it in a prepared query. */
interface SelectedField {
  path: string[];
  field: Column | Decoding | { sql: Decoding };
}
type Decoding = { decoder: Pick<Column, "mapFromDriverValue"> };

/**
 * Finds once how to decode the rows of a query. Drizzle's own mapping does so for each value, which took a fifth of the CPU of a list.
 * Unlike that, it has no null for a group of fields that an outer join did not find.
 */
function rowReader(fields: SelectedField[]): (row: object) => unknown {
  const decoders = fields.map(({ path, field }) => {
    const { decoder } = is(field, Column) ? { decoder: field } : "sql" in field ? field.sql : field;
    return { groups: path.slice(0, -1), name: path.at(-1) ?? "", decoder };
  });
  return (row) => {
    const values: unknown[] = Object.values(row);
    const read: Group = {};
    decoders.forEach(({ groups, name, decoder }, i) => {
      const inner = groups.reduce((group, outer) => {
        group[outer] ??= {};
        return group[outer] as Group;
      }, read);
      inner[name] = values[i] === null ? null : decoder.mapFromDriverValue(values[i]);
    });
    return read;
  };
}
interface Group {
  [name: string]: unknown;
}

function bindBuilder(db: Db, builder: Builder): BoundStatement<unknown> {
  const query = builder.prepare();
  const { sql: text, params } = query.getQuery();
  return {
    statement: db.$client.prepare(text).bind(...params),
    rows: (result) => query.mapResult(result, true),
  };
}

export type Query<T = unknown> = Builder<T> | BoundQuery<T>;

/** Queries in the order in which they run: an object that names them. A name may stand for several, also for a list. */
export type Batch = Query | BatchList | { readonly [name: string]: Batch };
/** A separate name, because TypeScript computes the rows of an array's items at once, and would not end. */
interface BatchList extends ReadonlyArray<Batch> {}
/** The queries of a round trip: one query, or several, each with a name. In a list, only its order would say which rows are whose. */
export type NamedBatch = Query | { readonly [name: string]: Batch };
/** The rows of each query, under its name or at its place in the list. */
export type RowsOf<B> =
  B extends BoundQuery<infer T> ? T : B extends PromiseLike<infer T> ? T : { [Name in keyof B]: RowsOf<B[Name]> };

const isQuery = (batch: Batch): batch is Query =>
  typeof (batch as Builder).prepare === "function" || typeof (batch as BoundQuery<unknown>).bindTo === "function";

export const queriesIn = (batch: Batch): Query[] =>
  isQuery(batch) ? [batch] : Object.values<Batch>(batch).flatMap(queriesIn);

/** The queries of a batch, each with its rows. */
export const resultsIn = (batch: Batch, rows: unknown): [query: Query, rows: unknown][] =>
  isQuery(batch)
    ? [[batch, rows]]
    : Object.entries<Batch>(batch).flatMap(([name, part]) => resultsIn(part, (rows as Record<string, unknown>)[name]));

/** The names of the queries of a batch, such as `authorization.caller`. Those of a list have numbers from 1. */
function namesIn(batch: Batch, path = ""): string[] {
  if (isQuery(batch)) return [path];
  const named = Array.isArray(batch) ? batch.map((part, i) => [i + 1, part] as const) : Object.entries<Batch>(batch);
  return named.flatMap(([name, part]) => namesIn(part, path === "" ? `${name}` : `${path}.${name}`));
}

/** The name of a guard among the statements of a batch. */
export const GUARD_NAME = "right";

const statementNames = new WeakMap<D1PreparedStatement, string>();
/** The name that the statement has in its batch, for readers of the sent statements. */
export const nameOfStatement = (statement: D1PreparedStatement): string | undefined => statementNames.get(statement);

/** The batch with the rows of each query in its place. */
function withRows(batch: Batch, rowsOf: (query: Query) => unknown): unknown {
  if (isQuery(batch)) return rowsOf(batch);
  if (Array.isArray(batch)) return batch.map((part) => withRows(part, rowsOf));
  return Object.fromEntries(Object.entries(batch).map(([name, part]) => [name, withRows(part, rowsOf)]));
}

interface Database {
  db: Db;
  system: System;
  /** Null or absent in a job, whose batches may take as long as D1 lets them. */
  requestId?: string | null;
}

/** D1 stalls for up to 80 s at times, while a batch takes milliseconds. Whoever waits for a response retries sooner. */
const MAX_QUERY_SECONDS = 8;

/**
 * The first statement of a write for a caller. It fails if the caller may no longer write, and with it fails the whole batch,
 * which is a transaction.
 */
export interface Guard {
  query: Query;
  /** The caller's error for the reason that the query failed with. */
  errorOf(reason: string): AppError;
}

/** An expression that fails with the text of the reason, unless the reason is null. SQLite has no other way to end a batch. */
export const failsWith = (reason: SQL): SQL => sql`json_extract('{}', coalesce(${reason}, '$'))`;
/** How D1 reports it. */
const FAILED_WITH = /bad JSON path: '(\w+)'/;

interface WriteOptions {
  isIdempotent: boolean;
  /** Null if the service writes for itself: in a job, or to roll back what a caller left. */
  caller: Guard | null;
  /** Leaves out the inserts, for which a full database has no room: they have no rows. */
  omitsInserts?: boolean;
}

async function runBatch<B extends NamedBatch>(
  { db, system, requestId }: Database,
  batch: B,
  { isIdempotent, caller, omitsInserts = false }: WriteOptions,
): Promise<RowsOf<B>> {
  const names = namesIn(batch);
  const named = queriesIn(batch).map((query, i) => ({ query, name: names[i] ?? "" }));
  const guard = caller ? [{ query: caller.query, name: GUARD_NAME }] : [];
  const sent = [...guard, ...named.filter(({ query }) => !omitsInserts || !is(query, SQLiteInsertBase))];
  const bound = sent.map(({ query }) => ("bindTo" in query ? query.bindTo(db) : bindBuilder(db, query)));
  for (const [i, { statement }] of bound.entries()) statementNames.set(statement, sent[i]?.name ?? "");
  const send = () => db.$client.batch(bound.map(({ statement }) => statement));
  const stalled = () => new Error(`D1 did not respond within ${MAX_QUERY_SECONDS} s.`);
  const run = requestId ? () => withTimeout(MAX_QUERY_SECONDS * 1000, send(), stalled) : send;
  const results = await (isIdempotent ? retrying(system, run) : once(run)).catch((error: unknown) => {
    const [, refused] = (caller && FAILED_WITH.exec(reasonOf(error))) ?? [];
    throw (refused && caller?.errorOf(refused)) ?? error;
  });
  const rows = new Map(bound.map((statement, i) => [sent[i]?.query, statement.rows(results[i] as D1Result)]));
  return withRows(batch, (query) => rows.get(query) ?? []) as RowsOf<B>;
}

/**
 * Runs read queries in one round trip, and returns the rows of each. A guard is for what a caller does outside of the database.
 * @throws `unavailable` also if D1 does not respond to a request in time
 */
export function read<const B extends NamedBatch>(
  database: Database,
  batch: B,
  caller: Guard | null = null,
): Promise<RowsOf<B>> {
  return runBatch(database, batch, { isIdempotent: true, caller });
}

/**
 * Changes state. Runs queries in one round trip and one transaction, and returns the rows of each. A transient error is
 * retried only if the batch is idempotent, because the first attempt may have taken effect. So may a write that takes too
 * long for a request.
 */
export const write: <const B extends NamedBatch>(
  database: Database,
  batch: B,
  options: WriteOptions,
) => Promise<RowsOf<B>> = runBatch;

/** A row of a table without generated columns. */
export type StoredRow<T extends SQLiteTable> = Pick<
  T["$inferSelect"],
  keyof T["$inferInsert"] & keyof T["$inferSelect"]
>;

/** Whether the table has such a row, as a condition of another query. */
export const hasRow = (table: SQLiteTable, condition: SQL | undefined) =>
  sql`exists (select 1 from ${table} where ${condition})`;

/** Any number of values are one parameter, because D1 allows 100. */
export const isOneOf = (column: SQLiteColumn, values: string[]): SQL =>
  values.length === 1
    ? eq(column, values[0] ?? "")
    : sql`${column} in (select value from json_each(${JSON.stringify(values)}))`;

/**
 * The name of the first condition that holds, in the given order; null if none does. It is why a write is refused: the first
 * statement of the batch selects it, and the write requires it to be null.
 */
export function firstOf<Name extends string>(conditions: { [N in Name]?: SQL | undefined }): SQL<Name | null> {
  const cases = Object.entries<SQL | undefined>(conditions).flatMap(([name, condition]) =>
    condition ? [sql`when ${condition} then ${name}`] : [],
  );
  return cases.length === 0 ? sql<null>`null` : sql<Name | null>`case ${sql.join(cases, sql` `)} end`;
}

/**
 * Inserts the row if the condition holds, in one statement. An existing row with the same key is left unchanged. Values and
 * condition may use columns of `from`.
 */
export function insertWhere<T extends SQLiteTable>(
  db: Db,
  table: T,
  row: { [Column in keyof T["$inferInsert"]]: T["$inferInsert"][Column] | Placeholder | SQL },
  condition: SQL | undefined,
  from?: SQL,
) {
  const stored = Object.entries(getTableColumns(table)).filter(([, column]) => !column.generated);
  const values = stored.map(([name, column]) => {
    const value = (row as Record<string, unknown>)[name] ?? column.default ?? null;
    return is(value, SQL) ? value : sql.param(value, column);
  });
  return db
    .insert(table)
    .select(sql`select ${sql.join(values, sql`, `)} ${from ? sql`from ${from}` : sql``} where ${condition}`)
    .onConflictDoNothing();
}

interface Selection {
  where: SQL | undefined;
  orderBy: SQLiteColumn;
  limit: number;
}

/** Deletes the first rows that the condition selects, and returns their ids. */
export function deleteFirst(db: Db, table: SQLiteTable & { id: SQLiteColumn }, { where, orderBy, limit }: Selection) {
  const first = db.select({ id: table.id }).from(table).where(where).orderBy(orderBy).limit(limit);
  return db.delete(table).where(inArray(table.id, first)).returning({ id: table.id });
}

/** A query of one row, which evaluates expressions. */
export const evaluate = <Fields extends SelectedFields>(db: Db, fields: Fields) =>
  db.select(fields).from(sql`(select 1) one`);

/** A column with its table. Drizzle leaves that out of an expression that is selected itself. */
export const qualified = <T = unknown>(expression: SQLWrapper) => sql<T>`${sql`${expression}`}`;
