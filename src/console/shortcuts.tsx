import { computed } from "@preact/signals";
import { open } from "./framework/dialog.tsx";
import { addShortcuts, runShortcut } from "./framework/keys.ts";
import { href, navigate } from "./framework/router.ts";
import { script } from "./framework/script.tsx";
import { isExpired, session } from "./framework/session.ts";
import { Palette } from "./palette.tsx";
import { visibleSections } from "./sections.ts";

/* The keys of every page of the console. A page adds its own with `addShortcuts`. */

const SEQUENCE_MILLISECONDS = 1000;
const ShortcutHelp = script(() => import("./shortcut-help.tsx")).view(({ ShortcutHelp }) => ShortcutHelp);

const openHelp = () => void open((close) => <ShortcutHelp onClose={() => close()} />);

let closePalette: (() => void) | undefined;

/** Opens the palette, or closes it. */
export async function togglePalette(): Promise<void> {
  if (closePalette) return closePalette();
  await open((close) => {
    closePalette = () => close();
    return <Palette openHelp={openHelp} onClose={() => close()} />;
  });
  closePalette = undefined;
}

export function followShortcuts(): void {
  let prefixAt = 0;
  addShortcuts({
    "/": (event) => {
      const field = document.querySelector<HTMLInputElement>("main input[type=search]");
      if (!field) return;
      event.preventDefault();
      field.focus();
      field.select();
    },
    "?": openHelp,
    g: () => {
      prefixAt = Date.now();
    },
  });
  const goTo = (page: string) => {
    if (Date.now() - prefixAt >= SEQUENCE_MILLISECONDS) return false;
    prefixAt = 0;
    navigate(href(page));
  };
  // Above the sign-in, an overlay would be invisible until a session begins.
  const hasPage = computed(() => session.value !== null && !isExpired.value);
  const destinations = () =>
    Object.fromEntries(visibleSections().flatMap(([step, { key }]) => (key ? [[key, () => goTo(`/${step}`)]] : [])));
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !hasPage.peek()) return;
    const { key, metaKey, ctrlKey, altKey } = event;
    if (key.toLowerCase() === "k" && (metaKey || ctrlKey) && !altKey) {
      event.preventDefault();
      void togglePalette();
      return;
    }
    runShortcut(event, destinations());
  });
}
