import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { changing } from "../files/changing.ts";
import { type FileRow, pathOf } from "../files/file-rows.ts";
import type { Action, Actions } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { ask, confirm, open } from "../framework/dialog.tsx";
import { href, navigate, path, query } from "../framework/router.ts";
import { script } from "../framework/script.tsx";
import { client, deletionScope, trashDays } from "../framework/session.ts";
import { pageSignal } from "../framework/signals.ts";
import { copy } from "../parts/copy.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf, formatCount } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Menu } from "../parts/menu.tsx";
import { Breadcrumbs } from "../parts/page.tsx";
import { join, nameOf, parentOf } from "./folder-data.ts";

/* Folders: the way to the open one, the ones in it, their changes, and moving files. */

export const folderUrl = (folder: string) => href("/files", { folder });

const FolderDialog = script(() => import("./folder-dialog.tsx")).view(({ FolderDialog }) => FolderDialog);

/** The files that are being dragged. Pages can't read the dragged data before the drop. */
const dragged = pageSignal<FileRow[]>([]);
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

/** The properties of an element onto which files can be dropped, to move them into a folder. */
function useDropTarget(folder: string) {
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
      const files = dragged.value;
      changing.use(({ moveFiles }) => moveFiles(files, folder));
    },
  };
}

/** The way from the top to the open folder. Files can be dropped onto each folder of it. */
export function FolderPath({ folder }: { folder: string }) {
  const above = [{ name: "Files", path: "" }, ...pathOf(folder)].slice(0, -1);
  return (
    <nav class="breadcrumbs" aria-label="Folders">
      <ol>
        {above.map(({ name, path }) => (
          <li key={path}>
            <FolderLink folder={path} label={name} />
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

function FolderLink({ folder, label }: { folder: string; label: string }) {
  return (
    <a href={folderUrl(folder)} title={label} {...useDropTarget(folder)}>
      <bdi>{label}</bdi>
    </a>
  );
}

/** Announces the result for a folder. If the folder is open, navigates to its new or former place. */
function finishChange(folder: string, place: string, text: string, isComplete: boolean): void {
  announce(isComplete ? text : `${text}. The rest follows within minutes.`);
  const open = query.peek().get("folder") ?? "";
  if (open === folder) navigate(folderUrl(place), { replace: true });
}

async function changePath(folder: string, to: string): Promise<void> {
  if (to === folder) return;
  const { isComplete } = await client.value.files.moveFolder(folder, to);
  const isRenamed = parentOf(to) === parentOf(folder);
  const text = isRenamed ? `Renamed to ${nameOf(to)}` : `Moved to ${parentOf(to) || "Files"}`;
  finishChange(folder, to, text, isComplete);
}

const renameFolder = (folder: string) =>
  ask({
    title: `Rename “${nameOf(folder)}”`,
    action: "Rename",
    text: (
      <NameField name="to" value={nameOf(folder)} hint="If there is a folder with this name, the two are merged." />
    ),
    run: (form) => changePath(folder, join(parentOf(folder), textOf(form, "to"))),
  });

const deleteFolder = (folder: string) =>
  confirm({
    title: `Delete “${nameOf(folder)}”?`,
    text: `${
      trashDays.value
        ? "The files in it move to the trash, where they can be restored. Until then, share links to them don't work."
        : "The files and folders in it are deleted, and share links to them stop working. This can't be undone."
    } Held files stay.`,
    action: "Delete folder",
    run: async () => {
      const { isComplete, held } = await client.value.files.deleteFolder(folder);
      const kept = held > 0 ? `, except for ${countOf(held, "held file")}` : "";
      finishChange(folder, parentOf(folder), `Deleted ${nameOf(folder)}${kept}`, isComplete);
    },
  });

/** The actions of a folder. */
export const folderActions = (folder: string): Actions => [
  { label: "Open", icon: "folder", run: () => navigate(folderUrl(folder)) },
  {
    label: "Copy team link",
    icon: "copy",
    run: () => copy(location.origin + folderUrl(folder), "a link to the folder, for your team only"),
  },
  { label: "Rename", icon: "edit", scope: "files:write", run: () => renameFolder(folder) },
  { label: "Move", icon: "move", scope: "files:write", run: () => moveFolder(folder) },
  { label: "Delete", icon: "trash", scope: deletionScope(), isDangerous: true, run: () => deleteFolder(folder) },
];

const moveFolder = (folder: string) =>
  open((close) => (
    <FolderDialog
      title={`Move “${nameOf(folder)}”`}
      current={parentOf(folder)}
      hidden={folder}
      onPick={(parent) => changePath(folder, join(parent, nameOf(folder)))}
      onClose={() => close()}
    />
  ));

/** How many folders fit in two rows of a grid. Where they are one row that scrolls, all do. */
function useTwoRows() {
  const list = useRef<HTMLUListElement>(null);
  const [count, setCount] = useState(Number.POSITIVE_INFINITY);
  useLayoutEffect(() => {
    const grid = list.current as HTMLUListElement;
    const measure = () => {
      const { display, gridTemplateColumns } = getComputedStyle(grid);
      setCount(display === "grid" ? 2 * gridTemplateColumns.split(" ").length : Number.POSITIVE_INFINITY);
    };
    const resizing = new ResizeObserver(measure);
    resizing.observe(grid);
    measure();
    return () => resizing.disconnect();
  }, []);
  return { list, count };
}

/** Fewer hidden folders than this would save less room than the button takes. */
const MIN_HIDDEN = 3;

/** The folders in the open folder. @param isShort shows two rows of them at first */
export function FolderList({ folders, isShort }: { folders: string[]; isShort: boolean }) {
  const { list, count } = useTwoRows();
  const [isOpen, setOpen] = useState(false);
  const isShortened = isShort && !isOpen && folders.length >= count + MIN_HIDDEN;
  return (
    <>
      <ul ref={list} class="folders" aria-label="Folders in this folder">
        {folders.slice(0, isShortened ? count : folders.length).map((folder) => (
          <Folder key={folder} folder={folder} />
        ))}
      </ul>
      {isShortened && (
        <button
          type="button"
          class="button start"
          onClick={() => {
            setOpen(true);
            // The button disappears.
            requestAnimationFrame(() => list.current?.querySelectorAll("a")[count]?.focus());
          }}
        >
          Show all {formatCount(folders.length)}
        </button>
      )}
    </>
  );
}

function Folder({ folder }: { folder: string }) {
  return (
    <li class="folder" {...useDropTarget(folder)}>
      <Icon name="folder" size={18} />
      <a href={folderUrl(folder)} title={nameOf(folder)}>
        <bdi>{nameOf(folder)}</bdi>
      </a>
      {/* On a phone, a folder has its actions once it is open. */}
      <span class="wide-only">
        <Menu label={`Actions for the folder ${nameOf(folder)}`} items={folderActions(folder)} />
      </span>
    </li>
  );
}

interface NameFieldProps {
  name: string;
  value?: string;
  hint?: string;
}

const NameField = ({ name, value = "", hint }: NameFieldProps) => (
  <TextField
    label="Name"
    name={name}
    required
    defaultValue={value}
    pattern="[^\/]*[^\/.][^\/]*"
    maxLength={100}
    {...(hint && { hint })}
  />
);

/** Creates an empty folder in the open one, and opens it. */
export const newFolder: Action = {
  label: "New folder",
  icon: "folder-plus",
  scope: "files:write",
  run: async () => {
    const parent = path.peek() === "/files" ? (query.peek().get("folder") ?? "") : "";
    const created = await ask({
      title: "New folder",
      action: "Create folder",
      text: <NameField name="folder" />,
      run: (form) => client.value.files.createFolder(join(parent, textOf(form, "folder"))),
    });
    if (created) navigate(folderUrl(created.folder));
  },
};

/** Moves files into a folder. */
export function askToMove(files: FileRow[]): Promise<void> {
  const [first] = files;
  const common = files.every(({ folder }) => folder === first?.folder) ? first?.folder : undefined;
  const title = files.length === 1 ? `Move “${first?.name}”` : `Move ${countOf(files.length, "file")}`;
  return open((close) => (
    <FolderDialog
      title={title}
      current={common}
      onPick={async (folder) => (await changing.load()).moveFiles(files, folder)}
      onClose={() => close()}
    />
  ));
}
