import type { ParseArgsConfig } from "node:util";
import type { Stowage } from "../stowage.ts";
import { Failure } from "./failures.ts";
import type { Results } from "./output.ts";
import { Questions } from "./questions.ts";

export type Options = NonNullable<ParseArgsConfig["options"]>;

/** What a command is run with. */
export interface Context {
  /** The arguments that are no options. */
  args: string[];
  values: Record<string, string | boolean | undefined>;
  results: Results;
  /** Aborts when the command is interrupted. */
  signal: AbortSignal;
  /** The client, by environment or config file. @throws `usage` where neither says enough */
  connect(): Promise<Stowage & { url: string; key: string }>;
}

export interface Command {
  summary: string;
  /** Lines of `--help`, without the name of the program. */
  usage: string[];
  options?: Options;
  /** What options mean, by name. */
  meanings?: Record<string, string>;
  examples: string[];
  /** Whether the same command goes on where it was interrupted. */
  isResumable?: true;
  run(context: Context): Promise<void>;
}

/** An option's text; undefined where it was not given. */
export function textOf({ values }: Context, name: string): string | undefined {
  const value = values[name];
  return typeof value === "string" ? value : undefined;
}

/** As many of the items as `--limit` says; all without it. Nothing is asked for beyond them. */
export async function* limited<T>(context: Context, items: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
  const text = textOf(context, "limit");
  if (text !== undefined && !/^\d+$/.test(text)) throw new Failure("usage", "--limit must be a whole number.");
  let left = Number(text ?? Number.POSITIVE_INFINITY);
  if (left === 0) return;
  for await (const item of items) {
    yield item;
    left -= 1;
    if (left === 0) return;
  }
}

/** The ids that the command is about: one at least. */
export function idsOf(args: string[]): string[] {
  if (args.length === 0) throw new Failure("usage", "Name an id.");
  return args;
}

/** Removes each of them, and says so once it is gone. */
export async function removeEach(
  { results }: Context,
  args: string[],
  remove: (id: string) => Promise<void>,
  word = "deleted",
): Promise<void> {
  for (const id of idsOf(args)) {
    await remove(id);
    results.print({ id, deleted: true }, [id, word]);
  }
}

/** The first argument where it is one of the actions; the first of these where there is none. */
export function actionOf<A extends string>(
  { args }: Context,
  actions: readonly [A, ...A[]],
): { action: A; rest: string[] } {
  const [name = actions[0], ...rest] = args;
  const action = actions.find((one) => one === name);
  if (action === undefined)
    throw new Failure("usage", `There is no "${name}" here: it is one of ${actions.join(", ")}.`);
  return { action, rest };
}

/** A day or an instant, as the service takes it. */
export function dateOf(context: Context, name: string): string | undefined {
  const text = textOf(context, name);
  if (text === undefined) return undefined;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) throw new Failure("usage", `--${name} must be a date, such as 2026-11-20.`);
  return date.toISOString();
}

/** Asked for without being shown, or read from stdin: an argument could be read by others. */
export async function passwordOf({ signal }: Context): Promise<string> {
  const questions = new Questions(signal);
  try {
    return await questions.ask("Password", { isSecret: true });
  } finally {
    questions.close();
  }
}
