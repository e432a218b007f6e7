import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { Code, uploadCommand } from "../parts/connect.tsx";
import { Failure } from "../parts/failure.tsx";
import { Choice, ClearFilters, DateFilter, Filters, SearchField, setQuery } from "../parts/filters.tsx";
import { focusRow } from "../parts/focus.ts";
import { countOf, STATUS_LABELS, TYPE_LABELS } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { addShortcuts } from "../parts/keys.ts";
import { Menu, type MenuItem } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { UserChoice } from "../parts/user-choice.tsx";
import { href, query } from "../router.ts";
import { can, client, seesOwnFilesOnly, trashDays } from "../session.ts";
import { useAskedForm } from "../shortcuts.ts";
import { playFrom, type Track } from "../sound/playback.ts";
import { useList } from "../store.ts";
import { UploadFilesButton, UploadFolderButton } from "../uploads/drop-zone.tsx";
import { DeleteFiles } from "./delete-files.tsx";
import { downloadFiles, MAX_DOWNLOADS, trashFiles } from "./file-changes.ts";
import { type FileList, useFileList } from "./file-list.ts";
import { type FileRow, pathOf } from "./file-rows.ts";
import { FileTable } from "./file-table.tsx";
import { FolderList, FolderPath, folderActions, MoveDialog, MoveFolder, NewFolder, startDrag } from "./folders.tsx";
import { describeFiles, SelectionBar } from "./selection.tsx";
import { rememberTags, TagDialog, tagChoices } from "./tags.tsx";

const FILTERS = ["type", "status", "from", "until", "tag", "user"];

const ORDERS = { date: "Newest first", oldest: "Oldest first", name: "Name, A to Z", "-name": "Name, Z to A" };

type Action = "move" | "tag" | "rename" | "delete" | "folder";

export function Files() {
  const list = useFileList();
  const { view, shown, chosen, reload } = list;
  const { folder } = view;
  const { rows, more } = shown;
  const [action, setAction] = useState<{ type: Action; files: FileRow[] } | null>(null);
  const close = () => setAction(null);
  const act = (type: Action, files: FileRow[]) => setAction({ type, files });
  const { run, error } = useTask();
  useAskedForm("folder", () => act("folder", []));
  const download = (files: FileRow[]) =>
    files.length > MAX_DOWNLOADS
      ? announce(`Select at most ${MAX_DOWNLOADS} files to download them at once.`)
      : void run(() => downloadFiles(files));
  const remove = (files: FileRow[]) =>
    trashDays.value ? void run(() => trashFiles(files, list.remove)) : act("delete", files);
  useEffect(() => {
    if (rows) rememberTags(rows);
  }, [rows]);
  useEffect(() => addShortcuts({ u: () => document.querySelector<HTMLElement>("[data-upload]")?.click() }), []);
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (path: string) => words.every((word) => path.slice(folder.length).toLowerCase().includes(word));
  const childFolders = shown.folders.filter((path) => !shown.isFiltered || (words.length > 0 && isFound(path)));
  const isEmptyOfFiles = rows?.length === 0;
  const isEmpty = isEmptyOfFiles && childFolders.length === 0;
  const actionsOf = (files: FileRow[]): MenuItem[] => [
    ...(can("files:download")
      ? [{ label: "Download", icon: "download" as const, onSelect: () => download(files) }]
      : []),
    ...(can("files:write")
      ? [
          ...(files.length === 1
            ? [{ label: "Rename", icon: "edit" as const, onSelect: () => act("rename", files) }]
            : []),
          { label: "Move", icon: "move" as const, onSelect: () => act("move", files) },
          { label: "Edit tags", icon: "tag" as const, onSelect: () => act("tag", files) },
        ]
      : []),
    ...(can("files:delete")
      ? [{ label: "Delete", icon: "trash" as const, isDangerous: true, onSelect: () => remove(files) }]
      : []),
  ];
  const showMore = async () => {
    const url = location.href;
    await more?.();
    if (location.href === url) setQuery({ pages: String(list.pages + 1) });
  };
  const count = rows && countOf(rows.length, "file");
  const isWholeFolder = folder && rows && !isEmpty && !more && !shown.isFiltered;
  return (
    <Page
      title={pathOf(folder).at(-1)?.name ?? "Files"}
      back={folder && <FolderPath folder={folder} />}
      subtitle={
        isWholeFolder && (isEmptyOfFiles ? countOf(childFolders.length, "folder") : describeFiles(rows, count ?? ""))
      }
      call={{ path: "/docs/v1/uploads", query: { ...view.filters } }}
      actions={
        <>
          {isWholeFolder && <PlayAll tracks={list.tracks()} />}
          <PageActions folder={folder} onNewFolder={() => act("folder", [])} />
        </>
      }
    >
      <MissingScopes scopes={["files:upload", "files:write", "files:delete"]} />
      {seesOwnFilesOnly() && <p class="quiet">You see only your own files.</p>}
      {(view.isFiltered || shown.isFiltered || !isEmpty) && (
        <Filters
          names={[...FILTERS, "search"]}
          kept={{ folder }}
          search={
            <SearchField
              name="search"
              label="Search files"
              hint="Search name, title, artist, tag, folder, or reference"
            />
          }
          status={shown.isFiltered && count && (more ? `${count} shown, and there are more` : count)}
        >
          <Choice name="type" label="Type" all="All types" options={TYPE_LABELS} />
          <Choice name="status" label="Status" all="All statuses" options={STATUS_LABELS} />
          <DateFilter />
          <TagChoice />
          {!seesOwnFilesOnly() && <UserChoice name="user" label="Uploaded by" all="All users" />}
          <span class="narrow-only">
            <Choice name="sort" label="Sort" all="Default order" options={ORDERS} />
          </span>
        </Filters>
      )}
      <Failure error={list.error} onRetry={reload} />
      <Failure error={error} />
      {childFolders.length > 0 && <FolderList key={folder} folders={childFolders} isShort={!isEmptyOfFiles} />}
      {list.moreFolders.more && !shown.isFiltered && <More of={list.moreFolders} label="Load more folders" />}
      {rows && rows.length > 0 ? (
        <FileTable
          list={list}
          isSelectable={actionsOf([]).length > 0}
          renaming={action?.type === "rename" ? action.files[0]?._id : undefined}
          onRename={(file) => act("rename", [file])}
          onRenameClosed={() => {
            const id = action?.files[0]?._id;
            close();
            setTimeout(() => focusRow(document.querySelector(`a[href="${href(`/files/${id}`)}"]`)?.closest("tr")));
          }}
          menuOf={(file) => actionsOf([file])}
          onDelete={remove}
          onDragStart={(event, dragged) => startDrag(event, dragged, chosen)}
        />
      ) : (
        rows && !more && <NoFiles list={list} />
      )}
      {rows?.length === 0 && more && <p class="quiet">No matches so far. Keep searching?</p>}
      <More
        of={{ items: rows, isLoading: list.isLoading, more: more && showMore }}
        label={rows?.length ? "Load more" : "Search more"}
      />
      {chosen.length > 0 && (
        <SelectionBar
          chosen={chosen}
          selected={list.selected}
          actions={actionsOf(chosen)}
          isPartial={more !== undefined && chosen.length === rows?.length}
        />
      )}
      {action?.type === "folder" && <NewFolder parent={folder} onClose={close} />}
      <MoveFolder />
      {action?.type === "move" && <MoveDialog files={action.files} onClose={close} />}
      {action?.type === "tag" && <TagDialog files={action.files} onClose={close} />}
      {action?.type === "delete" && <DeleteFiles files={action.files} onDeleted={list.remove} onClose={close} />}
    </Page>
  );
}

function TagChoice() {
  const tags = tagChoices(query.value.get("tag") ?? "");
  return Object.keys(tags).length > 0 ? <Choice name="tag" label="Tag" all="All tags" options={tags} /> : null;
}

interface PageActionsProps {
  folder: string;
  onNewFolder: () => void;
}

/** The ways to add something; on a phone behind one button. */
function PageActions({ folder, onNewFolder }: PageActionsProps) {
  const click = (name: string) => document.querySelector<HTMLElement>(`[data-upload="${name}"]`)?.click();
  const more = folderActions(folder).filter((item) => item && item.label !== "Open");
  return (
    <>
      {folder && <Menu label="Actions for this folder" items={more} />}
      {can("files:upload") && (
        <>
          <div class="actions wide-only">
            {can("files:write") && (
              <button type="button" class="button" onClick={onNewFolder}>
                New folder
              </button>
            )}
            <UploadFolderButton />
            <UploadFilesButton />
          </div>
          <div class="narrow-only">
            <Menu
              label="Add"
              class="primary"
              button={<Icon name="plus" size={20} />}
              items={[
                { label: "Upload files", icon: "upload", onSelect: () => click("files") },
                { label: "Upload folder", icon: "folder", onSelect: () => click("folder") },
                can("files:write") && { label: "New folder", icon: "folder-plus", onSelect: onNewFolder },
              ]}
            />
          </div>
        </>
      )}
    </>
  );
}

/** Plays the files of a folder, one after the other. */
function PlayAll({ tracks }: { tracks: Track[] }) {
  const [first] = tracks;
  if (!first || !can("files:download")) return null;
  return (
    <button type="button" class="button" onClick={() => playFrom(first, 0, tracks)}>
      <Icon name="play" size={14} /> Play all
    </button>
  );
}

function NoFiles({ list: { shown } }: { list: FileList }) {
  const { isFiltered, folder, folders, search } = shown;
  if (isFiltered)
    return (
      <Empty title={search ? `Nothing found for “${search}”` : "No matching files"}>
        <p>
          {search && "A search finds files with every word in their name, title, artist, tags, folder, or reference. "}
          Try a different search or clear the filters.
        </p>
        <p class="actions">
          {folder && search && (
            <a class="button" href={href("/files", { search })}>
              Search all files
            </a>
          )}
          <ClearFilters kept={{ folder }} />
        </p>
      </Empty>
    );
  if (folders.length > 0)
    return (
      can("files:upload") && (
        <p class="empty drop-hint quiet">
          Drop recordings here to add them to {folder ? "this folder" : "your files"}.
        </p>
      )
    );
  return (
    <>
      <Empty title={folder ? "This folder is empty" : "No files yet"} hasLogo={!folder}>
        {can("files:upload") && (
          <>
            <p class="drop-hint">Drop recordings or folders anywhere on this page.</p>
            <UploadFilesButton />
            <p class="quiet">Any audio or other file, up to 5 GB each. Interrupted uploads resume by themselves.</p>
          </>
        )}
      </Empty>
      {!folder && can("files:upload") && <FirstSteps />}
    </>
  );
}

/** The first steps of a new team, as far as the session may take them. They tick themselves. */
function FirstSteps() {
  const [mayReadKeys, mayReadWebhooks] = [can("keys:read"), can("webhooks:read")];
  const keys = useList("first-keys", mayReadKeys ? (signal) => client.value.keys.list({}, { signal }) : null, {
    on: ({ subject }) => subject.kind === "apikey",
  });
  const webhooks = useList("webhooks", mayReadWebhooks ? (signal) => client.value.webhooks.list({ signal }) : null, {
    on: ({ subject }) => subject.kind === "webhook",
  });
  return (
    <ol class="first-steps">
      {can("keys:write") && (
        // The operator has created the first key.
        <Step isDone={keys.items?.some(({ createdBy }) => createdBy)}>
          <a href={href("/keys")}>Create a key</a> for your code
        </Step>
      )}
      <Step isDone={false}>
        Upload a recording, here or from your code:
        <Code text={uploadCommand("$STOWAGE_KEY", location.origin)} label="curl command" />
      </Step>
      {can("webhooks:write") && (
        <Step isDone={webhooks.items && webhooks.items.length > 0}>
          <a href={href("/webhooks")}>Add a webhook</a>, which tells your server when a file is ready
        </Step>
      )}
    </ol>
  );
}

const Step = ({ isDone, children }: { isDone: boolean | undefined; children: ComponentChildren }) => (
  <li data-done={isDone}>
    {isDone && (
      <span class="done">
        <Icon name="check" />
      </span>
    )}
    <div>
      {children}
      {isDone && <span class="visually-hidden"> (done)</span>}
    </div>
  </li>
);
