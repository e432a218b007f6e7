import { createWriteStream } from "node:fs";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Io } from "./context.ts";
import { Failure, failureAbout } from "./failures.ts";
import { digestOf, type LocalFile } from "./local-files.ts";

/**
 * Copies stdin to a temporary file, because an upload needs the size first, and bytes that can be sent again. Deletes the
 * file after `use`.
 */
export async function withStdinFile(
  { stdin, signal }: Io,
  use: (file: LocalFile, sha256: string) => Promise<void>,
): Promise<void> {
  if (stdin.isTTY) throw new Failure("usage", "Nothing is piped to stdin.");
  const folder = await mkdtemp(join(tmpdir(), "stowage-"));
  const path = join(folder, "stdin");
  try {
    await pipeline(stdin, createWriteStream(path, { mode: 0o600 }), { signal }).catch(failureAbout("stdin"));
    const { size, mtimeMs } = await stat(path);
    if (size === 0) throw new Failure("failed", "stdin is empty (0 bytes).", { subject: "stdin" });
    await use({ path, size, changedAt: mtimeMs, label: "-", folder: "" }, await digestOf(path, signal));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
