/** Compares the migrations with the `*.schema.ts` files, and with each other. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { generateSQLiteDrizzleJson, generateSQLiteMigration } from "drizzle-kit/api";
import { is } from "drizzle-orm";
import { getTableConfig, SQLiteTable } from "drizzle-orm/sqlite-core";
import { listMigrations, migratedDatabase, schemaOf, statementsOf } from "./migrations.ts";

const src = join(import.meta.dirname, "..");
const modules = readdirSync(src, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".schema.ts"))
  .map((name) => import(pathToFileURL(join(src, name)).href));
const schema: Record<string, unknown> = Object.assign({}, ...(await Promise.all(modules)));

/** The tables whose key is named by `primaryKey`: by convention, they are WITHOUT ROWID. */
const withoutRowid = Object.values(schema)
  .filter((value) => is(value, SQLiteTable))
  .map((table) => getTableConfig(table as SQLiteTable))
  .filter(({ primaryKeys }) => primaryKeys.length > 0)
  .map(({ name }) => name);

/** The hashes of the migrations that were released, by their names. */
const LANDED = "landed.json";
const hashOf = (folder: string, name: string) =>
  createHash("sha256")
    .update(readFileSync(join(folder, name)))
    .digest("hex");

/** Records that the migrations are released: from now on, each may only be followed by others. */
export function landMigrations(folder: string): void {
  const hashes = Object.fromEntries(listMigrations(folder).map((name) => [name, hashOf(folder, name)]));
  writeFileSync(join(folder, LANDED), `${JSON.stringify(hashes, null, 2)}\n`);
}

/** Returns a line for each released migration that was edited or removed: databases have run it as it was. */
function findEditedMigrations(folder: string): string[] {
  const file = join(folder, LANDED);
  const landed: Record<string, string> = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  const names = listMigrations(folder);
  return Object.entries(landed)
    .filter(([name, hash]) => !names.includes(name) || hashOf(folder, name) !== hash)
    .map(([name]) => `${name} was released, so it can't change. Restore it, and add a migration.`);
}

/** Returns a line for each difference. */
export async function findSchemaProblems(folder: string): Promise<string[]> {
  const edited = findEditedMigrations(folder);
  if (edited.length > 0) return edited;
  const current = await generateSQLiteDrizzleJson(schema);
  const ahead = await generateSQLiteMigration(latestSnapshot(folder), current);
  if (ahead.length > 0) {
    return [`The schema is ahead of the migrations. Run "npm run migration <name>":\n${ahead.join("\n")}`];
  }
  const lost = findLostTriggers(folder);
  if (typeof lost === "string") return [lost];
  return [...lost, ...(await findTableProblems(folder, current))];
}

function latestSnapshot(folder: string) {
  const meta = join(folder, "meta");
  const latest = readdirSync(meta)
    .filter((name) => name.endsWith("_snapshot.json"))
    .sort()
    .at(-1);
  if (!latest) throw new Error("There are no migrations.");
  return JSON.parse(readFileSync(join(meta, latest), "utf8"));
}

const triggersOf = (database: DatabaseSync) =>
  [...schemaOf(database).keys()].flatMap((object) => /^trigger (.*)/.exec(object)?.[1] ?? []);

/**
 * Returns a line for each trigger that vanished with its table, or why a migration fails. drizzle-kit rebuilds a table by
 * copying it, and SQLite drops the triggers of the old one.
 */
function findLostTriggers(folder: string): string[] | string {
  const database = new DatabaseSync(":memory:");
  /** The migration that dropped each. */
  const lost = new Map<string, string>();
  for (const name of listMigrations(folder)) {
    for (const statement of statementsOf(folder, name)) {
      const before = triggersOf(database);
      try {
        database.exec(statement);
      } catch (error) {
        return `${name} fails: ${(error as Error).message}\n${statement.trim()}`;
      }
      const after = triggersOf(database);
      for (const trigger of after) lost.delete(trigger);
      const isDropped = (trigger: string) =>
        new RegExp(`drop\\s+trigger\\s+(if\\s+exists\\s+)?["\`]?${trigger}\\b`, "i").test(statement);
      for (const trigger of before) if (!after.includes(trigger) && !isDropped(trigger)) lost.set(trigger, name);
    }
  }
  return [...lost].map(([trigger, name]) => `${name} drops the trigger ${trigger} with its table. Create it again.`);
}

/** Compares the tables and indexes that the migrations create with those of the schema. */
async function findTableProblems(
  folder: string,
  current: Parameters<typeof generateSQLiteMigration>[0],
): Promise<string[]> {
  const statements = await generateSQLiteMigration(await generateSQLiteDrizzleJson({}), current);
  const wanted = new DatabaseSync(":memory:");
  for (const statement of statements) {
    const [, table = ""] = /^CREATE TABLE `(\w+)`/.exec(statement) ?? [];
    wanted.exec(withoutRowid.includes(table) ? statement.replace(/;\s*$/, " WITHOUT ROWID;") : statement);
  }
  const [expected, actual] = [describe(wanted), describe(migratedDatabase(folder, listMigrations(folder)))];
  const names = [...new Set([...expected.keys(), ...actual.keys()])].sort();
  return names
    .filter((name) => expected.get(name) !== actual.get(name))
    .map(
      (name) =>
        `${name}: the migrations have "${actual.get(name) ?? "none"}", the schema "${expected.get(name) ?? "none"}".`,
    );
}

/** The kind of each table, the properties of each column, and the SQL of each index. */
function describe(database: DatabaseSync): Map<string, string> {
  const indexes = [...schemaOf(database)].filter(([object]) => object.startsWith("index "));
  const tables = database.prepare(
    `select name, iif(wr, 'WITHOUT ROWID', 'with rowid') || iif(strict, ', STRICT', '') as kind from pragma_table_list
     where schema = 'main' and type = 'table' and name not like 'sqlite\\_%' escape '\\'`,
  );
  const columns = database.prepare(
    `select t.name || '.' || c.name as name, concat_ws(' ', c.type, iif(c."notnull", 'NOT NULL', ''),
       'DEFAULT ' || c.dflt_value, iif(c.pk, 'PRIMARY KEY ' || c.pk, ''), iif(c.hidden, 'GENERATED', '')) as kind
     from pragma_table_list t, pragma_table_xinfo(t.name) c
     where t.schema = 'main' and t.type = 'table' and t.name not like 'sqlite\\_%' escape '\\'`,
  );
  const rows = [...tables.all(), ...columns.all()].map(({ name, kind }) => [String(name), String(kind)] as const);
  return new Map([...indexes, ...rows]);
}
