import { link, lstat, mkdir, rename, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { StoredFile } from "../index.ts";
import { Failure } from "./failures.ts";
import { UNSAFE } from "./local-files.ts";

/* Where downloads are written. */

/**
 * Makes a name safe that anybody may have chosen, and otherwise keeps it: it can't leave the folder, is allowed by the
 * system, and is neither a hidden file that programs read, such as `.bashrc`, nor an option or a home folder.
 */
export function localNameOf(name: string, isWindows = process.platform === "win32"): string {
  const safe = name.replaceAll(UNSAFE, "_").replaceAll(/[\\/]/g, "_");
  const base = isWindows ? safe.replaceAll(/[:*?"<>|]/g, "_").replace(/[. ]+$/, "") : safe;
  const isReserved = isWindows && /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(base);
  return isReserved || /^[.~-]|^$/.test(base) ? `_${base}` : base;
}

/** The names that a download of a folder may give to a file, the preferred one first. */
export const localNamesOf = ({ _id, name }: Pick<StoredFile, "_id" | "name">): string[] =>
  [name, `${_id}-${name}`].map((one) => localNameOf(one));

/** A place for a file. */
export interface Place {
  path: string;
  /** Where the file would be if its name, or that of a folder, had not been changed. */
  expected: string;
}

/** Creates a folder below `output` unless `isPlanned`. Never follows a link, which could lead out of it. @returns its path */
async function makeFolder(cwd: string, output: string, names: string[], isPlanned: boolean): Promise<string> {
  let path = output;
  for (const name of names) {
    path = join(path, localNameOf(name));
    const found = await lstat(resolve(cwd, path)).catch(() => undefined);
    if (found && !found.isDirectory())
      throw new Failure("failed", `${path} is not a folder. Remove it.`, { subject: path });
  }
  if (!isPlanned) await mkdir(resolve(cwd, path), { recursive: true });
  return path;
}

/** The length of the path above the last folder, whose name is the first one on this machine. */
const aboveOf = (root: string): number => root.lastIndexOf("/") + 1;

/** Where a download puts a folder of the service. */
export const localFolderOf = (root: string, output: string): string =>
  join(output, localNameOf(root.slice(aboveOf(root))));

/**
 * Chooses where to write the files of a folder: below its name, as `upload` took them. Of files with one name in one
 * folder, the newest keeps it, and the others get their ID as well.
 */
export async function placesOf(
  cwd: string,
  files: StoredFile[],
  root: string,
  output: string,
  isPlanned: boolean,
): Promise<Map<string, Place>> {
  const above = aboveOf(root);
  const places = new Map<string, Place>();
  const taken = new Set<string>();
  for (const file of files) {
    const folder = file.folder.slice(above);
    const folderPath = await makeFolder(cwd, output, folder.split("/").filter(Boolean), isPlanned);
    const local = localNamesOf(file).map((name) => join(folderPath, name));
    // Some file systems ignore case.
    const path = local.find((one) => !taken.has(one.toLowerCase())) ?? "";
    taken.add(path.toLowerCase());
    places.set(file._id, { path, expected: join(output, folder, file.name) });
  }
  return places;
}

export const alreadyExists = (name: string): Failure =>
  new Failure("failed", `${name} already exists. Choose another name with -o, or add --force.`);

/** Renames the finished file. Replaces an existing one only if `isForced`. */
export async function moveInPlace(partial: string, path: string, name: string, isForced: boolean): Promise<void> {
  if (isForced) return rename(partial, path);
  try {
    // Unlike rename, link fails if a file with this name has appeared in the meantime.
    await link(partial, path);
    await unlink(partial);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") throw alreadyExists(name);
    // Some file systems have no links.
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EOPNOTSUPP", "EMLINK"].includes(code)) throw error;
    await rename(partial, path);
  }
}
