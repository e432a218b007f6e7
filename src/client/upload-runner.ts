import { BrowserStore, type UploadRecord } from "./browser-store.ts";
import { StowageError } from "./errors.ts";
import { hasStatus, type SavedUpload, type UploadOptions } from "./upload.ts";
import {
  createUploads,
  findAgain,
  type Item,
  isStored,
  isTake,
  type NewItem,
  PAGE_RESUMABLE_BYTES,
  reduce,
  type UploadEffect,
  type UploadEvent,
  type UploadState,
  type Uploads,
} from "./upload-state.ts";

/* Carries out the effects of upload-state.ts, and keeps the bytes of its items: with the service, the storage, the locks, timers. */

/** An item in the browser's storage, with what resumes it. The parts of a recording are saved one by one. */
export type SavedItem<D> = UploadRecord &
  NewItem<D> & {
    state: UploadState;
    /** Its holder has the item. */
    lock: string;
    /** The pages that may have it: those of a user, or an element of a tab. */
    place: string;
    /** Bytes that were sent when it was last saved. */
    sentBytes: number;
  };

/** The page, which shows the uploads, and has the connection. */
export interface UploadPage<D> {
  /** Names of places whose items it takes over. The first one is that of new items; none if it keeps nothing. */
  places(): string[];
  placeOf(item: Item<D>): string;
  /** @returns the id of the file */
  upload(item: Item<D>, file: File, options: UploadOptions): Promise<string>;
  cancel(item: Item<D>, url: string): Promise<unknown>;
  /** Whether a token that the service rejects is replaced later. */
  isTokenRenewed(): boolean;
  /** Waits until the service has processed a file. @returns why it failed, or null */
  follow?(id: string, signal: AbortSignal): Promise<unknown>;
  /** Records from the microphone, whose events it reports, and adds the bytes. */
  record?(key: string, bytes: Bytes): Promise<void>;
  /** Makes the file of a saved recording. @returns undefined if it can't. The recording then stays saved for the next page */
  compose?(item: NewItem<D>, parts: Blob[]): Promise<{ file: File; properties: unknown } | undefined>;
  onChange(before: Uploads<D>): void;
  onProgress(item: Item<D>): void;
}

/** The objects that the page has of an item, besides its state. */
export interface Bytes {
  file?: File | undefined;
  parts: Blob[];
  sentBytes: number;
  /** Whether the storage was asked to save it. */
  isWritten?: boolean;
  stop?: () => void;
}

/** Between attempts, which the client itself repeats for some seconds. */
const FIRST_RETRY_MILLISECONDS = 4000;
const MAX_RETRY_MILLISECONDS = 60_000;
/** Somebody returns to an interrupted interview. */
const RECORDING_DAYS = 30;

let count = 1e9;
/** Keys sort in the order in which they are made. */
export const newKey = () => `${Date.now()} ${count++} ${crypto.getRandomValues(new Uint32Array(4))}`;

/** The file was edited, moved, or deleted on disk. */
const fileLost = () => new StowageError("file_unreadable", "This file can't be read. Choose it again.");

const isReadable = (file: File): Promise<boolean> =>
  file
    .slice(0, 1)
    .arrayBuffer()
    .then(Boolean, () => false);

export const fileIdIn = (uploadUrl: string) => uploadUrl.replace(/.*\/|\..*/g, "");

export class UploadRunner<D> {
  uploads: Uploads<D>;
  readonly store: BrowserStore<SavedItem<D>>;
  readonly #page: UploadPage<D>;
  readonly #bytes = new Map<string, Bytes>();
  readonly #locks = new Map<string, () => void>();
  /** Events, each with the bytes of the items that it adds. */
  readonly #events: [UploadEvent<D>, Map<string, Bytes>][] = [];
  #isBusy = false;

  /** @param name the name of the database */
  constructor(name: string, kind: { isForm: boolean }, page: UploadPage<D>) {
    this.store = new BrowserStore(name);
    this.#page = page;
    this.uploads = createUploads(newKey(), kind.isForm);
  }

  get items(): Item<D>[] {
    return [...this.uploads.items.values()];
  }

  fileOf(key: string): File | undefined {
    return this.#bytes.get(key)?.file;
  }

  sentBytesOf(key: string): number {
    return this.#bytes.get(key)?.sentBytes ?? 0;
  }

  /** Replaces the bytes of an item, such as by the file that the user has selected again, or by none. */
  setFile(key: string, file: File | undefined): void {
    const bytes = this.#bytes.get(key);
    if (bytes) bytes.file = file;
  }

  /** Adds files, or continues with them what needs them again. */
  add(files: { file: File; item: Omit<NewItem<D>, "key" | "size" | "type"> }[]): void {
    const bytes = new Map<string, Bytes>();
    const items = files.map(({ file, item }): NewItem<D> => {
      const known = item.source === undefined ? undefined : findAgain(this.uploads, item.source);
      const key = known?.key ?? newKey();
      bytes.set(key, { parts: [], sentBytes: 0, ...this.#bytes.get(key), file });
      return { ...item, key, size: file.size, type: file.type };
    });
    this.send({ type: "add", items }, bytes);
  }

  send(event: UploadEvent<D>, bytes = new Map<string, Bytes>()): void {
    this.#events.push([event, bytes]);
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      for (let next = this.#events.shift(); next; next = this.#events.shift()) this.#take(...next);
    } finally {
      this.#isBusy = false;
    }
  }

  #take(event: UploadEvent<D>, bytes: Map<string, Bytes>): void {
    const before = this.uploads;
    const { state, effects } = reduce(before, event);
    this.uploads = state;
    for (const [key, one] of bytes) if (state.items.has(key)) this.#bytes.set(key, one);
    for (const effect of effects) this.#run(effect);
    for (const key of before.items.keys()) if (!state.items.has(key)) this.#bytes.delete(key);
    this.#page.onChange(before);
  }

  #run(effect: UploadEffect): void {
    switch (effect.type) {
      case "list":
        return void this.#list();
      case "lock":
        return void this.#lock(effect.lock);
      case "unlock":
        this.#locks.get(effect.lock)?.();
        this.#locks.delete(effect.lock);
        return;
      case "load":
        return void this.#load(effect.lock);
      case "write":
        return void this.#write(effect.keys);
      case "erase":
        for (const key of effect.keys) Object.assign(this.#bytes.get(key) ?? {}, { isWritten: false });
        return void this.store.delete(effect.keys).then(() => this.send({ type: "written" }));
      case "append":
        return void this.#append(effect.key, effect.part);
      case "sleep":
        return void this.#sleep(effect.key, effect.failures);
      case "stop":
        return void this.#bytes.get(effect.key)?.stop?.();
      case "record": {
        const bytes: Bytes = { parts: [], sentBytes: 0 };
        this.#bytes.set(effect.key, bytes);
        return void this.#page.record?.(effect.key, bytes);
      }
      default: {
        const item = this.uploads.items.get(effect.key);
        if (!item) return;
        const { type } = effect;
        void (type === "send" ? this.#upload(item) : type === "follow" ? this.#follow(item) : this.#discard(item));
      }
    }
  }

  async #list(): Promise<void> {
    const records = await this.#ownRecords();
    this.send({ type: "listed", locks: [...new Set(records?.map(({ lock }) => lock))] });
  }

  async #ownRecords(): Promise<SavedItem<D>[] | undefined> {
    const records = await this.store.list();
    const places = this.#page.places();
    return records?.filter(({ place }) => places.includes(place));
  }

  /** Without a secure connection, browsers have no locks. */
  #lock(lock: string): void {
    const stop = new AbortController();
    const { signal } = stop;
    this.#locks.set(lock, () => stop.abort());
    const hold = () =>
      new Promise<void>((release) => {
        signal.addEventListener("abort", () => release());
        if (signal.aborted) release();
        else this.send({ type: "locked", lock });
      });
    // A page whose storage is denied has no locks either, and saves nothing.
    if (navigator.locks) navigator.locks.request(`stowage ${lock}`, { signal }, hold).catch(hold);
    else void hold();
  }

  async #load(lock: string): Promise<void> {
    const records = (await this.#ownRecords())?.filter((record) => record.lock === lock);
    const files = await this.store.files(records?.map(({ key }) => key) ?? []);
    const bytes = new Map<string, Bytes>();
    const items: NewItem<D>[] = [];
    for (const { at, place, lock: _, keptDays, sentBytes, ...record } of records ?? []) {
      const { key } = record;
      const isOver = isStored(record);
      const isRecording = record.isRecording && !isOver;
      const composed = isRecording ? await this.#page.compose?.(record, await this.store.parts(key)) : undefined;
      if (isRecording && !composed) continue;
      const file = composed?.file ?? files.get(key);
      const size = composed?.file.size ?? record.size;
      bytes.set(key, { file, parts: [], sentBytes: isOver ? size : sentBytes, isWritten: file !== undefined });
      const state = isOver ? record.state : isTake(record) ? "recorded" : file ? "waiting" : "interrupted";
      const error = state === "interrupted" ? fileLost() : null;
      items.push({ ...record, ...(composed && { properties: composed.properties }), size, state, error });
    }
    this.send({ type: "loaded", lock, items: records && items }, bytes);
  }

  async #write(keys: string[]): Promise<void> {
    const uploads = keys.flatMap((key) => {
      const item = this.uploads.items.get(key);
      if (!item) return [];
      const { runs, failures, kept, isSaved, parts, keptParts, isSubmitted, error, ...saved } = item;
      const { sentBytes = 0, file, isWritten } = this.#bytes.get(key) ?? {};
      const isOver = isStored(item);
      const keptDays = item.isRecording && !isOver ? RECORDING_DAYS : 1;
      const record: SavedItem<D> = { ...saved, sentBytes, place: this.#page.placeOf(item), at: Date.now(), keptDays };
      return [{ record, file: isOver ? null : item.isRecording || isWritten ? undefined : file }];
    });
    for (const key of keys) Object.assign(this.#bytes.get(key) ?? {}, { isWritten: true });
    this.send({ type: "written", keys: await this.store.save(uploads) });
  }

  async #append(key: string, number: number): Promise<void> {
    const part = this.#bytes.get(key)?.parts[number];
    const isSaved = part !== undefined && (await this.store.append(key, number, part));
    this.send({ type: "written", keys: isSaved ? [] : [key], isSaved });
  }

  #sleep(key: string, failures: number): void {
    const ceiling = Math.min(MAX_RETRY_MILLISECONDS, FIRST_RETRY_MILLISECONDS * 2 ** (failures - 1));
    setTimeout(() => this.send({ type: "awake", key }), ceiling * (0.5 + Math.random() / 2));
  }

  async #upload(item: Item<D>): Promise<void> {
    const { key, size } = item;
    const bytes = this.#bytes.get(key);
    const file = bytes?.file;
    if (!file) return this.send({ type: "unsent", key, state: "interrupted", error: fileLost(), hasAdvanced: false });
    const stop = new AbortController();
    const { signal } = stop;
    bytes.stop = () => {
      const { saved, state } = this.uploads.items.get(key) ?? {};
      // A small file that is sent completely may be stored.
      if (state !== "canceling" || saved?.url || bytes.sentBytes < size) stop.abort();
    };
    let hasAdvanced = false;
    const keep = (saved?: SavedUpload) => {
      if (!signal.aborted) this.send({ type: "saved", key, saved });
    };
    const store = {
      get: () => this.uploads.items.get(key)?.saved,
      set: (_: string, saved: SavedUpload) => keep(saved),
      delete: () => keep(),
    };
    const onProgress = (sentBytes: number) => {
      const current = this.uploads.items.get(key);
      if (current?.runs !== "send") return;
      hasAdvanced ||= sentBytes > bytes.sentBytes;
      bytes.sentBytes = sentBytes;
      this.#page.onProgress(current);
    };
    try {
      const options = { store, storeKey: key, signal, onProgress, resumableFromBytes: PAGE_RESUMABLE_BYTES };
      const id = await this.#page.upload(item, file, options);
      bytes.sentBytes = size;
      this.send({ type: "sent", key, id });
    } catch (error) {
      const end = (state: "waiting" | "interrupted" | "failed", why: unknown) =>
        this.send({ type: "unsent", key, state, error: why, hasAdvanced });
      if (signal.aborted) this.send({ type: "stopped", key });
      else if (!(await isReadable(file))) end("interrupted", fileLost());
      else end(this.#isTemporary(error) ? "waiting" : "failed", error);
    }
  }

  /** Whether the same upload may succeed later, without the user. */
  #isTemporary(error: unknown): boolean {
    const isLater = error instanceof StowageError && error.isTransient;
    return isLater || (hasStatus(error, 401) && this.#page.isTokenRenewed());
  }

  async #follow({ key, id = "" }: Item<D>): Promise<void> {
    const stop = new AbortController();
    const { signal } = stop;
    Object.assign(this.#bytes.get(key) ?? {}, { stop: () => stop.abort() });
    const error = await this.#page.follow?.(id, signal);
    this.send(signal.aborted ? { type: "stopped", key } : { type: "processed", key, error });
  }

  /** Cancels an upload. */
  async #discard(item: Item<D>): Promise<void> {
    const { key, saved: { url = "" } = {} } = item;
    try {
      await this.#page.cancel(item, url);
      this.send({ type: "gone", key });
    } catch (error) {
      // What the token does not allow to delete, the service keeps.
      if (hasStatus(error, 403)) this.send({ type: "sent", key, id: fileIdIn(url) });
      else this.send({ type: "gone", key, error });
    }
  }
}
