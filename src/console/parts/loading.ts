import { type Inputs, useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { List } from "../../client/stowage.ts";
import { beginnings } from "../live.ts";
import { client, noteFailure, session } from "../session.ts";

interface Loaded<T> {
  /** Undefined until it is there for the first time. */
  value: T | undefined;
  error: unknown;
  isLoading: boolean;
  reload(): void;
  /** Puts what is known by now in its place, without asking. */
  change(update: (value: T) => T): void;
}

/** Loads for a page, anew when an input changes, when another signs in, and when events begin to be followed. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, inputs: Inputs): Loaded<T> {
  const [state, setState] = useState<Pick<Loaded<T>, "value" | "error" | "isLoading">>({
    value: undefined,
    error: null,
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const latestLoad = useRef(load);
  latestLoad.current = load;
  useEffect(() => {
    const stop = new AbortController();
    const asked = client.peek();
    setState((before) => ({ ...before, isLoading: true }));
    latestLoad.current(stop.signal).then(
      (value) => !stop.signal.aborted && setState({ value, error: null, isLoading: false }),
      (error) => {
        if (stop.signal.aborted) return;
        noteFailure(error, asked);
        setState((before) => ({ ...before, error, isLoading: false }));
      },
    );
    return () => stop.abort();
  }, [...inputs, round, session.value, beginnings.value]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  const change = useCallback(
    (update: (value: T) => T) =>
      setState((before) => (before.value === undefined ? before : { ...before, value: update(before.value) })),
    [],
  );
  return { ...state, reload, change };
}

interface Listing<T> extends Omit<Loaded<T[]>, "value"> {
  items: T[] | undefined;
  /** Adds the next page; undefined where there is none. */
  more: (() => Promise<void>) | undefined;
}

/** A list, page after page, of which `first` are there at once. What was loaded further stays loaded when it is loaded anew. */
export function useListing<T>(list: (signal: AbortSignal) => List<T>, inputs: Inputs, first = 1): Listing<T> {
  type Pages = { items: T[]; next: string | undefined };
  const latestList = useRef(list);
  latestList.current = list;
  const pages = useRef(first);
  const read = async (signal: AbortSignal, count: number, from?: Pages): Promise<Pages> => {
    let { items, next } = from ?? { items: [], next: undefined };
    for (let page = 0; page < count && (page === 0 || next !== undefined); page++) {
      const found = await latestList.current(signal).page(next);
      items = [...items, ...found.items];
      next = found.next;
    }
    return { items, next };
  };
  const stop = useRef(new AbortController());
  // Other filters are another list, which begins at its first page.
  useEffect(
    () => () => {
      pages.current = 1;
      stop.current.abort();
      stop.current = new AbortController();
    },
    inputs,
  );
  const { value, change, ...loaded } = useLoaded<Pages>((signal) => read(signal, pages.current), inputs);
  const more = async () => {
    if (value?.next === undefined) return;
    const { signal } = stop.current;
    const found = await read(signal, 1, { items: [], next: value.next }).catch((error) => {
      if (!signal.aborted) throw error;
    });
    if (!found || signal.aborted) return;
    const { items, next } = found;
    pages.current++;
    // Where it was loaded anew meanwhile, this is no longer what follows.
    change((now) => (now.next === value.next ? { items: [...now.items, ...items], next } : now));
  };
  return {
    ...loaded,
    items: value?.items,
    more: value?.next === undefined ? undefined : more,
    change: (update) => change((before) => ({ ...before, items: update(before.items) })),
  };
}
