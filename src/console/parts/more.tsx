import { useLayoutEffect, useRef } from "preact/hooks";
import { Failure } from "./failure.tsx";
import { focusRow } from "./focus.ts";
import { useTask } from "./task.ts";

/** The button below a list that has further pages, and what is said while its first one is loading. */
export function More({
  of,
}: {
  of: { items: unknown[] | undefined; isLoading: boolean; more?: (() => Promise<void>) | undefined };
}) {
  const { run, isRunning, error } = useTask();
  const { items, isLoading, more } = of;
  const known = useRef(0);
  useLayoutEffect(() => {
    // With the last page the button goes: whoever pressed it goes on where that page begins.
    if (!more && known.current > 0 && document.activeElement === document.body)
      focusRow(document.querySelectorAll("tbody tr")[known.current]);
    if (!more) known.current = 0;
  });
  if (items === undefined) return isLoading ? <p role="status">Loading …</p> : null;
  const show = () => {
    known.current = document.querySelectorAll("tbody tr").length;
    return run(async () => more?.());
  };
  return (
    <>
      <Failure error={error} />
      {more && (
        <p>
          <button type="button" class="button" aria-disabled={isRunning} onClick={show}>
            Show more
          </button>
        </p>
      )}
    </>
  );
}
