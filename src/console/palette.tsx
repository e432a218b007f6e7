import { useSignal } from "@preact/signals";
import { useId, useState } from "preact/hooks";
import { Dialog } from "./framework/dialog.tsx";
import { script } from "./framework/script.tsx";

/* The palette that ⌘K opens. Its field is there at once, so that it has every key that is typed after ⌘K. */

/** The keys that open it, as they are labeled on the keyboard. */
export const PALETTE_KEYS = /Mac|iP/.test(navigator.platform) ? "⌘ K" : "Ctrl K";
export const PALETTE_LABEL = "Find files, what is said in them, folders, pages, and actions";
/** The keys that the results handle. */
const RESULT_KEYS = ["ArrowDown", "ArrowUp", "Enter"];

const results = script(() => import("./palette-results.tsx"));
const PaletteResults = results.view(({ PaletteResults }) => PaletteResults);

/** Finds files, what is said in them, folders, pages, and actions by typing. */
export function Palette({ openHelp, onClose }: { openHelp: () => void; onClose: () => void }) {
  const id = useId();
  const [typed, setTyped] = useState("");
  const pressed = useSignal<string[]>([]);
  const active = useSignal<string | undefined>(undefined);
  const combobox: object = {
    role: "combobox",
    "aria-label": PALETTE_LABEL,
    "aria-expanded": results.loaded.value !== null,
    "aria-controls": id,
    "aria-activedescendant": active.value,
    onKeyDown: (event: KeyboardEvent) => {
      if (!RESULT_KEYS.includes(event.key)) return;
      event.preventDefault();
      pressed.value = [...pressed.peek(), event.key];
    },
    onInput: ({ currentTarget }: { currentTarget: HTMLInputElement }) => setTyped(currentTarget.value),
  };
  return (
    <Dialog title="Find or do something" class="palette" isTitleHidden onClose={onClose}>
      <input
        type="search"
        placeholder={`${PALETTE_LABEL}…`}
        autocomplete="off"
        spellcheck={false}
        value={typed}
        {...combobox}
      />
      <PaletteResults id={id} typed={typed} pressed={pressed} active={active} openHelp={openHelp} onClose={onClose} />
    </Dialog>
  );
}
