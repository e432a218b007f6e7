import { env } from "cloudflare:workers";
import { tableNames } from "./stores.ts";

/*
 * The secrets that the tests use, all of them recognisable. None may show up in a log line, and none in a column of the
 * database: what is stored of them is sealed or hashed. Emails are stored, and not logged.
 */

const decoded = atob(env.MASTER_KEY);
const hex = (text: string) => [...text].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");

const SECRETS: Record<string, RegExp> = {
  "a token": /stow_[sp]k_[0-9A-Za-z]{38}/,
  "the secret of a webhook": /whsec_[0-9A-Za-z+/]{43}=/,
  "a password": /canary-password|correct horse battery/,
  "the operator's token": literally(env.OPERATOR_TOKEN),
  "the master key": literally(env.MASTER_KEY, decoded, hex(decoded)),
  "the S3 secret": literally(env.S3_SECRET_ACCESS_KEY),
  "a signed address": /X-Amz-Signature=[0-9a-f]/i,
};
const UNLOGGABLE: Record<string, RegExp> = { ...SECRETS, "an email": /@(canary\.example|example\.com)/i };

function literally(...texts: string[]): RegExp {
  return new RegExp(texts.map((text) => text.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|"));
}

function named(patterns: Record<string, RegExp>, text: string): string[] {
  return Object.entries(patterns).flatMap(([name, pattern]) => (pattern.test(text) ? [name] : []));
}

/** What a text holds that no log line may. */
export const leaksInLine = (text: string): string[] => named(UNLOGGABLE, text);

const METHODS = ["debug", "log", "info", "warn", "error", "trace"] as const;
type Printer = Pick<Console, (typeof METHODS)[number]>;

export interface Watcher {
  /** What was caught so far, by line. */
  readonly leaks: string[];
  /** How many lines were seen. */
  readonly lines: number;
  /** What is caught while `work` runs is its result, and no longer counted as a leak of the file. */
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

/** Looks at every line that is printed from now on; they are printed all the same. */
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

/** The watcher of the file's own console, which test/setup.ts asks at the end. */
export const watcher = watchConsole(console);

/** Every column of every table: what lies there that may not, each as `table.column: what`. */
export async function leaksInDatabase(): Promise<string[]> {
  const names = await tableNames();
  const selects = names.map((name) => env.DB.prepare(`select * from "${name}"`));
  const answers = selects.length > 0 ? await env.DB.batch<Record<string, unknown>>(selects) : [];
  const leaks = new Set<string>();
  answers.forEach(({ results }, i) => {
    // One look at the whole table; only where that finds something, which column it was.
    if (named(SECRETS, JSON.stringify(results)).length === 0) return;
    for (const row of results) {
      for (const [column, value] of Object.entries(row)) {
        for (const leak of named(SECRETS, String(value))) leaks.add(`${names[i]}.${column}: ${leak}`);
      }
    }
  });
  return [...leaks];
}
