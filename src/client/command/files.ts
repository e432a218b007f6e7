import type { FileFilters } from "../stowage.ts";
import { type Command, type Context, dateOf, idsOf, limited, removeEach, textOf } from "./command.ts";
import { failureAbout } from "./failures.ts";
import { bytesText } from "./output.ts";

const ID_WIDTH = 24;

function filtersOf(context: Context): FileFilters {
  const type = textOf(context, "type");
  return {
    status: textOf(context, "status") as FileFilters["status"],
    fileType: (type === undefined || type.endsWith(" file") ? type : `${type} file`) as FileFilters["fileType"],
    name: textOf(context, "name"),
    createdAfter: dateOf(context, "after"),
    createdBefore: dateOf(context, "before"),
  };
}

export const ls: Command = {
  summary: "List files, newest first",
  usage: ["ls [--status S] [--type T] [--name PREFIX] [--after DATE] [--before DATE] [--limit N]"],
  options: {
    status: { type: "string" },
    type: { type: "string" },
    name: { type: "string" },
    after: { type: "string" },
    before: { type: "string" },
    limit: { type: "string" },
  },
  meanings: {
    status: "pending, processing, completed or failed",
    type: "audio, video, image, document, text, archive or other",
    name: "what the name begins with; lists by name",
    after: "uploaded after that day or time",
    before: "uploaded before that day or time",
    limit: "so many at most",
  },
  examples: ["stowage ls --status failed", "stowage ls --type audio --after 2026-11-01 --json | jq -r ._id"],
  async run(context) {
    const { results, signal } = context;
    const { files } = await context.connect();
    for await (const file of limited(context, files.list(filtersOf(context), { signal }))) {
      const { _id, createdAt, status, fileType, originalName } = file;
      results.print(
        file,
        [_id, createdAt, status, fileType.replace(/ file$/, ""), originalName],
        [ID_WIDTH, 24, 10, 8],
      );
    }
  },
};

export const info: Command = {
  summary: "Tell what is known of files",
  usage: ["info ID..."],
  examples: ["stowage info 0193477c0a5e2b7f4d1c8e90", "stowage info 0193477c0a5e2b7f4d1c8e90 --json | jq .audio"],
  async run(context) {
    const { files } = await context.connect();
    for (const id of idsOf(context.args)) {
      const file = await files.get(id, context).catch(failureAbout(id));
      context.results.printRecord(file);
    }
  },
};

export const rm: Command = {
  summary: "Delete files, for good",
  usage: ["rm ID..."],
  examples: ["stowage rm 0193477c0a5e2b7f4d1c8e90"],
  async run(context) {
    const { files } = await context.connect();
    await removeEach(context, context.args, (id) => files.delete(id, context).catch(failureAbout(id)));
  },
};

export const usage: Command = {
  summary: "Tell what the team keeps, and may keep",
  usage: ["usage"],
  examples: ["stowage usage --json"],
  async run(context) {
    const stowage = await context.connect();
    const found = await stowage.usage(context);
    const { files, bytes, maxFiles, maxBytes } = found;
    context.results.print(found, ["files", `${files} of ${maxFiles}`], [6]);
    if (!context.results.isJson)
      context.results.print({}, ["bytes", `${bytesText(bytes)} of ${bytesText(maxBytes)}`], [6]);
  },
};
