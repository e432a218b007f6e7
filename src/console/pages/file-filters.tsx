import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { SelectField, TextField } from "../parts/form.tsx";
import { STATUS_LABELS, TYPE_LABELS } from "../parts/format.ts";
import { href, navigate, query } from "../router.ts";

/** Longer than between two letters, because a team can search 120 times a minute. */
const TYPING_MILLISECONDS = 200;

/** Changes parameters of the URL of the list in place. */
export function setQuery(changes: Record<string, string>): void {
  navigate(href("/files", { ...Object.fromEntries(query.value), ...changes }), { replace: true });
}
/** Other filters make another list, which starts at its first page. */
const setFilter = (filter: Record<string, string>) => setQuery({ ...filter, pages: "" });

export const ClearFilters = () => (
  <a class="button" href={href("/files", { folder: query.value.get("folder") ?? "" })}>
    Clear filters
  </a>
);

interface FiltersProps {
  isFiltered: boolean;
  /** The number of matching files, if it is known. */
  count: string | undefined;
}

/** The filters of the list of files. The URL holds their values. */
export function Filters({ isFiltered, count }: FiltersProps) {
  const shown = query.value;
  const value = (name: string) => shown.get(name) ?? "";
  const options = (labels: Record<string, string>) =>
    Object.entries(labels).map(([name, label]) => (
      <option key={name} value={name}>
        {label}
      </option>
    ));
  return (
    <search class="files-filters">
      <Search />
      <Chip isActive={value("type") !== ""}>
        <SelectField label="Type" name="type" value={value("type")} onChange={(type) => setFilter({ type })}>
          <option value="">All types</option>
          {options(TYPE_LABELS)}
        </SelectField>
      </Chip>
      <Chip isActive={value("status") !== ""}>
        <SelectField label="Status" name="status" value={value("status")} onChange={(status) => setFilter({ status })}>
          <option value="">All statuses</option>
          {options(STATUS_LABELS)}
        </SelectField>
      </Chip>
      <details class="files-dates" data-active={value("from") !== "" || value("until") !== ""}>
        <summary>Date</summary>
        <div class="card stack">
          {(["from", "until"] as const).map((name) => (
            <TextField
              key={name}
              label={name === "from" ? "Uploaded after" : "Uploaded before"}
              name={name}
              type="date"
              value={value(name)}
              onInput={({ currentTarget }) => setFilter({ [name]: currentTarget.value })}
            />
          ))}
        </div>
      </details>
      {value("tag") && (
        <button
          type="button"
          class="button"
          aria-label={`Tag ${value("tag")}: show all`}
          onClick={() => setFilter({ tag: "" })}
        >
          <bdi>{value("tag")}</bdi> ×
        </button>
      )}
      {isFiltered && <ClearFilters />}
      <span role="status" class="quiet">
        {count}
      </span>
    </search>
  );
}

const Chip = ({ isActive, children }: { isActive: boolean; children: ComponentChildren }) => (
  <div class="files-chip" data-active={isActive}>
    {children}
  </div>
);

/** Searches when the user pauses typing. A new search aborts the one before. */
function Search() {
  const applied = query.value.get("search") ?? "";
  const [typed, setTyped] = useState(applied);
  const timer = useRef(0);
  useEffect(() => {
    if (!timer.current) setTyped(applied);
  }, [applied]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <TextField
      label="Search by name"
      name="search"
      type="search"
      placeholder="Search by name…"
      spellcheck={false}
      value={typed}
      onInput={({ currentTarget: { value } }) => {
        setTyped(value);
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => {
          timer.current = 0;
          setFilter({ search: value });
        }, TYPING_MILLISECONDS);
      }}
    />
  );
}
