import { type Signal, useComputed } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useId } from "preact/hooks";

/* The boxes that select rows of a table, and the choice of one of a few values. */

/** The keys of the selected rows. */
export type Selection = Signal<ReadonlySet<string>>;

export const TabStop = createContext<{ value: number }>({ value: 0 });
/** The tab index for the controls of a row. */
export const useTabIndex = (): number => useContext(TabStop).value;

/** Selects a row, or the range from the row before, or undoes that. */
export function toggleRow(selected: Selection, key: string, range: string[] = []): void {
  const keys = new Set(selected.value);
  if (range.length > 0) for (const one of range) keys.add(one);
  else if (!keys.delete(key)) keys.add(key);
  selected.value = keys;
}

interface SelectRowProps {
  /** The key of the row. */
  row: string;
  name: string | undefined;
  selected: Selection;
  onSelect: (key: string, isRange: boolean) => void;
}

export function SelectRow({ row: key, name, selected, onSelect }: SelectRowProps) {
  return (
    <input
      type="checkbox"
      aria-label={`Select ${name}`}
      tabIndex={useTabIndex()}
      checked={useComputed(() => selected.value.has(key)).value}
      onClick={(event) => {
        onSelect(key, event.shiftKey);
        // The browser has toggled the box. If the row was and is selected, nothing would draw it again.
        event.currentTarget.checked = selected.peek().has(key);
      }}
    />
  );
}

export function SelectAll({ keys, selected }: { keys: string[]; selected: Selection }) {
  const count = keys.filter((key) => selected.value.has(key)).length;
  const isAll = count === keys.length;
  return (
    <input
      type="checkbox"
      aria-label="Select all"
      checked={isAll}
      indeterminate={count > 0 && !isAll}
      onChange={() => {
        selected.value = new Set(isAll ? [] : keys);
      }}
    />
  );
}

interface SegmentsProps<Value extends string> {
  label: string;
  /** The labels by their values. */
  options: Record<Value, string>;
  chosen: Value;
  onChoose: (value: Value) => void;
  class?: string;
}

/** A choice of one of a few values, which are all shown. */
export function Segments<Value extends string>(props: SegmentsProps<Value>) {
  const { label, options, chosen, onChoose, class: className = "" } = props;
  const name = useId();
  return (
    <fieldset class={`segments ${className}`}>
      <legend class="visually-hidden">{label}</legend>
      {(Object.entries(options) as [Value, string][]).map(([value, text]) => (
        <label key={value}>
          <input type="radio" name={name} checked={chosen === value} onChange={() => onChoose(value)} />
          {text}
        </label>
      ))}
    </fieldset>
  );
}
