import { fileActions } from "./files/file-actions.tsx";
import type { FileRow } from "./files/file-rows.ts";
import { type Actions, allowed } from "./framework/action.tsx";
import { PALETTE_KEYS, PALETTE_LABEL } from "./palette.tsx";
import { visibleSections } from "./sections.ts";
import { uploadFiles } from "./uploads/drop-zone.tsx";

/** Stands for the focused row. */
const ANY_FILE = {} as FileRow;

/** The keys of actions with their labels: "E or F2" for "Rename". */
const keysOf = (actions: Actions): Record<string, string> =>
  Object.fromEntries(
    allowed(actions).flatMap(({ keys, label }) =>
      keys ? [[keys.join(" or ").replace(/^[a-z]/, (key) => key.toUpperCase()), label]] : [],
    ),
  );

/** The keys of a list of files and of the player. */
const fileHelp = (): Record<string, Record<string, string>> => ({
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

/** The keys that this session can use, for the sheet that `?` opens. */
export function help(): Record<string, Record<string, string>> {
  const sections = visibleSections();
  const destinations = sections.flatMap(([, { key, label }]) =>
    key ? [[`G then ${key.toUpperCase()}`, `Go to ${label.toLowerCase()}`]] : [],
  );
  return {
    Everywhere: {
      [PALETTE_KEYS]: PALETTE_LABEL,
      "/": "Search this page",
      ...Object.fromEntries(destinations),
      "?": "Show these shortcuts",
    },
    ...(sections.some(([step]) => step === "files") && fileHelp()),
  };
}
