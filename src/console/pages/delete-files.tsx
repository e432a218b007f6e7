import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { messageOf, RequestId } from "../parts/failure.tsx";
import { countOf, formatCount } from "../parts/format.ts";
import { isMissing } from "../parts/unloaded.tsx";
import { client, isExpired, noteFailure } from "../session.ts";

interface NamedFile {
  _id: string;
  originalName: string;
}

/** Browsers send at most six requests to a host at a time, and the page needs some. */
const MAX_IN_FLIGHT = 4;
const MAX_NAMES = 5;

function Names({ files }: { files: NamedFile[] }) {
  return (
    <ul class="names">
      {files.slice(0, MAX_NAMES).map(({ _id, originalName }) => (
        <li key={_id}>
          <bdi>{originalName}</bdi>
        </li>
      ))}
      {files.length > MAX_NAMES && <li>and {formatCount(files.length - MAX_NAMES)} more</li>}
    </ul>
  );
}

interface Failed {
  file: NamedFile;
  error: unknown;
}

interface DeleteFilesProps {
  files: NamedFile[];
  /** Called at most once per frame with the ids of the deleted files. */
  onDeleted: (ids: string[]) => void;
  onClose: () => void;
}

/** Confirms, deletes the files, and shows which ones failed, with a retry. */
export function DeleteFiles({ files, onDeleted, onClose }: DeleteFilesProps) {
  const [left, setLeft] = useState(files);
  const [done, setDone] = useState<number | null>(null);
  const [failures, setFailures] = useState<Failed[] | null>(null);
  const isStopped = useRef(false);
  const closeButton = useRef<HTMLButtonElement>(null);
  const deleted = useRef<string[]>([]);
  const frame = useRef(0);
  const report = () => {
    cancelAnimationFrame(frame.current);
    frame.current = 0;
    if (deleted.current.length > 0) onDeleted(deleted.current.splice(0));
  };
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  const isRunning = done !== null;
  const deleteAll = async () => {
    const caller = client.peek();
    const failed: Failed[] = [];
    let started = 0;
    let count = 0;
    isStopped.current = false;
    setFailures(null);
    setDone(0);
    const deleteNext = async () => {
      for (let file = left[started++]; file; file = left[started++]) {
        try {
          await caller.files.delete(file._id);
          count++;
          deleted.current.push(file._id);
        } catch (error) {
          noteFailure(error, caller);
          failed.push({ file, error });
          // Somebody else has deleted it: there is nothing to retry.
          if (isMissing(error)) deleted.current.push(file._id);
        }
        frame.current ||= requestAnimationFrame(() => {
          setDone(count + failed.length);
          report();
        });
        if (isStopped.current || isExpired.value) return;
      }
    };
    await Promise.all(Array.from({ length: MAX_IN_FLIGHT }, deleteNext));
    report();
    setDone(null);
    announce(`Deleted ${count === left.length ? "" : `${formatCount(count)} of `}${countOf(left.length, "file")}`);
    const rest = left.slice(count + failed.length);
    if (failed.length + rest.length === 0) return onClose();
    setFailures(failed);
    setLeft([...failed.filter(({ error }) => !isMissing(error)).map(({ file }) => file), ...rest]);
    closeButton.current?.focus();
  };
  const stop = () => {
    isStopped.current = true;
  };
  const leave = isRunning ? stop : onClose;
  return (
    <Dialog
      title={failures ? "Some files weren't deleted" : `Delete ${countOf(files.length, "file")}?`}
      onClose={leave}
    >
      <div class="stack">
        {failures ? (
          <div class="failure" role="alert">
            <p>
              Deleted {formatCount(files.length - left.length)} of {countOf(files.length, "file")}.{" "}
              {formatCount(left.length)} left.
            </p>
            <ul class="names">
              {failures.map(({ file, error }) => (
                <li key={file._id}>
                  <bdi>{file.originalName}</bdi>: {messageOf(error)}
                  <RequestId of={error} />
                </li>
              ))}
            </ul>
          </div>
        ) : (
          <>
            <Names files={files} />
            <p>
              This can't be undone. Share links to {files.length === 1 ? "this file" : "these files"} will stop working.
            </p>
          </>
        )}
        {isRunning && (
          <label class="stack">
            Deleting {formatCount(done)} of {formatCount(left.length)}
            <progress value={done} max={left.length} />
          </label>
        )}
        <div class="actions">
          <button ref={closeButton} type="button" class="button" onClick={leave}>
            {isRunning ? "Stop" : failures ? "Close" : "Cancel"}
          </button>
          {left.length > 0 && (
            <button
              type="button"
              class="button danger"
              aria-disabled={isRunning}
              onClick={() => isRunning || deleteAll()}
            >
              {failures ? "Try again" : `Delete ${countOf(left.length, "file")}`}
            </button>
          )}
        </div>
      </div>
    </Dialog>
  );
}
