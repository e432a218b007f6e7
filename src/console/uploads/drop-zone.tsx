import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Action } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { href, navigate, path, query } from "../framework/router.ts";
import { countOf } from "../parts/format.ts";
import { addFiles, type ChosenFile } from "./queue.ts";

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

/** The folder that new files go to. */
const openFolder = () => (path.value === "/files" ? (query.value.get("folder") ?? "") : "");

/** @param open the folder that was open when the user dropped or chose the files */
function addCollected(open: string, { files, hidden, emptyFolders, unreadable }: Collected): void {
  const skipped = [
    hidden && countOf(hidden, "hidden file"),
    emptyFolders && countOf(emptyFolders, "empty folder"),
    unreadable && countOf(unreadable, "unreadable item"),
  ].filter((words) => typeof words === "string");
  if (skipped.length > 0) announce(`Skipped ${new Intl.ListFormat("en").format(skipped)}`);
  else if (files.length === 0) announce("That folder is empty");
  addFiles(files.map((one) => ({ ...one, folder: folderFor(open, one.path) })));
}

async function addDropped(items: DataTransferItemList): Promise<void> {
  // Reading folders takes a while, in which the user may open another one.
  const open = openFolder();
  // The list is cleared when the event ends.
  const entries = [...items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const collected: Collected = { files: [], hidden: 0, emptyFolders: 0, unreadable: 0 };
  for (const entry of entries) await collect(entry, collected);
  addCollected(open, collected);
}

function addChosen(open: string, chosen: File[]): void {
  const files = chosen
    .map((file) => ({ file, path: file.webkitRelativePath || file.name }))
    .filter(({ path }) => !path.split("/").some(isHidden));
  if (chosen[0]?.webkitRelativePath) files.sort((one, other) => compare(one.path, other.path));
  addCollected(open, { files, hidden: chosen.length - files.length, emptyFolders: 0, unreadable: 0 });
}

/** Kept, because a browser may forget an input that is not on the page before the user has chosen. */
let chooser: HTMLInputElement | undefined;

/** Opens the file chooser. Nothing happens if the user closes it. */
export function chooseFiles(
  options: { multiple?: boolean; webkitdirectory?: boolean },
  onFiles: (files: File[]) => void,
) {
  const input = Object.assign(document.createElement("input"), { type: "file", ...options });
  input.addEventListener("change", () => onFiles([...(input.files ?? [])]));
  chooser = input;
  chooser.click();
}

/** Files go to the open folder. */
const goToFiles = () => path.peek() !== "/files" && navigate(href("/files"));

export const uploadFiles: Action = {
  label: "Upload files",
  icon: "upload",
  scope: "files:upload",
  keys: ["u"],
  run: () => {
    goToFiles();
    const open = openFolder();
    chooseFiles({ multiple: true }, (files) => addChosen(open, files));
  },
};

export const uploadFolder: Action = {
  label: "Upload folder",
  icon: "folder",
  scope: "files:upload",
  run: () => {
    const open = openFolder();
    chooseFiles({ webkitdirectory: true }, (files) => addChosen(open, files));
  },
};

const isOver = signal(false);

/** Accepts files that are dropped anywhere in the window, and highlights it while files are dragged over it. */
export function DropZone() {
  useEffect(() => {
    const stop = new AbortController();
    // Not every browser says where a drag goes to, so the elements that it is over are counted.
    const entered = new Set<EventTarget | null>();
    const show = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      if (event.type === "dragenter") entered.add(event.target);
      isOver.value = true;
    };
    const hide = () => {
      entered.clear();
      isOver.value = false;
    };
    addEventListener("dragenter", show, stop);
    addEventListener("dragover", show, stop);
    const left = ({ target }: DragEvent) => {
      entered.delete(target);
      if (entered.size === 0) hide();
    };
    addEventListener("dragleave", left, stop);
    // The pointer does not move during a drag, so this ends a drag that ended without an event.
    addEventListener("pointermove", hide, stop);
    addEventListener(
      "drop",
      (event) => {
        hide();
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        void addDropped(event.dataTransfer.items);
      },
      stop,
    );
    return () => stop.abort();
  }, []);
  return (
    <div class="drop-zone" hidden={!isOver.value} aria-hidden="true">
      <p>Drop to upload{openFolder() && ` to ${openFolder().split("/").at(-1)}`}</p>
    </div>
  );
}
