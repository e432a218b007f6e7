import { useRef, useState } from "preact/hooks";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { messageOf, RequestId } from "../parts/failure.tsx";
import { isMissing } from "../parts/unloaded.tsx";
import { formatCount } from "../parts/values.tsx";
import { client, hasEnded, noteFailure } from "../session.ts";

interface Named {
  _id: string;
  originalName: string;
}

const AT_ONCE = 4;
const NAMED = 5;

export const countFiles = (count: number) => `${formatCount(count)} ${count === 1 ? "file" : "files"}`;

function Names({ files }: { files: Named[] }) {
  return (
    <ul class="names">
      {files.slice(0, NAMED).map(({ _id, originalName }) => (
        <li key={_id}>
          <bdi>{originalName}</bdi>
        </li>
      ))}
      {files.length > NAMED && <li>and {formatCount(files.length - NAMED)} more</li>}
    </ul>
  );
}

/** Asks whether files are to be deleted, deletes them, and says of which that failed: they can be tried again. */
export function DeleteFiles({
  files,
  onGone,
  onClose,
}: {
  files: Named[];
  /** Of each file that is no more. */
  onGone: (id: string) => void;
  onClose: () => void;
}) {
  const [left, setLeft] = useState(files);
  const [done, setDone] = useState<number | null>(null);
  const [failures, setFailures] = useState<{ file: Named; error: unknown }[] | null>(null);
  const isStopped = useRef(false);
  const closing = useRef<HTMLButtonElement>(null);
  const isRunning = done !== null;
  const work = async () => {
    const queue = [...left];
    const asked = client.peek();
    const failed: { file: Named; error: unknown }[] = [];
    let count = 0;
    isStopped.current = false;
    setFailures(null);
    setDone(0);
    const deleteNext = async () => {
      for (let file = queue.shift(); file; file = queue.shift()) {
        try {
          await asked.files.delete(file._id);
          count++;
          onGone(file._id);
        } catch (error) {
          noteFailure(error, asked);
          failed.push({ file, error });
        }
        setDone(count + failed.length);
        if (isStopped.current || hasEnded.value) return;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, deleteNext));
    setDone(null);
    announce(
      `Deleted ${count === left.length ? countFiles(count) : `${formatCount(count)} of ${countFiles(left.length)}`}.`,
    );
    if (failed.length + queue.length === 0) return onClose();
    // What somebody else has deleted is gone all the same: there is nothing to try again.
    for (const { file, error } of failed) if (isMissing(error)) onGone(file._id);
    setFailures(failed);
    setLeft([...failed.filter(({ error }) => !isMissing(error)).map(({ file }) => file), ...queue]);
    closing.current?.focus();
  };
  const stop = () => {
    isStopped.current = true;
  };
  const leave = isRunning ? stop : onClose;
  return (
    <Dialog title={failures ? "Not all were deleted" : `Delete ${countFiles(files.length)}?`} onClose={leave}>
      <div class="stack">
        {failures ? (
          <div class="failure" role="alert">
            <p>
              {countFiles(files.length - left.length)} of {formatCount(files.length)}{" "}
              {files.length === 1 ? "is" : "are"} gone, {countFiles(left.length)} still there.
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
              What is stored of {files.length === 1 ? "it" : "them"} is lost for good, and its signed addresses stop
              working.
            </p>
          </>
        )}
        {isRunning && (
          <label class="stack">
            Deleting: {formatCount(done)} of {formatCount(left.length)}
            <progress value={done} max={left.length} />
          </label>
        )}
        <div class="actions">
          <button ref={closing} type="button" class="button" onClick={leave}>
            {isRunning ? "Stop" : failures ? "Close" : "Cancel"}
          </button>
          {left.length > 0 && (
            <button type="button" class="button danger" aria-disabled={isRunning} onClick={() => isRunning || work()}>
              {failures ? "Try again" : `Delete ${countFiles(left.length)}`}
            </button>
          )}
        </div>
      </div>
    </Dialog>
  );
}
