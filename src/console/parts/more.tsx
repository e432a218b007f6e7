import { useLayoutEffect, useRef } from "preact/hooks";
import { focusRow } from "../framework/focus.ts";
import { useTask } from "../framework/task.ts";
import { Failure } from "./failure.tsx";
import { Skeleton } from "./page.tsx";

interface MoreProps {
  of: { items: unknown[] | undefined; isLoading: boolean; more?: (() => Promise<void>) | undefined };
  label?: string;
}

/** The rows of the list that is above an element. */
function rowsAbove(element: Element | null): NodeListOf<Element> | [] {
  const list = element?.previousElementSibling;
  return list?.querySelectorAll(list.querySelector("tbody") ? "tbody tr" : "li") ?? [];
}

/** The button that loads the next page of the list above it. Shows a skeleton until the first page has loaded. */
export function More({ of, label = "Load more" }: MoreProps) {
  const { run, isRunning, error } = useTask();
  const { items, isLoading, more } = of;
  const place = useRef<HTMLDivElement>(null);
  const rowsBefore = useRef(0);
  useLayoutEffect(() => {
    // The button disappears with the last page: the focus moves to the first row of that page.
    if (!more && rowsBefore.current > 0 && document.activeElement === document.body)
      focusRow(rowsAbove(place.current)[rowsBefore.current]);
    if (!more) rowsBefore.current = 0;
  });
  if (items === undefined) return isLoading ? <Skeleton /> : null;
  const loadMore = () => {
    rowsBefore.current = rowsAbove(place.current).length;
    return run(async () => more?.());
  };
  return (
    <div ref={place} class="more">
      <Failure error={error} />
      {more && (
        <button type="button" class="button" aria-disabled={isRunning} onClick={loadMore}>
          {label}
        </button>
      )}
    </div>
  );
}
