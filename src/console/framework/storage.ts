import { effect, type Signal, signal } from "@preact/signals";

/* Storage of a page on the device. A browser may deny it: then nothing is stored, and the page works until it is closed. */

type Place = "localStorage" | "sessionStorage";

/** Returns a stored value. @returns null if there is none, and if it is unreadable */
export function readStored<T>(place: Place, key: string): T | null {
  try {
    return JSON.parse(window[place].getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/** Stores a value; null removes it. */
export function store(place: Place, key: string, value: unknown): void {
  try {
    if (value === null) window[place].removeItem(key);
    else window[place].setItem(key, JSON.stringify(value));
  } catch {
    // Nothing stays.
  }
}

/** A setting that outlives the page. */
export function setting<T>(name: string, initial: T): Signal<T> {
  const key = `stowage.${name}`;
  const read = () => readStored<T>("localStorage", key) ?? initial;
  const value = signal(read());
  effect(() => {
    if (value.value !== read()) store("localStorage", key, value.value);
  });
  return value;
}
