import { effect, type Signal, signal, untracked } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import type { Event, List } from "../../client/index.ts";
import { type Noun, writtenBy } from "../nouns.ts";
import { canFollow, gaps, onEvent, reconnects, waitForPosition } from "./live.ts";
import { client, latestCall, noteFailure, session } from "./session.ts";

/*
 * The data of the pages, by key. Each says of which nouns they are: an event of one of them, and a write of this tab, loads
 * them again. Components with the same key share one load, and a page that is opened again shows
 * what it had while it loads. A load finishes before the next one starts, so changes that arrive faster than loads never
 * starve them. Signing out reloads the page, which empties the store.
 */

/** The kind of the data, then the ids and filters that select them. */
export type Key = readonly [kind: string, ...parts: (string | undefined)[]];

interface State<T> {
  /** Undefined until the first load completes. */
  value: T | undefined;
  error: unknown;
  isLoading: boolean;
}

interface Entry<T> {
  state: Signal<State<T>>;
  /** The latest function that loads it. It receives the value before. */
  load: (signal: AbortSignal, before: T | undefined) => Promise<T>;
  /** The minimum milliseconds between the starts of two loads that the user did not ask for. */
  interval: (value: T | undefined) => number;
  key: Key;
  /** A write to one of these changes it. */
  of: Noun[];
  /** Whether it changes without an event. */
  isPolled: boolean;
  users: number;
  /** Whether loads are paused, because a record of its key is being deleted. */
  isPaused: boolean;
  /** Aborts the load in flight. */
  stop: AbortController | undefined;
  startedAt: number;
  timer: number;
  /** Whether to load again after the load in flight; `now` if the user caused it. */
  next: "no" | "soon" | "now";
  /** Updates since the load in flight started. Its result may lack them. */
  updates: ((value: T) => T)[];
}

const MIN_INTERVAL_MILLISECONDS = 1000;
/** After this time, sessions that can't read events, and the operator, see changes of others. All see those without events. */
const POLL_MILLISECONDS = 15_000;
/** The values to keep for pages that are not open. */
const MAX_UNUSED = 20;

const entries = new Map<string, Entry<unknown>>();

/** The entry of a key. Its options are those of its first use: data of several pages are declared once, in data.ts. */
function entryOf<T>(key: Key, load: Entry<T>["load"], options: DataOptions<T>): Entry<T> {
  const name = JSON.stringify(key);
  let entry = entries.get(name) as Entry<T> | undefined;
  if (!entry) {
    const state = signal<State<T>>({ value: undefined, error: null, isLoading: true });
    const { of = [], interval = () => MIN_INTERVAL_MILLISECONDS, isPolled = false } = options;
    const idle = {
      users: 0,
      isPaused: false,
      stop: undefined,
      startedAt: 0,
      timer: 0,
      next: "no" as const,
    };
    entry = { state, load, key, of, interval, isPolled, ...idle, updates: [] };
  }
  // The entry that was used last is the last one.
  entries.delete(name);
  entries.set(name, entry as Entry<unknown>);
  return entry;
}

/** Forgets the oldest values that no page shows, and those of deleted records: a restored one must be loaded. */
function forgetUnused(): void {
  const unused = [...entries].filter(([, { users }]) => users === 0);
  for (const [place, [name, { isPaused }]] of unused.entries())
    if (isPaused || place < unused.length - MAX_UNUSED) entries.delete(name);
}

/** Reloads the entries with this noun: now if a page shows them, otherwise when one opens. */
export const touch = (noun: Noun): void => reloadIf(({ of }) => of.includes(noun));

/** Loads data again that have changed without a write or an event. */
export function reloadData(key: Key): void {
  const entry = entries.get(JSON.stringify(key));
  if (entry) reloadIf((one) => one === entry);
}

function reloadIf(matches: (entry: Entry<unknown>) => boolean): void {
  for (const [name, entry] of entries) {
    if (!matches(entry)) continue;
    if (entry.users === 0) entries.delete(name);
    else refresh(entry, "now");
  }
}

/**
 * Deletes records by `work`, which returns the ids of those that were kept. Meanwhile, entries with one of them in their key
 * don't load: the event of the deletion may arrive before its response does, and the loads would fail.
 */
export async function whilePaused(ids: string[], work: () => Promise<string[]>): Promise<string[]> {
  const needs = ({ key: [, ...parts] }: Entry<unknown>, records: string[]) => records.some((id) => parts.includes(id));
  const paused = [...entries.values()].filter((entry) => needs(entry, ids));
  for (const entry of paused) {
    clearTimeout(entry.timer);
    entry.stop?.abort();
    Object.assign(entry, { isPaused: true, stop: undefined, timer: 0 });
  }
  let kept = ids;
  try {
    kept = await work();
    return kept;
  } finally {
    for (const entry of paused) {
      if (!needs(entry, kept)) continue;
      entry.isPaused = false;
      refresh(entry, "now");
    }
    forgetUnused();
  }
}

async function run<T>(entry: Entry<T>): Promise<void> {
  clearTimeout(entry.timer);
  const stop = new AbortController();
  const caller = client.peek();
  Object.assign(entry, { timer: 0, stop, next: "no", startedAt: Date.now(), updates: [] });
  entry.state.value = { ...entry.state.peek(), isLoading: true };
  try {
    await waitForPosition();
    stop.signal.throwIfAborted();
    const loaded = await entry.load(stop.signal, entry.state.peek().value);
    if (stop.signal.aborted) return;
    const value = entry.updates.reduce<T>((before, update) => update(before), loaded);
    entry.state.value = { value, error: null, isLoading: false };
  } catch (error) {
    if (stop.signal.aborted) return;
    noteFailure(error, caller);
    entry.state.value = { ...entry.state.peek(), error, isLoading: false };
  }
  entry.stop = undefined;
  if (entry.next !== "no") refresh(entry, entry.next);
}

/** Loads a value again: now, or once its interval has passed. */
function refresh<T>(entry: Entry<T>, when: "soon" | "now"): void {
  if (entry.users === 0 || entry.isPaused) return;
  if (entry.stop) {
    if (entry.next !== "now") entry.next = when;
    return;
  }
  const wait = when === "now" ? 0 : entry.startedAt + entry.interval(entry.state.peek().value) - Date.now();
  if (wait <= 0) void run(entry);
  else entry.timer ||= window.setTimeout(() => void run(entry), wait);
}

function addUser<T>(entry: Entry<T>): () => void {
  if (entry.users++ === 0) void run(entry);
  return () => {
    if (--entry.users > 0) return;
    clearTimeout(entry.timer);
    entry.stop?.abort();
    Object.assign(entry, { stop: undefined, timer: 0 });
    forgetUnused();
  };
}

/** Reloads all data of the page if events may have been missed, and failed loads once the connection is back. */
export function followStore(): void {
  let seen = { gaps: gaps.peek(), reconnects: reconnects.peek(), session: session.peek() };
  effect(() => {
    const now = { gaps: gaps.value, reconnects: reconnects.value, session: session.value };
    const isStale = now.gaps !== seen.gaps || now.session !== seen.session;
    const isBack = now.reconnects !== seen.reconnects;
    seen = now;
    // The pages disappear in a moment, and until then would ask without a key.
    if (!now.session) return;
    for (const entry of entries.values())
      if (isStale || (isBack && entry.state.peek().error !== null)) refresh(entry, "now");
  });
  effect(() => {
    const noun = writtenBy(latestCall.value.route);
    if (noun) untracked(() => touch(noun));
  });
  setInterval(() => {
    if (document.hidden) return;
    for (const entry of entries.values()) if (entry.isPolled || !canFollow.peek()) refresh(entry, "soon");
  }, POLL_MILLISECONDS);
}

export interface Loaded<T> extends State<T> {
  /** Loads it again, because the user asked for it. */
  reload(): void;
  /** Updates the value in place, without a request. */
  change(update: (value: T) => T): void;
}

interface DataOptions<T> {
  /** The kinds of record that it consists of. */
  of?: Noun[];
  /** The events after which it is loaded again, if those are not all of its records. */
  on?: (event: Event) => boolean;
  interval?: Entry<T>["interval"];
  isPolled?: boolean;
}

/** Loads data for a page. While the data of another key loads, the component keeps what it had. */
export function useData<T>(key: Key, load: Entry<T>["load"], options: DataOptions<T> = {}): Loaded<T> {
  const entry = entryOf(key, load, options);
  const { on = ({ subject }) => entry.of.includes(subject.kind) } = options;
  entry.load = load;
  useEffect(() => addUser(entry), [entry]);
  useEvents(on, () => refresh(entry, "soon"));
  const state = entry.state.value;
  const shown = useRef(state.value);
  if (state.value !== undefined) shown.current = state.value;
  const reload = useCallback(() => refresh(entry, "now"), [entry]);
  const change = useCallback(
    (update: (value: T) => T) => {
      const { value, ...others } = entry.state.peek();
      if (entry.stop) entry.updates.push(update);
      if (value !== undefined) entry.state.value = { ...others, value: update(value) };
    },
    [entry],
  );
  return { ...state, value: state.value ?? shown.current, reload, change };
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

interface Pages<T> {
  items: T[];
  next: string | undefined;
  count: number;
  /** How many requests it took to load all pages. */
  requests: number;
}

export interface Listing<T> extends Omit<Loaded<T[]>, "value"> {
  items: T[] | undefined;
  /** Appends the next page; undefined on the last page. */
  more: (() => Promise<void>) | undefined;
}

interface ListOptions extends Pick<DataOptions<unknown>, "of" | "on" | "isPolled"> {
  /** How many pages to load at first. */
  pages?: number;
  /** The rows of a full page, if filters can make pages shorter. */
  rows?: number;
}

/**
 * With filters, the API examines a bounded number of rows for each page, and returns pages that are short or empty. Up to
 * this many further requests fill them.
 */
const MAX_FILLING_REQUESTS = 5;
/** A team has 120 heavy requests a minute. One page of the console causes a quarter of it. */
const SEARCH_INTERVAL_MILLISECONDS = 2000;

/**
 * A paginated list, empty without a function that lists. A reload loads as many pages as are shown. Events reload it after a
 * second for each of these requests, so that a busy team costs a long list no more of its rate limit than a short one.
 */
export function useList<T>(
  key: Key,
  list: ((signal: AbortSignal) => List<T>) | null,
  { pages: first = 1, rows = 0, ...options }: ListOptions = {},
): Listing<T> {
  const read = async (signal: AbortSignal, count: number, from?: string): Promise<Pages<T>> => {
    if (!list) return { items: [], next: undefined, count, requests: 0 };
    const { items, next } = await (from === undefined ? list(signal) : list(signal).page(from));
    const result: Pages<T> = { items, next, count, requests: 1 };
    for (; result.next !== undefined; result.requests++) {
      const isFull = result.requests >= count && result.items.length >= count * rows;
      if (isFull || result.requests >= count + MAX_FILLING_REQUESTS) break;
      const found = await list(signal).page(result.next);
      result.items = [...result.items, ...found.items];
      result.next = found.next;
    }
    return result;
  };
  const { value, change, ...loaded } = useData<Pages<T>>(
    key,
    (signal, before) => read(signal, before?.count ?? first),
    {
      ...options,
      interval: (loaded) =>
        (rows > 0 ? SEARCH_INTERVAL_MILLISECONDS : MIN_INTERVAL_MILLISECONDS) * (loaded?.requests ?? 1),
    },
  );
  const stop = useRef<AbortController>(undefined);
  useEffect(() => {
    stop.current = new AbortController();
    return () => stop.current?.abort();
  }, [JSON.stringify(key)]);
  const more = async () => {
    const signal = stop.current?.signal;
    if (value?.next === undefined || !signal) return;
    const found = await read(signal, 1, value.next).catch((error) => {
      if (!signal.aborted) throw error;
    });
    if (!found || signal.aborted) return;
    const { items, next, requests } = found;
    // After a reload of the list, this page no longer follows it.
    change((now) =>
      now.next === value.next
        ? { items: [...now.items, ...items], next, count: now.count + 1, requests: now.requests + requests }
        : now,
    );
  };
  return {
    ...loaded,
    items: value?.items,
    more: value?.next === undefined ? undefined : more,
    change: (update) => change((before) => ({ ...before, items: update(before.items) })),
  };
}
