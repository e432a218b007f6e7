import { type Inputs, useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { Event, List } from "../../client/stowage.ts";
import { gaps, onEvent, reconnects, waitForPosition } from "../live.ts";
import { client, noteFailure, session } from "../session.ts";

interface Loaded<T> {
  /** Undefined until the first load completes. */
  value: T | undefined;
  error: unknown;
  isLoading: boolean;
  reload(): void;
  /** Updates the value in place, without a request. */
  change(update: (value: T) => T): void;
}

/** Loads data for a page. Loads it again if an input or the session changes, or if events may have been missed. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, inputs: Inputs): Loaded<T> {
  const [state, setState] = useState<Pick<Loaded<T>, "value" | "error" | "isLoading"> & { inputs: Inputs }>({
    value: undefined,
    error: null,
    isLoading: true,
    inputs,
  });
  const [round, setRound] = useState(0);
  const latestLoad = useRef(load);
  latestLoad.current = load;
  const hasFailed = state.error !== null;
  useEffect(() => {
    const stop = new AbortController();
    const { signal } = stop;
    const caller = client.peek();
    setState((before) => ({ ...before, isLoading: true, inputs }));
    const loadOnce = async () => {
      await waitForPosition();
      signal.throwIfAborted();
      return latestLoad.current(signal);
    };
    loadOnce().then(
      (value) => !signal.aborted && setState({ value, error: null, isLoading: false, inputs }),
      (error) => {
        if (signal.aborted) return;
        noteFailure(error, caller);
        setState((before) => ({ ...before, error, isLoading: false }));
      },
    );
    return () => stop.abort();
  }, [...inputs, round, session.value, gaps.value]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  const reconnectsSeen = useRef(reconnects.value);
  useEffect(() => {
    if (hasFailed && reconnectsSeen.current !== reconnects.value) reload();
    reconnectsSeen.current = reconnects.value;
  }, [reconnects.value]);
  const change = useCallback(
    (update: (value: T) => T) =>
      setState((before) => (before.value === undefined ? before : { ...before, value: update(before.value) })),
    [],
  );
  // New inputs load after the first rendering with them.
  const isLoading = state.isLoading || inputs.some((input, place) => input !== state.inputs[place]);
  return { ...state, isLoading, reload, change };
}

/** Calls `handle` at most once per frame, with all events that arrived since the last call and that match. */
export function useEvents(matches: (event: Event) => boolean, handle: (events: Event[]) => void): void {
  const latest = useRef({ matches, handle });
  latest.current = { matches, handle };
  useEffect(() => {
    let pending: Event[] = [];
    let frame = 0;
    const unsubscribe = onEvent((event) => {
      if (!latest.current.matches(event)) return;
      pending.push(event);
      frame ||= requestAnimationFrame(() => {
        const events = pending;
        pending = [];
        frame = 0;
        latest.current.handle(events);
      });
    });
    return () => {
      unsubscribe();
      cancelAnimationFrame(frame);
    };
  }, []);
}

interface Listing<T> extends Omit<Loaded<T[]>, "value"> {
  items: T[] | undefined;
  /** Appends the next page; undefined on the last page. */
  more: (() => Promise<void>) | undefined;
}

interface ListingOptions {
  /** How many pages to load at first. */
  pages?: number;
  /** The rows of a full page, if filters can make pages shorter. */
  rows?: number;
}

/**
 * With filters, the API examines a bounded number of rows for each page, and returns pages that are short or empty. Up to
 * this many further requests fill them. They search 14,000 names, and a team can send 120 of them a minute.
 */
const MAX_FILLING_REQUESTS = 5;

/** A paginated list. A reload loads as many pages as are shown. */
export function useListing<T>(
  list: (signal: AbortSignal) => List<T>,
  inputs: Inputs,
  { pages: first = 1, rows = 0 }: ListingOptions = {},
): Listing<T> {
  type Pages = { items: T[]; next: string | undefined };
  const latestList = useRef(list);
  latestList.current = list;
  const pages = useRef(first);
  const read = async (signal: AbortSignal, count: number, from?: string): Promise<Pages> => {
    const { items, next } = await latestList.current(signal).page(from);
    const result: Pages = { items, next };
    for (let requests = 1; result.next !== undefined; requests++) {
      const isFull = requests >= count && result.items.length >= count * rows;
      if (isFull || requests >= count + MAX_FILLING_REQUESTS) break;
      const found = await latestList.current(signal).page(result.next);
      result.items = [...result.items, ...found.items];
      result.next = found.next;
    }
    return result;
  };
  const stop = useRef(new AbortController());
  // Other filters make another list, which starts at its first page.
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
    const found = await read(signal, 1, value.next).catch((error) => {
      if (!signal.aborted) throw error;
    });
    if (!found || signal.aborted) return;
    const { items, next } = found;
    pages.current++;
    // After a reload of the list, this page no longer follows it.
    change((now) => (now.next === value.next ? { items: [...now.items, ...items], next } : now));
  };
  return {
    ...loaded,
    items: value?.items,
    more: value?.next === undefined ? undefined : more,
    change: (update) => change((before) => ({ ...before, items: update(before.items) })),
  };
}
