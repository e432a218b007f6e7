import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

/** Puts the focus on what a row leads to, or on what it lets do; on the heading where there is no row. */
export function focusRow(row: Element | null | undefined): void {
  const target = row?.querySelector<HTMLElement>("a") ?? row?.querySelector<HTMLElement>("button, input");
  (target ?? document.querySelector("h1"))?.focus();
}

/** Keeps the focus in the page where what had it is gone: it goes to the row that came in its row's place. */
export function useKeptFocus(): void {
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
