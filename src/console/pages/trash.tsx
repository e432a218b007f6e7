import { useSignal } from "@preact/signals";
import { useState } from "preact/hooks";
import type { TrashedFile } from "../../client/stowage.ts";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatBytes } from "../parts/format.ts";
import { ListTable } from "../parts/list-table.tsx";
import { Menu, type MenuItem } from "../parts/menu.tsx";
import { Breadcrumbs, Empty, Page } from "../parts/page.tsx";
import type { Column } from "../parts/table.tsx";
import { useTask } from "../parts/task.ts";
import { Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { client, seesOwnFilesOnly, trashDays } from "../session.ts";
import { useEvents, useList } from "../store.ts";
import { DeleteFiles } from "./delete-files.tsx";
import { restoreFiles } from "./file-changes.ts";
import { PAGE_FILES } from "./file-list.ts";
import { NotFound } from "./not-found.tsx";
import { SelectAll, SelectionBar, toggleRow } from "./selection.tsx";

const listTrash = (signal?: AbortSignal) =>
  client.value.trash.list({ limit: PAGE_FILES }, { ...(signal && { signal }) });

/**
 * Returns a function that lists the next page of the trash with each call, and nothing after the last one. It doesn't list the
 * first page again, because files that could not be erased stay in it.
 */
function trashPages(): () => Promise<TrashedFile[]> {
  let from: string | undefined;
  let isAtEnd = false;
  return async () => {
    if (isAtEnd) return [];
    const { items, next } = await listTrash().page(from);
    from = next;
    isAtEnd = next === undefined;
    return items;
  };
}

/** The deleted files that can be restored. */
export function Trash() {
  const days = trashDays.value;
  const trash = useList("trash", listTrash, { on: ({ type }) => type === "file.trashed" });
  const remove = (ids: string[]) => trash.change((rows) => rows.filter(({ _id }) => !ids.includes(_id)));
  useEvents(
    ({ type }) => type === "file.restored" || type === "file.deleted",
    (events) => remove(events.map(({ subject }) => subject.id)),
  );
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const [erasing, setErasing] = useState<{ files: TrashedFile[]; next?: () => Promise<TrashedFile[]> } | null>(null);
  const { run, error } = useTask();
  if (days === 0) return <NotFound />;
  const rows = trash.items ?? [];
  const chosen = rows.filter(({ _id }) => selected.value.has(_id));
  const restore = async (files: TrashedFile[]) => {
    await restoreFiles(files.map(({ _id }) => _id));
    trash.reload();
  };
  const close = () => {
    setErasing(null);
    // Files of further pages take the place of the erased ones.
    trash.reload();
  };
  // Whoever sees only its own files can't erase them.
  const canErase = !seesOwnFilesOnly();
  const actionsOf = (files: TrashedFile[]): MenuItem[] => [
    { label: "Restore", icon: "refresh", onSelect: () => void run(() => restore(files)) },
    ...(canErase
      ? [{ label: "Erase", icon: "trash" as const, isDangerous: true, onSelect: () => setErasing({ files }) }]
      : []),
  ];
  const columns: Column<TrashedFile>[] = [
    {
      id: "choice",
      label: "Selected",
      width: "1rem",
      card: "bare",
      head: <SelectAll rows={rows} selected={selected} />,
      cell: (file) => (
        <input
          type="checkbox"
          aria-label={`Select ${file.name}`}
          checked={selected.value.has(file._id)}
          onClick={() => toggleRow(selected, file)}
        />
      ),
    },
    {
      id: "name",
      label: "Name",
      width: "minmax(0, 1fr)",
      isHeader: true,
      cell: ({ name, folder }) => (
        <div class="two-lines">
          <bdi title={name}>{name}</bdi>
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
      label: "Erased",
      width: "8.5rem",
      cell: ({ eraseAfter }) => <Time at={eraseAfter} isRelative maxDays={Number.POSITIVE_INFINITY} />,
    },
  ];
  return (
    <Page
      title="Trash"
      back={<Breadcrumbs links={[{ href: href("/files"), label: "Files" }]} />}
      subtitle={rows.length > 0 && "Files in the trash count toward the storage."}
      call={{ path: "/docs/v1/trash" }}
      actions={
        canErase &&
        rows.length > 0 && (
          <button type="button" class="button danger" onClick={() => setErasing({ files: [], next: trashPages() })}>
            Empty trash
          </button>
        )
      }
    >
      {seesOwnFilesOnly() && <p class="quiet">You see only your own files.</p>}
      <Failure error={error} />
      <ListTable
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
        label="Trash"
        keyOf={({ _id }) => _id}
        columns={columns}
        menu={(file) => (
          <Menu
            label={`Actions for ${file.name}`}
            items={[
              ...actionsOf([file]),
              { label: "Select", icon: "check", onSelect: () => toggleRow(selected, file) },
            ]}
          />
        )}
        isBusy={trash.isLoading}
        rowProps={(file) => ({
          onClick: ({ target }: MouseEvent) => {
            if (!(target as Element).closest("button, input, [popover]")) toggleRow(selected, file);
          },
        })}
      />
      {chosen.length > 0 && (
        <SelectionBar
          chosen={chosen}
          selected={selected}
          actions={actionsOf(chosen)}
          isPartial={trash.more !== undefined && chosen.length === rows.length}
        />
      )}
      {erasing && <DeleteFiles {...erasing} isErasure onDeleted={remove} onClose={close} />}
    </Page>
  );
}
