import { announce } from "../framework/announce.tsx";
import { countOf } from "../parts/format.ts";
import { addFiles, type ChosenFile } from "./queue.ts";

/* From what the user dropped or chose to uploads. */

interface Collected {
  files: Omit<ChosenFile, "folder">[];
  hidden: number;
  emptyFolders: number;
  unreadable: number;
}

/** The API's limit for the path of a folder. */
const MAX_FOLDER_BYTES = 512;
/** Control characters, line separators, and text directions, which the API does not accept in folders. */
const UNSAFE = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** The folder for a file with a path: the open folder, and in it the folders of the path as far as the API allows. */
function folderFor(open: string, filePath: string): string {
  const names = filePath.split("/").slice(0, -1);
  let folder = open;
  for (const name of names) {
    const next = [folder, name.replace(UNSAFE, "").normalize("NFC")].filter(Boolean).join("/");
    if (new TextEncoder().encode(next).length > MAX_FOLDER_BYTES) break;
    folder = next;
  }
  return folder;
}

/** Browsers list the entries of a folder in no particular order. */
const { compare } = new Intl.Collator(undefined, { numeric: true });
const isHidden = (name: string) => name.startsWith(".");

async function readEntries(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const entries: FileSystemEntry[] = [];
  // The reader returns up to a hundred entries at a time, and none at the end.
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return entries;
    entries.push(...batch);
  }
}

async function collect(entry: FileSystemEntry, collected: Collected): Promise<void> {
  try {
    if (isHidden(entry.name)) {
      collected.hidden++;
    } else if (entry.isFile) {
      const path = entry.fullPath.slice(1);
      const file = new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
      collected.files.push({ file: await file, path });
    } else {
      const entries = await readEntries(entry as FileSystemDirectoryEntry);
      if (entries.length === 0) collected.emptyFolders++;
      entries.sort((one, other) => compare(one.name, other.name));
      for (const child of entries) await collect(child, collected);
    }
  } catch {
    collected.unreadable++;
  }
}

/** @param open the folder that was open when the user dropped or chose the files */
function addCollected(open: string, { files, hidden, emptyFolders, unreadable }: Collected): void {
  const skipped = [
    hidden && countOf(hidden, "hidden file"),
    emptyFolders && countOf(emptyFolders, "empty folder"),
    unreadable && countOf(unreadable, "unreadable item"),
  ].filter((words) => typeof words === "string");
  if (skipped.length > 0) announce(`Skipped ${new Intl.ListFormat("en").format(skipped)}`);
  else if (files.length === 0) announce("Nothing to upload in that");
  addFiles(files.map((one) => ({ ...one, folder: folderFor(open, one.path) })));
}

/** Adds the files of dropped items, which the browser has listed when they were dropped. */
export async function addDropped(open: string, entries: FileSystemEntry[]): Promise<void> {
  const collected: Collected = { files: [], hidden: 0, emptyFolders: 0, unreadable: 0 };
  for (const entry of entries) await collect(entry, collected);
  addCollected(open, collected);
}

export function addChosen(open: string, chosen: File[]): void {
  const files = chosen
    .map((file) => ({ file, path: file.webkitRelativePath || file.name }))
    .filter(({ path }) => !path.split("/").some(isHidden));
  if (chosen[0]?.webkitRelativePath) files.sort((one, other) => compare(one.path, other.path));
  addCollected(open, { files, hidden: chosen.length - files.length, emptyFolders: 0, unreadable: 0 });
}
