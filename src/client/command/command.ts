import { type Command, InvalidArgumentError } from "commander";
import type { StoredFile } from "../stowage.ts";
import type { Context } from "./context.ts";
import { failureAbout } from "./failures.ts";
import { Questions } from "./questions.ts";

/** Runs an action with the parsed arguments and options. */
export type Action<O> = (context: Context, args: string[], options: O) => Promise<void>;

/** Adds a command. `isResumable`: after an interruption, the same command continues. */
export type Define = <O>(
  command: Command,
  texts: { summary: string; notes?: string; examples?: string[]; isResumable?: boolean },
  action: Action<O>,
) => void;

export const addExamples = (command: Command, examples: string[]): Command =>
  command.addHelpText("after", `\nExamples:\n${examples.map((one) => `  ${one}`).join("\n")}`);

/** Adds a command that has subcommands. */
export const addGroup = (program: Command, name: string, description: string, examples: string[]): Command =>
  addExamples(program.command(name).description(description), examples);

export const IDS = ["<ids...>", "one or more IDs"] as const;
export const LIMIT = ["--limit <n>", "list at most this many", parseCount] as const;

export function parseCount(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be a whole number.");
}

export const TEAM = ["--team <id>", "ID of the team (operator token)"] as const;

const FILE_TYPES = ["audio", "video", "image", "document", "text", "archive", "other"] as const;

/** Accepts `audio` and `audio file`. */
export function parseFileType(text: string): StoredFile["fileType"] {
  const type = FILE_TYPES.find((name) => name === text.trim().replace(/ file$/, ""));
  if (type) return `${type} file`;
  throw new InvalidArgumentError(`It must be one of ${FILE_TYPES.join(", ")}.`);
}

export const pathOf = ({ folder, name }: Pick<StoredFile, "folder" | "name">): string =>
  folder === "" ? name : `${folder}/${name}`;

/** For an option that can be repeated. */
export const collect = (text: string, earlier: string[] = []): string[] => [...earlier, text];

/** A folder without slashes at its ends. */
export const parseFolder = (text: string): string => text.replace(/^\/+|\/+$/g, "");

export function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {}
  throw new InvalidArgumentError('It must be a JSON object such as {"season":2}.');
}

const MAX_PARALLEL = 64;

export function parseParallel(text: string): number {
  const parallel = parseCount(text);
  if (parallel >= 1 && parallel <= MAX_PARALLEL) return parallel;
  throw new InvalidArgumentError(`It must be 1 to ${MAX_PARALLEL}.`);
}

/** Yields up to `limit` items, and requests no pages beyond them. */
export async function* limited<T>(limit: number | undefined, items: AsyncIterable<T>): AsyncGenerator<T> {
  let left = limit ?? Number.POSITIVE_INFINITY;
  if (left === 0) return;
  for await (const item of items) {
    yield item;
    left -= 1;
    if (left === 0) return;
  }
}

/** Describes what `parseStart` makes of a day, as `--before` does. */
export const EXPIRY_HINT = "UTC; a date means 00:00, so that day is excluded";

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})$/;

function parseInstant(text: string): Date {
  const date = new Date(text);
  if ((DAY.test(text) || TIME.test(text)) && !Number.isNaN(date.getTime())) return date;
  throw new InvalidArgumentError("It must be a UTC date such as 2026-11-20, or a time such as 2026-11-20T08:00:00Z.");
}

/** Returns the time, or the first instant of the day. */
export const parseStart = (text: string): string => parseInstant(text).toISOString();

/** Returns the time, or the last instant of the day. */
export function parseEnd(text: string): string {
  const end = parseInstant(text);
  if (DAY.test(text)) end.setUTCHours(23, 59, 59, 999);
  return end.toISOString();
}

/** Deletes each, and reports each as soon as it is gone. */
export async function removeEach(
  { results }: Context,
  ids: string[],
  remove: (id: string) => Promise<void>,
  word = "deleted",
): Promise<void> {
  for (const id of ids) {
    await remove(id).catch(failureAbout(id));
    results.print({ id, deleted: true }, [id, word]);
  }
}

/** Prompts without showing the input, or reads stdin: other users of the machine can see arguments. */
export async function askPassword({ io }: Context): Promise<string> {
  const questions = new Questions(io);
  try {
    return await questions.ask("Password", { isSecret: true });
  } finally {
    questions.close();
  }
}
