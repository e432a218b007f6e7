import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Action } from "../framework/action.tsx";
import { href, navigate, path, query } from "../framework/router.ts";
import { chooseFiles } from "./choose.ts";
import { uploading } from "./later.tsx";

/** The folder that new files go to. */
const openFolder = () => (path.value === "/files" ? (query.value.get("folder") ?? "") : "");

/** Files go to the open folder. */
const goToFiles = () => path.peek() !== "/files" && navigate(href("/files"));

export const uploadFiles: Action = {
  label: "Upload files",
  icon: "upload",
  scope: "files:upload",
  keys: ["u"],
  run: () => {
    goToFiles();
    const open = openFolder();
    chooseFiles({ multiple: true }, (files) => uploading.use(({ addChosen }) => addChosen(open, files)));
  },
};

export const uploadFolder: Action = {
  label: "Upload folder",
  icon: "folder",
  scope: "files:upload",
  run: () => {
    const open = openFolder();
    chooseFiles({ webkitdirectory: true }, (files) => uploading.use(({ addChosen }) => addChosen(open, files)));
  },
};

/** Accepts files that are dropped anywhere in the window, and highlights it while files are dragged over it. */
export function DropZone() {
  const isOver = useSignal(false);
  useEffect(() => {
    const stop = new AbortController();
    // Not every browser says where a drag goes to, so the elements that it is over are counted.
    const entered = new Set<EventTarget | null>();
    const show = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      if (event.type === "dragenter") entered.add(event.target);
      isOver.value = true;
    };
    const hide = () => {
      entered.clear();
      isOver.value = false;
    };
    addEventListener("dragenter", show, stop);
    addEventListener("dragover", show, stop);
    const left = ({ target }: DragEvent) => {
      entered.delete(target);
      if (entered.size === 0) hide();
    };
    addEventListener("dragleave", left, stop);
    // The pointer does not move during a drag, so this ends a drag that ended without an event.
    addEventListener("pointermove", hide, stop);
    addEventListener(
      "drop",
      (event) => {
        hide();
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        // Reading folders takes a while, in which the user may open another one. The list is cleared when the event ends.
        const open = openFolder();
        const entries = [...event.dataTransfer.items]
          .map((item) => item.webkitGetAsEntry())
          .filter((entry) => entry !== null);
        uploading.use(({ addDropped }) => addDropped(open, entries));
      },
      stop,
    );
    return () => stop.abort();
  }, []);
  return (
    <div class="drop-zone" hidden={!isOver.value} aria-hidden="true">
      <p>Drop to upload{openFolder() && ` to ${openFolder().split("/").at(-1)}`}</p>
    </div>
  );
}
