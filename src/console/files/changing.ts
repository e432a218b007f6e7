import { script } from "../framework/script.tsx";

/** The changes of files, with their dialogs. They are loaded once the first page is there, or with the first change. */
export const changing = script(() => import("./changes.ts"));
