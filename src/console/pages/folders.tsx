import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { TaskDialog } from "../parts/dialog.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { href, navigate } from "../router.ts";
import { moveFiles } from "./file-changes.ts";
import { type FileRow, pathOf } from "./file-rows.ts";

/* Folders: the way to the open one, the ones in it, and moving files by dragging them. */

export const folderUrl = (folder: string) => href("/files", { folder });

/** The files that are being dragged. Pages can't read the dragged data before the drop. */
const dragged = signal<FileRow[]>([]);
/** Distinguishes moved files from files that are dropped from the desktop, which are uploaded. */
const DRAG_TYPE = "application/x-stowage-files";

/** Starts to drag a row, with all selected files if it is one of them. */
export function startDrag(event: DragEvent, file: FileRow, chosen: FileRow[]): void {
  dragged.value = chosen.includes(file) ? chosen : [file];
  event.dataTransfer?.setData(DRAG_TYPE, "");
}

interface DropTargetProps {
  folder: string;
  onMoved: () => void;
}

/** The properties of an element onto which files can be dropped, to move them into a folder. */
function useDropTarget({ folder, onMoved }: DropTargetProps) {
  const [isOver, setOver] = useState(false);
  const accept = (event: DragEvent) => {
    if (!event.dataTransfer?.types.includes(DRAG_TYPE)) return;
    event.preventDefault();
    setOver(true);
  };
  return {
    "data-over": isOver,
    onDragEnter: accept,
    onDragOver: accept,
    onDragLeave: () => setOver(false),
    onDrop: (event: DragEvent) => {
      setOver(false);
      if (!event.dataTransfer?.types.includes(DRAG_TYPE)) return;
      event.preventDefault();
      void moveFiles(dragged.value, folder).then(onMoved);
    },
  };
}

interface Place {
  folder: string;
  onMoved: () => void;
}

/** A link to a folder, onto which files can be dropped. */
function FolderLink({ folder, onMoved, label }: Place & { label: string }) {
  return (
    <a href={folderUrl(folder)} {...useDropTarget({ folder, onMoved })}>
      <bdi>{label}</bdi>
    </a>
  );
}

/** The way from the top to the open folder. */
export function Breadcrumbs({ folder, onMoved }: Place) {
  const path = [{ name: "Files", path: "" }, ...pathOf(folder)];
  return (
    <nav class="breadcrumbs" aria-label="Folders">
      <ol>
        {path.map(({ name, path: target }) => (
          <li key={target}>
            {target === folder ? (
              <span aria-current="page">
                <bdi>{name}</bdi>
              </span>
            ) : (
              <FolderLink folder={target} onMoved={onMoved} label={name} />
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}

/** The folders in the open folder. */
export function FolderList({ folders, onMoved }: { folders: string[]; onMoved: () => void }) {
  return (
    <ul class="folders" aria-label="Folders in this folder">
      {folders.map((folder) => (
        <li key={folder}>
          <FolderLink folder={folder} onMoved={onMoved} label={pathOf(folder).at(-1)?.name ?? ""} />
        </li>
      ))}
    </ul>
  );
}

/** Opens a new folder. It exists once a file is in it. */
export function NewFolder({ parent, onClose }: { parent: string; onClose: () => void }) {
  const open = (form: HTMLFormElement) => {
    const name = textOf(form, "folder");
    onClose();
    navigate(folderUrl(parent ? `${parent}/${name}` : name));
  };
  return (
    <TaskDialog title="New folder" action="Open folder" onRun={open} onClose={onClose}>
      <TextField
        label="Name"
        name="folder"
        required
        pattern="[^\/]*[^\/.][^\/]*"
        maxLength={100}
        hint="The folder appears once you upload a file to it, or move one into it."
      />
    </TaskDialog>
  );
}

interface MoveDialogProps {
  files: FileRow[];
  /** Folders to suggest. */
  folders: string[];
  onMoved: () => void;
  onClose: () => void;
}

export function MoveDialog({ files, folders, onMoved, onClose }: MoveDialogProps) {
  const move = async (form: HTMLFormElement) => {
    await moveFiles(files, textOf(form, "folder"));
    onMoved();
    onClose();
  };
  const [first] = files;
  const common = files.every(({ folder }) => folder === first?.folder) ? (first?.folder ?? "") : "";
  return (
    <TaskDialog
      title={files.length === 1 ? `Move “${first?.name}”` : `Move ${files.length.toLocaleString()} files`}
      action="Move"
      onRun={move}
      onClose={onClose}
    >
      <TextField
        label="Folder"
        name="folder"
        list="folder-suggestions"
        defaultValue={common}
        spellcheck={false}
        hint="A path such as podcast/2026. Leave blank to move the files out of all folders."
      />
      <datalist id="folder-suggestions">
        {folders.map((folder) => (
          <option key={folder} value={folder} />
        ))}
      </datalist>
    </TaskDialog>
  );
}
