import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateSQLiteMigration } from "drizzle-kit/api";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { listMigrations, migratedDatabase } from "../../src/dev/migrations.ts";
import { findSchemaProblems, landMigrations } from "../../src/dev/schema-check.ts";

/* The check of migrations, against migrations that drizzle-kit generates from the real ones. */

const migrations = join(import.meta.dirname, "../../migrations");
const meta = join(migrations, "meta");
const latest =
  readdirSync(meta)
    .filter((name) => name.endsWith("_snapshot.json"))
    .sort()
    .at(-1) ?? "";
const current = JSON.parse(readFileSync(join(meta, latest), "utf8"));

const database = migratedDatabase(migrations, listMigrations(migrations));
const all = <T>(sql: string) => database.prepare(sql).all() as T[];
const tables = all<{ name: string; wr: number }>(
  "select name, wr from pragma_table_list where schema = 'main' and name not like 'sqlite%'",
);
const triggers = all<{ name: string; tbl_name: string; sql: string }>(
  "select name, tbl_name, sql from sqlite_schema where type = 'trigger' order by name",
);
const indexes = all<{ name: string; tbl_name: string; sql: string }>(
  "select name, tbl_name, sql from sqlite_schema where type = 'index' and sql is not null",
);
const triggersOn = (table: string) => triggers.filter(({ tbl_name }) => tbl_name === table);

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "stowage "));
  cpSync(migrations, folder, { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true }));

const sqlOf = (list: { sql: string }[]) => list.map(({ sql }) => sql);

/**
 * The statements that drizzle-kit generates when a column of the table has changed: it copies the table. Triggers of other
 * tables that write to it are dropped before and created again, because SQLite renames no table while they fail.
 */
async function rebuild(table: string): Promise<string[]> {
  const before = structuredClone(current);
  const [column] = Object.values<{ notNull: boolean; primaryKey: boolean }>(before.tables[table].columns).filter(
    ({ notNull, primaryKey }) => notNull && !primaryKey,
  );
  if (column) column.notNull = false;
  const statements = await generateSQLiteMigration(before, current);
  expect(statements.join("\n")).toContain(`DROP TABLE \`${table}\``);
  // drizzle-kit also copies computed columns, which SQLite rejects.
  const computed = Object.values<{ name: string; generated?: object }>(current.tables[table].columns)
    .filter(({ generated }) => generated)
    .map(({ name }) => `, "${name}"`);
  const copying = statements.map((sql) =>
    sql.startsWith("INSERT") ? computed.reduce((text, name) => text.replaceAll(name, ""), sql) : sql,
  );
  const others = triggers.filter(({ tbl_name, sql }) => tbl_name !== table && new RegExp(`\\b${table}\\b`).test(sql));
  return [...others.map(({ name }) => `DROP TRIGGER ${name}`), ...copying, ...sqlOf(others)];
}

const add = (statements: string[]) =>
  writeFileSync(join(folder, "9999_rebuild.sql"), statements.join("\n--> statement-breakpoint\n"));
const withoutRowid = (statements: string[]) =>
  statements.map((sql) => (sql.startsWith("CREATE TABLE") ? sql.replace(/;\s*$/, " WITHOUT ROWID;") : sql));

describe("The check of migrations", () => {
  test("accepts the migrations", async () => {
    expect(await findSchemaProblems(folder)).toEqual([]);
  });

  test("rejects a schema that is ahead of them", async () => {
    const before = structuredClone(current);
    const [table] = tables;
    before.tables[table!.name].columns.added = {
      ...Object.values<object>(before.tables[table!.name].columns)[0],
      name: "added",
    };
    writeFileSync(join(folder, "meta", latest), JSON.stringify(before));
    expect((await findSchemaProblems(folder)).join()).toContain("The schema is ahead of the migrations.");
  });

  test.each(tables.filter(({ wr }) => wr))(
    "rejects a rebuild of $name that leaves out WITHOUT ROWID",
    async ({ name }) => {
      const statements = await rebuild(name);
      add([...statements, ...sqlOf(triggersOn(name))]);
      expect(await findSchemaProblems(folder)).toEqual([
        `${name}: the migrations have "with rowid", the schema "WITHOUT ROWID".`,
      ]);
      add([...withoutRowid(statements), ...sqlOf(triggersOn(name))]);
      expect(await findSchemaProblems(folder)).toEqual([]);
    },
  );

  test.each(tables.filter(({ name }) => triggersOn(name).length > 0))(
    "rejects a rebuild of $name that loses its triggers",
    async ({ name, wr }) => {
      const statements = await rebuild(name);
      add(wr ? withoutRowid(statements) : statements);
      expect(await findSchemaProblems(folder)).toEqual(
        triggersOn(name).map(
          (trigger) => `9999_rebuild.sql drops the trigger ${trigger.name} with its table. Create it again.`,
        ),
      );
    },
  );

  test("rejects a lost, an added and a changed index", async () => {
    const [lost, changed] = indexes;
    const sql = changed?.sql.replace(/\)[^)]*$/, ") WHERE 1") ?? "";
    add([
      `DROP INDEX ${lost?.name}`,
      `DROP INDEX ${changed?.name}`,
      sql,
      `CREATE INDEX added ON ${lost?.tbl_name} (1)`,
    ]);
    const problems = await findSchemaProblems(folder);
    expect(problems).toHaveLength(3);
    for (const name of ["added", lost?.name, changed?.name]) expect(problems.join("\n")).toContain(`index ${name}: `);
  });

  test("accepts a migration that drops a trigger by its name, and only that one", async () => {
    add([`DROP TRIGGER ${triggers[0]?.name}`]);
    expect(await findSchemaProblems(folder)).toEqual([]);
    const { name = "", wr } = tables.find((table) => triggersOn(table.name).length > 1) ?? {};
    const [dropped, ...others] = triggersOn(name);
    const statements = await rebuild(name);
    // In one statement for the check, as people write it.
    add([[`DROP TRIGGER "${dropped?.name}";`, ...(wr ? withoutRowid(statements) : statements)].join(";\n")]);
    expect(await findSchemaProblems(folder)).toEqual(
      others.map((trigger) => `9999_rebuild.sql drops the trigger ${trigger.name} with its table. Create it again.`),
    );
  });

  test("rejects a rebuild that SQLite refuses because of a trigger of another table", async () => {
    const writes = (table: string) => (trigger: { tbl_name: string; sql: string }) =>
      trigger.tbl_name !== table && new RegExp(`(UPDATE|INTO|FROM) ${table}\\b`).test(trigger.sql);
    const table = tables.find(({ name }) => triggers.some(writes(name)))?.name ?? "";
    add((await rebuild(table)).filter((sql) => !/^(DROP|CREATE) TRIGGER/.test(sql)));
    expect((await findSchemaProblems(folder)).join()).toMatch(/^9999_rebuild\.sql fails: error in trigger/);
  });

  test("names a migration that fails", async () => {
    add(["CREATE TABEL nonsense"]);
    expect((await findSchemaProblems(folder)).join()).toMatch(/^9999_rebuild\.sql fails: .*syntax error/);
  });
});

test("a released migration can't be edited or removed, only followed by others", async () => {
  landMigrations(folder);
  expect(await findSchemaProblems(folder)).toEqual([]);
  writeFileSync(join(folder, "9999_more.sql"), "-- Nothing.\n");
  expect(await findSchemaProblems(folder)).toEqual([]);
  const [first = ""] = listMigrations(folder);
  const problem = `${first} was released, so it can't change. Restore it, and add a migration.`;
  writeFileSync(join(folder, first), `${readFileSync(join(folder, first), "utf8")}\n-- A comment.\n`);
  expect(await findSchemaProblems(folder)).toEqual([problem]);
  rmSync(join(folder, first));
  expect(await findSchemaProblems(folder)).toEqual([problem]);
});
