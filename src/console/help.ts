import { fileActions } from "./files/file-actions.tsx";
import type { FileRow } from "./files/file-rows.ts";
import { type Actions, allowed } from "./parts/action.tsx";
import { uploadFiles } from "./uploads/drop-zone.tsx";

/** The pages by the key that follows G. */
export const DESTINATIONS: Record<string, string> = {
  f: "/files",
  e: "/events",
  k: "/keys",
  u: "/usage",
  w: "/webhooks",
};

/** Stands for the focused row. */
const ANY_FILE = {} as FileRow;

/** The keys of actions with their labels: "E or F2" for "Rename". */
const keysOf = (actions: Actions): Record<string, string> =>
  Object.fromEntries(
    allowed(actions).flatMap(({ keys, label }) =>
      keys ? [[keys.join(" or ").replace(/^[a-z]/, (key) => key.toUpperCase()), label.replace("…", "")]] : [],
    ),
  );

/** The keys and what they do, for the sheet that `?` opens. */
export const help = (): Record<string, Record<string, string>> => ({
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
    ...keysOf([...fileActions([ANY_FILE]), uploadFiles]),
    Esc: "Clear the selection",
  },
  Player: {
    Space: "Play and pause",
    "← →": "Back and forward 5 s",
    "⇧ ← →": "Back and forward 30 s",
    "N and P": "Next and previous file",
    "< >": "Slower and faster",
    M: "Mute",
    C: "Copy a team link to this moment or the clip",
    "[ and ]": "Start and end a clip here",
  },
});
