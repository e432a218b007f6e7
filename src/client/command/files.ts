import type { Command } from "commander";
import type { FileFilters } from "../stowage.ts";
import {
  type Define,
  IDS,
  LIMIT,
  limited,
  parseEnd,
  parseFileType,
  parseFolder,
  parseStart,
  pathOf,
  removeEach,
} from "./command.ts";
import { failureAbout } from "./failures.ts";
import { formatBytes } from "./output.ts";

const FILE_WIDTHS = [24, 24, 10, 8];

interface ListOptions {
  status?: FileFilters["status"];
  type?: FileFilters["fileType"];
  name?: string;
  after?: string;
  before?: string;
  folder?: string;
  under?: string;
  tag?: string;
  reference?: string;
  search?: string;
  sort?: FileFilters["sort"];
  limit?: number;
}

export function addFileCommands(program: Command, define: Define): void {
  define<ListOptions>(
    program
      .command("ls")
      .option("--status <status>", "pending, processing, completed, or failed")
      .option("--type <type>", "audio, video, image, document, text, archive, or other", parseFileType)
      .option("--name <prefix>", "start of the name; sorts by name")
      .option("--search <text>", "part of the name; sorts by name")
      .option("--folder <folder>", "in this folder", parseFolder)
      .option("--under <folder>", "in this folder and below it", parseFolder)
      .option("--tag <tag>", "with this tag")
      .option("--reference <reference>", "with your own ID")
      .option("--sort <order>", "name or -createdAt")
      .option("--after <date>", "uploaded after that day or time (UTC)", parseEnd)
      .option("--before <date>", "uploaded before that day or time (UTC)", parseStart)
      .option(...LIMIT),
    {
      summary: "List files, newest first",
      examples: ["stowage ls --status failed", "stowage ls --type audio --after 2026-11-01 --json | jq -r ._id"],
    },
    async (context, _, { type: fileType, after: createdAfter, before: createdBefore, limit, ...others }) => {
      const { files } = context.stowage;
      const filters = { fileType, createdAfter, createdBefore, ...others };
      for await (const file of limited(limit, files.list(filters, context))) {
        const { _id, createdAt, status, fileType } = file;
        const texts = [_id, createdAt, status, fileType.replace(/ file$/, ""), pathOf(file)];
        context.results.print(file, texts, FILE_WIDTHS);
      }
    },
  );
  define(
    program.command("info").argument(...IDS),
    {
      summary: "Show file metadata",
      examples: ["stowage info 0193477c0a5e2b7f4d1c8e90", "stowage info 0193477c0a5e2b7f4d1c8e90 --json | jq .audio"],
    },
    async (context, ids) => {
      const { files } = context.stowage;
      for (const id of ids) context.results.printRecord(await files.get(id, context).catch(failureAbout(id)));
    },
  );
  define(
    program.command("rm").argument(...IDS),
    { summary: "Delete files permanently", examples: ["stowage rm 0193477c0a5e2b7f4d1c8e90"] },
    async (context, ids) => {
      const { files } = context.stowage;
      await removeEach(context, ids, (id) => files.delete(id, context));
    },
  );
  define(
    program.command("reprocess").argument(...IDS),
    {
      summary: "Process files again",
      examples: ["stowage ls --status failed --json | jq -r ._id | xargs stowage reprocess"],
    },
    async (context, ids) => {
      const { files } = context.stowage;
      for (const id of ids) {
        await files.reprocess(id, context).catch(failureAbout(id));
        context.results.print({ id, reprocessed: true }, [id, "reprocessing"]);
      }
    },
  );
  define(
    program.command("usage"),
    { summary: "Show storage usage and quota", examples: ["stowage usage --json"] },
    async (context) => {
      const usage = await context.stowage.usage(context);
      const { files, bytes, maxFiles, maxBytes } = usage;
      const { results } = context;
      results.print(usage, ["files", `${files} of ${maxFiles}`], [6]);
      if (!results.isJson) results.print({}, ["bytes", `${formatBytes(bytes)} of ${formatBytes(maxBytes)}`], [6]);
    },
  );
}
