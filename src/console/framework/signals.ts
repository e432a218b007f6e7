import { type Signal, signal } from "@preact/signals";

/*
 * How long a value lives that no component has alone. `useSignal` is for one component, `setting` for the device, and the
 * URL for what a link should show. Other code makes no signal, so each one says when it ends.
 */

const resets: (() => void)[] = [];

/** A signal of the open page. The next page finds it as it was at first. */
export function pageSignal<T>(initial: T): Signal<T> {
  const value = signal(initial);
  resets.push(() => {
    value.value = initial;
  });
  return value;
}

/** Called by the router when the page changes. */
export function resetPageSignals(): void {
  for (const reset of resets) reset();
}

/** A signal of the tab, such as of the player, which plays on while pages change. It ends with a reload, and so with the session. */
export const tabSignal = <T>(initial: T): Signal<T> => signal(initial);
