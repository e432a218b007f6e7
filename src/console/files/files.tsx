import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { UserChoice } from "../accounts/user-choice.tsx";
import { useKeys, useWebhooks } from "../data.ts";
import { FolderList, FolderPath, folderActions, newFolder, startDrag } from "../folders/folders.tsx";
import { ActionButton, allowed, shortcutsOf } from "../framework/action.tsx";
import { addShortcuts } from "../framework/keys.ts";
import { href, query } from "../framework/router.ts";
import { script } from "../framework/script.tsx";
import { can, deletionScope, me, seesOwnFilesOnly } from "../framework/session.ts";
import { MissingScopes } from "../parts/access.tsx";
import { Code, uploadCommand } from "../parts/connect.tsx";
import { copyAsCurl } from "../parts/curl.tsx";
import { Failure } from "../parts/failure.tsx";
import { ChoiceFilter, ClearFilters, DateFilter, Filters, SearchField, setQuery } from "../parts/filters.tsx";
import { countOf, TYPE_LABELS } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Menu } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { hasWords, quoted } from "../parts/words.tsx";
import { playFrom, type Track } from "../sound/player-state.ts";
import { uploadFiles, uploadFolder } from "../uploads/drop-zone.tsx";
import { changing } from "./changing.ts";
import { fileActions } from "./file-actions.tsx";
import { type FileList, useFileList } from "./file-list.ts";
import { describeFiles, type FileView, pathOf } from "./file-rows.ts";
import { STATUS_LABELS } from "./file-status.tsx";
import { FileTable } from "./file-table.tsx";
import { useTags } from "./tags.tsx";

const Spoken = script(() => import("./spoken.tsx")).view(({ Spoken }) => Spoken);

const SelectionBar = changing.view(
  ({ SelectionBar }) => SelectionBar,
  () => null,
);

const FILTERS = ["type", "status", "from", "until", "tag", "user"];

const ORDERS = { date: "Newest first", oldest: "Oldest first", name: "Name, A to Z", "-name": "Name, Z to A" };

export function Files() {
  const list = useFileList();
  const { view, shown, chosen, reload } = list;
  const { folder } = view;
  const { rows, more } = shown;
  useEffect(() => addShortcuts(() => shortcutsOf([uploadFiles])), []);
  const isFound = (path: string) => view.search.trim() !== "" && hasWords(path.slice(folder.length), view.search);
  const childFolders = shown.folders.filter((path) => !shown.isFiltered || isFound(path));
  const isEmptyOfFiles = rows?.length === 0;
  const isEmpty = isEmptyOfFiles && childFolders.length === 0;
  const showMore = async () => {
    const url = location.href;
    await more?.();
    if (location.href === url) setQuery({ pages: String(list.pages + 1) });
  };
  const words = view.search.trim();
  const noFiles = isEmptyOfFiles && !more && <NoFiles list={list} />;
  const spoken = words !== "" && (
    <Spoken
      words={words}
      filters={{ under: folder || undefined, uploadedBy: view.filters.uploadedBy }}
      hasFiles={!isEmptyOfFiles}
      noFiles={noFiles}
      names={FILTERS}
    />
  );
  const count = rows && countOf(rows.length, "file");
  const isWholeFolder = folder && rows && !isEmpty && !more && !shown.isFiltered;
  return (
    <Page
      title={pathOf(folder).at(-1)?.name ?? "Files"}
      back={folder && <FolderPath folder={folder} />}
      subtitle={
        isWholeFolder && (isEmptyOfFiles ? countOf(childFolders.length, "folder") : describeFiles(rows, count ?? ""))
      }
      actions={
        <>
          {isWholeFolder && <PlayAll tracks={list.tracks()} />}
          <PageActions view={view} />
        </>
      }
    >
      <MissingScopes scopes={["files:upload", "files:write", deletionScope()]} />
      {seesOwnFilesOnly() && <p class="quiet">You see only your own files.</p>}
      {(view.isFiltered || shown.isFiltered || !isEmpty) && (
        <Filters
          names={[...FILTERS, "search"]}
          kept={{ folder }}
          search={
            <SearchField
              name="search"
              label="Search files"
              hint="Search name, title, artist, tag, folder, reference, or transcript"
            />
          }
          rare={{
            status: (
              <ChoiceFilter key="status" name="status" label="Status" all="All statuses" options={STATUS_LABELS} />
            ),
            user: !seesOwnFilesOnly() && <UserChoice key="user" name="user" label="Uploaded by" all="All users" />,
          }}
          status={
            shown.isFiltered && (
              <span class={spoken && isEmptyOfFiles ? "visually-hidden" : undefined}>
                {count}
                {more && " shown, and there are more"}
              </span>
            )
          }
        >
          <ChoiceFilter name="type" label="Type" all="All types" options={TYPE_LABELS} />
          <DateFilter />
          <TagChoice />
          <span class="narrow-only">
            <ChoiceFilter name="sort" label="Sort" all="Default order" options={ORDERS} />
          </span>
        </Filters>
      )}
      <Failure error={list.error} onRetry={reload} />
      {childFolders.length > 0 && <FolderList key={folder} folders={childFolders} isShort={!isEmptyOfFiles} />}
      {list.moreFolders.more && !shown.isFiltered && <More of={list.moreFolders} label="Load more folders" />}
      {isEmptyOfFiles && spoken}
      {rows && rows.length > 0 ? (
        <FileTable
          list={list}
          isSelectable={allowed(fileActions([])).length > 0}
          onDragStart={(event, dragged) => startDrag(event, dragged, chosen)}
        />
      ) : (
        !spoken && noFiles
      )}
      {rows?.length === 0 && more && <p class="quiet">No matches so far. Keep searching?</p>}
      <More
        of={{ items: rows, isLoading: list.isLoading && !list.error, more: more && showMore }}
        label={rows?.length ? "Load more" : "Search more"}
      />
      {!isEmptyOfFiles && spoken}
      {chosen.length > 0 && (
        <SelectionBar
          chosen={chosen}
          selected={list.selected}
          actions={fileActions(chosen).filter((action) => action && action.icon !== "link")}
          isPartial={more !== undefined && chosen.length === rows?.length}
        />
      )}
    </Page>
  );
}

function TagChoice() {
  const chosen = query.value.get("tag");
  const all = useTags();
  const tags = chosen && !all.includes(chosen) ? [chosen, ...all] : all;
  if (tags.length === 0) return null;
  return (
    <ChoiceFilter name="tag" label="Tag" all="All tags" options={Object.fromEntries(tags.map((tag) => [tag, tag]))} />
  );
}

/** The ways to add something, and at the end the other actions. */
function PageActions({ view: { folder, filters } }: { view: FileView }) {
  const others = folder ? folderActions(folder).filter((action) => action && action.label !== "Open") : [];
  return (
    <>
      <Menu
        label="Add"
        class="primary"
        button={
          <>
            <Icon name="plus" /> <span class="wide-only">Add</span>
          </>
        }
        items={[uploadFiles, uploadFolder, newFolder]}
      />
      <Menu
        label={folder ? "Actions for this folder" : "More actions"}
        items={[...others, copyAsCurl({ path: "/docs/v1/uploads", query: { ...filters } })]}
      />
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
      <Empty title={search ? `No files found for ${quoted(search)}` : "No matching files"}>
        <p>
          {search &&
            "A search finds files with every word in their name, title, artist, tags, folder, or reference, or in what is said. "}
          Try a different search or clear the filters.
        </p>
        <p class="actions">
          {folder && search && (
            <a class="button" href={href("/files", { search })}>
              Search all files
            </a>
          )}
          <span class="narrow-only">
            <ClearFilters kept={{ folder }} />
          </span>
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
            <ActionButton action={uploadFiles} class="primary" />
            <p class="quiet">Any audio or other file, up to 5 GB each. Interrupted uploads resume by themselves.</p>
          </>
        )}
      </Empty>
      {!folder && can("files:upload") && (!me.value?.role || can("keys:write")) && <FirstSteps />}
    </>
  );
}

/** The first steps of a new team, as far as the session may take them. They tick themselves. A user without keys has none. */
function FirstSteps() {
  const keys = useKeys(undefined, can("keys:read"));
  const webhooks = useWebhooks(can("webhooks:read"));
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
          <a href={href("/webhooks")}>Add a webhook</a>, which notifies your server when a file is ready
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
