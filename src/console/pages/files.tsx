import { type Signal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { type FileEvent, isFileEvent } from "../../client/stowage.ts";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatBytes, formatCount, formatDuration, TYPE_LABELS } from "../parts/format.ts";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { StatusBadge, Time } from "../parts/values.tsx";
import { href, lastList, query } from "../router.ts";
import { client } from "../session.ts";
import { PlayButton } from "../sound/player.tsx";
import { UploadFilesButton, UploadFolderButton } from "../uploads/drop-zone.tsx";
import { DeleteFiles } from "./delete-files.tsx";
import { ClearFilters, Filters, setQuery } from "./file-filters.tsx";
import { applyEvent, type FileRow, filtersFrom, mergeRows, type Sort, type Updates } from "./file-rows.ts";

const PAGE_FILES = 100;
/** The most pages that a link or "back" loads. More rows at once freeze the tab. */
const MAX_FIRST_PAGES = 5;

export function Files() {
  const { pages = "1", sort, ...filterQuery } = Object.fromEntries(query.value);
  const filters = filtersFrom(query.value);
  const { items, more, error, isLoading, reload } = useListing(
    (signal) => client.value.files.list({ ...filters, limit: PAGE_FILES }, { signal }),
    [new URLSearchParams(filterQuery).toString()],
    Math.min(Math.max(Number(pages) || 1, 1), MAX_FIRST_PAGES),
  );
  const updates = useRef<Updates>(new Map()).current;
  const [round, refresh] = useReducer((before: number) => before + 1, 0);
  useEvents(isFileEvent, (events) => {
    for (const event of events as FileEvent[]) applyEvent(updates, event);
    refresh(0);
  });
  const selected = useSignal(new Set<string>());
  const [toDelete, setToDelete] = useState<FileRow[] | null>(null);
  // A list that is filtered by name is in the order of names.
  const order: Sort = sort === "name" || filters.name !== undefined ? "name" : "date";
  const rows = useMemo(
    () => items && mergeRows(items, updates, filters, !more, order),
    [items, round, query.value.toString()],
  );
  const chosen = rows?.filter(({ _id }) => selected.value.has(_id)) ?? [];
  useEffect(() => {
    lastList.url = location.pathname + location.search;
    if (!rows || !lastList.id) return;
    document.querySelector<HTMLElement>(`a[href="${href(`/files/${lastList.id}`)}"]`)?.focus();
    lastList.id = "";
  });
  const isFiltered = Object.keys(filters).length > 0;
  // While the list for new filters loads, the previous one stays.
  const wasFiltered = useMemo(() => isFiltered, [items]);
  const showMore = async () => {
    const url = location.href;
    await more?.();
    if (location.href === url) setQuery({ pages: String(Number(pages) + 1) });
  };
  const deleteChosen = () => setToDelete(chosen);
  return (
    <Page
      title="Files"
      call={{ path: "/docs/v1/uploads", query: filters }}
      actions={
        <>
          <UploadFilesButton />
          <UploadFolderButton />
        </>
      }
    >
      {(isFiltered || wasFiltered || rows?.length !== 0) && <Filters isFiltered={isFiltered} />}
      <Failure error={error} onRetry={reload} />
      {rows && rows.length > 0 ? (
        <table class="files" aria-busy={isLoading}>
          <Head
            rows={rows}
            chosen={chosen}
            selected={selected}
            sort={order}
            canSort={!more && filters.name === undefined}
            onDelete={deleteChosen}
          />
          <tbody ref={openRowsOf}>
            {rows.map((file) => (
              <Row key={file._id} file={file} selected={selected} />
            ))}
          </tbody>
        </table>
      ) : (
        rows && !more && <NoFiles isFiltered={wasFiltered} />
      )}
      {rows?.length === 0 && more && <p class="quiet">No matches so far. Keep searching?</p>}
      <More
        of={{ items: rows, isLoading, more: more && showMore }}
        label={rows?.length ? "Load more" : "Search more"}
      />
      {toDelete && (
        <DeleteFiles
          files={toDelete}
          onDeleted={(ids) => {
            for (const id of ids) updates.set(id, null);
            refresh(0);
          }}
          onClose={() => setToDelete(null)}
        />
      )}
    </Page>
  );
}

function NoFiles({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No matching files">
      <p>Try a different search or clear the filters.</p>
      <ClearFilters />
    </Empty>
  ) : (
    <Empty title="No files yet">
      <p>Drag files here, or choose them.</p>
      <UploadFilesButton />
    </Empty>
  );
}

interface HeadProps {
  rows: FileRow[];
  chosen: FileRow[];
  selected: Signal<Set<string>>;
  sort: Sort;
  /** Whether all files are loaded, so that they can be sorted. */
  canSort: boolean;
  onDelete: () => void;
}

/** The column headers; while files are selected, the actions for all of them. */
function Head({ rows, chosen, selected, sort, canSort, onDelete }: HeadProps) {
  const isAll = chosen.length === rows.length;
  const isSome = chosen.length > 0;
  const sortable = (label: string, name: Sort) =>
    canSort ? (
      <button type="button" class="files-sort" onClick={() => setQuery({ sort: name === "date" ? "" : name })}>
        {label}
        <span aria-hidden="true">{sort === name ? (name === "date" ? " ↓" : " ↑") : ""}</span>
      </button>
    ) : (
      label
    );
  const sorted = (name: Sort) => (sort === name ? (name === "date" ? "descending" : "ascending") : undefined);
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
            <button type="button" class="button danger small" onClick={onDelete}>
              Delete {countOf(chosen.length, "file")}
            </button>
          </th>
        ) : (
          <>
            <th scope="col" aria-sort={sorted("name")}>
              {sortable("Name", "name")}
            </th>
            <th scope="col" class="number">
              Duration
            </th>
            <th scope="col">Type</th>
            <th scope="col" class="number">
              Size
            </th>
            <th scope="col" aria-sort={sorted("date")}>
              {sortable("Uploaded", "date")}
            </th>
          </>
        )}
      </tr>
    </thead>
  );
}

/** Opens the file of a row on a click anywhere in it. A link that covers its row would make thousands of rows scroll at half the speed. */
function openRow(event: MouseEvent): void {
  const target = event.target as Element;
  if (target.closest("a, button, input") || getSelection()?.type === "Range") return;
  target.closest("tr")?.querySelector("a")?.dispatchEvent(new MouseEvent("click", event));
}
const openRowsOf = (rows: HTMLElement | null) => rows?.addEventListener("click", openRow);

function Row({ file, selected }: { file: FileRow; selected: Signal<Set<string>> }) {
  const { _id, originalName, status, fileType, createdAt, durationSeconds, size, mimeType } = file;
  const isSelected = useComputed(() => selected.value.has(_id)).value;
  const isPlayable = /^(audio|video)\//.test(mimeType) && size > 0 && status !== "failed";
  const toggle = () => {
    const ids = new Set(selected.value);
    if (!ids.delete(_id)) ids.add(_id);
    selected.value = ids;
  };
  return (
    <tr>
      <td class="files-choice">
        <input type="checkbox" aria-label={`Select ${originalName}`} checked={isSelected} onChange={toggle} />
      </td>
      <th scope="row">
        {isPlayable && <PlayButton file={file} class="small" />}
        <a
          href={href(`/files/${_id}`)}
          onClick={() => {
            lastList.id = _id;
          }}
        >
          <bdi>{originalName}</bdi>
        </a>
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
