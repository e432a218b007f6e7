import { signal } from "@preact/signals";
import { href, navigate } from "./router.ts";
import { session } from "./session.ts";

/* Keys that work on every page. A page adds its own with `addShortcuts`. */

/** Handlers by the key in lower case. One that returns false leaves the key to others. */
type Shortcuts = Record<string, (event: KeyboardEvent) => unknown>;

/** The overlay that is open above the page. */
export const overlay = signal<"palette" | "help" | null>(null);

/** The keys and what they do, for the sheet that `?` opens. */
export const HELP: Record<string, Record<string, string>> = {
  Everywhere: {
    "⌘ K": "Find files, folders, pages, and actions",
    "/": "Search this page",
    "G then F, E, K, U": "Go to files, events, keys, usage",
    "?": "Show these shortcuts",
  },
  "List of files": {
    "↑ ↓ or J K": "Previous and next row",
    Enter: "Open",
    Space: "Play",
    X: "Select",
    E: "Rename",
    U: "Upload files",
    Esc: "Clear the selection",
  },
  Player: {
    Space: "Play and pause",
    "← →": "Back and forward 5 s",
    "⇧ ← →": "Back and forward 30 s",
    "N and P": "Next and previous file",
    "< >": "Slower and faster",
    M: "Mute",
    C: "Copy a link to this moment",
  },
};

const SEQUENCE_MILLISECONDS = 1000;
const DESTINATIONS: Record<string, string> = { f: "/files", e: "/events", k: "/keys", u: "/usage", w: "/webhooks" };
const layers: Shortcuts[] = [];

/** Adds shortcuts, which win over those added before. @returns a function that removes them */
export function addShortcuts(shortcuts: Shortcuts): () => void {
  layers.unshift(shortcuts);
  return () => void layers.splice(layers.indexOf(shortcuts), 1);
}

/** Whether the focused element needs the keys itself. */
const isTyping = (target: EventTarget | null) =>
  target instanceof Element &&
  target.closest(
    "input:not([type=checkbox]), select, textarea, dialog, [popover], [role=slider], [contenteditable]",
  ) !== null;

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
    "?": () => {
      overlay.value = "help";
    },
    g: () => {
      prefixAt = Date.now();
    },
  });
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !session.peek()) return;
    const { key, metaKey, ctrlKey, altKey } = event;
    if (key.toLowerCase() === "k" && (metaKey || ctrlKey) && !altKey) {
      event.preventDefault();
      overlay.value = overlay.peek() === "palette" ? null : "palette";
      return;
    }
    if (metaKey || ctrlKey || altKey || isTyping(event.target)) return;
    const destination = DESTINATIONS[key];
    if (destination && Date.now() - prefixAt < SEQUENCE_MILLISECONDS) {
      prefixAt = 0;
      navigate(href(destination));
      return;
    }
    const name = key.length === 1 ? key.toLowerCase() : key;
    for (const layer of [...layers]) if (layer[name] && layer[name](event) !== false) return;
  });
}
