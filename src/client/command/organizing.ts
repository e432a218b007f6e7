import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { type Batch, type ErrorCode, StowageError } from "../index.ts";
import { MAX_BATCH_FILES } from "../internal.ts";
import { type Define, FILES, locate, parseFolder, parseList, pathOf } from "./command.ts";
import type { Context } from "./context.ts";
import { Failure, failureAbout, isId } from "./failures.ts";

const PROBLEMS = {
  not_found: "Not found.",
  too_many_tags: "A file can have at most 20 tags.",
  file_held: "A hold forbids the deletion.",
  not_in_trash: "Not in the trash.",
} as const;

/** An action without its files. */
type Action = Batch extends infer B ? (B extends { ids: unknown } ? Omit<B, "ids"> : never) : never;

/** A file, and how the user named it. */
export interface Named {
  id: string;
  label: string;
}

/**
 * Finds the file that the user names by its ID, or by its path: folder and name. A path that looks like an ID starts with
 * a slash.
 * @throws `not_found`, `failed` if several files have the path
 */
export async function findFile({ stowage, call }: Context, given: string): Promise<Named> {
  if (isId(given)) return { id: given, label: given };
  const path = given.replace(/^\/+/, "").normalize("NFC");
  const [folder, name] = [path.slice(0, Math.max(0, path.lastIndexOf("/"))), path.slice(path.lastIndexOf("/") + 1)];
  const ids: string[] = [];
  for await (const file of stowage.files.list({ folder, name }, call))
    if (file.name.normalize("NFC") === name) ids.push(file._id);
  const [id, ...others] = ids;
  if (id === undefined) throw new Failure("not_found", `${given}: Not found.`, { subject: given });
  if (others.length === 0) return { id, label: given };
  const message = `${given}: ${ids.length} files have this path. Use an ID: ${ids.join(", ")}.`;
  throw new Failure("failed", message, { subject: given });
}

/** Finds the files that exist, and reports the others. An ID is looked up only if `isChecked`. */
export async function findAll(context: Context, given: string[], isChecked = false): Promise<Named[]> {
  const { stowage, call } = context;
  const found = new Map<string, Named>();
  for (const one of given) {
    try {
      const file = await findFile(context, one);
      if (isId(one)) await locate(one, async (id) => (await stowage.files.get(id, call))._id, isChecked);
      found.set(file.id, file);
    } catch (error) {
      await context.continueAfter(error, one);
    }
  }
  return [...found.values()];
}

/** Changes the files, and reports each. Files that can't be changed don't stop the others. @returns how many changed */
export async function changeAll(context: Context, named: Named[], action: Action, word: string): Promise<number> {
  let changed = 0;
  const { files } = context.stowage;
  for (let i = 0; i < named.length; i += MAX_BATCH_FILES) {
    const part = named.slice(i, i + MAX_BATCH_FILES);
    const results = await files.batch({ ...action, ids: part.map(({ id }) => id) } as Batch, context.call);
    for (const { _id: id, ok, code, isTrashed } of results) {
      const label = part.find((one) => one.id === id)?.label ?? id;
      const done = { delete: { deleted: true, trashed: isTrashed }, restore: { restored: true } };
      const row = { id, ...(action.action === "delete" || action.action === "restore" ? done[action.action] : action) };
      if (ok) {
        changed += 1;
        context.results.print(row, [label, isTrashed ? "moved to the trash" : word]);
      } else if (code) {
        const cause = new StowageError(code as ErrorCode, PROBLEMS[code]);
        const kind = code === "not_found" ? code : "failed";
        context.fail(new Failure(kind, `${label}: ${PROBLEMS[code]}`, { cause, subject: label }));
      }
    }
  }
  return changed;
}

/** Names what a dry run would delete, except what a hold keeps. @returns the number of files */
export async function planDeletion(context: Context, surplus: Named[]): Promise<number> {
  let count = 0;
  for (const { id, label } of surplus) {
    const { hold } = await context.stowage.files.get(id, context.call);
    if (!hold) count += 1;
    const row = { id, path: label, delete: !hold, held: hold !== null };
    context.results.print(row, [label, hold ? `held, would stay: ${hold.reason}` : "would delete"]);
  }
  return count;
}

export function addOrganizingCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("mv")
      .argument(...FILES)
      .option("--folder <folder>", 'folder to move them to; "" for outside all folders', parseFolder)
      .option("--name <name>", "new name of one file"),
    {
      ids: "files",
      summary: "Move files to a folder, or rename one",
      examples: [
        "stowage mv 0193477c0a5e2b7f4d1c8e90 --folder podcast/2026",
        'stowage mv podcast/a.mp3 --name "Interview with Ada.mp3"',
      ],
    },
    async (context, [given], { folder, name }) => {
      if (name === undefined) {
        if (folder === undefined) throw new Failure("usage", "Give a new --folder or --name.");
        const word = folder === "" ? "moved out of all folders" : `moved to ${folder}`;
        await changeAll(context, await findAll(context, given), { action: "move", folder }, word);
        return;
      }
      const [one = "", ...others] = given;
      if (others.length > 0) throw new Failure("usage", "--name goes with one file.");
      const { id, label } = await findFile(context, one);
      const file = await context.stowage.files.update(id, { name, folder }, context.call).catch(failureAbout(label));
      context.results.print(file, [id, pathOf(file)]);
    },
  );
  for (const action of ["tag", "untag"] as const) {
    define(
      program
        .command(action)
        .argument("<tags>", "one or more tags, separated by commas", parseList)
        .argument(...FILES),
      {
        ids: "files",
        summary: action === "tag" ? "Add tags to files" : "Remove tags from files",
        examples: [`stowage ${action} interview,2026 podcast/interview.mp3`],
      },
      async (context, [tags, given]) => {
        await changeAll(context, await findAll(context, given), { action, tags }, `${action}ged`);
      },
    );
  }
}
