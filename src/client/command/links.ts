import type { Command } from "commander";
import { type Define, EXPIRY_HINT, IDS, parseCount, parseStart, removeEach } from "./command.ts";

const LINK_WIDTHS = [24, 24, 10];
const FILE = ["<file>", "ID of the file"] as const;

interface LinkCommandOptions {
  expires?: string;
  inline?: boolean;
  name?: string;
}

export function addLinkCommands(program: Command, define: Define): void {
  define<LinkCommandOptions>(
    program
      .command("link")
      .argument(...FILE)
      .option("--expires <date>", `when the link expires (${EXPIRY_HINT}; default: never)`, parseStart)
      .option("--inline", "let browsers play audio instead of downloading it")
      .option("--name <name>", "name of the downloaded file"),
    {
      summary: "Create a download link, which works until it expires or you revoke it",
      examples: ["stowage link 0193477c0a5e2b7f4d1c8e90 --expires 2026-12-31"],
    },
    async (context, [id = ""], { expires, inline, name }) => {
      const { links } = context.stowage;
      const disposition = inline ? "inline" : undefined;
      const options = { expiresAt: expires, disposition, name, signal: context.signal } as const;
      const link = await links.create(id, options);
      context.results.print(link, [link._id, link.url]);
    },
  );
  define(
    program.command("links").argument(...FILE),
    { summary: "List the links of a file, without their URLs", examples: ["stowage links 0193477c0a5e2b7f4d1c8e90"] },
    async (context, [id = ""]) => {
      const { links } = context.stowage;
      for (const link of await links.list(id, context)) {
        const texts = [link._id, link.expiresAt ?? "never", link.disposition, link.name ?? ""];
        context.results.print(link, texts, LINK_WIDTHS);
      }
    },
  );
  define(
    program.command("unlink").argument(...IDS),
    { summary: "Revoke links", examples: ["stowage unlink 0193477d0a5e2b7f4d1c8e91"] },
    async (context, ids) => {
      const { links } = context.stowage;
      await removeEach(context, ids, (id) => links.revoke(id, context), "revoked");
    },
  );
  define<{ expiresIn?: number }>(
    program
      .command("presign")
      .argument(...FILE)
      .option("--expires-in <seconds>", "seconds until the URL expires (default: 3600)", parseCount),
    {
      summary: "Print a signed URL, which can't be revoked",
      examples: ["stowage presign 0193477c0a5e2b7f4d1c8e90 --expires-in 600"],
    },
    async (context, [id = ""], { expiresIn }) => {
      const { files } = context.stowage;
      const options = { signal: context.signal, ...(expiresIn !== undefined && { expiresIn }) };
      const url = await files.createSignedUrl(id, options);
      context.results.print({ id, url }, [url]);
    },
  );
}
