import { computed, effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addShortcuts, runShortcut } from "./parts/keys.ts";
import { href, navigate } from "./router.ts";
import { isExpired, session } from "./session.ts";
import type { Track } from "./sound/playback.ts";

/* The keys of every page of the console. A page adds its own with `addShortcuts`. */

/** The overlay that is open above the page. */
export const overlay = signal<"palette" | "help" | null>(null);

/** The file that the dialog above the page shares. */
export const shared = signal<Track | null>(null);
export const openShare = (file: Track): void => {
  shared.value = file;
};

const SEQUENCE_MILLISECONDS = 1000;
/** The form that the next page opens, because the palette asks for it. */
const askedForm = signal("");

export function askFor(form: "key" | "user" | "folder"): void {
  askedForm.value = form;
}

/** Opens a form if the palette asks for it. */
export function useAskedForm(form: Parameters<typeof askFor>[0], open: () => void): void {
  const isAsked = askedForm.value === form;
  useEffect(() => {
    if (!isAsked) return;
    askedForm.value = "";
    open();
  }, [isAsked]);
}

/** The pages by the key that follows G. */
const DESTINATIONS: Record<string, string> = { f: "/files", e: "/events", k: "/keys", u: "/usage", w: "/webhooks" };

/** The keys and what they do, for the sheet that `?` opens. */
export const HELP: Record<string, Record<string, string>> = {
  Everywhere: {
    "⌘ K": "Find files, folders, pages, and actions",
    "/": "Search this page",
    ...Object.fromEntries(
      Object.entries(DESTINATIONS).map(([key, page]) => [`G then ${key.toUpperCase()}`, `Go to ${page.slice(1)}`]),
    ),
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
  // Above the sign-in, an overlay would be invisible until a session begins.
  const hasPage = computed(() => session.value !== null && !isExpired.value);
  effect(() => {
    if (!hasPage.value) overlay.value = null;
  });
  const destinations = Object.fromEntries(Object.entries(DESTINATIONS).map(([key, page]) => [key, () => goTo(page)]));
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !hasPage.peek()) return;
    const { key, metaKey, ctrlKey, altKey } = event;
    if (key.toLowerCase() === "k" && (metaKey || ctrlKey) && !altKey) {
      event.preventDefault();
      overlay.value = overlay.peek() === "palette" ? null : "palette";
      return;
    }
    runShortcut(event, destinations);
  });
}
