import { useRef, useState } from "preact/hooks";
import { MAX_BATCH_FILES } from "../../client/files.ts";
import { deleteFiles, describeDeletion } from "../files/file-changes.ts";
import { announce } from "../framework/announce.tsx";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { countOf, formatCount } from "../parts/format.ts";

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
  /** Whether to erase the files, which are in the trash. */
  isErasure?: boolean;
  /** To empty the trash: lists its next files, called again once those are erased. An empty list ends it. */
  next?: () => Promise<NamedFile[]>;
  /** Says how many files `next` lists, if that is known. */
  total?: string | undefined;
}

/** Confirms and deletes the files, in as many requests as needed. It can be stopped, and continued after a failure. */
export const askToDelete = (props: DeleteFilesProps): Promise<void> =>
  open((close) => <DeleteFiles {...props} onClose={() => close()} />);

function DeleteFiles({ files, isErasure = false, next, total, onClose }: DeleteFilesProps & { onClose: () => void }) {
  const [progress, setProgress] = useState({ left: files, done: 0, held: 0 });
  const isStopped = useRef(false);
  const verb = isErasure ? "Erase" : "Delete";
  const deleteLeft = async () => {
    isStopped.current = false;
    let { left, done, held } = progress;
    for (;;) {
      if (left.length === 0) left = (await next?.()) ?? [];
      setProgress({ left, done, held });
      const ids = left.slice(0, MAX_BATCH_FILES).map(({ _id }) => _id);
      if (ids.length === 0) {
        const count = done - held;
        onClose();
        return announce(describeDeletion(`${verb}d ${countOf(count, "file")}`, count, held));
      }
      if (isStopped.current) return;
      const kept = await deleteFiles(ids, { permanent: isErasure });
      left = left.slice(ids.length);
      done += ids.length;
      held += kept.length;
    }
  };
  const [title, action] = next
    ? [total ? `Erase ${total}?` : "Empty the trash?", "Empty trash"]
    : [`${verb} ${countOf(files.length, "file")}?`, `${verb} ${countOf(progress.left.length, "file")}`];
  return (
    <TaskDialog
      title={title}
      action={action}
      isDangerous
      onRun={deleteLeft}
      onStop={() => {
        isStopped.current = true;
      }}
      onClose={onClose}
    >
      {next ? <p>All files in the trash are erased.</p> : <Names files={progress.left} />}
      <p>
        This can't be undone.{" "}
        {!isErasure && `Share links to ${files.length === 1 ? "this file" : "these files"} will stop working.`}
      </p>
      {progress.done > 0 && (
        <label class="stack">
          {verb}d {formatCount(progress.done)}
          {!next && ` of ${formatCount(files.length)}`}
          <progress {...(!next && { value: progress.done, max: files.length })} />
        </label>
      )}
    </TaskDialog>
  );
}
