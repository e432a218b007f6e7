/** Focuses the link of a row, or its first control; the page's heading if there is no row. */
export function focusRow(row: Element | null | undefined): void {
  const target = row?.querySelector<HTMLElement>("a") ?? row?.querySelector<HTMLElement>("button, input");
  (target ?? document.querySelector("h1"))?.focus();
}

/** Keeps the focus on the page if the focused element is removed: it moves to the row that took its row's place. */
export function followFocus(page: Element): void {
  let last: Element | null = null;
  let place: { rows: Element; index: number } | null = null;
  const notePlace = () => {
    const row = last?.closest("tr");
    const rows = row?.parentElement;
    place = row && rows ? { rows, index: [...rows.children].indexOf(row) } : null;
  };
  document.addEventListener("focusin", ({ target }) => {
    last = target as Element;
    notePlace();
  });
  new MutationObserver(() => {
    if (last?.isConnected) return notePlace();
    if (!last || document.activeElement !== document.body) return;
    focusRow(place?.rows.isConnected ? (place.rows.children[place.index] ?? place.rows.lastElementChild) : null);
  }).observe(page, { childList: true, subtree: true });
}
