import { type ReadonlySignal, type Signal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { isFileEvent } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { Failure } from "../parts/failure.tsx";
import { SelectField, TextField } from "../parts/form.tsx";
import { useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { formatBytes, formatCount, STATUSES, StatusBadge, Time } from "../parts/values.tsx";
import { href, lastList, navigate, query } from "../router.ts";
import { client } from "../session.ts";
import { UploadButtons } from "../uploads/dropping.tsx";
import { countFiles, DeleteFiles } from "./delete-files.tsx";
import { FILE_TYPES, type FileRow, filtersOf, type News, note, rowsOf } from "./file-rows.ts";

const PAGE_FILES = 100;
const TYPING_MILLISECONDS = 250;

function setQuery(changes: Record<string, string>): void {
  navigate(href("/files", { ...Object.fromEntries(query.value), ...changes }), { replace: true });
}

export function Files() {
  const { pages, ...asked } = Object.fromEntries(query.value);
  const filters = filtersOf(query.value);
  const { items, more, error, isLoading, reload } = useListing(
    (signal) => client.value.files.list({ ...filters, limit: PAGE_FILES }, { signal }),
    [new URLSearchParams(asked).toString()],
    Math.max(1, Math.min(Number(pages) || 1, 100)),
  );
  const news = useRef<News>(new Map()).current;
  const [, refresh] = useReducer((round: number) => round + 1, 0);
  useEffect(() => {
    let frame = 0;
    const end = onEvent((event) => {
      if (!isFileEvent(event)) return;
      note(news, event);
      // Once for all that came together.
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        refresh(0);
      });
    });
    return () => {
      end();
      cancelAnimationFrame(frame);
    };
  }, []);
  const { value: sizes } = useLoaded(async (signal) => {
    const { items } = await client.value.events.list({ type: "file.uploaded", limit: PAGE_FILES }, { signal }).page();
    return new Map(items.filter(isFileEvent).map(({ subject, data }) => [subject.id, data.size]));
  }, []);
  const selected = useSignal(new Set<string>());
  const [deleted, setDeleted] = useState<FileRow[] | null>(null);

  const rows = items && rowsOf(items, news, filters, !more);
  const chosen = rows?.filter(({ _id }) => selected.value.has(_id)) ?? [];
  useEffect(() => {
    lastList.address = location.pathname + location.search;
    if (!rows || !lastList.id) return;
    document.querySelector<HTMLElement>(`a[href="${href(`/files/${lastList.id}`)}"]`)?.focus();
    lastList.id = "";
  });
  const isFiltered = Object.keys(filters).length > 0;
  // While the list of other filters is loading, this one is shown.
  const wasFiltered = useMemo(() => isFiltered, [items]);
  const showMore = async () => {
    const here = location.href;
    await more?.();
    if (location.href === here) setQuery({ pages: String(Number(pages ?? 1) + 1) });
  };
  return (
    <Page title="Files" actions={<UploadButtons />}>
      <Filters isFiltered={isFiltered} />
      <Failure error={error} onRetry={reload} />
      {rows && rows.length > 0 ? (
        <>
          <Selection selected={selected} rows={rows} chosen={chosen} onDelete={() => setDeleted(chosen)} />
          <table class="table files" aria-busy={isLoading}>
            <thead>
              <tr>
                <th scope="col">
                  <span class="visually-hidden">Selected</span>
                </th>
                <th scope="col">Name</th>
                <th scope="col">Status</th>
                <th scope="col">Type</th>
                <th scope="col" class="number">
                  Size
                </th>
                <th scope="col">Created</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((file) => (
                <Row key={file._id} file={file} size={file.size ?? sizes?.get(file._id)} selected={selected} />
              ))}
            </tbody>
          </table>
        </>
      ) : (
        rows && !more && <NoFiles isFiltered={wasFiltered} />
      )}
      {rows?.length === 0 && more && <p class="quiet">None so far, but not all files were looked at yet.</p>}
      <More of={{ items: rows, isLoading, more: more && showMore }} />
      {deleted && (
        <DeleteFiles
          files={deleted}
          onGone={(id) => {
            news.set(id, null);
            refresh(0);
          }}
          onClose={() => setDeleted(null)}
        />
      )}
    </Page>
  );
}

function NoFiles({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No file is like that.">
      <p>No file of the team meets all filters.</p>
      <ClearFilters />
    </Empty>
  ) : (
    <Empty title="No files yet.">
      <p>Drop files here or choose them with “Upload files”: they are listed as soon as they are stored.</p>
    </Empty>
  );
}

const ClearFilters = () => (
  <a class="button" href={href("/files")}>
    Clear filters
  </a>
);

function Filters({ isFiltered }: { isFiltered: boolean }) {
  const shown = query.value;
  const value = (name: string) => shown.get(name) ?? "";
  return (
    <search class="filters">
      <NameFilter />
      <SelectField label="Status" name="status" value={value("status")} onChange={(status) => setFilter({ status })}>
        <option value="">Any</option>
        {STATUSES.map((status) => (
          <option key={status}>{status}</option>
        ))}
      </SelectField>
      <SelectField label="Type" name="type" value={value("type")} onChange={(type) => setFilter({ type })}>
        <option value="">Any</option>
        {FILE_TYPES.map((type) => (
          <option key={type}>{type}</option>
        ))}
      </SelectField>
      {(["from", "until"] as const).map((name) => (
        <TextField
          key={name}
          label={`Created ${name}`}
          name={name}
          type="date"
          value={value(name)}
          onInput={({ currentTarget }) => setFilter({ [name]: currentTarget.value })}
        />
      ))}
      {isFiltered && <ClearFilters />}
    </search>
  );
}

const setFilter = (filter: Record<string, string>) => setQuery({ ...filter, pages: "" });

/** Asks when whoever types has stopped. */
function NameFilter() {
  const asked = query.value.get("name") ?? "";
  const [typed, setTyped] = useState(asked);
  const timer = useRef(0);
  useEffect(() => {
    if (!timer.current) setTyped(asked);
  }, [asked]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <TextField
      label="Name begins with"
      name="name"
      type="search"
      spellcheck={false}
      value={typed}
      onInput={({ currentTarget: { value } }) => {
        setTyped(value);
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => {
          timer.current = 0;
          setFilter({ name: value });
        }, TYPING_MILLISECONDS);
      }}
    />
  );
}

function Selection({
  selected,
  rows,
  chosen,
  onDelete,
}: {
  selected: Signal<Set<string>>;
  rows: FileRow[];
  chosen: FileRow[];
  onDelete: () => void;
}) {
  const isAll = chosen.length === rows.length;
  const isSome = chosen.length > 0;
  return (
    <div class="selection">
      <label>
        <input
          type="checkbox"
          checked={isAll}
          indeterminate={isSome && !isAll}
          onChange={() => {
            selected.value = new Set(isAll ? [] : rows.map(({ _id }) => _id));
          }}
        />
        Select all shown
      </label>
      <p class="quiet" role="status">
        {isSome ? `${formatCount(chosen.length)} of ${countFiles(rows.length)} selected` : countFiles(rows.length)}
      </p>
      {isSome && (
        <button type="button" class="button danger small" onClick={onDelete}>
          Delete {countFiles(chosen.length)}
        </button>
      )}
    </div>
  );
}

/** It is drawn anew where its file or its selection changes, and not with the list. */
function Row({
  file,
  size,
  selected,
}: {
  file: FileRow;
  size: number | undefined;
  selected: ReadonlySignal<Set<string>> & Signal<Set<string>>;
}) {
  const { _id, originalName, status, fileType, createdAt } = file;
  const isSelected = useComputed(() => selected.value.has(_id)).value;
  const toggle = () => {
    const ids = new Set(selected.value);
    if (!ids.delete(_id)) ids.add(_id);
    selected.value = ids;
  };
  return (
    <tr>
      <td class="choice">
        <input type="checkbox" aria-label={`Select ${originalName}`} checked={isSelected} onChange={toggle} />
      </td>
      <th scope="row">
        <a
          href={href(`/files/${_id}`)}
          onClick={() => {
            lastList.id = _id;
          }}
        >
          <bdi>{originalName}</bdi>
        </a>
      </th>
      <td data-label="Status">
        <StatusBadge status={status} />
      </td>
      <td data-label="Type">{fileType}</td>
      <td data-label="Size" class="number">
        {size === undefined ? "–" : formatBytes(size)}
      </td>
      <td data-label="Created">
        <Time at={createdAt} />
      </td>
    </tr>
  );
}
