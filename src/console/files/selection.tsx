import { type Action, type Actions, allowed, perform } from "../framework/action.tsx";
import type { Selection } from "../parts/choice.tsx";
import { countOf } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Menu } from "../parts/menu.tsx";
import { describeFiles, type Sized } from "./file-rows.ts";

/* The bar with the actions for the selected rows of a list of files. */

/** The actions that a phone shows; a menu has the others. */
const PHONE_ACTIONS = 3;

interface SelectionBarProps {
  chosen: Sized[];
  selected: Selection;
  actions: Actions;
  /** Whether all loaded files are selected, and there are others. */
  isPartial: boolean;
}

/** The actions for the selected files, at the bottom of the window. */
export function SelectionBar({ chosen, selected, actions, isPartial }: SelectionBarProps) {
  const count = countOf(chosen.length, "file");
  const all = allowed(actions);
  const [first, others] = [all.slice(0, PHONE_ACTIONS), all.slice(PHONE_ACTIONS)];
  const button = (action: Action) => (
    <button
      key={action.label}
      type="button"
      class={`button ${action.isDangerous ? "danger" : ""}`}
      onClick={() => void perform(action)}
    >
      {action.icon && <Icon name={action.icon} />}
      <span>
        {action.label}
        {action.isDangerous && <span class="wide-only"> {count}</span>}
      </span>
    </button>
  );
  return (
    <section class="selection-bar" aria-label="Selected files">
      <p role="status">
        <span class="wide-only">
          {describeFiles(chosen, `${count} selected`)}
          {isPartial && " · More files aren't loaded"}
        </span>
        <span class="narrow-only">{chosen.length} selected</span>
      </p>
      {first.map(button)}
      <span class="wide-only">{others.map(button)}</span>
      <span class="narrow-only">
        <Menu label="Other actions" items={others} />
      </span>
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
