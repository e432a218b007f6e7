import { basename } from "node:path/posix";
import type { StoredFile, Stowage } from "../stowage.ts";
import { pathOf } from "./command.ts";
import { Failure } from "./failures.ts";
import { isIgnored, type LocalFile } from "./local-files.ts";
import type { Named } from "./organizing.ts";

/* The two sides of a sync. A path is a folder and a name in the service, in composed characters. */

/** The files of the service by path. Of files with one path, the newest is the first. */
export type Stored = Map<string, StoredFile[]>;

/** The service shortens longer names. */
const MAX_NAME_BYTES = 200;

/** Lists the files of the service in these folders and below. */
export async function listStored(stowage: Stowage, folders: string[], signal: AbortSignal): Promise<Stored> {
  const files = new Map<string, StoredFile>();
  for (const under of new Set(folders)) {
    // One folder may be in another.
    for await (const file of stowage.files.list({ under }, { signal })) files.set(file._id, file);
  }
  const stored: Stored = new Map();
  for (const file of files.values()) {
    const path = pathOf(file).normalize("NFC");
    stored.set(path, [...(stored.get(path) ?? []), file]);
  }
  return stored;
}

/** Yields the files that the service stores at a unique path. It would get the others again each time. */
export function* distinct(
  files: LocalFile[],
  placeOf: (file: LocalFile) => string,
  onFailure: (failure: Failure) => void,
): Generator<LocalFile> {
  const found = new Map<string, LocalFile>();
  for (const file of files) {
    const path = placeOf(file);
    const other = found.get(path);
    const isLong = Buffer.byteLength(basename(path)) > MAX_NAME_BYTES;
    if (other) onFailure(new Failure("failed", `${file.label} and ${other.label} have the same path in the service.`));
    else if (isLong) onFailure(new Failure("failed", `${file.label} has a name of more than ${MAX_NAME_BYTES} bytes.`));
    else {
      found.set(path, file);
      yield file;
    }
  }
}

interface Local {
  /** The paths of the files of this machine. */
  local: string[];
  /** The paths that were sent in this run. The list has only older files there. */
  sentPaths: Set<string>;
  /** The paths of files and folders that the run skipped. */
  skipped: string[];
  roots: string[];
  exclude: RegExp[];
}

/** Returns the files that the machine lacks, and old versions, except what a sync ignores. */
export function findSurplus(stored: Stored, { local, sentPaths, skipped, roots, exclude }: Local): Named[] {
  const present = new Set(local);
  const isKept = (path: string) =>
    skipped.some((one) => path === one || path.startsWith(`${one}/`)) ||
    roots.some((root) => path.startsWith(`${root}/`) && isIgnored(path.slice(root.length + 1), exclude));
  return [...stored].flatMap(([path, versions]) => {
    if (isKept(path)) return [];
    const isNewestKept = present.has(path) && !sentPaths.has(path);
    return versions.slice(isNewestKept ? 1 : 0).map(({ _id: id }) => ({ id, label: path }));
  });
}
