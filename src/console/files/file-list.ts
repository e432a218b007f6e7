import { type Signal, useSignal } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { type Event, type FileEvent, isFileEvent } from "../../client/index.ts";
import { useFolders } from "../folders/folder-data.ts";
import { query } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useEvents, useList } from "../framework/store.ts";
import { isPlayable, type Track } from "../sound/player-state.ts";
import { applyEvents, type FileRow, type FileView, isRemoval, viewFrom } from "./file-rows.ts";

export const PAGE_FILES = 100;
/** The most pages that a link or "back" loads. More rows at once freeze the tab. */
const MAX_FIRST_PAGES = 5;

/** The list that the page shows: the last one that loaded, until the next one is complete. */
interface Shown extends FileView {
  key: string;
  rows: FileRow[] | undefined;
  folders: string[];
  more: (() => Promise<void>) | undefined;
}

export interface FileList {
  /** The list that the URL selects. */
  view: FileView;
  shown: Shown;
  isLoading: boolean;
  error: unknown;
  reload: () => void;
  moreFolders: ReturnType<typeof useList<string>>;
  selected: Signal<ReadonlySet<string>>;
  chosen: FileRow[];
  tracks: () => Track[];
  /** How many pages the URL asks for. */
  pages: number;
}

/** The state of the page of files: the list of the URL, changed by events, with its selection. */
export function useFileList(): FileList {
  const view = viewFrom(query.value);
  const pages = Number(query.value.get("pages")) || 1;
  const key = JSON.stringify(view.filters);
  const isChange = (event: Event) => isFileEvent(event) && !isRemoval(event) && !/held|released/.test(event.type);
  const files = useList(
    ["files", key],
    (signal) => client.value.files.list({ ...view.filters, limit: PAGE_FILES }, { signal }),
    {
      of: ["file"],
      on: isChange,
      pages: Math.min(Math.max(pages, 1), MAX_FIRST_PAGES),
      rows: view.isFiltered ? PAGE_FILES : 0,
    },
  );
  const { folder } = view;
  const folders = useFolders(folder);
  useEvents(isFileEvent, (events) => files.change((rows) => applyEvents(rows, events as FileEvent[])));
  const isLoading = files.isLoading || folders.isLoading;
  const latest: Shown = { ...view, key, rows: files.items, folders: folders.items ?? [], more: files.more };
  const shown = useRef(latest);
  // A folder opens once its files and folders are loaded: if they changed one by one, rows would move under the pointer.
  // While the list for new filters loads, the previous one stays.
  const isReload = shown.current.key === key && shown.current.rows !== undefined;
  if (!isLoading || isReload) shown.current = latest;
  const { rows } = shown.current;
  const selected = useSignal<ReadonlySet<string>>(new Set());
  // A file that was moved is not selected in its new folder.
  useEffect(() => {
    selected.value = new Set();
  }, [key]);
  const chosen = rows?.filter(({ _id }) => selected.value.has(_id)) ?? [];
  // A file that returns to the list, such as by "Undo", is not selected.
  useEffect(() => {
    const kept = rows?.filter(({ _id }) => selected.peek().has(_id));
    if (kept && kept.length < selected.peek().size) selected.value = new Set(kept.map(({ _id }) => _id));
  }, [rows]);
  const reload = useCallback(() => {
    files.reload();
    folders.reload();
  }, [files.reload, folders.reload]);
  const tracks = useMemo(() => () => (rows ?? []).filter(isPlayable), [rows]);
  return {
    view,
    shown: shown.current,
    isLoading,
    error: files.error ?? folders.error,
    reload,
    moreFolders: folders,
    selected,
    chosen,
    tracks,
    pages,
  };
}
