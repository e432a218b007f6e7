import type { Signal } from "@preact/signals";
import { countOf, formatBytes, formatHours } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import type { MenuItem } from "../parts/menu.tsx";

/* The selected rows of a list of files, as the set of their ids, and the bar with the actions for them. */

interface Row {
  _id: string;
  size: number;
  durationSeconds: number | null;
}

type Selection = Signal<ReadonlySet<string>>;

/** Adds a row to the selection, or removes it. */
export function toggleRow(selected: Selection, { _id }: Pick<Row, "_id">): void {
  const ids = new Set(selected.value);
  if (!ids.delete(_id)) ids.add(_id);
  selected.value = ids;
}

/** The count of files, as the caller words it, with their duration and size in one line. */
export function describeFiles(files: Row[], count: string): string {
  const seconds = files.reduce((sum, { durationSeconds }) => sum + (durationSeconds ?? 0), 0);
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return [count, seconds > 0 && formatHours(seconds), formatBytes(bytes)].filter(Boolean).join(" · ");
}

interface SelectionProps {
  rows: Pick<Row, "_id">[];
  selected: Selection;
}

export function SelectAll({ rows, selected }: SelectionProps) {
  const count = rows.filter(({ _id }) => selected.value.has(_id)).length;
  const isAll = count === rows.length;
  return (
    <input
      type="checkbox"
      aria-label="Select all"
      checked={isAll}
      indeterminate={count > 0 && !isAll}
      onChange={() => {
        selected.value = new Set(isAll ? [] : rows.map(({ _id }) => _id));
      }}
    />
  );
}

interface SelectionBarProps {
  chosen: Row[];
  selected: Selection;
  actions: MenuItem[];
  /** Whether all loaded files are selected, and there are others. */
  isPartial: boolean;
}

/** The actions for the selected files, at the bottom of the window. */
export function SelectionBar({ chosen, selected, actions, isPartial }: SelectionBarProps) {
  const count = countOf(chosen.length, "file");
  const [number, ...facts] = describeFiles(chosen, `${count} selected`).split(" ");
  return (
    <section class="selection-bar" aria-label="Selected files">
      <p role="status">
        {number} <span>{facts.join(" ")}</span>
        {isPartial && <span> · More files aren't loaded</span>}
      </p>
      {actions.map(({ label, icon, isDangerous, onSelect }) => (
        <button key={label} type="button" class={`button ${isDangerous ? "danger" : ""}`} onClick={onSelect}>
          {icon && <Icon name={icon} />}
          <span>{isDangerous ? `${label} ${count}` : label}</span>
        </button>
      ))}
      <button
        type="button"
        class="button ghost"
        aria-label="Clear selection"
        onClick={() => {
          selected.value = new Set();
        }}
      >
        <Icon name="close" />
      </button>
    </section>
  );
}
