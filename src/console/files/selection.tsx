import { type Actions, allowed, perform } from "../framework/action.tsx";
import type { Selection } from "../parts/choice.tsx";
import { countOf, formatBytes, formatHours } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";

/* The bar with the actions for the selected rows of a list of files. */

interface Row {
  _id: string;
  size: number;
  durationSeconds: number | null;
}

/** The count of files, as the caller words it, with their duration and size in one line. */
export function describeFiles(files: Row[], count: string): string {
  const seconds = files.reduce((sum, { durationSeconds }) => sum + (durationSeconds ?? 0), 0);
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return [count, seconds > 0 && formatHours(seconds), formatBytes(bytes)].filter(Boolean).join(" · ");
}

interface SelectionBarProps {
  chosen: Row[];
  selected: Selection;
  actions: Actions;
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
      {allowed(actions).map((action) => (
        <button
          key={action.label}
          type="button"
          class={`button ${action.isDangerous ? "danger" : ""}`}
          onClick={() => void perform(action)}
        >
          {action.icon && <Icon name={action.icon} />}
          <span>{action.isDangerous ? `${action.label} ${count}` : action.label}</span>
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
