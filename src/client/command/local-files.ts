import { createHash } from "node:crypto";
import { open, readdir, readFile, stat } from "node:fs/promises";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { StowageError } from "../index.ts";
import { RESUMABLE_BYTES } from "../internal.ts";
import { Failure, failureOf } from "./failures.ts";

const READ_BYTES = 512 * 1024;

/** A file at one time. */
export interface FileVersion {
  path: string;
  size: number;
  /** Milliseconds since the epoch. */
  changedAt: number;
}

export interface LocalFile extends FileVersion {
  /** The path relative to the working folder, for people. */
  label: string;
  /** Its folder in the service, from the name of the given folder on. Empty for a file that was given itself. */
  folder: string;
  /** For a file that a download has renamed, where the service has it. */
  original?: { folder: string; name: string };
}

/** Characters that the service rejects in folders, and removes from names: control and text-direction characters. */
export const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Returns a path as a folder in the service, which rejects control and text-direction characters. */
const folderOf = (path: string): string =>
  path
    .split(sep)
    .filter(Boolean)
    .map((name) => name.replaceAll(UNSAFE, "_"))
    .join("/");

/** The service takes a backslash for a path of Windows; elsewhere a name may contain one. */
export const nameOf = (path: string): string => basename(path).replaceAll("\\", "_");

/** The path that the service gives to an uploaded file: it removes unsafe characters from names, and composes letters. */
export const storedPathOf = (folder: string, path: string): string =>
  [folder, nameOf(path).replaceAll(UNSAFE, "").trim()].filter(Boolean).join("/").normalize("NFC");

/** The folder whose name starts the paths in the service: files in the working folder itself start below it. */
const rootOf = (cwd: string, path: string): string => (path === resolve(cwd) ? path : dirname(path));

/** Returns where `upload` and `sync` put the files of a folder. */
export const storedFolderOf = (cwd: string, given: string): string => {
  const path = resolve(cwd, given);
  return folderOf(relative(rootOf(cwd, path), path));
};

/** Parses a pattern that can be repeated: `*` and `?` stand for characters of a name, `**` for several folders. */
export function parsePattern(text: string, earlier: RegExp[] = []): RegExp[] {
  const source = text.replace(/\/+$/, "").replaceAll(/\*\*\/?|[*?]|[\\^$.|+()[\]{}]/g, (part) => {
    if (part.startsWith("**")) return part === "**" ? ".*" : "(?:.*/)?";
    return part === "*" ? "[^/]*" : part === "?" ? "[^/]" : `\\${part}`;
  });
  return [...earlier, new RegExp(`^${source}$`, "u")];
}

/** Whether `path`, below the given folder, or a folder that it is in, is hidden or has an excluded name or path. */
export function isIgnored(path: string, patterns: RegExp[]): boolean {
  const names = path.split("/");
  const isMatch = (text: string) => patterns.some((pattern) => pattern.test(text));
  return names.some((name, i) => name.startsWith(".") || isMatch(name) || isMatch(names.slice(0, i + 1).join("/")));
}

export interface Walk {
  cwd: string;
  signal: AbortSignal;
  exclude: RegExp[];
  /** Receives the entries of folders that can't or should not be sent. */
  onSkip(file: Pick<LocalFile, "path" | "label" | "folder">, reason: string): void;
  onFailure(failure: Failure): void;
}

/**
 * Finds the named files, and the files below the named folders, which keep their place. Skips hidden, empty, and
 * excluded files in folders, but no named files.
 */
export async function findFiles(paths: string[], walk: Walk): Promise<LocalFile[]> {
  const found = new Map<string, LocalFile>();
  const labelOf = (path: string) => relative(walk.cwd, path) || path;
  const add = async (path: string, folder: string) => {
    const { size, mtimeMs } = await stat(path);
    if (!found.has(path)) found.set(path, { path, size, changedAt: mtimeMs, folder, label: labelOf(path) });
  };
  const addFolder = async (given: string, path: string): Promise<void> => {
    walk.signal.throwIfAborted();
    const folder = folderOf(relative(rootOf(walk.cwd, given), path));
    const entries = await readdir(path, { withFileTypes: true });
    for (const entry of entries.sort((one, other) => (one.name < other.name ? -1 : 1))) {
      const below = join(path, entry.name);
      const skip = (reason: string) => walk.onSkip({ path: below, folder, label: labelOf(below) }, reason);
      try {
        if (entry.name.startsWith(".")) skip("it is hidden");
        else if (isIgnored(relative(given, below).replaceAll(sep, "/"), walk.exclude)) skip("");
        else if (entry.isDirectory()) await addFolder(given, below);
        // Links may lead out of the folder, or in circles.
        else if (!entry.isFile()) skip(entry.isSymbolicLink() ? "it is a link" : "it is not a regular file");
        else if ((await stat(below)).size === 0) skip("it is empty");
        else await add(below, folder);
      } catch (error) {
        walk.signal.throwIfAborted();
        walk.onFailure(failureOf(error, labelOf(below)));
      }
    }
  };
  for (const given of paths) {
    const path = resolve(walk.cwd, given);
    try {
      const kind = await stat(path);
      if (kind.isDirectory()) await addFolder(path, path);
      else if (kind.isFile()) await add(path, "");
      else {
        const message = `${given} is neither a file nor a folder.`;
        walk.onFailure(new Failure("failed", message, { subject: given }));
      }
    } catch (error) {
      walk.signal.throwIfAborted();
      walk.onFailure(failureOf(error, given));
    }
  }
  return [...found.values()];
}

/**
 * Returns what to upload, and its SHA-256 in hex. A small file is read once, because it may change between two reads.
 * @param knownSha256 the digest of exactly this version of the file, if known
 */
export async function openFile(
  { path, size, changedAt }: FileVersion,
  signal: AbortSignal,
  knownSha256?: string,
): Promise<{ source: Uint8Array | string; sha256: string }> {
  if (size < RESUMABLE_BYTES) {
    const bytes = await readFile(path);
    return { source: bytes, sha256: createHash("sha256").update(bytes).digest("hex") };
  }
  const sha256 = knownSha256 ?? (await digestOf(path, signal));
  const now = await stat(path);
  if (now.size === size && now.mtimeMs === changedAt) return { source: path, sha256 };
  throw new StowageError("file_changed", "The file changed during the upload.");
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
