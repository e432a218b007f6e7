import { pathOf } from "../files/file-rows.ts";
import { client } from "../framework/session.ts";
import { useList } from "../framework/store.ts";

/* The paths of folders, and the lists of them. */

export const nameOf = (folder: string) => pathOf(folder).at(-1)?.name ?? "Files";
export const parentOf = (folder: string) => pathOf(folder).at(-2)?.path ?? "";
export const join = (parent: string, name: string) => (parent ? `${parent}/${name}` : name);

/** The folders directly in a folder. */
export const useFolders = (folder: string, isUsed = true) =>
  useList(
    isUsed ? ["folders", folder] : ["no folders"],
    isUsed ? (signal) => client.value.files.folders(folder ? { under: folder } : {}, { signal }) : null,
    { of: ["file"] },
  );

/** The pages of folders of all levels that are loaded to search them, a request each. */
const MAX_FOLDER_PAGES = 10;

/** The folders of all levels. If the team has very many, `more` is defined. */
export const useAllFolders = (isUsed = true) =>
  useList(["all folders"], isUsed ? (signal) => client.value.files.folders({ deep: true }, { signal }) : null, {
    of: ["file"],
    pages: MAX_FOLDER_PAGES,
  });
