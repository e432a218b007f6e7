import { basename } from "node:path/posix";
import type { StoredFile, Stowage } from "../index.ts";
import { pathOf } from "./command.ts";
import { Failure } from "./failures.ts";
import { isIgnored, type LocalFile } from "./local-files.ts";
import type { Named } from "./organizing.ts";
import { localNameOf, localNamesOf } from "./places.ts";

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
    const versions = stored.get(path);
    if (versions) versions.push(file);
    else stored.set(path, [file]);
  }
  return stored;
}

/**
 * Finds the files that `get --folder` had to rename, so that a sync takes them for those of the service: enters these in
 * `stored` under their paths on this machine.
 * @param prefix the folder in the service that the given folders are sent to
 * @returns the files, of which a renamed one knows its name in the service
 */
export function matchRenamed(
  files: LocalFile[],
  stored: Stored,
  placeOf: (file: LocalFile) => string,
  prefix = "",
): LocalFile[] {
  const kept = prefix === "" ? 0 : prefix.split("/").length;
  const renamed = new Map<string, { path: string; file: StoredFile; isOriginal: boolean }>();
  for (const [path, versions] of stored) {
    for (const file of versions) {
      const folders = file.folder.split("/").map((name, i) => (i < kept ? name : localNameOf(name)));
      for (const [i, name] of localNamesOf(file).entries()) {
        const place = [...(file.folder === "" ? [] : folders), name].join("/").normalize("NFC");
        if (!stored.has(place) && !renamed.has(place)) renamed.set(place, { path, file, isOriginal: i === 0 });
      }
    }
  }
  return files.map((local) => {
    const place = placeOf(local);
    const found = renamed.get(place);
    if (!found || stored.has(place)) return local;
    const { path, file, isOriginal } = found;
    const others = (stored.get(path) ?? []).filter((one) => one !== file);
    if (others.length > 0) stored.set(path, others);
    else stored.delete(path);
    stored.set(place, [file]);
    // With the ID in its name, it is not the only file with its path.
    return isOriginal ? { ...local, original: { folder: file.folder, name: file.name } } : local;
  });
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
    const fail = (problem: string) =>
      onFailure(new Failure("failed", `${file.label} ${problem}`, { subject: file.label }));
    if (other) fail(`and ${other.label} have the same path in the service.`);
    else if (isLong) fail(`has a name of more than ${MAX_NAME_BYTES} bytes.`);
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

/** The path, and those of the folders that it is in. */
const pathsTo = (path: string): string[] => path.split("/").map((_, i, names) => names.slice(0, i + 1).join("/"));

/** Returns the files that the machine lacks, and old versions, except what a sync ignores. */
export function findSurplus(
  stored: Stored,
  { local, sentPaths, skipped, roots, exclude }: Local,
): (Named & Pick<StoredFile, "uploadedBy">)[] {
  const present = new Set(local);
  const skippedPaths = new Set(skipped);
  const isKept = (path: string) =>
    pathsTo(path).some((one) => skippedPaths.has(one)) ||
    roots.some((root) => path.startsWith(`${root}/`) && isIgnored(path.slice(root.length + 1), exclude));
  return [...stored].flatMap(([path, versions]) => {
    if (isKept(path)) return [];
    const isNewestKept = present.has(path) && !sentPaths.has(path);
    return versions.slice(isNewestKept ? 1 : 0).map(({ _id: id, uploadedBy }) => ({ id, label: path, uploadedBy }));
  });
}
