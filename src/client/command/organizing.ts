import type { Command } from "commander";
import type { Batch } from "../stowage.ts";
import { type Define, IDS, parseFolder, pathOf } from "./command.ts";
import type { Context } from "./context.ts";
import { EXIT_CODES, Failure, failureAbout } from "./failures.ts";

/** The most files that one request changes. */
const BATCH_FILES = 100;

const PROBLEMS = { not_found: "Not found.", too_many_tags: "A file can have at most 20 tags." } as const;

/** An action without its files. */
type Action = Batch extends infer B ? (B extends { ids: unknown } ? Omit<B, "ids"> : never) : never;

/** Changes the files, and reports each. Files that can't be changed don't stop the others. */
async function changeAll(context: Context, given: string[], action: Action, word: string): Promise<void> {
  const { files } = context.stowage;
  const ids = [...new Set(given)];
  for (let i = 0; i < ids.length; i += BATCH_FILES) {
    const batch = { ...action, ids: ids.slice(i, i + BATCH_FILES) } as Batch;
    for (const { _id: id, ok, code } of await files.batch(batch, context)) {
      if (ok) context.results.print({ id, ...action }, [id, word]);
      else if (code) {
        context.complain(`${id}: ${PROBLEMS[code]}`);
        context.exitCode = code === "not_found" ? EXIT_CODES.not_found : EXIT_CODES.failed;
      }
    }
  }
}

interface MoveOptions {
  folder?: string;
  name?: string;
}

export function addOrganizingCommands(program: Command, define: Define): void {
  define<MoveOptions>(
    program
      .command("mv")
      .argument(...IDS)
      .option("--folder <folder>", 'folder to move them to; "" for outside all folders', parseFolder)
      .option("--name <name>", "new name of one file"),
    {
      summary: "Move files to a folder, or rename one",
      examples: [
        "stowage mv 0193477c0a5e2b7f4d1c8e90 --folder podcast/2026",
        'stowage mv 0193477c0a5e2b7f4d1c8e90 --name "Interview with Ada.mp3"',
      ],
    },
    async (context, ids, { folder, name }) => {
      if (name === undefined) {
        if (folder === undefined) throw new Failure("usage", "Give a new --folder or --name.");
        return changeAll(
          context,
          ids,
          { action: "move", folder },
          folder === "" ? "moved out of all folders" : `moved to ${folder}`,
        );
      }
      const [id = "", ...others] = ids;
      if (others.length > 0) throw new Failure("usage", "--name goes with one ID.");
      const { files } = context.stowage;
      const file = await files.update(id, { name, folder }, context).catch(failureAbout(id));
      context.results.print(file, [id, pathOf(file)]);
    },
  );
  for (const action of ["tag", "untag"] as const) {
    define(
      program
        .command(action)
        .argument("<tag>", "the tag")
        .argument(...IDS),
      {
        summary: action === "tag" ? "Add a tag to files" : "Remove a tag from files",
        examples: [`stowage ${action} interview 0193477c0a5e2b7f4d1c8e90`],
      },
      async (context, [tag = "", ...ids]) => changeAll(context, ids, { action, tags: [tag] }, `${action}ged`),
    );
  }
}
