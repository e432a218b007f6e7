import { useSignal } from "@preact/signals";
import type { Page, TrashedFile } from "../../client/index.ts";
import { restoreFiles } from "../files/file-changes.ts";
import { PAGE_FILES } from "../files/file-list.ts";
import { SelectionBar } from "../files/selection.tsx";
import { type Action, type Actions, perform } from "../framework/action.tsx";
import { can, client, seesOwnFilesOnly, trashDays } from "../framework/session.ts";
import { useEvents, useList } from "../framework/store.ts";
import { useTabIndex } from "../parts/choice.tsx";
import { FileName } from "../parts/file-name.tsx";
import { countOf, formatBytes } from "../parts/format.ts";
import { ListPage } from "../parts/list-page.tsx";
import { NotFound } from "../parts/not-found.tsx";
import { Empty } from "../parts/page.tsx";
import type { Column } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { askToDelete } from "./delete-files.tsx";

const listTrash = (signal?: AbortSignal) =>
  client.value.trash.list({ limit: PAGE_FILES }, { ...(signal && { signal }) });

/**
 * Returns a function that lists the next page of the trash with each call, and nothing after the last one. It doesn't list the
 * first page again, because files that could not be erased stay in it.
 */
function trashPages(): () => Promise<TrashedFile[]> {
  let read: (() => Promise<Page<TrashedFile>>) | undefined = () => listTrash();
  return async () => {
    const { items = [], next } = (await read?.()) ?? {};
    read = next === undefined ? undefined : () => listTrash().page(next);
    return items;
  };
}

const canErase = () => can("files:erase");

const restore = (files: TrashedFile[]): Action => ({
  label: "Restore",
  icon: "refresh",
  run: () => restoreFiles(files),
});

const RestoreButton = ({ file }: { file: TrashedFile }) => (
  <button
    type="button"
    class="button"
    aria-label={`Restore ${file.name}`}
    tabIndex={useTabIndex()}
    onClick={() => void perform(restore([file]))}
  >
    Restore
  </button>
);

const actionsOf = (files: TrashedFile[]): Actions => [
  restore(files),
  canErase() && {
    label: "Erase",
    icon: "trash",
    isDangerous: true,
    run: () => askToDelete({ files, isErasure: true }),
  },
];

/** @param files all files of the trash, if they are known */
const emptyTrash = (files?: TrashedFile[]): Action => {
  const size = files?.reduce((sum, file) => sum + file.size, 0) ?? 0;
  const total = files && `${countOf(files.length, "file")} (${formatBytes(size)})`;
  return {
    label: "Empty trash",
    isDangerous: true,
    run: () => askToDelete({ files: [], isErasure: true, next: trashPages(), total }),
  };
};

/** The deleted files that can be restored. */
export function Trash() {
  const days = trashDays.value;
  const trash = useList(["trash"], listTrash, { of: ["file"], on: ({ type }) => type === "file.trashed" });
  useEvents(
    ({ type }) => type === "file.restored" || type === "file.deleted",
    (events) => {
      const gone = new Set(events.map(({ subject }) => subject.id));
      trash.change((rows) => rows.filter(({ _id }) => !gone.has(_id)));
    },
  );
  const selected = useSignal<ReadonlySet<string>>(new Set());
  if (days === 0) return <NotFound />;
  const rows = trash.items ?? [];
  const chosen = rows.filter(({ _id }) => selected.value.has(_id));
  const columns: Column<TrashedFile>[] = [
    {
      id: "name",
      label: "Name",
      width: "minmax(0, 1fr)",
      isHeader: true,
      cell: ({ name, folder }) => (
        <div class="two-lines">
          <FileName name={name} />
          <bdi class="quiet">{folder || "Files"}</bdi>
        </div>
      ),
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
      id: "trashed",
      label: "Deleted",
      width: "8.5rem",
      cell: ({ trashedAt }) => <Time at={trashedAt} isRelative />,
    },
    {
      id: "erased",
      label: "Erases",
      width: "8.5rem",
      cell: ({ eraseAfter }) => <Time at={eraseAfter} isRelative maxDays={Number.POSITIVE_INFINITY} />,
    },
    {
      id: "restore",
      label: "Restore",
      head: <span class="visually-hidden">Restore</span>,
      width: "6rem",
      card: "hidden",
      cell: (file) => <RestoreButton file={file} />,
    },
  ];
  return (
    <ListPage
      title="Trash"
      subtitle={rows.length > 0 && "Files in the trash count toward the storage."}
      main={canErase() && rows.length > 0 && emptyTrash(trash.more ? undefined : rows)}
      filters={seesOwnFilesOnly() && <p class="quiet">You see only your own files.</p>}
      of={trash}
      empty={
        // The shown files may be erased before the next page is loaded.
        !trash.more && (
          <Empty title="The trash is empty">
            {days !== undefined && <p>Deleted files stay here for {countOf(days, "day")}, and can be restored.</p>}
          </Empty>
        )
      }
      class="files"
      keyOf={({ _id }) => _id}
      nameOf={({ name }) => name}
      columns={columns}
      actions={(_, files) => actionsOf(files)}
      selected={selected}
      isBusy={trash.isLoading}
    >
      {chosen.length > 0 && (
        <SelectionBar
          chosen={chosen}
          selected={selected}
          actions={actionsOf(chosen)}
          isPartial={trash.more !== undefined && chosen.length === rows.length}
        />
      )}
    </ListPage>
  );
}
