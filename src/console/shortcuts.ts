import { signal } from "@preact/signals";
import { addShortcuts, runShortcut } from "./parts/keys.ts";
import { href, navigate } from "./router.ts";
import { session } from "./session.ts";
import type { Track } from "./sound/playback.ts";

/* The keys of every page of the console. A page adds its own with `addShortcuts`. */

/** The overlay that is open above the page. */
export const overlay = signal<"palette" | "help" | null>(null);

/** The file that the dialog above the page shares. */
export const shared = signal<Track | null>(null);
export const openShare = (file: Track): void => {
  shared.value = file;
};

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
    "E or F2": "Rename",
    S: "Share",
    Delete: "Delete",
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
    C: "Copy a link for your team to this moment",
    "[ and ]": "Start and end a clip here",
  },
};

const SEQUENCE_MILLISECONDS = 1000;
const DESTINATIONS: Record<string, string> = { f: "/files", e: "/events", k: "/keys", u: "/usage", w: "/webhooks" };

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
  const goTo = (page: string) => {
    if (Date.now() - prefixAt >= SEQUENCE_MILLISECONDS) return false;
    prefixAt = 0;
    navigate(href(page));
  };
  const destinations = Object.fromEntries(Object.entries(DESTINATIONS).map(([key, page]) => [key, () => goTo(page)]));
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !session.peek()) return;
    const { key, metaKey, ctrlKey, altKey } = event;
    if (key.toLowerCase() === "k" && (metaKey || ctrlKey) && !altKey) {
      event.preventDefault();
      overlay.value = overlay.peek() === "palette" ? null : "palette";
      return;
    }
    runShortcut(event, destinations);
  });
}
