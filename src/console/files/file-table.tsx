import { useEffect, useMemo, useRef } from "preact/hooks";
import { folderUrl } from "../folders/folders.tsx";
import { href, takePrevious } from "../framework/router.ts";
import { can } from "../framework/session.ts";
import { useTabIndex } from "../parts/choice.tsx";
import { FileName } from "../parts/file-name.tsx";
import { setQuery } from "../parts/filters.tsx";
import { formatBytes, formatDuration } from "../parts/format.ts";
import { Icon, type IconName } from "../parts/icon.tsx";
import { type Column, sortHead, Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { Marked } from "../parts/words.tsx";
import { PlayButton } from "../sound/play-button.tsx";
import { isPlayable, toggle } from "../sound/player-state.ts";
import { RowWave } from "../sound/row-wave.tsx";
import { fileActions } from "./file-actions.tsx";
import type { FileList } from "./file-list.ts";
import { type FileRow, type FileView, lacksAudio, recordingOf, SORTS } from "./file-rows.ts";
import { FileStatus } from "./file-status.tsx";
import { Rename, renaming } from "./rename.tsx";
import { Tags } from "./tags.tsx";

const TYPE_ICONS: Record<string, IconName> = { "video file": "video", "image file": "image" };

const urlOf = ({ _id }: FileRow) => href(`/files/${_id}`);

interface FileTableProps {
  list: FileList;
  onDragStart: (event: DragEvent, file: FileRow) => void;
  /** Whether the selection has any action. */
  isSelectable: boolean;
}

/** The list of files. */
export function FileTable(props: FileTableProps) {
  const { list, isSelectable } = props;
  const { shown, selected, tracks } = list;
  const rows = shown.rows ?? [];
  // Rows are drawn again only if they change, so their handlers read the latest properties.
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const previous = takePrevious();
    const origin = rows.find(({ _id }) => previous === `/files/${_id}`);
    if (origin) document.querySelector<HTMLElement>(`a[href="${urlOf(origin)}"]`)?.focus();
  }, []);

  /** A heading that sorts, by a second click in the opposite order. */
  const sortable = (label: string, first: FileView["sort"], second: FileView["sort"]) => {
    const isSorted = shown.sort === first || shown.sort === second;
    const isDescending = SORTS[shown.sort].startsWith("-");
    const sorted = isSorted ? (isDescending ? "descending" : "ascending") : undefined;
    return sortHead(label, sorted, () => setQuery({ sort: latest.current.list.shown.sort === first ? second : first }));
  };
  const cells = useMemo<Column<FileRow>[]>(
    () => [
      {
        id: "name",
        label: "Name",
        width: "minmax(0, 1fr)",
        isHeader: true,
        ...sortable("Name", "name", "-name"),
        cell: (file) => (renaming.value === file._id ? <Rename file={file} /> : <Name file={file} list={list} />),
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
    [renaming.value, shown.sort, shown.folder, shown.search, shown.isFiltered, tracks],
  );
  return (
    <Table
      class="files"
      label="Files"
      rows={rows}
      keyOf={({ _id }) => _id}
      nameOf={({ name }) => name}
      columns={cells}
      actions={(_, files) => fileActions(files)}
      selected={isSelectable ? selected : undefined}
      onSpace={(file) => isPlayable(file) && toggle(file, tracks())}
      inputs={[cells, isSelectable]}
      isBusy={list.isLoading}
      rowProps={(file) => ({
        draggable: renaming.value !== file._id && can("files:write"),
        onDragStart: (event: DragEvent) => latest.current.onDragStart(event, file),
      })}
    />
  );
}

/** The button that plays a file, its name, and in a second line its title and artist, its folder, and its tags. */
function Name({ file, list }: { file: FileRow; list: FileList }) {
  const { name, tags, status, fileType, folder } = file;
  const { shown, tracks } = list;
  const tabIndex = useTabIndex();
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
        <a href={urlOf(file)} aria-label={name} tabIndex={tabIndex}>
          <FileName name={name} show={(text) => <Marked text={text} search={shown.search} />} />
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
          {tags.length > 0 && <Tags tags={tags} inRow search={shown.search} tabIndex={tabIndex} />}
        </div>
      </div>
    </>
  );
}
