import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

/** Focuses the link of a row, or its first control; the page's heading if there is no row. */
export function focusRow(row: Element | null | undefined): void {
  const target = row?.querySelector<HTMLElement>("a") ?? row?.querySelector<HTMLElement>("button, input");
  (target ?? document.querySelector("h1"))?.focus();
}

/** Keeps the focus on the page if the focused element is removed: it moves to the row that took its row's place. */
export function useFocusRecovery(): void {
  const last = useRef<Element | null>(null);
  const place = useRef<{ rows: Element; index: number } | null>(null);
  useEffect(() => {
    const note = ({ target }: FocusEvent) => {
      last.current = target as Element;
      notePlace();
    };
    document.addEventListener("focusin", note);
    return () => document.removeEventListener("focusin", note);
  }, []);
  const notePlace = () => {
    const row = last.current?.closest("tr");
    const rows = row?.parentElement;
    place.current = row && rows ? { rows, index: [...rows.children].indexOf(row) } : null;
  };
  useLayoutEffect(() => {
    if (last.current?.isConnected) return notePlace();
    if (!last.current || document.activeElement !== document.body) return;
    const rows = place.current?.rows;
    focusRow(rows?.isConnected ? (rows.children[place.current?.index ?? 0] ?? rows.lastElementChild) : null);
  });
}
