import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../parts/announce.tsx";
import { add, type Chosen } from "./queue.ts";

interface Found {
  files: Chosen[];
  hidden: number;
  emptyFolders: number;
  unreadable: number;
}

/** Browsers give what is in a folder in any order. */
const { compare } = new Intl.Collator(undefined, { numeric: true });
const isHidden = (name: string) => name.startsWith(".");

const entriesOf = (folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> => {
  const reader = folder.createReader();
  // It gives a hundred at a time, and none at the end.
  const readOn = async (read: FileSystemEntry[]): Promise<FileSystemEntry[]> => {
    const more = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    return more.length > 0 ? readOn([...read, ...more]) : read;
  };
  return readOn([]);
};

async function collect(entry: FileSystemEntry, found: Found): Promise<void> {
  try {
    if (isHidden(entry.name)) {
      found.hidden++;
    } else if (entry.isFile) {
      const path = entry.fullPath.slice(1);
      const file = new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
      found.files.push({ file: await file, path });
    } else {
      const entries = await entriesOf(entry as FileSystemDirectoryEntry);
      if (entries.length === 0) found.emptyFolders++;
      for (const one of entries.sort((some, other) => compare(some.name, other.name))) await collect(one, found);
    }
  } catch {
    found.unreadable++;
  }
}

function addFound({ files, hidden, emptyFolders, unreadable }: Found): void {
  const left = [
    hidden && (hidden === 1 ? "1 hidden file" : `${hidden} hidden files`),
    emptyFolders && (emptyFolders === 1 ? "1 empty folder" : `${emptyFolders} empty folders`),
    unreadable && `${unreadable} that can't be read`,
  ].filter((words) => typeof words === "string");
  if (left.length > 0) announce(`Left out: ${new Intl.ListFormat("en").format(left)}.`);
  else if (files.length === 0) announce("There is no file in it.");
  add(files);
}

async function addDropped(items: DataTransferItemList): Promise<void> {
  // The list is emptied as soon as the event is over.
  const entries = [...items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const found: Found = { files: [], hidden: 0, emptyFolders: 0, unreadable: 0 };
  for (const entry of entries) await collect(entry, found);
  addFound(found);
}

function addChosen(chosen: File[]): void {
  const files = chosen
    .map((file) => ({ file, path: file.webkitRelativePath || file.name }))
    .filter(({ path }) => !path.split("/").some(isHidden));
  if (chosen[0]?.webkitRelativePath) files.sort((some, other) => compare(some.path, other.path));
  addFound({ files, hidden: chosen.length - files.length, emptyFolders: 0, unreadable: 0 });
}

/** A button that asks for files. `of` says to a screen reader for what. */
export function FileInput({
  label,
  of,
  class: kind = "",
  folder = false,
  multiple = false,
  onFiles,
}: {
  label: string;
  of?: string;
  class?: string;
  folder?: boolean;
  multiple?: boolean;
  onFiles: (files: File[], button: HTMLButtonElement) => void;
}) {
  const button = useRef<HTMLButtonElement>(null);
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        hidden
        multiple={multiple}
        {...(folder && { webkitdirectory: true })}
        onChange={({ currentTarget }) => {
          const files = [...(currentTarget.files ?? [])];
          // So that the same can be chosen again.
          currentTarget.value = "";
          if (button.current) onFiles(files, button.current);
        }}
      />
      <button ref={button} type="button" class={`button ${kind}`} onClick={() => input.current?.click()}>
        {label}
        {of && <span class="visually-hidden"> {of}</span>}
      </button>
    </>
  );
}

/** For the page of files. Everywhere else they are dropped. */
export function UploadButtons() {
  return (
    <>
      <FileInput label="Upload files" class="primary" multiple onFiles={addChosen} />
      <FileInput label="Upload a folder" folder onFiles={addChosen} />
    </>
  );
}

const isOver = signal(false);

/** Takes what is dropped anywhere in the window, and shows itself while something is dragged over it. */
export function DropZone() {
  useEffect(() => {
    const stop = new AbortController();
    const show = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      isOver.value = true;
    };
    const hide = () => {
      isOver.value = false;
    };
    addEventListener("dragenter", show, stop);
    addEventListener("dragover", show, stop);
    addEventListener("dragleave", ({ relatedTarget }) => relatedTarget ?? hide(), stop);
    // While something is dragged, nothing points: this ends a drag whose end was told to nobody.
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
      <p>Drop files or folders to upload them</p>
    </div>
  );
}
