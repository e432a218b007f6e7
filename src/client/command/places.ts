import { lstat, mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { StoredFile } from "../stowage.ts";
import { Failure } from "./failures.ts";
import { plain } from "./output.ts";

/* Where downloads are written. */

/**
 * Makes a name safe that anybody may have chosen: it can't leave the folder, is not reserved by Windows, and is not a
 * hidden file that programs read, such as `.bashrc`.
 */
export function localNameOf(name: string): string {
  const base = plain(name)
    .replaceAll(/[\\/:*?"<>|]/g, "_")
    .replace(/[. ]+$/, "");
  const isUnsafe = /^[.~-]|^$/.test(base) || /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(base);
  return isUnsafe ? `_${base}` : base;
}

/** Creates a folder below `output`. Never follows a link, which could lead out of it. @returns its path */
async function makeFolder(cwd: string, output: string, names: string[]): Promise<string> {
  let path = output;
  for (const name of names) {
    path = join(path, localNameOf(name));
    const found = await lstat(resolve(cwd, path)).catch(() => undefined);
    if (found && !found.isDirectory()) throw new Failure("failed", `${path} is not a folder. Remove it.`);
  }
  await mkdir(resolve(cwd, path), { recursive: true });
  return path;
}

/**
 * Chooses where to write the files of a folder: below its name, as `upload` took them. Of files with one name in one
 * folder, the newest keeps it, and the others get their ID as well.
 */
export async function placesOf(
  cwd: string,
  files: StoredFile[],
  root: string,
  output = ".",
): Promise<Map<string, string>> {
  const above = root.lastIndexOf("/") + 1;
  const places = new Map<string, string>();
  const taken = new Set<string>();
  for (const { _id, folder, name } of files) {
    const path = await makeFolder(cwd, output, folder.slice(above).split("/").filter(Boolean));
    const local = [name, `${_id}-${name}`].map((one) => join(path, localNameOf(one)));
    // Some file systems ignore case.
    const place = local.find((one) => !taken.has(one.toLowerCase())) ?? "";
    taken.add(place.toLowerCase());
    places.set(_id, place);
  }
  return places;
}
