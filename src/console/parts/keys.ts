/* Keys that work on a whole page. */

/** Handlers by the key in lower case. One that returns false leaves the key to others. */
type Shortcuts = Record<string, (event: KeyboardEvent) => unknown>;

const layers: Shortcuts[] = [];

/** Adds shortcuts, which win over those added before. @returns a function that removes them */
export function addShortcuts(shortcuts: Shortcuts): () => void {
  layers.unshift(shortcuts);
  return () => void layers.splice(layers.indexOf(shortcuts), 1);
}

/** Whether the focused element needs all keys itself. A slider handles those that it needs. */
const isTyping = (target: EventTarget | null) =>
  target instanceof Element &&
  target.closest("input:not([type=checkbox]), select, textarea, dialog, [popover], [contenteditable]") !== null;

/** A handler that keeps the key from the element that the work focuses. */
export const takeKey = (work: () => void) => (event: KeyboardEvent) => {
  event.preventDefault();
  work();
};

/** Runs the shortcut of a key. @param first takes precedence over all added shortcuts */
export function runShortcut(event: KeyboardEvent, first: Shortcuts = {}): void {
  const { key, metaKey, ctrlKey, altKey, target } = event;
  if (event.defaultPrevented || metaKey || ctrlKey || altKey || isTyping(target)) return;
  const name = key.length === 1 ? key.toLowerCase() : key;
  for (const layer of [first, ...layers]) if (layer[name] && layer[name](event) !== false) return;
}
