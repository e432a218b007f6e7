import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import type { Link } from "../index.ts";
import {
  type Define,
  EXPIRY_HINT,
  FILE,
  IDS,
  parseCount,
  parseSeconds,
  parseStart,
  removeEach,
  withDeletion,
} from "./command.ts";
import { findFile } from "./organizing.ts";
import { ageOf, type Table } from "./table.ts";

const LINK_TABLE: Table<Link> = {
  fields: ({ _id, expiresAt, disposition, name }) => [_id, expiresAt ?? "never", disposition, name ?? ""],
  columns: [
    ["Name", ({ name }) => name ?? "-"],
    ["Opens as", ({ disposition }) => disposition],
    ["Expires", ({ expiresAt }) => ageOf(expiresAt, "never")],
    ["Created", ({ createdAt }) => ageOf(createdAt)],
    ["ID", ({ _id }) => _id],
  ],
};

export function addLinkCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("link")
      .argument(...FILE)
      .option("--expires <date>", `when the link expires (${EXPIRY_HINT}; default: never)`, parseStart)
      .option("--inline", "let browsers play audio instead of downloading it")
      .option("--name <name>", "name of the downloaded file")
      .option("--start <time>", "where its page starts to play, such as 90 or 1:30", parseSeconds)
      .option("--end <time>", "where its page stops", parseSeconds),
    {
      ids: "files",
      summary: "Create a link to download a file, and its page, which work until it expires or you revoke it",
      examples: ["stowage link 0193477c0a5e2b7f4d1c8e90 --expires 2026-12-31"],
    },
    async (context, [file], { expires, inline, name, start, end }) => {
      const { id } = await findFile(context, file);
      const { links } = context.stowage;
      const disposition = inline ? "inline" : undefined;
      const part = { startSeconds: start, endSeconds: end };
      const link = await links.create(id, { expiresAt: expires, disposition, name, ...part }, context.call);
      context.results.print(link, [link._id, link.url, link.pageUrl]);
    },
  );
  define(
    program.command("links").argument(...FILE),
    {
      ids: "files",
      summary: "List the links of a file, without their URLs",
      examples: ["stowage links 0193477c0a5e2b7f4d1c8e90"],
    },
    async (context, [file]) => {
      const { id } = await findFile(context, file);
      const { links } = context.stowage;
      await context.results.printList(links.list(id, context.call), LINK_TABLE);
    },
  );
  define(
    withDeletion(program.command("unlink").argument(...IDS)),
    { summary: "Revoke links", examples: ["stowage unlink 0193477d0a5e2b7f4d1c8e91"] },
    async (context, [ids], options) => {
      const words = { verb: "Revoke", noun: "link", done: "revoked" };
      await removeEach(context, ids, words, options, (id) => context.stowage.links.delete(id, context.call));
    },
  );
  define(
    program
      .command("presign")
      .argument(...FILE)
      .option("--expires-in <seconds>", "seconds until the URL expires (default: 3600)", parseCount),
    {
      ids: "files",
      summary: "Print a signed URL, which can't be revoked",
      examples: ["stowage presign 0193477c0a5e2b7f4d1c8e90 --expires-in 600"],
    },
    async (context, [file], { expiresIn }) => {
      const { id } = await findFile(context, file);
      const { files } = context.stowage;
      const url = await files.createSignedUrl(id, { expiresIn }, context.call);
      context.results.print({ id, url }, [url]);
    },
  );
}
