import { listDurableObjectIds, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { objectClasses } from "./capabilities.ts";
import { ALL_DATABASES } from "./databases.ts";
import { tableNames } from "./stores.ts";

/*
 * The secrets that the tests use, all recognizable. None may appear in a log line or in a column of the database, where
 * they are encrypted or hashed. Emails are stored but never logged.
 */

const decoded = atob(env.MASTER_KEY);
const hex = (text: string) => [...text].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");

const SECRETS: Record<string, RegExp> = {
  "a token": /stow_([sp]k_[0-9A-Za-z]{40}|ut_[0-9a-f]{8}[\w-]{60})/,
  "an invitation": /stow_in_[0-9a-f]{24}\.[0-9a-f]{32}/,
  "a signing secret": /whsec_[0-9A-Za-z+/]{43}=/,
  "a password": /canary-password|correct horse battery/,
  "the operator token": literally(env.OPERATOR_TOKEN),
  "the master key": literally(env.MASTER_KEY, decoded, hex(decoded)),
  "the S3 secret": literally(env.S3_SECRET_ACCESS_KEY),
  "a signed URL": /X-Amz-Signature=[0-9a-f]/i,
};
const UNLOGGABLE: Record<string, RegExp> = { ...SECRETS, "an email": /@(canary\.example|example\.com)/i };

function literally(...texts: string[]): RegExp {
  return new RegExp(texts.map((text) => text.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|"));
}

function named(patterns: Record<string, RegExp>, text: string): string[] {
  return Object.entries(patterns).flatMap(([name, pattern]) => (pattern.test(text) ? [name] : []));
}

/** Names the secrets that a log line contains. */
export const leaksInLine = (text: string): string[] => named(UNLOGGABLE, text);

const METHODS = ["debug", "log", "info", "warn", "error", "trace"] as const;
type Printer = Pick<Console, (typeof METHODS)[number]>;

export interface Watcher {
  /** The leaks found so far, by line. */
  readonly leaks: string[];
  /** The number of lines printed. */
  readonly lines: number;
  /** Returns the leaks found while `work` runs, and removes them from `leaks`. */
  catching(work: () => unknown): Promise<string[]>;
}

const text = (value: unknown): string => {
  if (value instanceof Error) return `${value.stack} ${text(value.cause)}`;
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value);
  } catch {
    return String(value);
  }
};

/** Checks every line printed from now on. Lines are still printed. */
export function watchConsole(printer: Printer): Watcher {
  const leaks: string[] = [];
  let lines = 0;
  for (const method of METHODS) {
    const print = printer[method].bind(printer);
    printer[method] = (...values: unknown[]) => {
      lines += 1;
      const line = values.map(text).join(" ");
      const found = leaksInLine(line);
      if (found.length > 0) leaks.push(`${found.join(", ")} in the line: ${line}`);
      print(...values);
    };
  }
  return {
    leaks,
    get lines() {
      return lines;
    },
    async catching(work) {
      const before = leaks.length;
      await work();
      return leaks.splice(before);
    },
  };
}

/** The watcher of the test file's console. test/setup.ts checks it at the end. */
export const watcher = watchConsole(console);

/** Lists the secrets stored in any column of any table, as `table.column: secret`. */
export async function leaksInDatabase(): Promise<string[]> {
  const names = await tableNames();
  const leaks = new Set<string>();
  const answers = [];
  for (const database of ALL_DATABASES) {
    const selects = names.map((name) => database.prepare(`select * from "${name}"`));
    answers.push(...(await database.batch<Record<string, unknown>>(selects)));
  }
  answers.forEach(({ results }, at) => {
    const i = at % names.length;
    // Check the whole table at once, and search for the column only if that finds something.
    if (named(SECRETS, JSON.stringify(results)).length === 0) return;
    for (const row of results) {
      for (const [column, value] of Object.entries(row)) {
        for (const leak of named(SECRETS, String(value))) leaks.add(`${names[i]}.${column}: ${leak}`);
      }
    }
  });
  return [...leaks];
}

/** Lists the secrets stored in Durable Objects, as `table: secret`. */
export async function leaksInObjects(): Promise<string[]> {
  const leaks = new Set<string>();
  const listed = objectClasses.map(async ({ namespace }) =>
    (await listDurableObjectIds(namespace)).map((id) => namespace.get(id)),
  );
  for (const stub of (await Promise.all(listed)).flat()) {
    const tables = await runInDurableObject(stub, (_: unknown, { storage: { sql } }) =>
      sql
        .exec<{ name: string }>(
          "select name from sqlite_master where type = 'table' and name not like '\\_cf%' escape '\\'",
        )
        .toArray()
        .map(({ name }) => [name, JSON.stringify(sql.exec(`select * from ${name}`).toArray())] as const),
    );
    for (const [name, rows] of tables) for (const leak of named(SECRETS, rows)) leaks.add(`${name}: ${leak}`);
  }
  return [...leaks];
}
