import { setting } from "./storage.ts";

/* Keys that work on a whole page. */

/**
 * Whether keys that type a character are shortcuts. Speech input types many by accident, so they can be turned off (WCAG
 * 2.1.4). Space types one, too, but pages give it its usual meaning.
 */
export const hasCharacterKeys = setting("character-keys", true);
export const isCharacter = (key: string): boolean => key.length === 1 && key !== " ";

/** Handlers by the key in lower case. One that returns false leaves the key to others. */
type Shortcuts = Record<string, (event: KeyboardEvent) => unknown>;

/** If it is a function, it is called for each key. */
type Layer = Shortcuts | (() => Shortcuts);

const layers: Layer[] = [];

/** Adds shortcuts, which win over those added before. @returns a function that removes them */
export function addShortcuts(shortcuts: Layer): () => void {
  layers.unshift(shortcuts);
  return () => void layers.splice(layers.indexOf(shortcuts), 1);
}

/** Whether the focused element needs all keys itself. A slider handles those that it needs. */
const isTyping = (target: EventTarget | null) =>
  target instanceof Element &&
  target.closest("input:not([type=checkbox]), select, textarea, dialog, [popover], [contenteditable]") !== null;

/** Runs the shortcut of a key. @param first takes precedence over all added shortcuts */
export function runShortcut(event: KeyboardEvent, first: Shortcuts = {}): void {
  const { key, metaKey, ctrlKey, altKey, target } = event;
  if (event.defaultPrevented || metaKey || ctrlKey || altKey || isTyping(target)) return;
  if (isCharacter(key) && !hasCharacterKeys.peek()) return;
  const name = key.length === 1 ? key.toLowerCase() : key;
  for (const layer of [first, ...layers]) {
    const shortcuts = typeof layer === "function" ? layer() : layer;
    if (shortcuts[name] && shortcuts[name](event) !== false) return;
  }
}
