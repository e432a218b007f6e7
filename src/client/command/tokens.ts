import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import {
  addGroup,
  choice,
  collectList,
  type Define,
  FILE_TYPES,
  parseBytes,
  parseCount,
  parseFileTypes,
  parseFolder,
  parseObject,
} from "./command.ts";

export function addTokenCommands(program: CommandUnknownOpts, define: Define): void {
  const tokens = addGroup(program, "tokens", "Create upload tokens for visitors of a web page.", [
    "stowage tokens create --max-files 3 --file-types audio --folder memos",
  ]);
  define(
    tokens
      .command("create")
      .option("--expires-in <seconds>", "how long the token works (default: 3600)", parseCount)
      .option("--max-files <n>", "how many files it may upload (default: 1)", parseCount)
      .option("--max-file-bytes <size>", "size of the largest file, such as 50MB", parseBytes)
      .addOption(choice("--file-types <list>", "what it may upload", FILE_TYPES, parseFileTypes))
      .option("--max-bytes <size>", "size of all files together, such as 1GB", parseBytes)
      .option("--can-delete", "it may delete what it uploaded, while nobody else has used the file")
      .option("--subject <name>", "your name of the visitor, to count all of the visitor's tokens together")
      .option("--owner <secret>", "random text that you keep for the visitor, whose tokens have the same rights")
      .option("--folder <folder>", "folder of the files", parseFolder)
      .option("--tag <tags>", "tags of the files, separated by commas; can be repeated", collectList)
      .option("--reference <reference>", "your own ID of the files")
      .option("--metadata <json>", 'your own fields, such as {"season":2}', parseObject),
    {
      summary: "Create an upload token and show it",
      examples: ["stowage tokens create --max-files 3 --file-types audio --folder memos --json | jq -r .token"],
    },
    async (context, _, { folder, tag: tags, reference, metadata, ...limits }) => {
      const properties = { folder, tags, reference, metadata };
      const token = await context.stowage.files.createUploadToken({ ...limits, properties }, context.call);
      context.results.printRecord(token);
    },
  );
}
