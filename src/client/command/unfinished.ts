import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { StowageError, type UnfinishedUpload } from "../index.ts";
import { type Define, IDS, LIMIT, limited, removeEach, withDeletion } from "./command.ts";
import { Failure } from "./failures.ts";
import { formatBytes } from "./output.ts";

/** The bytes of a form upload are not known before it ends. */
function storedOf({ kind, status, offset, size }: UnfinishedUpload): string {
  if (status === "canceled") return "canceled";
  return kind === "form" ? `up to ${formatBytes(size)}` : `${formatBytes(offset)} of ${formatBytes(size)}`;
}

const UPLOAD_WIDTHS = [24, 24, 20];

export function addUnfinishedCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program.command("uploads").option(...LIMIT),
    { summary: "List unfinished uploads, newest first", examples: ["stowage uploads --json | jq -r ._id"] },
    async (context, _, { limit }) => {
      const uploads = context.stowage.unfinishedUploads.list({}, context.call);
      for await (const upload of limited(limit, uploads)) {
        const { _id, name, expiresAt } = upload;
        context.results.print(upload, [_id, expiresAt, storedOf(upload), name], UPLOAD_WIDTHS);
      }
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
