import { signal, useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";

const AT_ONCE = 4;
/** How many of the page's operations and schemas are shown. */
const shown = signal(0);

/** One that is shown in its turn, from 0. */
export function Part({ place, children }: { place: number; children: ComponentChildren }) {
  const isShown = useComputed(() => place < shown.value);
  return <>{isShown.value && children}</>;
}

/** Shows some after the other, then calls `done`: all at once would stop a phone for half a second. */
export function showParts(count: number, done: () => void): void {
  if (shown.value < count) {
    shown.value += AT_ONCE;
    setTimeout(showParts, 0, count, done);
  } else done();
}
