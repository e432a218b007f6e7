import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { StowageError, type UnfinishedUpload } from "../index.ts";
import { type Define, IDS, LIMIT, limited, removeEach, withDeletion } from "./command.ts";
import { Failure } from "./failures.ts";
import { formatBytes } from "./output.ts";
import { ageOf, sizeOf, type Table } from "./table.ts";

/** The bytes of a form upload are not known before it ends. */
function storedOf({ kind, status, offset, size }: UnfinishedUpload, format: (bytes: number) => string): string {
  if (status === "canceled") return "canceled";
  return kind === "form" ? `up to ${format(size)}` : `${format(offset)} of ${format(size)}`;
}

const UPLOADS: Table<UnfinishedUpload> = {
  fields: (upload) => [upload._id, upload.expiresAt, storedOf(upload, formatBytes), upload.name],
  columns: [
    ["Name", ({ name }) => name],
    ["Stored", (upload) => storedOf(upload, sizeOf)],
    ["Expires", ({ expiresAt }) => ageOf(expiresAt)],
    ["Began", ({ createdAt }) => ageOf(createdAt)],
    ["ID", ({ _id }) => _id],
  ],
};

export function addUnfinishedCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program.command("uploads").option(...LIMIT),
    { summary: "List unfinished uploads, newest first", examples: ["stowage uploads --json | jq -r ._id"] },
    async (context, _, { limit }) => {
      const uploads = context.stowage.unfinishedUploads.list({}, context.call);
      await context.results.printList(limited(limit, uploads), UPLOADS);
    },
  );
  define(
    withDeletion(program.command("cancel").argument(...IDS)),
    { summary: "Cancel unfinished uploads", examples: ["stowage cancel 0193477c0a5e2b7f4d1c8e90"], ids: "uploads" },
    async (context, [ids], options) => {
      const { unfinishedUploads } = context.stowage;
      const cancel = (id: string) =>
        unfinishedUploads.cancel(id, context.call).catch((error) => {
          if (!(error instanceof StowageError && error.code === "forbidden")) throw error;
          const message = `${id} has finished uploading. Delete the file with \`stowage rm\`.`;
          throw new Failure("failed", message, { cause: error });
        });
      const words = { verb: "Cancel", noun: "upload", done: "canceled" };
      await removeEach(context, ids, words, options, cancel);
    },
  );
}
