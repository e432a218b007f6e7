import { useSignal } from "@preact/signals";
import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { type FileEvent, isFileEvent } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { Failure } from "../parts/failure.tsx";
import { focusRow } from "../parts/focus.ts";
import { countOf } from "../parts/format.ts";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { href, lastList, query } from "../router.ts";
import { can, client } from "../session.ts";
import { UploadFilesButton, UploadFolderButton } from "../uploads/drop-zone.tsx";
import { DeleteFiles } from "./delete-files.tsx";
import { ClearFilters, Filters, setQuery } from "./file-filters.tsx";
import { applyEvent, type FileRow, listFrom, mergeRows, pathOf, type Updates } from "./file-rows.ts";
import { Head, openRowsOf, Row } from "./file-table.tsx";
import { Breadcrumbs, FolderList, MoveDialog, NewFolder, startDrag } from "./folders.tsx";
import { rememberTags, TagDialog } from "./tags.tsx";

const PAGE_FILES = 100;
/** The most pages that a link or "back" loads. More rows at once freeze the tab. */
const MAX_FIRST_PAGES = 5;
/** Events omit the names and folders of files, so the list is loaded again, but not for each of many uploads. */
const RELOAD_MILLISECONDS = 1500;

type Action = "move" | "tag" | "rename" | "delete" | "folder";

/** Calls `reload` soon, once for all calls until then. */
function useDelayed(reload: () => void): () => void {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      reload();
    }, RELOAD_MILLISECONDS);
  }, [reload]);
}

export function Files() {
  const { folder, isFiltered, sort, filters } = listFrom(query.value);
  const pages = Number(query.value.get("pages")) || 1;
  const key = JSON.stringify(filters);
  const { error, reload, ...files } = useListing(
    (signal) => client.value.files.list({ ...filters, limit: PAGE_FILES }, { signal }),
    [key],
    { pages: Math.min(Math.max(pages, 1), MAX_FIRST_PAGES), rows: isFiltered ? PAGE_FILES : 0 },
  );
  const folders = useListing(
    (signal) => client.value.files.folders({ ...(folder && { under: folder }), signal }),
    [folder],
  );
  const isLoading = files.isLoading || folders.isLoading;
  const latest = { folder, items: files.items, more: files.more, folders: folders.items };
  const shown = useRef(latest);
  // A folder opens once its files and folders are loaded: if they changed one by one, rows would move under the pointer.
  if (!isLoading || (shown.current.folder === folder && shown.current.items)) shown.current = latest;
  const { items, more } = shown.current;
  const updates = useRef<Updates>(new Map()).current;
  const [round, refresh] = useReducer((before: number) => before + 1, 0);
  const reloadAll = useCallback(() => {
    reload();
    folders.reload();
  }, [reload, folders.reload]);
  const reloadSoon = useDelayed(reloadAll);
  useEvents(isFileEvent, (events) => {
    for (const event of events as FileEvent[]) applyEvent(updates, event);
    refresh(0);
    if (events.some(({ type }) => type !== "file.deleted")) reloadSoon();
  });
  const rows = useMemo(() => items && mergeRows(items, updates), [items, round]);
  useMemo(() => rows && rememberTags(rows), [rows]);
  const selected = useSignal(new Set<string>());
  const chosen = rows?.filter(({ _id }) => selected.value.has(_id)) ?? [];
  const [action, setAction] = useState<{ type: Action; files: FileRow[] } | null>(null);
  const close = () => setAction(null);
  useEffect(() => {
    lastList.url = location.pathname + location.search;
    if (!rows || !lastList.id) return;
    document.querySelector<HTMLElement>(`a[href="${href(`/files/${lastList.id}`)}"]`)?.focus();
    lastList.id = "";
  });
  // While the list for new filters loads, the previous one stays.
  const wasFiltered = useMemo(() => isFiltered, [items]);
  const showMore = async () => {
    const url = location.href;
    await more?.();
    if (location.href === url) setQuery({ pages: String(pages + 1) });
  };
  const act = (type: Action) => () => setAction({ type, files: chosen });
  const dialog = { files: action?.files ?? [], onClose: close };
  const childFolders = isFiltered ? [] : (shown.current.folders ?? []);
  const count = rows && wasFiltered ? `${more ? "First " : ""}${countOf(rows.length, "file")}` : undefined;
  const isEmpty = rows?.length === 0 && childFolders.length === 0;
  return (
    <Page
      title={pathOf(folder).at(-1)?.name ?? "Files"}
      back={folder && <Breadcrumbs folder={folder} onMoved={reloadAll} />}
      call={{ path: "/docs/v1/uploads", query: { ...filters } }}
      actions={
        can("files:upload") && (
          <>
            <UploadFilesButton />
            <UploadFolderButton />
            <button type="button" class="button" onClick={act("folder")}>
              New folder
            </button>
          </>
        )
      }
    >
      <MissingScopes scopes={["files:upload", "files:write", "files:delete"]} />
      {(isFiltered || wasFiltered || !isEmpty) && <Filters isFiltered={isFiltered} count={count} />}
      <Failure error={error ?? folders.error} onRetry={reloadAll} />
      {childFolders.length > 0 && <FolderList folders={childFolders} onMoved={reloadAll} />}
      {folders.more && !isFiltered && <More of={folders} label="Load more folders" />}
      {rows && rows.length > 0 ? (
        <table class="files" aria-busy={isLoading}>
          <Head
            rows={rows}
            chosen={chosen}
            selected={selected}
            sort={sort}
            actions={
              <>
                {can("files:write") && (
                  <>
                    <button type="button" class="button small" onClick={act("move")}>
                      Move
                    </button>
                    <button type="button" class="button small" onClick={act("tag")}>
                      Tags
                    </button>
                    {chosen.length === 1 && (
                      <button type="button" class="button small" onClick={act("rename")}>
                        Rename
                      </button>
                    )}
                  </>
                )}
                {can("files:delete") && (
                  <button type="button" class="button danger small" onClick={act("delete")}>
                    Delete {countOf(chosen.length, "file")}
                  </button>
                )}
              </>
            }
          />
          <tbody ref={openRowsOf}>
            {rows.map((file) => (
              <Row
                key={file._id}
                file={file}
                folder={folder}
                selected={selected}
                isRenaming={action?.type === "rename" && action.files[0]?._id === file._id}
                onRenamed={reload}
                onRenameClosed={() => {
                  close();
                  const id = file._id;
                  setTimeout(() =>
                    focusRow(document.querySelector(`a[href="${href(`/files/${id}`)}"]`)?.closest("tr")),
                  );
                }}
                onDragStart={(event, dragged) => startDrag(event, dragged, chosen)}
              />
            ))}
          </tbody>
        </table>
      ) : (
        rows && !more && (wasFiltered || isEmpty) && <NoFiles isFiltered={wasFiltered} folder={folder} />
      )}
      {rows?.length === 0 && more && <p class="quiet">No matches so far. Keep searching?</p>}
      <More
        of={{ items: rows, isLoading, more: more && showMore }}
        label={rows?.length ? "Load more" : "Search more"}
      />
      {action?.type === "folder" && <NewFolder parent={folder} onClose={close} />}
      {action?.type === "move" && <MoveDialog {...dialog} folders={childFolders} onMoved={reloadAll} />}
      {action?.type === "tag" && <TagDialog {...dialog} onTagged={reload} />}
      {action?.type === "delete" && (
        <DeleteFiles
          {...dialog}
          onDeleted={(ids) => {
            for (const id of ids) updates.set(id, null);
            refresh(0);
          }}
        />
      )}
    </Page>
  );
}

function NoFiles({ isFiltered, folder }: { isFiltered: boolean; folder: string }) {
  return isFiltered ? (
    <Empty title="No matching files">
      <p>Try a different search or clear the filters.</p>
      <ClearFilters />
    </Empty>
  ) : (
    <Empty title={folder ? "This folder is empty" : "No files yet"}>
      {can("files:upload") && (
        <>
          <p>Drag files here, or choose them.</p>
          <UploadFilesButton />
        </>
      )}
    </Empty>
  );
}
