/** The table of tables: who writes each, who reads it, and which triggers change it. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { listMigrations } from "../../../src/dev/migrations.ts";
import { folderOf, readSource, root, serviceFiles, withoutComments } from "./sources.ts";

interface Trigger {
  name: string;
  /** The table whose change runs it. */
  on: string;
  /** The tables that it writes. */
  writes: string[];
}

export interface TableUse {
  table: string;
  /** The variable of the schema. */
  variable: string;
  /** The folder that declares it. */
  home: string;
  writers: string[];
  readers: string[];
  /** Triggers that write it. */
  triggers: string[];
}

function triggersOf(project: string): Trigger[] {
  const folder = join(project, "migrations");
  const sql = listMigrations(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  const statements = sql.join("\n").split("--> statement-breakpoint");
  return statements.flatMap((statement) => {
    const [, name = "", on = ""] = /CREATE TRIGGER (\w+)\s.*?\bON (\w+)/is.exec(statement) ?? [];
    const body = statement.slice(statement.search(/\bBEGIN\b/));
    const written = body.matchAll(/\b(?:UPDATE|INSERT (?:OR \w+ )?INTO|DELETE FROM) (\w+)/gi);
    return name === "" ? [] : [{ name, on, writes: [...new Set([...written].map(([, table = ""]) => table))] }];
  });
}

const foldersOf = (paths: string[]) => [...new Set(paths.map(folderOf))].sort();

/** A pattern of code that writes the table, by Drizzle or in SQL. */
const writeOf = (variable: string) =>
  new RegExp(
    `\\.(?:insert|update|delete)\\(${variable}\\)|insertWhere\\(\\s*\\w+,\\s*${variable}\\b|(?:insert into|update|delete from) \\$\\{${variable}\\}`,
  );

export function describeTables(project = root): TableUse[] {
  const sources = serviceFiles(project).map((path) => ({ path, code: withoutComments(readSource(path, project)) }));
  const triggers = triggersOf(project);
  const tables = sources.flatMap(({ path, code }) =>
    [...code.matchAll(/const (\w+) = sqliteTable\(\s*"(\w+)"/g)].map(([, name = "", table = ""]) => ({
      // `files` is exported without the columns of `filesTable` that only one function may use.
      variable: name.replace(/Table$/, ""),
      table,
      home: folderOf(path),
    })),
  );
  return tables
    .map(({ table, variable, home }) => {
      const users = sources.filter(({ path, code }) => {
        const isDeclared = path.endsWith(".schema.ts") && folderOf(path) === home;
        return !isDeclared && new RegExp(`\\b${variable}\\b(?=[.,)}\\s])`).test(code) && code.includes(variable);
      });
      const importers = users.filter(({ code }) =>
        new RegExp(`import [^;]*\\b${variable}\\b[^;]*\\.schema\\.ts"`, "s").test(code),
      );
      const writers = foldersOf(importers.filter(({ code }) => writeOf(variable).test(code)).map(({ path }) => path));
      return {
        table,
        variable,
        home,
        writers,
        readers: foldersOf(importers.map(({ path }) => path)),
        triggers: triggers.filter(({ writes }) => writes.includes(table)).map(({ name }) => name),
      };
    })
    .sort((a, b) => a.table.localeCompare(b.table));
}

/** The table as `src/README.md` shows it. */
export function renderTables(uses: TableUse[]): string {
  const code = (names: string[]) => names.map((name) => `\`${name}\``).join(", ");
  const rows = uses.map(
    ({ table, home, writers, readers, triggers }) =>
      `| \`${table}\` | ${code([home])} | ${code(writers)} | ${code(readers.filter((name) => !writers.includes(name)))} | ${code(triggers)} |`,
  );
  return [
    "| Table | Declared in | Written by | Also read by | Triggers that write it |",
    "|---|---|---|---|---|",
    ...rows,
  ].join("\n");
}
