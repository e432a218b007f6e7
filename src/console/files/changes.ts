/* All changes of files that the first page does not need before somebody asks for one. */
export { askToDelete } from "../trash/delete-files.tsx";
export { downloadFiles, moveFiles, trashFiles } from "./file-changes.ts";
export { SelectionBar } from "./selection.tsx";
export { editTags } from "./tag-dialog.tsx";
