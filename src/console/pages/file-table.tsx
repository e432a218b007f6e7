import { type Signal, useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { countOf, formatBytes, formatCount, formatDuration, TYPE_LABELS } from "../parts/format.ts";
import { StatusBadge, Time } from "../parts/values.tsx";
import { href, lastList } from "../router.ts";
import { can } from "../session.ts";
import { PlayButton } from "../sound/player.tsx";
import { setQuery } from "./file-filters.tsx";
import type { FileList, FileRow } from "./file-rows.ts";
import { folderUrl } from "./folders.tsx";
import { Rename } from "./rename.tsx";
import { Tags } from "./tags.tsx";

/** Opens the file of a row on a click anywhere in it. A link that covers its row would make thousands of rows scroll at half the speed. */
function openRow(event: MouseEvent): void {
  const target = event.target as Element;
  if (target.closest("a, button, input") || getSelection()?.type === "Range") return;
  target.closest("tr")?.querySelector("a")?.dispatchEvent(new MouseEvent("click", event));
}
export const openRowsOf = (rows: HTMLElement | null) => rows?.addEventListener("click", openRow);

interface HeadProps {
  rows: FileRow[];
  chosen: FileRow[];
  selected: Signal<Set<string>>;
  sort: FileList["sort"];
  /** The actions for the selected files. */
  actions: ComponentChildren;
}

/** The column headers; while files are selected, the actions for all of them. */
export function Head({ rows, chosen, selected, sort, actions }: HeadProps) {
  const isAll = chosen.length === rows.length;
  const isSome = chosen.length > 0;
  const sortable = (label: string, name: FileList["sort"]) => (
    <th scope="col" aria-sort={sort === name ? (name === "date" ? "descending" : "ascending") : undefined}>
      <button type="button" class="files-sort" onClick={() => setQuery({ sort: name, pages: "" })}>
        {label}
        <span aria-hidden="true">{sort === name ? (name === "date" ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
  return (
    <thead>
      <tr>
        <th scope="col" class="files-choice">
          <input
            type="checkbox"
            aria-label="Select all"
            checked={isAll}
            indeterminate={isSome && !isAll}
            onChange={() => {
              selected.value = new Set(isAll ? [] : rows.map(({ _id }) => _id));
            }}
          />
        </th>
        {isSome ? (
          <th class="files-selection" scope="col">
            <span role="status">
              {formatCount(chosen.length)} of {countOf(rows.length, "file")} selected
            </span>
            {actions}
          </th>
        ) : (
          <>
            {sortable("Name", "name")}
            <th scope="col" class="number">
              Duration
            </th>
            <th scope="col">Type</th>
            <th scope="col" class="number">
              Size
            </th>
            {sortable("Uploaded", "date")}
          </>
        )}
      </tr>
    </thead>
  );
}

interface RowProps {
  file: FileRow;
  /** The folder of the list. Files of other folders show theirs. */
  folder: string;
  selected: Signal<Set<string>>;
  isRenaming: boolean;
  onRenamed: () => void;
  onRenameClosed: () => void;
  onDragStart: (event: DragEvent, file: FileRow) => void;
}

/** A file with its title and artist, tags, and folder below its name. */
export function Row({ file, folder, selected, isRenaming, onRenamed, onRenameClosed, onDragStart }: RowProps) {
  const { _id, name, title, artist, tags, status, fileType, createdAt, durationSeconds, size, mimeType } = file;
  const isSelected = useComputed(() => selected.value.has(_id)).value;
  const isPlayable = /^(audio|video)\//.test(mimeType) && size > 0 && status !== "failed";
  const toggle = () => {
    const ids = new Set(selected.value);
    if (!ids.delete(_id)) ids.add(_id);
    selected.value = ids;
  };
  const isTitleShown = title !== name && title !== name.replace(/\.[^.]+$/, "");
  const recording = [isTitleShown && title, artist].filter(Boolean).join(" – ");
  return (
    <tr draggable={!isRenaming && can("files:write")} onDragStart={(event) => onDragStart(event, file)}>
      <td class="files-choice">
        <input type="checkbox" aria-label={`Select ${name}`} checked={isSelected} onChange={toggle} />
      </td>
      <th scope="row">
        {can("files:download") &&
          (isPlayable ? <PlayButton file={file} class="small" /> : <span class="player-slot" />)}
        {isRenaming ? (
          <Rename file={file} onRenamed={onRenamed} onClose={onRenameClosed} />
        ) : (
          <div class="files-name">
            <a
              href={href(`/files/${_id}`)}
              onClick={() => {
                lastList.id = _id;
              }}
            >
              <bdi>{name}</bdi>
            </a>
            {file.folder !== folder && (
              <a class="quiet" href={folderUrl(file.folder)}>
                <bdi>{file.folder || "Files"}</bdi>
              </a>
            )}
            {tags.length > 0 && <Tags tags={tags} />}
            {recording && (
              <span class="files-recording quiet">
                <bdi>{recording}</bdi>
              </span>
            )}
          </div>
        )}
        {status !== "completed" && <StatusBadge status={status} />}
      </th>
      <td class="number">{durationSeconds === null ? "" : formatDuration(durationSeconds)}</td>
      <td>{TYPE_LABELS[fileType]}</td>
      <td class="number">{formatBytes(size)}</td>
      <td>
        <Time at={createdAt} isRelative />
      </td>
    </tr>
  );
}
