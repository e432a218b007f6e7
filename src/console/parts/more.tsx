import { useLayoutEffect, useRef } from "preact/hooks";
import { Failure } from "./failure.tsx";
import { focusRow } from "./focus.ts";
import { useTask } from "./task.ts";

interface MoreProps {
  of: { items: unknown[] | undefined; isLoading: boolean; more?: (() => Promise<void>) | undefined };
  label?: string;
}

/** The button that loads the next page of a list. Shows a status until the first page has loaded. */
export function More({ of, label = "Load more" }: MoreProps) {
  const { run, isRunning, error } = useTask();
  const { items, isLoading, more } = of;
  const rowsBefore = useRef(0);
  useLayoutEffect(() => {
    // The button disappears with the last page: the focus moves to the first row of that page.
    if (!more && rowsBefore.current > 0 && document.activeElement === document.body)
      focusRow(document.querySelectorAll("tbody tr")[rowsBefore.current]);
    if (!more) rowsBefore.current = 0;
  });
  if (items === undefined) return isLoading ? <p role="status">Loading…</p> : null;
  const loadMore = () => {
    rowsBefore.current = document.querySelectorAll("tbody tr").length;
    return run(async () => more?.());
  };
  return (
    <>
      <Failure error={error} />
      {more && (
        <p>
          <button type="button" class="button" aria-disabled={isRunning} onClick={loadMore}>
            {label}
          </button>
        </p>
      )}
    </>
  );
}
