import {
  type Command,
  type CommandUnknownOpts,
  InvalidArgumentError,
  Option,
  type OptionValues,
} from "@commander-js/extra-typings";
import type { EventType, FileType, ProcessingStatus, Role, Scope, StoredFile, TeamStatus } from "../index.ts";
import type { Context } from "./context.ts";
import { Failure, isForbidden, isId } from "./failures.ts";
import { Questions } from "./questions.ts";

/** Adds a command. Its action runs with the parsed arguments and options. */
export type Define = <A extends unknown[], O extends OptionValues, G extends OptionValues>(
  command: Command<A, O, G>,
  texts: CommandTexts,
  action: (context: Context, args: A, options: O) => Promise<void>,
) => void;

export interface CommandTexts {
  summary: string;
  notes?: string;
  examples?: string[];
  /** After an interruption, the same command continues. */
  isResumable?: boolean;
  /** The records whose IDs are completed as its arguments. */
  ids?: IdKind;
}

/** The records that each command takes the IDs of. */
export const idKinds = new WeakMap<object, IdKind>();

/** Records with IDs. */
export type IdKind = "files" | "keys" | "sessions" | "teams" | "uploads" | "users" | "webhooks";

export const addExamples = (command: CommandUnknownOpts, examples: string[]) =>
  command.addHelpText("after", `\nExamples:\n${examples.map((one) => `  ${one}`).join("\n")}`);

/** Adds a command that has subcommands. */
export const addGroup = (program: CommandUnknownOpts, name: string, description: string, examples: string[]) =>
  addExamples(program.command(name).description(description), examples);

export const FILES = ["<files...>", "IDs or paths, such as podcast/a.mp3"] as const;
export const FILE = ["<file>", "ID or path, such as podcast/a.mp3"] as const;
export const IDS = ["<ids...>", "one or more IDs"] as const;
export const LIMIT = ["--limit <n>", "list at most this many", parseCount] as const;

export function parseCount(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be a whole number.");
}

/** Parses seconds, also with minutes and hours before them. */
export function parseSeconds(text: string): number {
  if (/^(\d{1,4}:){0,2}\d{1,8}(\.\d+)?$/.test(text))
    return text.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
  throw new InvalidArgumentError("It must be seconds, or a time such as 1:30.");
}

export const TEAM = ["--team <id>", "ID of the team (operator token)"] as const;

/** Lists the values of a union. TypeScript requires all of them. */
const valuesOf = <T extends string>(values: Record<T, true>) => Object.keys(values) as T[];

export const STATUSES = valuesOf<ProcessingStatus>({ pending: true, processing: true, completed: true, failed: true });
export const ROLES = valuesOf<Role>({ admin: true, member: true, contributor: true, viewer: true });
export const TEAM_STATUSES = valuesOf<TeamStatus>({ active: true, suspended: true, deleting: true });
export const SCOPES = valuesOf<Scope>({
  "files:upload": true,
  "files:read": true,
  "files:download": true,
  "files:write": true,
  "files:delete": true,
  "files:erase": true,
  "users:read": true,
  "users:write": true,
  "keys:read": true,
  "keys:write": true,
  "events:read": true,
  "webhooks:read": true,
  "webhooks:write": true,
});
export const EVENT_TYPES = valuesOf<EventType>({
  "file.uploaded": true,
  "file.completed": true,
  "file.failed": true,
  "file.deleted": true,
  "file.trashed": true,
  "file.restored": true,
  "file.held": true,
  "file.released": true,
  "file.reprocessed": true,
  "file.updated": true,
  "link.created": true,
  "link.revoked": true,
  "user.created": true,
  "user.updated": true,
  "user.deleted": true,
  "user.invited": true,
  "user.logged_in": true,
  "apikey.created": true,
  "apikey.updated": true,
  "apikey.rotated": true,
  "apikey.revealed": true,
  "apikey.expiring": true,
  "apikey.revoked": true,
  "session.created": true,
  "session.revoked": true,
  "team.created": true,
  "team.updated": true,
  "team.suspended": true,
  "team.deleted": true,
  "webhook.created": true,
  "webhook.updated": true,
  "webhook.deleted": true,
  "webhook.disabled": true,
});
/** The types of files, without the word that follows each in the API. */
export const FILE_TYPES = ["audio", "video", "image", "document", "text", "archive", "other"] as const;

function parseOneOf<T extends string>(values: readonly T[], text: string): T {
  const value = values.find((one) => one === text);
  if (value) return value;
  throw new InvalidArgumentError(`"${text}" is not one of ${values.join(", ")}.`);
}

/** Accepts `audio` and `audio file`. */
export const parseFileType = (text: string): FileType =>
  `${parseOneOf(FILE_TYPES, text.trim().replace(/ file$/, ""))} file`;

/** An option whose values completion offers. */
export const choice = <F extends string, T>(
  flags: F,
  description: string,
  values: readonly string[],
  parse: (text: string) => T,
) => new Option(flags, description).choices(values).argParser(parse);

/** An option that takes several values. */
export const choices = <F extends string, T extends string>(flags: F, description: string, values: readonly T[]) =>
  choice(flags, description, values, (text) => parseList(text).map((one) => parseOneOf(values, one)));

const UNITS = ["", "K", "M", "G", "T"];

/** Parses a size such as 5000, 50MB, or 1.5GiB into bytes. */
export function parseBytes(text: string): number {
  const [, number = "", unit = "", binary] = /^(\d{1,15}(?:\.\d+)?) ?([kmgt]?)(i?)b?$/i.exec(text) ?? [];
  if (number === "") throw new InvalidArgumentError("It must be a number of bytes such as 5000, 50MB, or 2GiB.");
  return Math.round(Number(number) * (binary ? 1024 : 1000) ** UNITS.indexOf(unit.toUpperCase()));
}

export const pathOf = ({ folder, name }: Pick<StoredFile, "folder" | "name">): string =>
  folder === "" ? name : `${folder}/${name}`;

/** Parses values separated by commas. */
export const parseFileTypes = (text: string): FileType[] => parseList(text).map(parseFileType);

export function parseList(text: string): string[] {
  const items = text.split(",").map((item) => item.trim());
  if (items.includes("")) throw new InvalidArgumentError("It must be values separated by commas.");
  return items;
}

/** For a list that can be repeated. */
export const collectList = (text: string, earlier: string[] = []): string[] => [...earlier, ...parseList(text)];

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

/** Returns the ID of an event, or an instant. */
export const parsePosition = (text: string): string => (/^[0-9a-f]{24}$/.test(text) ? text : parseStart(text));

/** Returns the time, or the last instant of the day. */
export function parseEnd(text: string): string {
  const end = parseInstant(text);
  if (DAY.test(text)) end.setUTCHours(23, 59, 59, 999);
  return end.toISOString();
}

/** The options of a command that deletes. */
export interface Deletion {
  yes?: boolean | undefined;
  dryRun?: boolean | undefined;
}

export const withDeletion = <A extends unknown[], O extends OptionValues, G extends OptionValues>(
  command: Command<A, O, G>,
) => command.option("--yes", "do not ask").option("--dry-run", "show what would be done, and do nothing");

/** The object of a deletion, in the words of its question and of its result. */
export interface Deleted {
  verb: string;
  noun: string;
  done: string;
  /** The result as JSON. Default: `{ deleted: true }`. */
  row?: object;
  /** The output of a dry run, as JSON and for people. */
  planned?: { row: object; text: string };
  /** Reads the record that the user names, and returns its ID. */
  find?: (given: string) => Promise<string>;
}

/** Returns the ID of a record. Reads the record unless the user gave its ID, or if `isChecked`. */
export async function locate(given: string, find: Deleted["find"], isChecked = false): Promise<string> {
  if (!find || (isId(given) && !isChecked)) return given;
  try {
    return await find(given);
  } catch (error) {
    // A key that may not read the record may still delete it.
    if (isId(given) && isForbidden(error)) return given;
    throw error;
  }
}

/** Asks, unless `yes`. @throws `usage` without a terminal, `failed` if the user declines */
export async function confirm({ io }: Context, question: string, { yes }: Deletion): Promise<void> {
  if (yes) return;
  if (!io.stdin.isTTY)
    throw new Failure("usage", `${question} Add --yes to do so without a question, or --dry-run to see which.`);
  const questions = new Questions(io);
  const answer = await questions.ask(`${question} (y/n)`).finally(() => questions.close());
  if (!/^y(es)?$/i.test(answer.trim())) throw new Failure("failed", "Canceled. Nothing was deleted.");
}

/** As many names as one sees at a glance. */
const MAX_SHOWN_NAMES = 10;

/**
 * Shows what would be deleted, or asks for it.
 * @param remark what else the user should know
 * @returns whether to delete
 * @throws `usage` without a terminal
 */
export async function confirmDeletion(
  context: Context,
  named: { id: string; label: string }[],
  { verb, noun, planned = { row: { delete: true }, text: "would be deleted" } }: Deleted,
  options: Deletion,
  remark = "",
): Promise<boolean> {
  if (options.dryRun)
    for (const { id, label } of named) context.results.print({ id, label, ...planned.row }, [label, planned.text]);
  if (options.dryRun || named.length === 0) return false;
  if (!options.yes && context.io.stdin.isTTY) {
    for (const { label } of named.slice(0, MAX_SHOWN_NAMES)) context.complain(label);
    if (named.length > MAX_SHOWN_NAMES) context.complain(`… and ${named.length - MAX_SHOWN_NAMES} more.`);
  }
  await confirm(context, `${verb} ${named.length} ${noun}${named.length === 1 ? "" : "s"}?${remark}`, options);
  return true;
}

/** Asks, deletes each, and reports each as soon as it is gone. Records that can't be deleted don't stop the others. */
export async function removeEach(
  context: Context,
  given: string[],
  deleted: Deleted,
  options: Deletion,
  remove: (id: string) => Promise<void>,
): Promise<void> {
  const labels = new Map<string, string>();
  for (const label of given) {
    try {
      labels.set(await locate(label, deleted.find, options.dryRun), label);
    } catch (error) {
      await context.continueAfter(error, label);
    }
  }
  const named = [...labels].map(([id, label]) => ({ id, label }));
  if (!(await confirmDeletion(context, named, deleted, options))) return;
  for (const { id, label } of named) {
    try {
      await remove(id);
      context.results.print({ id, ...(deleted.row ?? { deleted: true }) }, [label, deleted.done]);
    } catch (error) {
      await context.continueAfter(error, label);
    }
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
