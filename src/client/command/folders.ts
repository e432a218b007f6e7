import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { addGroup, confirmDeletion, type Define, parseFolder, withDeletion } from "./command.ts";
import type { Context } from "./context.ts";
import type { Table } from "./table.ts";

const FOLDER = ["<folder>", "such as podcast/2026", parseFolder] as const;

const FOLDER_TABLE: Table<string> = {
  fields: (folder) => [folder],
  columns: [["Name", (folder) => folder]],
  json: (folder) => ({ folder }),
};

/** Prints a folder that is being changed. A large one takes minutes. A deletion keeps held files. */
function printChange(
  { results }: Context,
  change: { folder: string; isComplete: boolean; held?: number },
  word: string,
): void {
  const { held = 0 } = change;
  const kept = held > 0 ? `, except ${held} held ${held === 1 ? "file" : "files"}` : "";
  const changed = change.isComplete ? word : `${word} in part, the rest follows within minutes`;
  results.print(change, [change.folder, changed + kept]);
}

export function addFolderCommands(program: CommandUnknownOpts, define: Define): void {
  const folders = addGroup(program, "folders", "List, create, move, and delete folders.", [
    "stowage folders ls podcast",
    "stowage folders mv podcast/2025 archive/2025",
  ]);
  define(
    folders.command("ls", { isDefault: true }).argument("[folder]", "list the folders in this one", parseFolder),
    { summary: "List the folders directly below another, or at the top" },
    async ({ stowage, call, results }, [under]) => {
      await results.printList(stowage.files.folders(under ? { under } : {}, call), FOLDER_TABLE);
    },
  );
  define(
    folders.command("create").argument(...FOLDER),
    { summary: "Create an empty folder" },
    async ({ stowage, call, results }, [given]) => {
      const { folder } = await stowage.files.createFolder(given, call);
      results.print({ folder }, [folder]);
    },
  );
  define(
    folders
      .command("mv")
      .argument(...FOLDER)
      .argument("<to>", "its new path", parseFolder),
    { summary: "Rename or move a folder with everything in it" },
    async (context, [folder, to]) => {
      const { files } = context.stowage;
      printChange(context, await files.moveFolder(folder, to, context.call), "moved");
    },
  );
  define(
    withDeletion(folders.command("rm").argument(...FOLDER)),
    { summary: "Delete a folder with everything in it, except held files" },
    async (context, [folder], options) => {
      const words = { verb: `Delete ${folder} with everything in it:`, noun: "folder", done: "deleted" };
      if (!(await confirmDeletion(context, [{ id: folder, label: folder }], words, options))) return;
      printChange(context, await context.stowage.files.deleteFolder(folder, context.call), words.done);
    },
  );
}
