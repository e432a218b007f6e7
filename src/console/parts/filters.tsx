import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { href, navigate, path, query } from "../framework/router.ts";
import { countOf } from "./format.ts";
import { Icon } from "./icon.tsx";
import { Popover } from "./popover.tsx";

/* The filters of a list. The URL holds their values, so that a filtered list can be linked to. They apply at once. */

/** A search starts after this pause, longer than most between two letters: a team has only 120 heavy requests a minute. */
const TYPING_MILLISECONDS = 300;

/** Changes parameters of the URL in place. Another list starts at its first page. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const next = { ...Object.fromEntries(query.value), pages: undefined, ...changes };
  navigate(href(path.value, next), { replace: true });
}

const parameter = (name: string) => query.value.get(name) ?? "";

interface SearchInputProps {
  name?: string;
  label: string;
  /** Describes the matches of the filter. */
  hint?: string | undefined;
  applied: string;
  onSearch: (text: string) => void;
}

/** A field that searches when the user pauses typing. */
export function SearchInput({ name, label, hint, applied, onSearch }: SearchInputProps) {
  const id = useId();
  const [typed, setTyped] = useState(applied);
  const timer = useRef(0);
  useEffect(() => {
    if (!timer.current) setTyped(applied);
  }, [applied]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <div class="search-field">
      <Icon name="search" />
      <label class="visually-hidden" for={id}>
        {label}
      </label>
      <input
        id={id}
        type="search"
        name={name}
        placeholder={hint ?? `${label}…`}
        title={hint}
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onInput={({ currentTarget: { value } }) => {
          setTyped(value);
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => {
            timer.current = 0;
            onSearch(value);
          }, TYPING_MILLISECONDS);
        }}
      />
      {name && <kbd title="Press / to search">/</kbd>}
    </div>
  );
}

/** The search of a page. */
export const SearchField = ({ name, ...props }: { name: string; label: string; hint?: string }) => (
  <SearchInput name={name} {...props} applied={parameter(name)} onSearch={(text) => setQuery({ [name]: text })} />
);

interface ChoiceFilterProps {
  name: string;
  label: string;
  /** The choice that filters nothing. */
  all: string;
  options: Record<string, string>;
}

/** A filter with one of a few values. */
export const ChoiceFilter = ({ name, label, all, options }: ChoiceFilterProps) => (
  <select
    class="chip"
    aria-label={label}
    data-active={parameter(name) !== ""}
    value={parameter(name)}
    onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })}
  >
    <option value="">{all}</option>
    {Object.entries(options).map(([value, text]) => (
      <option key={value} value={value}>
        {text}
      </option>
    ))}
  </select>
);

/** A day of the reader's calendar, as a field of type `date` has it: Sweden writes dates like ISO 8601. */
const dayBefore = (days: number) => {
  const date = new Date();
  date.setDate(date.getDate() - days);
  return date.toLocaleDateString("sv");
};
/** How many days before today each begins. */
const PRESETS = { Today: 0, "Last 7 days": 6, "Last 30 days": 29 };

/** A filter for days, both included: a preset, or the first and the last one. */
export function DateFilter({ from = "Uploaded after", until = "Uploaded before" }: { from?: string; until?: string }) {
  const id = useId();
  const isActive = parameter("from") !== "" || parameter("until") !== "";
  const preset = Object.entries(PRESETS).find(
    ([, days]) => parameter("from") === dayBefore(days) && !parameter("until"),
  );
  return (
    <Popover button={preset?.[0] ?? "Any date"} class={`chip ${isActive ? "active" : ""}`}>
      {(close) => (
        <div class="stack">
          <div class="menu">
            {Object.entries(PRESETS).map(([label, days]) => (
              <button
                key={label}
                type="button"
                onClick={() => {
                  close();
                  setQuery({ from: dayBefore(days), until: "" });
                }}
              >
                {label}
              </button>
            ))}
          </div>
          {Object.entries({ from, until }).map(([name, label]) => (
            <div key={name} class="field">
              <label for={id + name}>{label}</label>
              <input
                id={id + name}
                type="date"
                value={parameter(name)}
                onInput={({ currentTarget }) => setQuery({ [name]: currentTarget.value })}
              />
            </div>
          ))}
        </div>
      )}
    </Popover>
  );
}

interface FiltersProps {
  search?: ComponentChildren;
  /** The parameters that count as filters. */
  names: string[];
  /** The parameters that stay if the filters are cleared. */
  kept?: Record<string, string>;
  /** Says how many records match. */
  status?: ComponentChildren;
  children?: ComponentChildren;
  /** Filters that few need, by their parameters. Those that are not used are behind one button. */
  rare?: Record<string, ComponentChildren>;
}

/** The bar of filters above a list. On a phone, all but the search are behind one button. */
export function Filters({ search, names, kept = {}, status, children, rare = {} }: FiltersProps) {
  const [isOpen, setOpen] = useState(false);
  // One that is reset stays, because it has the focus.
  const used = useRef(new Set<string>()).current;
  for (const name of Object.keys(rare)) if (parameter(name) !== "") used.add(name);
  const hidden = Object.entries(rare).filter(([name, filter]) => filter && !used.has(name));
  const count = names.filter((name) => parameter(name) !== "").length;
  return (
    <search class="filters">
      {search}
      {children && (
        <button
          type="button"
          class="button filters-toggle"
          aria-expanded={isOpen}
          aria-label={count > 0 ? `Filters, ${countOf(count, "active filter")}` : "Filters"}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name="filter" />
          {count > 0 && count}
        </button>
      )}
      <div class="filters-rest" data-open={isOpen}>
        {children}
        {hidden.length > 0 && (
          <button
            type="button"
            class="button ghost chevron more-filters"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            More filters <Icon name="chevron" />
          </button>
        )}
        {Object.entries(rare).map(([name, filter]) => (isOpen || used.has(name)) && filter)}
        {count > 0 && <ClearFilters kept={kept} />}
      </div>
      <span role="status" class="quiet">
        {status}
      </span>
    </search>
  );
}

export const ClearFilters = ({ kept = {} }: { kept?: Record<string, string> }) => (
  <a class="button ghost" href={href(path.value, kept)}>
    Clear filters
  </a>
);
