import { env } from "cloudflare:workers";
import { databaseOf } from "../../src/platform/system.ts";

/* The databases of the tests. Teams are spread over them, so every test shows that nothing assumes one. */

/** The bindings of all databases. */
export const DATABASES = { DB: env.DB, DB_1: env.DB_1, DB_2: env.DB_2 };
export const ALL_DATABASES = Object.values(DATABASES);

let created = 0;
/** The number of the database for the next team. */
export const nextDatabase = (): number => created++ % ALL_DATABASES.length;

/** The database that has the row of an id. */
export const databaseWith = (id: string): D1Database => ALL_DATABASES[databaseOf(id)] as D1Database;

const ID = /(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])/;

/** A query that goes to the database of the first id among its parameters, or without one to all of them. */
class RoutedStatement {
  readonly sql: string;
  readonly parameters: unknown[];

  constructor(sql: string, parameters: unknown[] = []) {
    this.sql = sql;
    this.parameters = parameters;
  }

  bind = (...parameters: unknown[]) => new RoutedStatement(this.sql, parameters);
  run = () => this.all();

  async all() {
    const { id } = this;
    const answers = await Promise.all((id ? [databaseWith(id)] : ALL_DATABASES).map((one) => this.in(one).all()));
    return { ...answers[0], results: answers.flatMap(({ results }) => results) };
  }

  async first(column?: string) {
    const [row] = (await this.all()).results;
    return (column === undefined ? row : row?.[column]) ?? null;
  }

  get id(): string | undefined {
    const texts = this.parameters.filter((value) => typeof value === "string");
    return texts.map((text) => ID.exec(text)?.[0]).find((id) => id !== undefined);
  }

  in(database: D1Database): D1PreparedStatement {
    return database.prepare(this.sql).bind(...this.parameters);
  }
}

/**
 * Stands in for the one database of an id, for the rows that a test reads or changes directly: each query goes to the
 * database that its first id names, and each batch to that of its first query with an id.
 */
export const DB = {
  prepare: (sql: string) => new RoutedStatement(sql),
  batch(statements: RoutedStatement[]) {
    const id = statements.map((statement) => statement.id).find((id) => id !== undefined);
    if (id === undefined) throw new Error("No parameter of the batch is an id, which would name the database.");
    const database = databaseWith(id);
    return database.batch(statements.map((statement) => statement.in(database)));
  },
} as unknown as D1Database;
