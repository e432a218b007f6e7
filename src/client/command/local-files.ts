import { createHash } from "node:crypto";
import { type Dirent, openAsBlob } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { type Failure, failureOf } from "./failures.ts";

/** So small a file is read at once. */
const SMALL_BYTES = 1_000_000;

export interface LocalFile {
  path: string;
  size: number;
  /** Milliseconds since the epoch. */
  changedAt: number;
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries: Dirent[] = await readdir(folder, { withFileTypes: true });
  const paths: string[] = [];
  for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) paths.push(...(await filesBelow(path)));
    else if (entry.isFile()) paths.push(path);
  }
  return paths;
}

/** The files that are meant: those named, and those below the folders named. What can't be read is told of by `onFailure`. */
export async function findFiles(paths: string[], onFailure: (failure: Failure) => void): Promise<LocalFile[]> {
  const found = new Map<string, LocalFile>();
  for (const given of paths) {
    try {
      const isFolder = (await stat(given)).isDirectory();
      for (const path of isFolder ? await filesBelow(resolve(given)) : [resolve(given)]) {
        const { size, mtimeMs } = await stat(path);
        found.set(path, { path, size, changedAt: mtimeMs });
      }
    } catch (error) {
      onFailure(failureOf(error, given));
    }
  }
  return [...found.values()];
}

/** The file's bytes, read as they are asked for, and their SHA-256 in hex. Reading fails once the file was changed. */
export async function openFile({ path, size }: LocalFile): Promise<{ blob: Blob; digest: () => Promise<string> }> {
  if (size < SMALL_BYTES) {
    const bytes = await readFile(path);
    return { blob: new Blob([bytes]), digest: async () => createHash("sha256").update(bytes).digest("hex") };
  }
  const blob = await openAsBlob(path);
  return { blob, digest: () => digestOf(blob) };
}

async function digestOf(blob: Blob): Promise<string> {
  const hash = createHash("sha256");
  for await (const bytes of blob.stream()) hash.update(bytes);
  return hash.digest("hex");
}
