import { StowageError } from "./errors.ts";
import type { SavedUpload } from "./upload.ts";

/*
 * The uploads of a page, which the console and the upload element share, as one pure function: a state and an event give
 * the next state and the effects to start. It knows keys and no bytes. upload-runner.ts carries out the effects, and reports
 * the end of each as an event, so whatever runs is part of the state. Progress bypasses it.
 *
 *   recording -> recorded -> waiting     recorded: neither sent nor canceled
 *   waiting -> sending -> stored -> completed | failed     completed: the service has processed it
 *      ^          +-----> failed         rejected, until the user retries
 *      |          +-----> interrupted    the browser can't read the file (any more): the user has to select it again
 *      +----------+                      no connection, token or service, or no space at the moment: tried again by itself
 *   any -> canceling -> gone
 *
 * Each item has a key that no other item ever had, and under it a record in the browser's storage. The record names a lock,
 * and only the holder of that lock reads, writes, sends and deletes what is under it. A lock is released when nothing needs
 * it any more. Then the next one who waits for it, in this tab or another one, takes over its records.
 */

export type UploadState =
  | "recording"
  | "recorded"
  | "waiting"
  | "sending"
  | "interrupted"
  | "failed"
  | "stored"
  | "completed"
  | "canceling";

/** The beginning of an item. */
export interface NewItem<D> {
  key: string;
  name: string;
  size: number;
  /** The same for a file that is chosen again. */
  source?: string;
  /** The media type, if the browser knows it. */
  type?: string;
  /** How the file of a recording is made of its parts. Only the page knows. */
  properties?: unknown;
  /** The data of the page. */
  details?: D;
  isRecording?: boolean;
  state?: UploadState;
  id?: string | undefined;
  error?: unknown;
  /** The data that resume the upload. */
  saved?: SavedUpload | undefined;
}

export interface Item<D> extends NewItem<D> {
  state: UploadState;
  isRecording: boolean;
  /** Why it failed, or why it waits. */
  error: unknown;
  lock: string;
  /** The effect that runs for it, besides those of the storage. */
  runs?: "record" | "send" | "follow" | "stop" | "sleep" | "discard" | undefined;
  /** Attempts that failed since bytes were sent. */
  failures: number;
  /** The parts of it that the storage was last asked to keep. Undefined if nothing. */
  kept?: string | undefined;
  /** Whether the storage has all of it, so that another page can continue. */
  isSaved: boolean;
  /** How many parts of a recording there are, and how many the storage was asked to keep. */
  parts: number;
  keptParts: number;
  /** Whether its form was submitted. */
  isSubmitted: boolean;
}

export interface Uploads<D> {
  /** A form keeps what is stored until it is submitted, and forgets at once what is canceled. */
  readonly isForm: boolean;
  /** The lock of new items. */
  readonly own: string;
  /** Whether the page shows the uploads. What it no longer shows, it leaves to the next one who does. */
  isOpen: boolean;
  /** Whether there is a connection to the service, with a token. */
  isReady: boolean;
  /** Whether the user may add nothing. */
  isDisabled: boolean;
  /** Whether a file replaces the one before. */
  isSingle: boolean;
  /** The files that may be added, as in the attribute of an input. Empty: all. */
  accept: string;
  /** The key of the recording for which the browser asks for the microphone. */
  asking?: string | undefined;
  items: ReadonlyMap<string, Item<D>>;
  /** The locks that this page has asked for. What is under a lock is read before it counts as held. */
  locks: ReadonlyMap<string, "asked" | "loading" | "held">;
  /** How many effects of the storage run. */
  writing: number;
}

export type UploadEvent<D> =
  /** `wake`: there may be a connection again, a token, or items of a closed page. */
  | { type: "open" | "close" | "wake" | "submit" }
  | { type: "set"; isReady?: boolean; isDisabled?: boolean; isSingle?: boolean; accept?: string }
  | { type: "add"; items: NewItem<D>[] }
  | { type: "retry" | "cancel"; keys: string[] }
  | { type: "record" | "send" | "stop"; key: string }
  // The ends of effects, and what they report in the meantime.
  | { type: "listed"; locks: string[] }
  | { type: "locked"; lock: string }
  /** `items` is undefined if the browser denies storage. */
  | { type: "loaded"; lock: string; items: NewItem<D>[] | undefined }
  /** The storage has written these items, and `isSaved` is as follows. */
  | { type: "written"; keys?: string[]; isSaved?: boolean }
  | { type: "started"; item: NewItem<D> }
  | { type: "unrecorded" | "awake"; key: string }
  | { type: "part"; key: string; properties?: unknown }
  | { type: "recorded"; key: string; size: number; properties?: unknown }
  | { type: "saved"; key: string; saved: SavedUpload | undefined }
  /** Also of a file that was complete before it could be canceled. */
  | { type: "sent"; key: string; id: string | undefined }
  | { type: "unsent"; key: string; state: "waiting" | "interrupted" | "failed"; error: unknown; hasAdvanced: boolean }
  | { type: "processed"; key: string; error: unknown }
  /** An effect was stopped. */
  | { type: "stopped"; key: string }
  /** The service has nothing of it, or knows that it could not be canceled. */
  | { type: "gone"; key: string; error?: unknown };

export type UploadEffect =
  /** Names the locks of all records of this page. */
  | { type: "list" }
  | { type: "lock" | "load" | "unlock"; lock: string }
  | { type: "write" | "erase"; keys: string[] }
  | { type: "append"; key: string; part: number }
  | { type: "record" | "send" | "follow" | "discard"; key: string }
  | { type: "sleep"; key: string; failures: number }
  /** Ends what runs for an item. */
  | { type: "stop"; key: string };

/** Browsers send at most six requests to a host at a time, and the page needs some. */
const MAX_SENDING = 3;
/**
 * Files of at least this size are resumable uploads of requests that take ten seconds. Smaller ones are one request. A slow
 * connection with deep buffers may lose all of it after minutes, before anybody can see that.
 */
export const PAGE_RESUMABLE_BYTES = 512 * 1024;
/** The same file would fail again, so it is neither kept nor tried again. */
const FINAL_CODES = new Set<unknown>(["file_too_large", "file_empty", "file_unreadable", "type_not_allowed"]);

export const isFinal = ({ error, id }: Pick<Item<unknown>, "error" | "id">): boolean =>
  id !== undefined || FINAL_CODES.has((error as { code?: unknown } | null)?.code);

type Stated = Pick<Item<unknown>, "state">;
/** Whether it is a recording that is neither sent nor canceled. */
export const isTake = ({ state }: Stated): boolean => state === "recording" || state === "recorded";
export const isLeaving = ({ state }: Stated): boolean => state === "canceling";
export const isStored = ({ state }: Stated): boolean => state === "stored" || state === "completed";
/** Whether it is an upload of the user's list. */
const isFile = (item: Stated) => !isTake(item) && !isLeaving(item);

export function createUploads<D>(own: string, isForm: boolean): Uploads<D> {
  const [items, locks] = [new Map(), new Map()];
  return {
    isForm,
    own,
    isOpen: false,
    isReady: false,
    isDisabled: false,
    isSingle: false,
    accept: "",
    items,
    locks,
    writing: 0,
  };
}

/** Returns the item that a file continues that the user chooses again: in a list, only one that needs it. */
export const findAgain = <D>({ items, isForm }: Uploads<D>, source: string): Item<D> | undefined =>
  [...items.values()].find(
    (item) => item.source === source && (item.state === "interrupted" || (isForm && isFile(item))),
  );

/** Whether a file is one that an input with this `accept` offers. The service decides on a file whose type is unknown. */
export function isAccepted({ name, type = "" }: Pick<NewItem<unknown>, "name" | "type">, accept: string): boolean {
  const rules = accept
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean);
  const fits = (rule: string) => {
    if (rule.startsWith(".")) return name.toLowerCase().endsWith(rule);
    return type === "" || type === rule || (rule.endsWith("/*") && type.startsWith(rule.slice(0, -1)));
  };
  return rules.length === 0 || rules.some(fits);
}

/** Why a file is not even sent. */
function refusalOf(item: NewItem<unknown>, accept: string): StowageError | undefined {
  if (item.size === 0) return new StowageError("file_empty", "This file is empty (0 bytes).");
  // Browsers let users drop what they can't choose.
  return isAccepted(item, accept) ? undefined : new StowageError("type_not_allowed", `The input accepts ${accept}.`);
}

/** @returns the state after the event, and the effects that begin with it */
export function reduce<D>(before: Uploads<D>, event: UploadEvent<D>): { state: Uploads<D>; effects: UploadEffect[] } {
  const step = new Step(before);
  step.apply(event);
  step.settle();
  return step;
}

/** The record of an item in the storage, as a text that changes with it. Undefined if nothing. */
function keptOf<D>({ state, error, id, isRecording, isSubmitted, saved, parts }: Item<D>, isForm: boolean) {
  if (isSubmitted || state === "canceling") return undefined;
  if (state === "stored" || state === "completed") return isForm ? `${state} ${id}` : undefined;
  if (state === "recording" || state === "recorded") return `${state} ${parts}`;
  // A recording exists nowhere else, so only the user deletes it.
  if (state === "failed" && !isRecording && isFinal({ error, id })) return undefined;
  return `file ${saved?.idempotencyKey} ${saved?.url}`;
}

class Step<D> {
  readonly effects: UploadEffect[] = [];
  readonly state: Uploads<D>;
  readonly #before: Uploads<D>;
  readonly #items: Map<string, Item<D>>;
  readonly #locks: Map<string, "asked" | "loading" | "held">;

  constructor(before: Uploads<D>) {
    this.#before = before;
    this.#items = new Map(before.items);
    this.#locks = new Map(before.locks);
    this.state = { ...before, items: this.#items, locks: this.#locks };
  }

  apply(event: UploadEvent<D>): void {
    const { state } = this;
    switch (event.type) {
      case "open":
        state.isOpen = true;
        return void this.#look();
      case "close":
        state.isOpen = false;
        return void this.#stopAsking();
      case "wake":
        for (const { key, runs } of this.#items.values()) if (runs === "sleep") this.#retry(key);
        return void this.#look();
      case "set":
        Object.assign(state, { ...event, type: undefined });
        return;
      case "add":
        if (!state.isDisabled) for (const item of event.items.slice(0, state.isSingle ? 1 : undefined)) this.#add(item);
        return;
      case "retry":
        for (const key of event.keys) this.#retry(key);
        return;
      case "cancel":
        for (const key of event.keys) this.#cancel(key);
        return;
      case "submit":
        for (const { key, id } of this.#items.values()) if (id !== undefined) this.#change(key, { isSubmitted: true });
        return;
      case "record":
        if (state.isDisabled || !state.isOpen || state.asking !== undefined || this.#runs("record")) return;
        state.asking = event.key;
        return void this.#start({ type: "record", key: event.key });
      case "listed":
        if (state.isOpen) for (const lock of event.locks) this.#ask(lock);
        return;
      case "locked":
        if (this.#locks.get(event.lock) !== "asked") return;
        this.#locks.set(event.lock, "loading");
        return void this.#start({ type: "load", lock: event.lock });
      case "loaded":
        return void this.#load(event.lock, event.items);
      case "written":
        state.writing--;
        for (const key of event.keys ?? []) this.#change(key, { isSaved: event.isSaved ?? true });
        return;
      case "started":
        if (state.asking !== event.item.key) return;
        state.asking = undefined;
        return void this.#create(event.item, { isRecording: true, state: "recording", runs: "record", isSaved: true });
      case "stop":
        if (state.asking === event.key) this.#stopAsking();
        return void this.#stop(event.key);
      case "unrecorded":
        if (state.asking === event.key) state.asking = undefined;
        return;
      default: {
        const item = this.#items.get(event.key);
        if (item) this.#applyTo(item, event);
      }
    }
  }

  /** Starts what the state calls for, and releases what it no longer needs. */
  settle(): void {
    const { state } = this;
    for (const { key } of this.#items.values()) {
      this.#leave(key);
      const item = this.#items.get(key);
      if (!item || isLeaving(item)) continue;
      const { runs, id } = item;
      const isActive = runs === "record" || (state.isReady && this.#isHeld(item));
      if (!state.isOpen || !isActive) this.#stop(key);
      // How a recording is composed is saved before its first byte is sent, so that a resumed upload continues the same file.
      else if (
        item.state === "waiting" &&
        !runs &&
        this.#runs("send") < MAX_SENDING &&
        !(item.isRecording && state.writing)
      )
        this.#begin("send", key, { state: "sending", error: null });
      else if (state.isForm && item.state === "stored" && id !== undefined && !runs) this.#begin("follow", key);
    }
    this.#keep();
    if (state.isOpen) this.#holdLocks();
    else this.#handOver();
  }

  /** Applies an event of one item. */
  #applyTo(item: Item<D>, event: Extract<UploadEvent<D>, { key: string }>): void {
    const { isForm, isSingle } = this.state;
    const { key, runs, state, failures } = item;
    const isCanceled = state === "canceling";
    const end = (changes: Partial<Item<D>>) => this.#change(key, { runs: undefined, ...changes });
    switch (event.type) {
      case "send":
        if (state !== "recorded") return;
        if (isSingle) this.#replace(key);
        return void end({ state: "waiting" });
      case "part":
        if (state === "recording") this.#change(key, { parts: item.parts + 1, properties: event.properties });
        return;
      case "recorded":
        end({ size: event.size, properties: event.properties, state: isCanceled ? state : "recorded" });
        // It ended before its first part.
        if (event.size === 0) this.#cancel(key);
        return;
      case "saved":
        // Later, no caller waits for it, and the storage has already forgotten the item.
        if (runs === "send" || runs === "stop") this.#change(key, { saved: event.saved });
        return;
      case "sent": {
        // An upload that was canceled too late stays in a list, and leaves a form.
        const saved = { id: event.id, saved: undefined, failures: 0, error: null };
        return void end({ ...saved, state: isCanceled && isForm ? state : "stored" });
      }
      case "unsent": {
        const { hasAdvanced, error } = event;
        const count = hasAdvanced ? 1 : failures + 1;
        end(isCanceled ? {} : { state: event.state, error, failures: count });
        if (isCanceled || event.state !== "waiting") return;
        this.#change(key, { runs: "sleep" });
        return void this.#start({ type: "sleep", key, failures: count });
      }
      case "stopped":
        return void end(state === "sending" ? { state: "waiting" } : {});
      case "processed":
        return void end(isLeaving(item) ? {} : { state: event.error ? "failed" : "completed", error: event.error });
      case "gone":
        return void end(
          event.error && !isForm ? { state: "failed", error: event.error } : { state: "canceling", saved: undefined },
        );
      case "awake":
        if (runs === "sleep") end({});
    }
  }

  /** Takes over what is under a lock. */
  #load(lock: string, found: NewItem<D>[] | undefined): void {
    if (this.#locks.get(lock) !== "loading") return;
    this.#locks.set(lock, "held");
    const keys = found?.map(({ key }) => key);
    // Another page had the lock meanwhile, and what it no longer has is over.
    for (const item of this.#items.values())
      if (item.lock === lock && item.kept !== undefined && keys?.includes(item.key) === false)
        this.#items.delete(item.key);
    for (const item of found ?? []) if (!this.#items.has(item.key)) this.#restore(item, lock);
  }

  #restore(found: NewItem<D>, lock: string): void {
    const { isForm, isSingle } = this.state;
    const item = this.#blank(found);
    const { isRecording, source } = item;
    const isSame = (other: Item<D>) => isFile(other) && (isSingle || (source !== undefined && source === other.source));
    // The user has chosen another file, or the same, before.
    const isReplaced = isForm && isFile(item) && [...this.#items.values()].some(isSame);
    // A recording that a file would replace stays saved. One that has no bytes ended before its first part.
    if (isReplaced && isRecording) return;
    const isOver = isReplaced || (isRecording && item.size === 0 && !isStored(item));
    // A recording may have been composed in the meantime.
    const [kept, isSaved] = [isTake(item) ? "" : keptOf(item, isForm), item.state !== "interrupted"];
    this.#create(found, { lock, kept, isSaved, ...(isOver && { state: "canceling" }) });
  }

  #add(given: NewItem<D>): void {
    const { key } = given;
    const { isSingle, accept } = this.state;
    const error = refusalOf(given, accept);
    if (isSingle) this.#replace(key);
    if (!this.#items.has(key)) this.#create(given, error && { state: "failed", error });
    else if (!error) this.#retry(key);
  }

  /** Cancels all files but this one. */
  #replace(key: string): void {
    for (const item of this.#items.values()) if (item.key !== key && isFile(item)) this.#cancel(item.key);
  }

  #retry(key: string): void {
    const { state, runs } = this.#items.get(key) ?? {};
    if (state === "failed" || state === "interrupted" || runs === "sleep")
      this.#change(key, { state: "waiting", error: null, failures: 0, runs: undefined });
  }

  /**
   * Cancels an upload, and its stored bytes. Without an upload URL, it continues until it has one, or its bytes would stay on
   * the service for a day. What is stored is only removed from the list.
   */
  #cancel(key: string): void {
    const item = this.#items.get(key);
    if (!item || isLeaving(item)) return;
    this.#change(key, { state: "canceling", error: null });
  }

  /** Removes a canceled item once nothing of it runs. */
  #leave(key: string): void {
    const item = this.#items.get(key);
    if (!item || !isLeaving(item)) return;
    const { runs, saved, size, kept } = item;
    // A large file has a URL before its first byte. A small one may be stored once all of it is sent.
    if (runs !== "send" || saved?.url || size < PAGE_RESUMABLE_BYTES) this.#stop(key);
    if (this.#items.get(key)?.runs) return;
    if (!saved?.url) kept === undefined && this.#items.delete(key);
    else if (this.state.isReady) this.#begin("discard", key);
  }

  /** Tells the storage what it has to keep. Its effects run in the order in which they start. */
  #keep(): void {
    const keys = { write: [] as string[], erase: [] as string[] };
    const effects: UploadEffect[] = [];
    const { items, locks } = this.#before;
    for (const item of this.#items.values()) {
      const { key, parts, keptParts, lock } = item;
      // An event changes few of ten thousand items.
      if ((items.get(key) === item && locks.get(lock) === "held") || !this.#isHeld(item)) continue;
      const kept = keptOf(item, this.state.isForm);
      if (kept !== item.kept) keys[kept === undefined ? "erase" : "write"].push(key);
      for (let part = keptParts; kept !== undefined && part < parts; part++)
        effects.push({ type: "append", key, part });
      this.#change(key, { kept, keptParts: parts });
    }
    for (const type of ["erase", "write"] as const)
      if (keys[type].length > 0) effects.unshift({ type, keys: keys[type] });
    this.state.writing += effects.length;
    this.effects.push(...effects);
    for (const key of keys.erase) this.#leave(key);
  }

  /** Asks for the locks of the items, and releases those of others under which nothing is left. */
  #holdLocks(): void {
    const { own, writing } = this.state;
    const needed = new Set([own, ...[...this.#items.values()].map(({ lock }) => lock)]);
    for (const lock of needed) this.#ask(lock);
    for (const [lock, state] of this.#locks) if (state === "held" && !writing && !needed.has(lock)) this.#unlock(lock);
  }

  /** Leaves everything to the next page, once nothing runs: it is all in the storage, but for what the storage has denied. */
  #handOver(): void {
    if (this.#runs("record", "send", "follow", "stop") || this.state.writing) return;
    for (const lock of this.#locks.keys()) this.#unlock(lock);
    for (const { key, isSaved, kept, parts, keptParts } of this.#items.values())
      if (isSaved && kept !== undefined && parts === keptParts) this.#items.delete(key);
  }

  #look(): void {
    if (this.state.isOpen) this.#start({ type: "list" });
  }

  #ask(lock: string): void {
    if (this.#locks.has(lock)) return;
    this.#locks.set(lock, "asked");
    this.#start({ type: "lock", lock });
  }

  #unlock(lock: string): void {
    this.#locks.delete(lock);
    this.#start({ type: "unlock", lock });
  }

  #isHeld({ lock }: Item<D>): boolean {
    return this.#locks.get(lock) === "held";
  }

  /** For how many items one of these effects runs. */
  #runs(...types: Item<D>["runs"][]): number {
    return [...this.#items.values()].filter(({ runs }) => runs && types.includes(runs)).length;
  }

  #begin(type: "send" | "follow" | "discard", key: string, changes: Partial<Item<D>> = {}): void {
    this.#change(key, { ...changes, runs: type });
    this.#start({ type, key });
  }

  /** Ends what runs for an item. Its end is an event, as without it. */
  #stop(key: string): void {
    const { runs } = this.#items.get(key) ?? {};
    if (runs === "sleep") this.#change(key, { runs: undefined });
    if (runs !== "record" && runs !== "send" && runs !== "follow") return;
    this.#change(key, { runs: "stop" });
    this.#start({ type: "stop", key });
  }

  #stopAsking(): void {
    const { asking } = this.state;
    if (asking !== undefined) this.#start({ type: "stop", key: asking });
    this.state.asking = undefined;
  }

  #start(effect: UploadEffect): void {
    this.effects.push(effect);
  }

  #create(given: NewItem<D>, others: Partial<Item<D>> = {}): void {
    this.#items.set(given.key, { ...this.#blank(given), ...others });
  }

  #blank(given: NewItem<D>): Item<D> {
    return {
      lock: this.state.own,
      state: "waiting",
      isRecording: false,
      error: null,
      failures: 0,
      isSaved: false,
      parts: 0,
      keptParts: 0,
      isSubmitted: false,
      ...given,
    };
  }

  #change(key: string, changes: Partial<Item<D>>): void {
    const item = this.#items.get(key);
    if (item) this.#items.set(key, { ...item, ...changes });
  }
}
