import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { TaskDialog } from "../framework/dialog.tsx";
import { tabSignal } from "../framework/signals.ts";
import { TextField } from "../parts/form.tsx";
import { formatCount } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { hasWords } from "../parts/words.tsx";
import { join, nameOf, parentOf, useAllFolders, useFolders } from "./folder-data.ts";

/** The folders that files were moved to last, the latest first. */
const recent = tabSignal<string[]>([]);
const MAX_RECENT = 3;

interface FolderDialogProps {
  title: string;
  /** The folder to move from. Undefined if there are several. */
  current: string | undefined;
  /** A folder that can't be picked. */
  hidden?: string;
  onPick: (folder: string) => Promise<void>;
  onClose: () => void;
}

/** Picks a folder level by level, or finds it at any level by words. A text that no folder has can become a new one. */
export function FolderDialog({ title, current: common, hidden, onPick, onClose }: FolderDialogProps) {
  const [place, setPlace] = useState(common ?? "");
  const [text, setText] = useState("");
  const all = useAllFolders();
  const level = useFolders(place, all.more !== undefined);
  const typed = withoutEnds(text);
  // A name alone is one in the open folder, and a path is from the top.
  const path = typed.includes("/") ? typed : join(place, typed);
  const canPick = (folder: string) => hidden === undefined || !`${folder}/`.startsWith(`${hidden}/`);
  const known = (all.items ?? []).filter(canPick);
  const words = typed.replaceAll("/", " ");
  // Folders whose name itself has the last word are first.
  const isNamed = (folder: string) => hasWords(nameOf(folder), words.split(" ").at(-1) ?? "");
  const rank = (folder: string) => (folder === path ? 2 : Number(isNamed(folder)));
  const found = (typed ? known : [])
    .filter((folder) => hasWords(folder, words))
    .sort((one, other) => rank(other) - rank(one));
  const isNew = typed !== "" && all.items !== undefined && !known.includes(path) && canPick(path);
  /** The folder that Enter and the button of the dialog pick. */
  const target = typed === "" ? place : (found.find((folder) => folder !== common) ?? found[0] ?? path);
  const recents = recent.value.filter(
    (folder) => place === "" && folder.includes("/") && folder !== common && canPick(folder),
  );
  /** The folder whose button was clicked, instead of the target. */
  const picked = useRef<string | null>(null);
  const move = async () => {
    const folder = picked.current ?? target;
    picked.current = null;
    await onPick(folder);
    if (folder) recent.value = [folder, ...recent.value.filter((one) => one !== folder)].slice(0, MAX_RECENT);
    onClose();
  };
  const opener = (folder: string, label: string, content: ComponentChildren) => (
    <button
      type="button"
      aria-label={label}
      title={label}
      data-icon={content === label ? undefined : true}
      onClick={() => {
        setPlace(folder);
        setText("");
      }}
    >
      {content}
    </button>
  );
  const choice = (folder: string, label: string, { note = "", end, isNew = false }: ChoiceOptions = {}) => (
    <li key={note + folder}>
      <button
        type="button"
        aria-current={folder === target ? "true" : undefined}
        disabled={folder === common}
        onClick={({ currentTarget }) => {
          picked.current = folder;
          currentTarget.form?.requestSubmit();
        }}
      >
        <Icon name={isNew ? "folder-plus" : "folder"} />
        {!isNew && <span class="visually-hidden">Move to </span>}
        <bdi>{label}</bdi>
        <span class="quiet">{folder === common ? "Current folder" : note}</span>
      </button>
      {end}
    </li>
  );
  const isLoaded = all.items !== undefined && !(all.more && level.isLoading);
  const inPlace = [...known, ...(level.items ?? [])].filter(
    (folder, at, folders) => parentOf(folder) === place && canPick(folder) && folders.indexOf(folder) === at,
  );
  return (
    <TaskDialog
      title={title}
      action={isNew && target === path ? "Create and move" : "Move"}
      isDisabled={target === common || (typed !== "" && all.items === undefined && all.isLoading)}
      onRun={move}
      onClose={onClose}
    >
      <TextField
        label="Folder"
        name="folder"
        spellcheck={false}
        value={text}
        placeholder="Find or create a folder…"
        onInput={({ currentTarget: { value } }) => setText(value)}
      />
      <ul class="folder-picker" aria-label="Places to move to">
        {typed === "" &&
          choice(place, place ? nameOf(place) : "Files", { end: place && opener(parentOf(place), "Up", "Up") })}
        {typed === "" && recents.map((folder) => choice(folder, folder, { note: "Recent" }))}
        {typed === "" &&
          inPlace.map((folder) => {
            const name = nameOf(folder);
            const hasFolders = all.more || known.some((one) => one.startsWith(`${folder}/`));
            return choice(folder, name, { end: hasFolders && opener(folder, `Open ${name}`, <Icon name="chevron" />) });
          })}
        {typed === "" && isLoaded && inPlace.length === 0 && <li class="quiet">No folders in here</li>}
        {found.map((folder) => choice(folder, nameOf(folder), { note: parentOf(folder) }))}
        {isNew && choice(path, `Create “${path}”`, { isNew })}
        {typed && all.more && (
          <li class="quiet">Only {formatCount(known.length)} folders were searched. Type the path of another one.</li>
        )}
      </ul>
    </TaskDialog>
  );
}

interface ChoiceOptions {
  note?: string;
  /** Follows the button. */
  end?: ComponentChildren;
  isNew?: boolean;
}

/** A typed path without spaces and slashes around it. */
const withoutEnds = (path: string) => path.trim().replace(/^\/+|\/+$/g, "");
