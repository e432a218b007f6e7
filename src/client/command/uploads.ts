import type { Command } from "commander";
import { StowageError } from "../stowage.ts";
import { type Define, IDS, LIMIT, limited, removeEach } from "./command.ts";
import { Failure } from "./failures.ts";
import { formatBytes } from "./output.ts";

const UPLOAD_WIDTHS = [24, 24, 20];

export function addUnfinishedCommands(program: Command, define: Define): void {
  define<{ limit?: number }>(
    program.command("uploads").option(...LIMIT),
    { summary: "List unfinished uploads, newest first", examples: ["stowage uploads --json | jq -r ._id"] },
    async (context, _, { limit }) => {
      const { uploads } = context.stowage;
      for await (const upload of limited(limit, uploads.list({}, context.call))) {
        const { _id, name, offset, size, expiresAt } = upload;
        const stored = `${formatBytes(offset)} of ${formatBytes(size)}`;
        context.results.print(upload, [_id, expiresAt, stored, name], UPLOAD_WIDTHS);
      }
    },
  );
  define(
    program.command("cancel").argument(...IDS),
    { summary: "Cancel unfinished uploads", examples: ["stowage cancel 0193477c0a5e2b7f4d1c8e90"] },
    async (context, ids) => {
      const { uploads } = context.stowage;
      const cancel = (id: string) =>
        uploads.cancel(id, context.call).catch((error) => {
          if (!(error instanceof StowageError && error.code === "forbidden")) throw error;
          const message = `${id} has finished uploading. Delete the file with \`stowage rm\`.`;
          throw new Failure("failed", message, { cause: error });
        });
      await removeEach(context, ids, cancel, "canceled");
    },
  );
}
