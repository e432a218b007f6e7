import type { FileMetadata } from "../../client/index.ts";
import { askToMove } from "../folders/folders.tsx";
import type { Actions } from "../framework/action.tsx";
import { open } from "../framework/dialog.tsx";
import { script } from "../framework/script.tsx";
import { deletionScope, trashDays } from "../framework/session.ts";
import type { Track } from "../sound/player-state.ts";
import { changing } from "./changing.ts";
import type { FileRow } from "./file-rows.ts";
import { renaming } from "./rename.tsx";

const ShareDialog = script(() => import("../links/sharing.tsx")).view(({ ShareDialog }) => ShareDialog);

/** Shares a file by the panel of its page, or by a dialog. */
function shareFile(file: Track): unknown {
  const panel = document.getElementById("share-panel");
  if (!panel) return open((close) => <ShareDialog file={file} onClose={() => close()} />);
  panel.scrollIntoView({ block: "nearest" });
  return panel.querySelector<HTMLElement>("[type=submit]")?.focus();
}

const rename = ({ _id }: FileRow) => {
  renaming.value = _id;
};

/** The actions of files: in the menu of a row, for the selected rows, and on the page of a file. */
export function fileActions(files: (FileRow & Partial<Pick<FileMetadata, "hold">>)[]): Actions {
  const [file] = files.length === 1 ? files : [];
  return [
    file && { label: "Share", icon: "link", scope: "files:download", keys: ["s"], run: () => shareFile(file) },
    {
      label: "Download",
      icon: "download",
      scope: "files:download",
      run: () => changing.load().then(({ downloadFiles }) => downloadFiles(files)),
    },
    file && { label: "Rename", icon: "edit", scope: "files:write", keys: ["e", "F2"], run: () => rename(file) },
    { label: "Move", icon: "move", scope: "files:write", run: () => askToMove(files) },
    {
      label: "Edit tags",
      icon: "tag",
      scope: "files:write",
      run: () => changing.load().then(({ editTags }) => editTags(files)),
    },
    {
      label: file?.hold ? "Delete (the file is held)" : "Delete",
      icon: "trash",
      scope: deletionScope(),
      keys: ["Delete"],
      isDangerous: true,
      isDisabled: Boolean(file?.hold),
      run: () =>
        changing
          .load()
          .then(({ trashFiles, askToDelete }) => (trashDays.value ? trashFiles(files) : askToDelete({ files }))),
    },
  ];
}
