import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { announce } from "../parts/announce.tsx";
import { TaskDialog } from "../parts/dialog.tsx";
import { messageOf } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Menu, type MenuItem } from "../parts/menu.tsx";
import { Breadcrumbs } from "../parts/page.tsx";
import { href, navigate } from "../router.ts";
import { client, noteFailure } from "../session.ts";
import { useList } from "../store.ts";
import { moveFiles } from "./file-changes.ts";
import { type FileRow, pathOf } from "./file-rows.ts";

/* Folders: the way to the open one, the ones in it, and moving files. */

export const folderUrl = (folder: string) => href("/files", { folder });
const nameOf = (folder: string) => pathOf(folder).at(-1)?.name ?? "Files";

/** The files that are being dragged. Pages can't read the dragged data before the drop. */
const dragged = signal<FileRow[]>([]);
/** Distinguishes moved files from files that are dropped from the desktop, which are uploaded. */
const DRAG_TYPE = "application/x-stowage-files";

/** Starts to drag a row, with all selected files if it is one of them. */
export function startDrag(event: DragEvent, file: FileRow, chosen: FileRow[]): void {
  dragged.value = chosen.some(({ _id }) => _id === file._id) ? chosen : [file];
  event.dataTransfer?.setData(DRAG_TYPE, "");
  const ghost = document.createElement("div");
  ghost.className = "drag-ghost";
  ghost.textContent = dragged.value.length === 1 ? file.name : countOf(dragged.value.length, "file");
  document.body.append(ghost);
  event.dataTransfer?.setDragImage(ghost, -8, -8);
  // The browser copies it when the event has ended.
  setTimeout(() => ghost.remove());
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
  const move = async () => {
    const caller = client.peek();
    try {
      await moveFiles(dragged.value, folder);
    } catch (error) {
      noteFailure(error, caller);
      announce(`Couldn't move the files: ${messageOf(error)}`);
    }
    onMoved();
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
      void move();
    },
  };
}

/** The way from the top to the open folder. Files can be dropped onto each folder of it. */
export function FolderPath({ folder, onMoved }: DropTargetProps) {
  const above = [{ name: "Files", path: "" }, ...pathOf(folder)].slice(0, -1);
  return (
    <nav class="breadcrumbs" aria-label="Folders">
      <ol>
        {above.map(({ name, path }) => (
          <li key={path}>
            <FolderLink folder={path} label={name} onMoved={onMoved} />
          </li>
        ))}
      </ol>
    </nav>
  );
}

/** The way to a file, from the top. */
export const FileCrumbs = ({ folder, listUrl }: { folder: string; listUrl: string }) => (
  <Breadcrumbs
    links={[
      { href: folder ? folderUrl("") : listUrl, label: "Files" },
      ...pathOf(folder).map(({ name, path }) => ({ href: folderUrl(path), label: name })),
    ]}
  />
);

function FolderLink({ folder, onMoved, label }: DropTargetProps & { label: string }) {
  return (
    <a href={folderUrl(folder)} title={label} {...useDropTarget({ folder, onMoved })}>
      <bdi>{label}</bdi>
    </a>
  );
}

async function copyFolderLink(folder: string): Promise<void> {
  await navigator.clipboard.writeText(location.origin + folderUrl(folder)).then(
    () => announce("Copied link to the folder"),
    () => announce("Couldn't copy the link"),
  );
}

/** The actions of a folder. */
export const folderActions = (folder: string): MenuItem[] => [
  { label: "Open", icon: "folder", onSelect: () => navigate(folderUrl(folder)) },
  { label: "Copy link", icon: "link", onSelect: () => void copyFolderLink(folder) },
];

/** The folders in the open folder. */
export function FolderList({ folders, onMoved }: { folders: string[]; onMoved: () => void }) {
  return (
    <ul class="folders" aria-label="Folders in this folder">
      {folders.map((folder) => (
        <Folder key={folder} folder={folder} onMoved={onMoved} />
      ))}
    </ul>
  );
}

function Folder({ folder, onMoved }: DropTargetProps) {
  const { onDragOver, ...target } = useDropTarget({ folder, onMoved });
  return (
    <li class="folder" {...target} onDragOver={onDragOver}>
      <Icon name="folder" size={18} />
      <a href={folderUrl(folder)} title={nameOf(folder)}>
        <bdi>{nameOf(folder)}</bdi>
      </a>
      <Menu label={`Actions for the folder ${nameOf(folder)}`} items={folderActions(folder)} />
    </li>
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
    <TaskDialog title="New folder" action="Create folder" onRun={open} onClose={onClose}>
      <TextField
        label="Name"
        name="folder"
        required
        pattern="[^\/]*[^\/.][^\/]*"
        maxLength={100}
        hint="The folder appears in lists once it has a file."
      />
    </TaskDialog>
  );
}

/** The folders that files were moved to last, the latest first. */
const recent = signal<string[]>([]);
const MAX_RECENT = 3;

interface MoveDialogProps {
  files: FileRow[];
  onMoved: () => void;
  onClose: () => void;
}

/** Moves files into a folder that is picked level by level, or typed as a path. */
export function MoveDialog({ files, onMoved, onClose }: MoveDialogProps) {
  const [first] = files;
  const common = files.every(({ folder }) => folder === first?.folder) ? (first?.folder ?? "") : "";
  const [target, setTarget] = useState(common);
  // The typed part after the last slash filters the folders of the level before it.
  const [parent, typed] = splitPath(target);
  const inTarget = useFolders(target);
  const siblings = useFolders(parent);
  const isKnown = target === "" || target === common || (siblings.items?.includes(target) ?? true);
  const level = isKnown ? inTarget : siblings;
  const shown = (level.items ?? []).filter((folder) => isKnown || nameOf(folder).toLowerCase().includes(typed));
  const recents = recent.value.filter((folder) => folder !== common && !shown.includes(folder));
  const move = async () => {
    const folder = target.trim().replace(/^\/+|\/+$/g, "");
    await moveFiles(files, folder);
    if (folder) recent.value = [folder, ...recent.value.filter((one) => one !== folder)].slice(0, MAX_RECENT);
    onMoved();
    onClose();
  };
  const choice = (folder: string, label: string, note = "") => (
    <li key={note + folder}>
      <button type="button" onClick={() => setTarget(folder)}>
        <Icon name="folder" />
        <bdi>{label}</bdi>
        <span class="quiet">{folder === common ? "Current folder" : note}</span>
      </button>
    </li>
  );
  return (
    <TaskDialog
      title={files.length === 1 ? `Move “${first?.name}”` : `Move ${countOf(files.length, "file")}`}
      action={isKnown ? "Move" : "Create and move"}
      onRun={move}
      onClose={onClose}
    >
      <TextField
        label="Folder"
        name="folder"
        spellcheck={false}
        value={target}
        placeholder="Files"
        onInput={({ currentTarget: { value } }) => setTarget(value)}
        hint={isKnown ? "Pick a folder, or type a path such as podcast/2026." : "A new folder is created."}
      />
      <ul class="folder-picker" aria-label="Places to move to">
        {target !== "" && choice(parent, parent === "" ? "Files" : nameOf(parent), "Up")}
        {target === "" && recents.map((folder) => choice(folder, folder, "Recent"))}
        {shown.map((folder) => choice(folder, nameOf(folder)))}
        {level.items && shown.length === 0 && <li class="quiet">No folders in here</li>}
      </ul>
    </TaskDialog>
  );
}

/** The folder above a path, and its last name as a filter. */
function splitPath(path: string): [string, string] {
  const slash = path.lastIndexOf("/");
  return [slash < 0 ? "" : path.slice(0, slash), path.slice(slash + 1).toLowerCase()];
}

const useFolders = (folder: string) =>
  useList(`folders ${folder}`, (signal) => client.value.files.folders(folder ? { under: folder } : {}, { signal }));
