import { BrowserStore, type UploadRecord } from "./browser-store.ts";
import { Connection } from "./connection.ts";
import { Recorder, type RecordingProperties } from "./element-recorder.ts";
import { create, createButton, STYLES, TEXTS, type UploadTexts } from "./element-view.ts";
import { type ErrorCode, StowageError } from "./errors.ts";
import { isUnknownForBrowser, measurePeaks } from "./peaks.ts";
import { sleep } from "./retrying.ts";
import { cancelUpload, hasStatus, type UploadOptions, uploadFile } from "./upload.ts";
import { type QueuedUpload, UploadProgress, UploadQueue, type UploadState } from "./upload-queue.ts";

export type { UploadTexts } from "./element-view.ts";

/*
 * <stowage-upload> wraps the page's own <input type="file">, uploads what the user chooses, drops or records, and submits
 * the ids of the files with the form. The input stays in the page, and a button takes its place, because browsers say
 * "No file chosen" next to an input whose files are uploaded. What the element adds is in a shadow root, where the page's
 * styles don't reach it except by ::part().
 * upload-queue.ts sends the files. After that, the element waits until they are processed.
 */

/** The `detail` of the element's events. */
export interface UploadDetail {
  /** Undefined if the microphone failed, or if the file was stored before a reload. */
  file?: File | undefined;
  /** The id of the stored file. */
  id?: string | undefined;
  sentBytes: number;
  /** Why it failed: a code of the service or the client, `microphone_denied`, `microphone_missing`, or `unexpected_error`. */
  code?: string | undefined;
  error?: unknown;
}

type UploadEvents = Record<
  "upload-progress" | "upload-waiting" | "upload-stored" | "upload-completed" | "upload-failed",
  CustomEvent<UploadDetail>
>;

declare global {
  interface HTMLElementTagNameMap {
    "stowage-upload": StowageUpload;
  }
  interface GlobalEventHandlersEventMap extends UploadEvents {}
}

/** A file in the browser's storage. */
interface SavedFile extends UploadRecord {
  /** The element that gets the file after a reload. */
  place: string;
  /** A recording whose bytes are saved in parts. */
  recording?: RecordingProperties & { isSent?: boolean };
  /** A file that the service has, so that the form still submits it. */
  stored?: Pick<Item, "id" | "name" | "size" | "state">;
}

/** A file with its row in the list. */
interface Item extends QueuedUpload {
  isRecording: boolean;
  /** The code of the error. */
  code?: string | undefined;
  /** The code that was announced last. */
  announced?: string | undefined;
  /** Whether the result of the processing is being awaited. */
  isFollowed: boolean;
  row: HTMLLIElement;
  progress: HTMLProgressElement;
  status: HTMLElement;
  retry: HTMLButtonElement;
  cancel: HTMLButtonElement;
}

/** Processing takes seconds. After this, the element no longer asks for its result. */
const FOLLOW_MILLISECONDS = 3_600_000;
const FIRST_POLL_MILLISECONDS = 300;
const MAX_POLL_MILLISECONDS = 10_000;
/** The same file would fail again, so there is no button to retry. */
const FINAL_CODES = new Set<string | undefined>([
  "file_too_large",
  "file_empty",
  "file_unreadable",
  "type_not_allowed",
]);
/** Somebody returns to an interrupted interview. */
const RECORDING_DAYS = 30;

/** Files are saved for their element. */
const savedUploads = new BrowserStore<SavedFile>("stowage-upload");

/**
 * Identifies an element of this tab, also after a reload. Another tab or a later visitor never gets its files.
 * @param name the element's name in the form
 */
function placeOf(name: string): string {
  try {
    const tab = sessionStorage.getItem("stowage.upload") ?? crypto.getRandomValues(new Uint32Array(4)).join("");
    sessionStorage.setItem("stowage.upload", tab);
    return `${tab} ${location.pathname} ${name}`;
  } catch {
    // The browser denies all storage.
    return "";
  }
}

/** Identifies an element in any tab: a recording must survive its tab. */
const recordingPlaceOf = (name: string) => `recordings ${location.pathname} ${name}`;

/** Waits until no other tab has a recording. @returns a function that lets go of it */
const hold = (key: string) =>
  new Promise<() => void>((resolve) => {
    if (!navigator.locks) resolve(() => {});
    else void navigator.locks.request(`stowage-upload ${key}`, () => new Promise<void>((release) => resolve(release)));
  });

/** The beginning of an item. A stored one has no file. */
type NewItem = Pick<Item, "key" | "name" | "size" | "file" | "saved"> &
  Partial<Pick<Item, "id" | "state" | "isRecording">>;

const isUnfinished = ({ state }: Item) => state === "waiting" || state === "sending";
const codeOf = (error: unknown) =>
  error === null ? undefined : error instanceof StowageError ? error.code : "unexpected_error";

// A server that renders the page may import the module, too.
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement);

/**
 * Attributes: `url` of the service, `token` (an upload token or public key), `name` of the ids in the form, `required`,
 * `disabled`, and `record` for a button that records from the microphone. It sets `data-state` to the state of all files.
 */
export class StowageUpload extends Base {
  static readonly formAssociated = true;
  static readonly observedAttributes = ["url", "token", "name", "record", "required"];

  readonly #internals = this.attachInternals();
  readonly #root = this.attachShadow({ mode: "open", delegatesFocus: false });
  readonly #items = new Set<Item>();
  readonly #choose = createButton("choose", () => this.#input?.click());
  readonly #drop = create("span", "drop");
  readonly #chooser = create("div", "chooser", this.#choose, this.#drop);
  readonly #list = create("ul", "list");
  readonly #announcement = create("p", "announcement");
  readonly #recorder = new Recorder({
    text: (name) => this.#text(name),
    announce: (name) => this.#announce(name),
    onChange: () => this.#update(),
    onPart: (key, recording, part) => {
      if (!this.#held.has(key)) this.#hold(key);
      const place = recordingPlaceOf(this.getAttribute("name") ?? "");
      const record = { key, place, at: Date.now(), keptDays: RECORDING_DAYS, recording };
      this.#lastPart = savedUploads.append(record, part);
    },
    onSend: ({ key, file }) => {
      const { name, type } = file;
      void savedUploads.update([key], { recording: { name, type, isSent: true } });
      this.#add([{ key, file, name, size: file.size, isRecording: true }]);
    },
    onDiscard: (key) => {
      void savedUploads.delete([key]);
      this.#letGo(key);
    },
    onError: (code, error) => this.#dispatch("upload-failed", { sentBytes: 0, code, error }),
  });
  readonly #queue = new UploadQueue<Item>(savedUploads, {
    // Scripts of the page may set the URL and the token later.
    uploads: () => (this.#isReady ? this.#items : []),
    upload: (item, file, options) => this.#upload(item, file, options),
    cancel: (_, url) => this.#call((connection) => cancelUpload(connection, url)),
    isTemporary: (error) => this.#isTemporary(error),
    onChange: (item) => this.#showChange(item),
  });
  #texts: UploadTexts = TEXTS;
  #getToken: (() => string | Promise<string>) | undefined;
  #connecting: Promise<Connection> | undefined;
  #isDisabled = false;
  #isRestored = false;
  /** Functions that let go of recordings, by their keys. No other tab can take a recording before. */
  readonly #held = new Map<string, Promise<() => void>>();
  /** Resolves once the latest part of a recording is saved. */
  #lastPart: Promise<void> = Promise.resolve();
  #form: HTMLFormElement | null = null;

  constructor() {
    super();
    this.#list.role = "list";
    this.#announcement.role = "status";
    const panel = create("div", "panel", this.#chooser, ...this.#recorder.elements, this.#list, this.#announcement);
    this.#root.append(document.createElement("slot"), panel);
    // A policy of the page may forbid <style>, but not this.
    const styles = new CSSStyleSheet();
    styles.replaceSync(STYLES);
    this.#root.adoptedStyleSheets = [styles];
    this.#root.addEventListener("slotchange", () => this.#adoptInput());
    this.addEventListener("change", (event) => {
      if (event.target === this.#input) this.#addChosen();
    });
    this.addEventListener("dragover", (event) => this.#drag(event));
    this.addEventListener("dragleave", () => this.toggleAttribute("data-dragging", false));
    this.addEventListener("drop", (event) => {
      if (this.#drag(event)) this.add(event.dataTransfer?.files ?? []);
      this.toggleAttribute("data-dragging", false);
    });
  }

  /** The ids of the stored files. */
  get value(): string[] {
    return [...this.#items].flatMap(({ id, state }) => (id && state !== "failed" ? [id] : []));
  }

  get form(): HTMLFormElement | null {
    return this.#internals.form;
  }

  get validity(): ValidityState {
    return this.#internals.validity;
  }

  /** Returns a token in place of the attribute, again after the service has rejected the last one with 401. */
  get getToken(): (() => string | Promise<string>) | undefined {
    return this.#getToken;
  }

  set getToken(getToken: (() => string | Promise<string>) | undefined) {
    this.#getToken = getToken;
    this.#connecting = undefined;
    this.#wake();
  }

  /** All texts. Setting some of them replaces these. The messages of errors are named by their codes. */
  get texts(): UploadTexts {
    return this.#texts;
  }

  set texts(texts: Partial<UploadTexts>) {
    this.#texts = { ...TEXTS, ...texts };
    this.#update();
  }

  checkValidity(): boolean {
    return this.#internals.checkValidity();
  }

  reportValidity(): boolean {
    return this.#internals.reportValidity();
  }

  /** Uploads files as if the user had chosen them. Unless the input has `multiple`, a file replaces the one before. */
  add(files: Iterable<File>): void {
    if (this.#isDisabled) return;
    const added = [...files].map((file) => {
      const key = `${this.getAttribute("url")} ${file.name} ${file.lastModified} ${file.size}`;
      return { key, file, name: file.name, size: file.size };
    });
    for (const { key, file } of this.#add(added))
      if (file) void savedUploads.save([{ record: { key, place: this.#place, at: Date.now() }, file }]);
  }

  /** Adds files, and retries failed ones that are added again. @returns the items to send */
  #add(given: NewItem[]): Item[] {
    const added = given.slice(0, this.#input?.multiple ? undefined : 1);
    // The same file, chosen again, continues.
    if (added[0] && !this.#input?.multiple)
      for (const item of this.#items) if (item.key !== added[0].key) this.#cancel(item);
    const items = added.flatMap((one) => {
      const known = [...this.#items].find(({ key }) => key === one.key);
      if (known && known.state !== "failed") return [];
      const item = known ?? this.#createItem(one);
      if (known) {
        known.file = one.file;
        this.#queue.retry([known]);
      }
      this.#items.add(item);
      this.#list.append(item.row);
      return [item];
    });
    this.#start();
    return items;
  }

  connectedCallback(): void {
    addEventListener("beforeunload", this.#warn);
    for (const type of ["online", "visibilitychange"]) addEventListener(type, this.#wake, true);
    this.#adoptInput();
    this.#wake();
  }

  disconnectedCallback(): void {
    // An element that only moves is connected again at once.
    queueMicrotask(() => {
      if (this.isConnected) return;
      removeEventListener("beforeunload", this.#warn);
      for (const type of ["online", "visibilitychange"]) removeEventListener(type, this.#wake, true);
      void this.#leaveRecordings();
      for (const item of this.#items) {
        item.stop.abort();
        item.isFollowed = false;
      }
    });
  }

  attributeChangedCallback(): void {
    this.#connecting = undefined;
    this.#wake();
  }

  formAssociatedCallback(form: HTMLFormElement | null): void {
    this.#form?.removeEventListener("submit", this.#forgetSubmitted);
    this.#form = form;
    form?.addEventListener("submit", this.#forgetSubmitted);
  }

  formDisabledCallback(isDisabled: boolean): void {
    this.#isDisabled = isDisabled;
    if (this.#input) this.#input.disabled = isDisabled;
    this.#update();
    this.#addChosen();
  }

  formResetCallback(): void {
    this.#recorder.discard();
    for (const item of this.#items) this.#cancel(item);
  }

  get #input(): HTMLInputElement | null {
    return this.querySelector<HTMLInputElement>("input[type=file]");
  }

  get #place(): string {
    return placeOf(this.getAttribute("name") ?? "");
  }

  /** The page asks before it stops recording or sending. */
  readonly #warn = (event: Event) => {
    if (this.#recorder.state || [...this.#items].some(isUnfinished)) event.preventDefault();
  };

  /** Tries at once what waits for a connection, when there may be one again. */
  readonly #wake = () => {
    this.#queue.wake();
    this.#start();
  };

  /** After the form was submitted, a reload must not offer its files again. */
  readonly #forgetSubmitted = (event: Event) => {
    const keys = [...this.#items].flatMap(({ key, id }) => (id === undefined ? [] : [key]));
    // A script of the page may still prevent the submission.
    setTimeout(() => !event.defaultPrevented && void savedUploads.delete(keys));
  };

  #hold(key: string): Promise<() => void> {
    const holding = hold(key);
    this.#held.set(key, holding);
    return holding;
  }

  /** Leaves the recordings, which stay saved, to the next element at this place, or to this one if it returns. */
  async #leaveRecordings(): Promise<void> {
    await this.#recorder.stop();
    await this.#lastPart;
    if (this.isConnected) return;
    this.#recorder.forget();
    this.#isRestored = false;
    for (const key of this.#held.keys()) this.#letGo(key);
  }

  #letGo(key: string): void {
    void this.#held.get(key)?.then((release) => release());
    this.#held.delete(key);
  }

  /** Takes over the name and `required` of the input, which would submit the bytes as well. */
  #adoptInput(): void {
    const input = this.#input;
    if (input?.name && !this.hasAttribute("name")) this.setAttribute("name", input.name);
    input?.removeAttribute("name");
    if (input?.required) {
      input.required = false;
      this.toggleAttribute("required", true);
    }
    this.#update();
    // Chosen before this script was loaded.
    this.#addChosen();
    if (this.#isRestored || !this.hasAttribute("name")) return;
    this.#isRestored = true;
    void this.#restore();
  }

  /** Continues with the files that this element had before a reload, and with the recordings of any closed tab. */
  async #restore(): Promise<void> {
    const [place, recordingPlace] = [this.#place, recordingPlaceOf(this.getAttribute("name") ?? "")];
    const records = await savedUploads.list();
    for (const { key } of records.filter((record) => record.place === recordingPlace)) void this.#restoreRecording(key);
    const own = records.filter((record) => record.place === place);
    const files = await savedUploads.files(own.map(({ key }) => key));
    const items = own.flatMap(({ key, stored, saved }): NewItem[] => {
      const file = files.get(key);
      return stored ? [{ key, ...stored }] : file ? [{ key, file, name: file.name, size: file.size, saved }] : [];
    });
    // The user may already have chosen others.
    if (this.#items.size === 0) this.#add(items);
  }

  async #restoreRecording(key: string): Promise<void> {
    const holding = this.#hold(key);
    await holding;
    const { recording, saved } = (await savedUploads.get(key)) ?? {};
    // The element was removed in the meantime.
    if (this.#held.get(key) !== holding) return;
    if (!recording) return this.#letGo(key);
    const { name, type, isSent } = recording;
    const file = new File(await savedUploads.parts(key), name, { type });
    // Its page was closed before the first part was there.
    if (file.size === 0) {
      void savedUploads.delete([key]);
      return this.#letGo(key);
    }
    if (!isSent) this.#recorder.offer({ key, file });
    // Otherwise it would replace what the user has chosen. It stays saved.
    else if (this.#items.size === 0 || this.#input?.multiple)
      this.#add([{ key, file, name, size: file.size, saved, isRecording: true }]);
  }

  #addChosen(): void {
    // A disabled element keeps the files that were chosen before its script was loaded.
    if (this.#isDisabled) return;
    const files = [...(this.#input?.files ?? [])];
    if (this.#input) this.#input.value = "";
    this.add(files);
  }

  #drag(event: DragEvent): boolean {
    if (this.#isDisabled || !event.dataTransfer?.types.includes("Files")) return false;
    event.preventDefault();
    this.toggleAttribute("data-dragging", true);
    return true;
  }

  #createItem({ file, ...given }: NewItem): Item {
    const progress = create("progress", "progress");
    progress.ariaLabel = given.name;
    const name = create("span", "name", new Text(given.name));
    const status = create("span", "status");
    const retry = createButton("retry", () => {
      this.#queue.retry([item]);
      item.cancel.focus();
    });
    const cancel = createButton("cancel", () => this.#cancel(item, true));
    const row = create("li", "item", name, progress, status, retry, cancel);
    const view = { row, progress, status, retry, cancel };
    const item: Item = { ...new UploadProgress(), isRecording: false, isFollowed: false, ...given, file, ...view };
    return item;
  }

  get #isReady(): boolean {
    return this.isConnected && this.hasAttribute("url") && (this.#getToken !== undefined || this.hasAttribute("token"));
  }

  /** Sends what waits, and follows what is stored. */
  #start(): void {
    this.#queue.start();
    for (const item of this.#isReady ? this.#items : [])
      if (item.state === "stored" && item.id && !item.isFollowed) void this.#follow(item, item.id);
    this.#update();
  }

  async #upload(item: Item, file: File, options: UploadOptions): Promise<string> {
    Object.assign(item, { sentBytes: 0, id: undefined });
    // The user may have chosen a file again that was too large to be saved.
    item.saved ??= (await savedUploads.get(item.key))?.saved;
    const onProgress = (sentBytes: number) => {
      if (item.state !== "sending") return;
      if (sentBytes > item.sentBytes) item.failures = 0;
      item.sentBytes = sentBytes;
      this.#show(item);
      this.#dispatch("upload-progress", item);
    };
    const send = (connection: Connection) => uploadFile(connection, file, { ...options, onProgress });
    return this.#call(send, () => item.sentBytes);
  }

  /** Shows and reports the new state of an item. */
  #showChange(item: Item): void {
    // It was canceled.
    if (!this.#items.has(item)) return;
    const { key, error } = item;
    item.code = codeOf(error);
    if (item.state === "interrupted") item.state = "failed";
    this.#update();
    const { state, code } = item;
    if (state === "sending" && !item.announced) this.#announce("announceSending", item);
    if (state === "waiting" && code) {
      if (code !== item.announced) this.#announce("announceWaiting", item);
      item.announced = code;
      this.#dispatch("upload-waiting", item);
    }
    if (state === "failed") {
      // A recording exists nowhere else, so only the user deletes it.
      if (!item.isRecording && !hasStatus(error, 401)) void savedUploads.delete([key]);
      this.#announce("announceFailed", item);
      this.#dispatch("upload-failed", item);
    }
    if (state !== "stored" && state !== "completed") return;
    // After a reload, the form still has the file.
    const { id, name, size } = item;
    void savedUploads.replace({ key, place: this.#place, at: Date.now(), stored: { id, name, size, state } });
    this.#dispatch(`upload-${state}`, item);
    if (state === "completed") return;
    this.#letGo(key);
    this.#announce("announceStored", item);
    this.#start();
    void this.#sendWaveform(item);
  }

  /** Sends the waveform of a stored file, if the service does not measure it. Nothing else needs it. */
  async #sendWaveform({ id = "", file }: Item): Promise<void> {
    try {
      const channels = file && (await isUnknownForBrowser(file)) && (await measurePeaks(file));
      if (!channels) return;
      const input = { id, body: { channels } };
      await this.#call((connection) => connection.empty("PUT /docs/v1/uploads/{id}/waveform", input));
    } catch {}
  }

  /** Whether the same upload may succeed later, without the user. */
  #isTemporary(error: unknown): boolean {
    const isTokenLost = hasStatus(error, 401) && this.getToken !== undefined;
    return isTokenLost || (error instanceof StowageError && error.isTransient);
  }

  /** Waits until the service has processed a stored file. */
  async #follow(item: Item, id: string): Promise<void> {
    item.isFollowed = true;
    if (item.stop.signal.aborted) item.stop = new AbortController();
    const { signal } = item.stop;
    const end = performance.now() + FOLLOW_MILLISECONDS;
    const fetchStatus = (connection: Connection) =>
      connection.json("GET /docs/v1/uploads/{id}/status", { id }, { signal });
    try {
      for (
        let delay = FIRST_POLL_MILLISECONDS;
        performance.now() < end;
        delay = Math.min(delay * 1.3, MAX_POLL_MILLISECONDS)
      ) {
        const found = await this.#call(fetchStatus).catch((error) => {
          if (!this.#isTemporary(error)) throw error;
        });
        if (found?.status === "failed" || found?.status === "completed") {
          const { code = "unexpected_error", message = "" } = found.failure ?? {};
          const error = found.status === "failed" ? new StowageError(code as ErrorCode, message) : null;
          Object.assign(item, { state: found.status, error });
          return this.#showChange(item);
        }
        await sleep(delay, signal);
      }
    } catch {
      // The file is stored. Only the result of its processing stays unknown.
    }
  }

  /**
   * Calls the service with the current token, and after 401 with a new one.
   * @param progress bytes sent so far: an upload that advances may outlive several tokens
   */
  async #call<T>(work: (connection: Connection) => Promise<T>, progress = () => 0): Promise<T> {
    for (let before = -1; ; before = progress()) {
      this.#connecting ??= this.#connect();
      const connecting = this.#connecting;
      try {
        return await work(await connecting);
      } catch (error) {
        const isRejected = hasStatus(error, 401);
        // Another file may already have asked for a new token.
        const isCurrent = this.#connecting === connecting;
        if (isCurrent && isRejected) this.#connecting = undefined;
        if (!isRejected || !this.getToken || progress() <= before) throw error;
      }
    }
  }

  async #connect(): Promise<Connection> {
    const url = this.getAttribute("url") ?? "";
    // A wrong URL of the page is its own error, and not one of the token.
    new Connection({ url });
    try {
      const key = (await this.getToken?.()) ?? this.getAttribute("token");
      return new Connection({ url, key });
    } catch (cause) {
      // The next attempt asks again.
      this.#connecting = undefined;
      const code = navigator.onLine ? "token_missing" : "connection_failed";
      throw new StowageError(code, "There is no token.", { cause, isTransient: true });
    }
  }

  #cancel(item: Item, isAnnounced = false): void {
    const { row, state } = item;
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const hasFocus = row.contains(this.#root.activeElement);
    this.#items.delete(item);
    this.#letGo(item.key);
    row.remove();
    if (hasFocus)
      (
        next?.querySelector<HTMLElement>("button:not([hidden])") ?? (this.#input ? this.#choose : this.#recorder)
      ).focus();
    if (isAnnounced) this.#announce("announceCanceled", item);
    if (state === "stored" || state === "completed") {
      item.stop.abort();
      void savedUploads.delete([item.key]);
    } else this.#queue.cancel(item);
    this.#start();
  }

  #text(text: string, { name = "", size = 0, code, error, sentBytes = 0 }: Partial<Item> = {}): string {
    const values: Record<string, string> = {
      name,
      percent: String(Math.floor((100 * sentBytes) / Math.max(1, size))),
      message: this.#texts[code ?? ""] ?? (error as Partial<Error> | null)?.message ?? "",
    };
    return (this.#texts[text] ?? "").replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
  }

  #show(item: Item): void {
    const { state, row, progress, status, retry, cancel, name, size, sentBytes, code } = item;
    const isInterrupted = state === "waiting" && code !== undefined;
    row.setAttribute("part", `item ${state}`);
    progress.max = Math.max(1, size);
    progress.value = sentBytes;
    progress.hidden = !isUnfinished(item);
    status.textContent = this.#text(isInterrupted ? "interrupted" : state, item);
    retry.hidden = !isInterrupted && (state !== "failed" || FINAL_CODES.has(code));
    const action = state === "stored" || state === "completed" ? "remove" : "cancel";
    for (const [button, text] of [[retry, "retry"] as const, [cancel, action] as const]) {
      button.textContent = this.#text(text);
      button.ariaLabel = `${this.#text(text)} ${name}`;
      button.disabled = this.#isDisabled;
    }
  }

  /** Shows the state of everything, and passes ids and validity to the form. */
  #update(): void {
    const items = [...this.#items];
    for (const item of items) this.#show(item);
    this.#showChooser();
    this.#recorder.update(this.hasAttribute("record"), this.#isDisabled);

    const has = (...states: UploadState[]) => items.some(({ state }) => states.includes(state));
    const all = (["failed", "stored", "completed"] as const).find((state) => has(state)) ?? "empty";
    const isSending = items.some(({ state, code }) => state === "sending" || (state === "waiting" && !code));
    const state = this.#recorder.state ?? (isSending ? "sending" : has("waiting") ? "waiting" : all);
    // A constructor must not set attributes.
    if (this.isConnected && this.dataset.state !== state) this.dataset.state = state;

    const values = new FormData();
    for (const id of this.value) values.append(this.getAttribute("name") ?? "", id);
    this.#internals.setFormValue(this.hasAttribute("name") ? values : null);
    const isMissing = this.hasAttribute("required") && this.value.length === 0;
    const problem = { recording: "unsent", recorded: "unsent", sending: "busy", waiting: "busy", failed: "unresolved" }[
      state as string
    ];
    const anchor = this.#input ? this.#choose : undefined;
    if (problem) this.#internals.setValidity({ customError: true }, this.#text(problem), anchor);
    else if (isMissing) this.#internals.setValidity({ valueMissing: true }, this.#text("required"), anchor);
    else this.#internals.setValidity({});
  }

  /** Shows the button in place of the input, with the name of the input for screen readers. */
  #showChooser(): void {
    const input = this.#input;
    this.#chooser.hidden = !input;
    if (!input) return;
    input.style.setProperty("display", "none", "important");
    const [text, drop] = input.multiple ? ["choose", "drop"] : ["chooseFile", "dropFile"];
    this.#choose.textContent = this.#text(text);
    this.#drop.textContent = this.#text(drop);
    const names = [input.ariaLabel, ...[...(input.labels ?? [])].map(({ textContent }) => textContent?.trim())];
    this.#choose.ariaLabel = [this.#text(text), names.find(Boolean)].filter(Boolean).join(": ");
    this.#choose.disabled = this.#isDisabled;
  }

  #announce(name: string, item?: Item): void {
    this.#announcement.textContent = this.#text(name, item);
  }

  #dispatch(type: keyof UploadEvents, { file, id, sentBytes, code, error }: UploadDetail): void {
    const detail: UploadDetail = { file, id, sentBytes, code, error: error ?? undefined };
    this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
  }
}

if (globalThis.customElements && !customElements.get("stowage-upload"))
  customElements.define("stowage-upload", StowageUpload);
