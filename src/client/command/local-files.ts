import { createHash } from "node:crypto";
import { openAsBlob } from "node:fs";
import { open, readdir, readFile, stat } from "node:fs/promises";
import { dirname, join, relative, resolve, sep } from "node:path";
import { RESUMABLE_BYTES } from "../stowage.ts";
import type { Context } from "./context.ts";
import { Failure, failureOf } from "./failures.ts";

const READ_BYTES = 512 * 1024;

export interface LocalFile {
  path: string;
  size: number;
  /** Milliseconds since the epoch. */
  changedAt: number;
  /** Its folder, from the name of the given folder on. Absent for a file that was given itself. */
  folder?: string;
}

/** The service rejects control and text-direction characters. */
const folderOf = (path: string): string =>
  path
    .split(sep)
    .filter(Boolean)
    .map((name) => name.replaceAll(/[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, "_"))
    .join("/");

type Walk = Pick<Context, "complain" | "signal"> & { cwd: string; onFailure(failure: Failure): void };

async function* walkFolder(folder: string, walk: Walk): AsyncGenerator<string> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error) =>
    walk.onFailure(failureOf(error, folder)),
  );
  for (const entry of (entries ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* walkFolder(path, walk);
    else if (entry.isFile()) yield path;
    // Links may lead out of the folder, or in circles.
    else walk.complain(`Skipped ${path}: it is ${entry.isSymbolicLink() ? "a link" : "not a regular file"}.`);
  }
}

/**
 * Finds the named files, and the files below the named folders, which keep their place. Reports what it can't read to
 * `onFailure`.
 */
export async function findFiles(paths: string[], walk: Walk): Promise<LocalFile[]> {
  const found = new Map<string, LocalFile>();
  /** Adds a file, or the files below a folder. `root` is the folder whose name starts their path in the service. */
  const add = async (path: string, given: string, root?: string) => {
    walk.signal.throwIfAborted();
    try {
      const kind = await stat(path);
      if (kind.isDirectory()) {
        // The paths of files start below the working folder itself.
        const parent = path === resolve(walk.cwd) ? path : dirname(path);
        for await (const below of walkFolder(path, walk)) await add(below, below, parent);
      } else if (kind.isFile()) {
        const folder = root === undefined ? "" : folderOf(relative(root, dirname(path)));
        if (!found.has(path)) found.set(path, { path, size: kind.size, changedAt: kind.mtimeMs, folder });
      } else walk.onFailure(new Failure("failed", `${given} is neither a file nor a folder.`));
    } catch (error) {
      walk.signal.throwIfAborted();
      walk.onFailure(failureOf(error, given));
    }
  };
  for (const given of paths) await add(resolve(walk.cwd, given), given);
  return [...found.values()];
}

/**
 * Opens a file and computes its SHA-256 in hex. Reading the blob fails once the file has changed.
 * @param knownSha256 the digest of exactly this version of the file, if known
 */
export async function openFile(
  { path, size, changedAt }: LocalFile,
  signal: AbortSignal,
  knownSha256?: string,
): Promise<{ blob: Blob; sha256: string }> {
  if (size < RESUMABLE_BYTES) {
    const bytes = await readFile(path);
    return { blob: new Blob([bytes]), sha256: createHash("sha256").update(bytes).digest("hex") };
  }
  const blob = await openAsBlob(path);
  const sha256 = knownSha256 ?? (await digestOf(path, signal));
  const now = await stat(path);
  if (now.size === size && now.mtimeMs === changedAt) return { blob, sha256 };
  throw new Failure("failed", `${path}: The file changed during the upload.`);
}

/** Computes a file's SHA-256 in hex. One buffer is twice as fast as a stream, which allocates many. */
export async function digestOf(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  const file = await open(path);
  try {
    for (;;) {
      signal.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, READ_BYTES, null);
      if (bytesRead === 0) return hash.digest("hex");
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
