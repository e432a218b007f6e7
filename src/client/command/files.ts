import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import type { StoredFile, TrashedFile } from "../index.ts";
import {
  addGroup,
  choice,
  confirmDeletion,
  type Define,
  FILE_TYPES,
  FILES,
  IDS,
  LIMIT,
  limited,
  parseEnd,
  parseFileType,
  parseFolder,
  parseStart,
  pathOf,
  removeEach,
  STATUSES,
  withDeletion,
} from "./command.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import { changeAll, findAll, findFile } from "./organizing.ts";
import { formatBytes } from "./output.ts";
import { ageOf, durationOf, sizeOf, type Table } from "./table.ts";

const typeOf = ({ fileType }: StoredFile) => fileType.replace(/ file$/, "");

const FILE_TABLE: Table<StoredFile> = {
  fields: (file) => [file._id, file.createdAt, file.status, typeOf(file), pathOf(file)],
  columns: [
    ["Name", pathOf],
    ["Length", ({ durationSeconds }) => durationOf(durationSeconds), "right"],
    ["Size", ({ size }) => sizeOf(size), "right"],
    ["Uploaded", ({ createdAt }) => ageOf(createdAt)],
    ["Status", ({ status }) => status],
    ["Type", typeOf],
    ["ID", ({ _id }) => _id],
  ],
};

const TRASH_TABLE: Table<TrashedFile> = {
  fields: (file) => [file._id, file.trashedAt, file.eraseAfter, formatBytes(file.size), pathOf(file)],
  columns: [
    ["Name", pathOf],
    ["Size", ({ size }) => sizeOf(size), "right"],
    ["Deleted", ({ trashedAt }) => ageOf(trashedAt)],
    ["Erased", ({ eraseAfter }) => ageOf(eraseAfter)],
    ["ID", ({ _id }) => _id],
  ],
};

export function addFileCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("ls")
      .argument("[folder]", "the same as --folder", parseFolder)
      .addOption(new Option("--status <status>", "with this status").choices(STATUSES))
      .addOption(choice("--type <type>", "of this type", FILE_TYPES, parseFileType))
      .option("--name <prefix>", "start of the name; sorts by name")
      .option("--search <text>", "words in the name, title, artist, reference, folder or tags; sorts by name")
      .option("--folder <folder>", "in this folder", parseFolder)
      .option("--under <folder>", "in this folder and below it", parseFolder)
      .option("--tag <tag>", "with this tag")
      .option("--reference <reference>", "with your own ID")
      .option("--uploaded-by <id>", "uploaded by this user")
      .option("--has-transcript", "with a transcript")
      .addOption(
        new Option("--sort <order>", "order of the files").choices(["-createdAt", "createdAt", "name", "-name"]),
      )
      .option("--after <date>", "uploaded after that day or time (UTC)", parseEnd)
      .option("--before <date>", "uploaded before that day or time (UTC)", parseStart)
      .option(...LIMIT),
    {
      summary: "List files, newest first",
      examples: ["stowage ls --status failed", "stowage ls --type audio --after 2026-11-01 --json | jq -r ._id"],
    },
    async (context, [given], { type: fileType, after: createdAfter, before: createdBefore, limit, ...others }) => {
      const { files } = context.stowage;
      if (given !== undefined && others.folder !== undefined)
        throw new Failure("usage", "Give one folder, or --under for all below it.");
      const filters = { fileType, createdAfter, createdBefore, ...others, folder: given ?? others.folder };
      await context.results.printList(limited(limit, files.list(filters, context.call)), FILE_TABLE);
    },
  );
  define(
    program.command("info").argument(...FILES),
    {
      ids: "files",
      summary: "Show file metadata",
      examples: ["stowage info 0193477c0a5e2b7f4d1c8e90", "stowage info podcast/a.mp3 --json | jq .audio"],
    },
    async (context, [given]) => {
      for (const one of given) {
        try {
          const { id } = await findFile(context, one);
          context.results.printRecord(await context.stowage.files.get(id, context.call));
        } catch (error) {
          await context.continueAfter(error, one);
        }
      }
    },
  );
  define(
    withDeletion(program.command("rm").argument(...FILES)).option(
      "--permanent",
      "erase the files, also those in the trash",
    ),
    {
      summary: "Delete files, or move them to the trash if the service has one",
      examples: ["stowage rm podcast/a.mp3", "stowage rm --permanent --yes 0193477c0a5e2b7f4d1c8e90"],
      ids: "files",
    },
    async (context, [given], { permanent, ...options }) => {
      // Files in the trash can be erased, but not read.
      const named = await findAll(context, given, options.dryRun && !permanent);
      const words = { verb: permanent ? "Erase" : "Delete", noun: "file", done: "deleted" };
      if (await confirmDeletion(context, named, words, options))
        await changeAll(context, named, { action: "delete", permanent }, words.done);
    },
  );
  const trash = addGroup(program, "trash", "List deleted files that can be restored.", ["stowage trash --json"]);
  define(
    trash.command("ls", { isDefault: true }).option(...LIMIT),
    { summary: "List the files in the trash" },
    async (context, _, { limit }) => {
      await context.results.printList(limited(limit, context.stowage.trash.list({}, context.call)), TRASH_TABLE);
    },
  );
  define(
    program.command("restore").argument(...IDS),
    {
      summary: "Restore files from the trash, by their IDs",
      examples: [
        "stowage restore 0193477c0a5e2b7f4d1c8e90",
        "stowage trash --json | jq -r ._id | xargs stowage restore",
      ],
    },
    async (context, [ids]) => {
      const named = [...new Set(ids)].map((id) => ({ id, label: id }));
      await changeAll(context, named, { action: "restore" }, "restored");
    },
  );
  define(
    program.command("reprocess").argument(...FILES),
    {
      ids: "files",
      summary: "Process files again",
      examples: ["stowage ls --status failed --json | jq -r ._id | xargs stowage reprocess"],
    },
    async (context, [given]) => {
      const { files } = context.stowage;
      await eachFile(context, given, (id) => files.reprocess(id, context.call), { reprocessed: true }, "reprocessing");
    },
  );
  define(
    program
      .command("hold")
      .argument(...FILES)
      .requiredOption("--reason <text>", "why the files must be kept"),
    {
      ids: "files",
      summary: "Forbid the deletion of files",
      examples: ['stowage hold podcast/a.mp3 --reason "Case 12"'],
    },
    async (context, [given], { reason }) => {
      const { files } = context.stowage;
      await eachFile(context, given, (id) => files.hold(id, reason, context.call), { held: true, reason }, "held");
    },
  );
  define(
    withDeletion(program.command("release").argument(...FILES)),
    { ids: "files", summary: "Allow the deletion of held files again", examples: ["stowage release podcast/a.mp3"] },
    async (context, [given], options) => {
      const find = async (one: string) => {
        const { id } = await findFile(context, one);
        return (await context.stowage.files.get(id, context.call))._id;
      };
      const row = { held: false };
      const planned = { row, text: "would be released" };
      const words = { verb: "Allow the deletion of", noun: "held file", done: "released", row, planned, find };
      await removeEach(context, given, words, options, (id) => context.stowage.files.release(id, context.call));
    },
  );
}

/** Changes one file after the other, and reports each. */
async function eachFile(
  context: Context,
  given: string[],
  change: (id: string) => Promise<unknown>,
  row: object,
  word: string,
): Promise<void> {
  for (const { id, label } of await findAll(context, given)) {
    try {
      await change(id);
      context.results.print({ id, ...row }, [label, word]);
    } catch (error) {
      await context.continueAfter(error, label);
    }
  }
}
