import { useRef, useState } from "preact/hooks";
import { announce } from "../parts/announce.tsx";
import { TaskDialog } from "../parts/dialog.tsx";
import { countOf, formatCount } from "../parts/format.ts";
import { isMissing } from "../parts/unloaded.tsx";
import { whileHeld } from "../store.ts";
import { deleteFiles, MAX_BATCH_FILES } from "./file-changes.ts";

interface NamedFile {
  _id: string;
  name: string;
}

const MAX_NAMES = 5;

function Names({ files }: { files: NamedFile[] }) {
  return (
    <ul class="names">
      {files.slice(0, MAX_NAMES).map(({ _id, name }) => (
        <li key={_id}>
          <bdi>{name}</bdi>
        </li>
      ))}
      {files.length > MAX_NAMES && <li>and {formatCount(files.length - MAX_NAMES)} more</li>}
    </ul>
  );
}

interface DeleteFilesProps {
  files: NamedFile[];
  /** Called after each request with the ids of the deleted files. */
  onDeleted: (ids: string[]) => void;
  onClose: () => void;
}

/** Confirms and deletes the files, in as many requests as needed. It can be stopped, and continued after a failure. */
export function DeleteFiles({ files, onDeleted, onClose }: DeleteFilesProps) {
  const [left, setLeft] = useState(files);
  const isStopped = useRef(false);
  const deleteLeft = async () => {
    isStopped.current = false;
    for (let rest = left; rest.length > 0 && !isStopped.current; setLeft(rest)) {
      const ids = rest.slice(0, MAX_BATCH_FILES).map(({ _id }) => _id);
      await whileHeld(ids, () => deleteFiles(ids)).catch((error) => {
        if (!isMissing(error)) throw error;
      });
      rest = rest.slice(ids.length);
      onDeleted(ids);
      if (rest.length > 0) continue;
      announce(`Deleted ${countOf(files.length, "file")}`);
      onClose();
    }
  };
  const done = files.length - left.length;
  return (
    <TaskDialog
      title={`Delete ${countOf(files.length, "file")}?`}
      action={`Delete ${countOf(left.length, "file")}`}
      isDangerous
      onRun={deleteLeft}
      onStop={() => {
        isStopped.current = true;
      }}
      onClose={onClose}
    >
      <Names files={left} />
      <p>This can't be undone. Share links to {files.length === 1 ? "this file" : "these files"} will stop working.</p>
      {done > 0 && (
        <label class="stack">
          Deleted {formatCount(done)} of {formatCount(files.length)}
          <progress value={done} max={files.length} />
        </label>
      )}
    </TaskDialog>
  );
}
