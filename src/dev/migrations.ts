/** The migrations as SQLite runs them: the schema that they create, and what a local database has of it. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isDeepStrictEqual } from "node:util";
import { Refusal } from "./refusal.ts";

/** The names of the migrations, in their order. */
export const listMigrations = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .sort();

/** The statements of a migration, as drizzle-kit separates them. */
export const statementsOf = (folder: string, name: string): string[] =>
  readFileSync(join(folder, name), "utf8").split("--> statement-breakpoint");

/** An object of a database, such as `table files` or `trigger files_counted`. */
type ObjectName = string;

/** Returns the SQL of each table, index and trigger, without differences of spaces and quotes. Leaves out those of D1. */
export function schemaOf(database: DatabaseSync): Map<ObjectName, string> {
  const rows = database.prepare(
    `select type || ' ' || name as object, sql from sqlite_schema
     where sql is not null and name not like 'sqlite\\_%' escape '\\' and name not like '\\_cf\\_%' escape '\\'
       and name <> 'd1_migrations' order by object`,
  );
  const normalized = (sql: unknown) => String(sql).replace(/[`"]/g, "").replace(/\s+/g, " ");
  return new Map(rows.all().map(({ object, sql }) => [String(object), normalized(sql)]));
}

/** Returns an empty database with these migrations. */
export function migratedDatabase(folder: string, names: string[]): DatabaseSync {
  const database = new DatabaseSync(":memory:");
  for (const name of names) for (const statement of statementsOf(folder, name)) database.exec(statement);
  return database;
}

/**
 * Returns the migrations that a local D1 database lacks, which is one of those with these numbers.
 * @throws Refusal if it has a migration that the folder lacks, another schema than its migrations create, or teams of another
 *   number: its data come from another version, or from another project
 */
export function findMissingMigrations(file: string, folder: string, stateDir: string, numbers = [0]): string[] {
  const names = listMigrations(folder);
  let present: ReturnType<typeof readState>;
  try {
    present = readState(file);
  } catch {
    throw unusable(stateDir);
  }
  const { applied, schema, teamNumbers } = present;
  const isOfThisVersion =
    teamNumbers.length <= 1 &&
    teamNumbers.every((number) => numbers.includes(number)) &&
    applied.every((name, index) => name === names[index]) &&
    isDeepStrictEqual(schema, schemaOf(migratedDatabase(folder, applied)));
  if (!isOfThisVersion) throw unusable(stateDir);
  return names.slice(applied.length);
}

function readState(file: string) {
  const database = new DatabaseSync(file);
  try {
    const isMigrated = database.prepare("select 1 from sqlite_schema where name = 'd1_migrations'").get();
    const rows = isMigrated ? database.prepare("select name from d1_migrations order by name").all() : [];
    const schema = schemaOf(database);
    // Ids end in the number of the database.
    const ends = schema.has("table teams")
      ? database.prepare("select distinct substr(id, -3) as n from teams").all()
      : [];
    const teamNumbers = ends.map(({ n }) => Number.parseInt(String(n), 16));
    return { applied: rows.map(({ name }) => String(name)), schema, teamNumbers };
  } finally {
    database.close();
  }
}

const unusable = (stateDir: string) =>
  new Refusal(
    `The data in ${stateDir} is not of this version of Stowage: delete that folder to begin with empty data, or set STATE_DIR to another one.`,
  );
