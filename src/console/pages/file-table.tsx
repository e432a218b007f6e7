import { useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { setQuery } from "../parts/filters.tsx";
import { focusRow } from "../parts/focus.ts";
import { formatBytes, formatDuration } from "../parts/format.ts";
import { Icon, type IconName } from "../parts/icon.tsx";
import { addShortcuts } from "../parts/keys.ts";
import { Menu, type MenuItem } from "../parts/menu.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Marked, Time } from "../parts/values.tsx";
import { href, lastList } from "../router.ts";
import { can } from "../session.ts";
import { openShare } from "../shortcuts.ts";
import { PlayButton } from "../sound/controls.tsx";
import { isPlayable, toggle } from "../sound/playback.ts";
import { RowWave } from "../sound/row-wave.tsx";
import type { FileList } from "./file-list.ts";
import { type FileRow, type FileView, lacksAudio, recordingOf, SORTS, splitName } from "./file-rows.ts";
import { FileStatus } from "./file-status.tsx";
import { folderUrl } from "./folders.tsx";
import { Rename } from "./rename.tsx";
import { SelectAll, toggleRow } from "./selection.tsx";
import { Tags } from "./tags.tsx";

const TYPE_ICONS: Record<string, IconName> = { "video file": "video", "image file": "image" };

const urlOf = ({ _id }: FileRow) => href(`/files/${_id}`);
const rowOf = (file: FileRow) => document.querySelector(`a[href="${urlOf(file)}"]`)?.closest("tr");

interface FileTableProps {
  list: FileList;
  renaming: string | undefined;
  onRename: (file: FileRow) => void;
  onRenameClosed: () => void;
  menuOf: (file: FileRow) => MenuItem[];
  onDelete: (files: FileRow[]) => void;
  onDragStart: (event: DragEvent, file: FileRow) => void;
  /** Whether the selection has any action. */
  isSelectable: boolean;
}

/** The list of files. Its rows are one stop of the Tab key: the arrow keys move between them. */
export function FileTable(props: FileTableProps) {
  const { list, renaming, onRenameClosed, isSelectable } = props;
  const { shown, selected, active, tracks } = list;
  const rows = shown.rows ?? [];
  const anchor = useRef<string | null>(null);
  // Rows are drawn again only if they change, so their handlers read the latest properties.
  const latest = useRef(props);
  latest.current = props;

  const select = (file: FileRow, isRange: boolean) => {
    const all = (latest.current.list.shown.rows ?? []).map(({ _id }) => _id);
    const [from, to] = [all.indexOf(anchor.current ?? ""), all.indexOf(file._id)];
    anchor.current = file._id;
    if (!isRange || from < 0) return toggleRow(selected, file);
    selected.value = new Set([...selected.value, ...all.slice(Math.min(from, to), Math.max(from, to) + 1)]);
  };

  useEffect(() => {
    const current = () => latest.current.list.shown.rows?.find(({ _id }) => _id === active.peek());
    const onCurrent = (work: (file: FileRow) => void) => (event: KeyboardEvent) => {
      const file = current();
      if (!file || !rowOf(file)?.contains(document.activeElement)) return false;
      event.preventDefault();
      work(file);
      return true;
    };
    const move = (step: number) => (event: KeyboardEvent) => {
      const all = latest.current.list.shown.rows ?? [];
      const file = current();
      const isInside = file !== undefined && rowOf(file)?.contains(document.activeElement);
      const next = isInside ? all[all.indexOf(file) + step] : (file ?? all[0]);
      if (!next) return false;
      event.preventDefault();
      // At once, because the next press starts from the focus.
      focusRow(rowOf(next));
      return true;
    };
    const rename = onCurrent((file) => can("files:write") && latest.current.onRename(file));
    return addShortcuts({
      ArrowDown: move(1),
      ArrowUp: move(-1),
      j: move(1),
      k: move(-1),
      x: onCurrent((file) => latest.current.isSelectable && select(file, false)),
      e: rename,
      F2: rename,
      s: onCurrent((file) => can("files:download") && openShare(file)),
      Delete: onCurrent((file) => {
        const { chosen } = latest.current.list;
        if (can("files:delete")) latest.current.onDelete(chosen.includes(file) ? chosen : [file]);
      }),
      " ": (event) => {
        const file = current();
        if (!file || !isPlayable(file) || document.activeElement !== rowOf(file)?.querySelector("a")) return false;
        event.preventDefault();
        toggle(file, latest.current.list.tracks());
        return true;
      },
      Escape: () => {
        selected.value = new Set();
      },
    });
  }, []);

  useEffect(() => {
    if (!shown.rows || !lastList.id) return;
    active.value = lastList.id;
    document.querySelector<HTMLElement>(`a[href="${href(`/files/${lastList.id}`)}"]`)?.focus();
    lastList.id = "";
  });

  /** A heading that sorts, by a second click in the opposite order. */
  const sortable = (label: string, first: FileView["sort"], second: FileView["sort"]) => {
    const isSorted = shown.sort === first || shown.sort === second;
    const isDescending = SORTS[shown.sort].startsWith("-");
    return {
      head: (
        <button
          type="button"
          class="sort"
          onClick={() => setQuery({ sort: latest.current.list.shown.sort === first ? second : first })}
        >
          {label}
          {isSorted && <span aria-hidden="true">{isDescending ? " ↓" : " ↑"}</span>}
        </button>
      ),
      sorted: isSorted ? (isDescending ? ("descending" as const) : ("ascending" as const)) : undefined,
    };
  };
  const cells = useMemo<Column<FileRow>[]>(
    () => [
      {
        id: "name",
        label: "Name",
        width: "minmax(0, 1fr)",
        isHeader: true,
        ...sortable("Name", "name", "-name"),
        cell: (file) =>
          renaming === file._id ? (
            <Rename file={file} onRenamed={latest.current.list.reload} onClose={onRenameClosed} />
          ) : (
            <Name file={file} list={list} />
          ),
      },
      {
        id: "wave",
        label: "Waveform",
        width: "var(--wave, 10.5rem)",
        head: <span class="visually-hidden">Waveform</span>,
        card: "hidden",
        cell: (file) =>
          can("files:download") &&
          isPlayable(file) &&
          file.durationSeconds !== null && <RowWave file={file} tracks={tracks} />,
      },
      {
        id: "duration",
        label: "Duration",
        width: "4rem",
        isNumber: true,
        card: "bare",
        cell: ({ durationSeconds }) => durationSeconds !== null && formatDuration(durationSeconds),
      },
      {
        id: "size",
        label: "Size",
        width: "4.75rem",
        isNumber: true,
        card: "bare",
        cell: ({ size }) => formatBytes(size),
      },
      {
        id: "uploaded",
        label: "Uploaded",
        width: "var(--uploaded, 8.5rem)",
        ...sortable("Uploaded", "date", "oldest"),
        card: "bare",
        cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
      },
    ],
    [renaming, shown.sort, shown.folder, shown.search, shown.isFiltered, tracks],
  );
  const choice: Column<FileRow> = {
    id: "choice",
    label: "Selected",
    width: "1rem",
    card: "bare",
    head: <SelectAll rows={rows} selected={selected} />,
    cell: (file) => <Choice file={file} list={list} onSelect={select} />,
  };

  return (
    <Table
      class="files"
      label="Files"
      rows={rows}
      keyOf={({ _id }) => _id}
      columns={isSelectable ? [choice, ...cells] : cells}
      menu={(file) => (
        <RowMenu
          file={file}
          list={list}
          items={() => [
            ...(can("files:download")
              ? [{ label: "Share…", icon: "link" as const, onSelect: () => openShare(file) }]
              : []),
            ...latest.current.menuOf(file),
            ...(isSelectable ? [{ label: "Select", icon: "check" as const, onSelect: () => select(file, false) }] : []),
          ]}
        />
      )}
      inputs={[cells, isSelectable]}
      isBusy={list.isLoading}
      rowProps={(file) => ({
        draggable: renaming !== file._id && can("files:write"),
        onDragStart: (event: DragEvent) => latest.current.onDragStart(event, file),
        onFocusIn: () => {
          active.value = file._id;
        },
        // A long press on a touch screen.
        onContextMenu: (event: MouseEvent) => {
          if ((event as PointerEvent).pointerType !== "touch" || !isSelectable) return;
          event.preventDefault();
          select(file, false);
        },
        onClick: (event: MouseEvent) => {
          const target = event.target as Element;
          if (target.closest("a, button, input, .row-wave, [popover]") || getSelection()?.type === "Range") return;
          target.closest("tr")?.querySelector("a")?.dispatchEvent(new MouseEvent("click", event));
        },
      })}
    />
  );
}

/** Only the controls of one row are stops of the Tab key. */
const useTabIndex = ({ _id }: FileRow, { active, shown }: FileList) => {
  const isFirst = shown.rows?.[0]?._id === _id;
  return useComputed(() => (active.value === _id || (active.value === null && isFirst) ? 0 : -1)).value;
};

interface ChoiceProps {
  file: FileRow;
  list: FileList;
  onSelect: (file: FileRow, isRange: boolean) => void;
}

function Choice({ file, list, onSelect }: ChoiceProps) {
  const isSelected = useComputed(() => list.selected.value.has(file._id)).value;
  return (
    <input
      type="checkbox"
      aria-label={`Select ${file.name}`}
      tabIndex={useTabIndex(file, list)}
      checked={isSelected}
      onClick={(event) => {
        onSelect(file, event.shiftKey);
        // The browser has toggled the box. If the file was and is selected, nothing would draw it again.
        event.currentTarget.checked = list.selected.peek().has(file._id);
      }}
    />
  );
}

function RowMenu({ file, list, items }: { file: FileRow; list: FileList; items: () => MenuItem[] }) {
  return <Menu label={`Actions for ${file.name}`} tabIndex={useTabIndex(file, list)} items={items} />;
}

/** The button that plays a file, its name, and in a second line its title and artist, its folder, and its tags. */
function Name({ file, list }: { file: FileRow; list: FileList }) {
  const { name, tags, status, fileType, folder } = file;
  const { shown, tracks } = list;
  const tabIndex = useTabIndex(file, list);
  const [stem, extension] = splitName(name);
  const recording = recordingOf(file);
  return (
    <>
      {can("files:download") && isPlayable(file) ? (
        <PlayButton file={file} tracks={tracks} tabIndex={tabIndex} />
      ) : (
        <span class="player-slot">
          <Icon name={TYPE_ICONS[fileType] ?? "document"} />
        </span>
      )}
      <div class="file-name">
        <a
          href={urlOf(file)}
          aria-label={name}
          title={name}
          tabIndex={tabIndex}
          onClick={() => {
            lastList.id = file._id;
          }}
        >
          <bdi>
            <span>
              <Marked text={stem} search={shown.search} />
            </span>
            <span>{extension}</span>
          </bdi>
        </a>
        {(status !== "completed" || lacksAudio(file)) && <FileStatus file={file} />}
        <div class="file-facts quiet">
          {recording && (
            <bdi class="file-recording" title={recording}>
              <Marked text={recording} search={shown.search} />
            </bdi>
          )}
          {folder !== shown.folder && (
            <a href={folderUrl(folder)} tabIndex={tabIndex}>
              <bdi>{folder || "Files"}</bdi>
            </a>
          )}
          {tags.length > 0 && <Tags tags={tags} inRow tabIndex={tabIndex} />}
        </div>
      </div>
    </>
  );
}
