import { BrowserStore, type UploadRecord } from "./browser-store.ts";
import { Connection } from "./connection.ts";
import { Recorder } from "./element-recorder.ts";
import { create, createButton, STYLES, TEXTS, type UploadTexts } from "./element-view.ts";
import { StowageError } from "./errors.ts";
import { sleep } from "./retrying.ts";
import { cancelUpload, hasStatus, type SavedUpload, type UploadStore, uploadFile } from "./upload.ts";

export type { UploadTexts } from "./element-view.ts";

/*
 * <stowage-upload> wraps the page's own <input type="file">, uploads what the user chooses, drops or records, and submits
 * the ids of the files with the form. The input stays in the page. What the element adds is in a shadow root, where the
 * page's styles don't reach it except by ::part().
 *
 *   waiting -> sending -> stored -> completed    all bytes have arrived, and then the file is processed
 *                 |          +----> failed       processing failed
 *                 +---------------> failed       rejected, until the user retries
 */

type FileState = "waiting" | "sending" | "failed" | "stored" | "completed";

/** The `detail` of the element's events. */
export interface UploadDetail {
  /** Undefined if the microphone failed. */
  file?: File | undefined;
  /** The id of the stored file. */
  id?: string | undefined;
  sentBytes: number;
  /** Why it failed: a code of the service or the client, `microphone_denied`, `microphone_missing`, or `unexpected_error`. */
  code?: string | undefined;
  error?: unknown;
}

type UploadEvents = Record<
  "upload-progress" | "upload-stored" | "upload-completed" | "upload-failed",
  CustomEvent<UploadDetail>
>;

declare global {
  interface HTMLElementTagNameMap {
    "stowage-upload": StowageUpload;
  }
  interface GlobalEventHandlersEventMap extends UploadEvents {}
}

/** A file with its row in the list. */
interface Item extends UploadDetail {
  file: File;
  /** Identifies the upload in the browser's storage. */
  key: string;
  /** The state that the service needs to resume the upload. */
  saved?: SavedUpload | undefined;
  state: FileState;
  stop: AbortController;
  row: HTMLLIElement;
  progress: HTMLProgressElement;
  status: HTMLElement;
  retry: HTMLButtonElement;
  cancel: HTMLButtonElement;
}

/** Uploads at a time. More would share the same bandwidth. */
const MAX_SENDING = 3;
/** Processing takes seconds. After this, the element no longer asks for its result. */
const FOLLOW_MILLISECONDS = 3_600_000;
const FIRST_POLL_MILLISECONDS = 300;
const MAX_POLL_MILLISECONDS = 10_000;

/** Files are saved for their element. */
const savedUploads = new BrowserStore<UploadRecord & { place: string }>("stowage-upload");

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

const isUnfinished = ({ state }: Item) => state === "waiting" || state === "sending";

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
  readonly #list = create("ul", "list");
  readonly #announcement = create("p", "announcement");
  readonly #recorder = new Recorder({
    text: (name) => this.#text(name),
    announce: (name) => this.#announce(name),
    onChange: () => this.#update(),
    onFile: (file) => this.add([file]),
    onError: (code, error) => this.#dispatch("upload-failed", { sentBytes: 0, code, error }),
  });
  #texts: UploadTexts = TEXTS;
  #getToken: (() => string | Promise<string>) | undefined;
  #connecting: Promise<Connection> | undefined;
  #isDisabled = false;
  #isRestored = false;

  constructor() {
    super();
    this.#list.role = "list";
    this.#announcement.role = "status";
    const panel = create("div", "panel", ...this.#recorder.elements, this.#list, this.#announcement);
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
    this.#startWaiting();
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
    const added = [...files].slice(0, this.#input?.multiple ? undefined : 1);
    if (added.length > 0 && !this.#input?.multiple) for (const item of this.#items) this.#cancel(item);
    for (const file of added) {
      const key = `${this.getAttribute("url")} ${file.name} ${file.lastModified} ${file.size}`;
      if ([...this.#items].some((item) => item.key === key && isUnfinished(item))) continue;
      const item = this.#createItem(file, key);
      this.#items.add(item);
      this.#list.append(item.row);
    }
    this.#startWaiting();
  }

  connectedCallback(): void {
    addEventListener("beforeunload", this.#warn);
    this.#adoptInput();
    this.#startWaiting();
  }

  disconnectedCallback(): void {
    // An element that only moves is connected again at once.
    queueMicrotask(() => {
      if (this.isConnected) return;
      removeEventListener("beforeunload", this.#warn);
      this.#recorder.discard();
      for (const item of this.#items) {
        item.stop.abort();
        if (isUnfinished(item)) item.state = "waiting";
      }
    });
  }

  attributeChangedCallback(): void {
    this.#connecting = undefined;
    this.#startWaiting();
  }

  formDisabledCallback(isDisabled: boolean): void {
    this.#isDisabled = isDisabled;
    if (this.#input) this.#input.disabled = isDisabled;
    this.#update();
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

  /** The page asks before it loses a recording. */
  readonly #warn = (event: Event) => this.#recorder.state && event.preventDefault();

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
    // The user may already have chosen others.
    void this.#findSaved().then((files) => this.#items.size === 0 && this.add(files));
  }

  /** Finds the files that this element was sending before a reload. */
  async #findSaved(): Promise<Iterable<File>> {
    const place = this.#place;
    const records = (await savedUploads.list()).filter((record) => record.place === place);
    return (await savedUploads.files(records.map(({ key }) => key))).values();
  }

  #addChosen(): void {
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

  #createItem(file: File, key: string): Item {
    const progress = create("progress", "progress");
    progress.ariaLabel = file.name;
    const name = create("span", "name", new Text(file.name));
    const status = create("span", "status");
    const retry = createButton("retry", () => {
      this.#change(item, { state: "waiting" });
      item.cancel.focus();
      this.#startWaiting();
    });
    const cancel = createButton("cancel", () => this.#cancel(item, true));
    const row = create("li", "item", name, progress, status, retry, cancel);
    const stop = new AbortController();
    const item: Item = { file, key, state: "waiting", sentBytes: 0, stop, row, progress, status, retry, cancel };
    void savedUploads.save([{ record: { key, place: this.#place, at: Date.now() }, file }]);
    return item;
  }

  #startWaiting(): void {
    // Scripts of the page may set these later.
    const isReady = this.isConnected && this.hasAttribute("url") && (this.getToken || this.hasAttribute("token"));
    let free = isReady ? MAX_SENDING : 0;
    for (const { state } of this.#items) if (state === "sending") free -= 1;
    for (const item of this.#items) if (item.state === "waiting" && free-- > 0) void this.#upload(item);
    this.#update();
  }

  async #upload(item: Item): Promise<void> {
    const { file, key } = item;
    item.stop = new AbortController();
    const { signal } = item.stop;
    const store: UploadStore = {
      get: async () => item.saved ?? (await savedUploads.get(key))?.saved,
      set: (_, resume) => {
        item.saved = resume;
        void savedUploads.update([key], { saved: resume, at: Date.now() });
      },
      delete: () => this.#forget(item),
    };
    const onProgress = (sentBytes: number) => {
      if (signal.aborted) return;
      this.#change(item, { sentBytes });
      this.#dispatch("upload-progress", item);
    };
    this.#change(item, { state: "sending", sentBytes: 0, id: undefined, code: undefined, error: undefined });
    this.#announce("announceSending", item);
    try {
      const send = (connection: Connection) =>
        uploadFile(connection, file, { store, storeKey: key, signal, onProgress });
      const id = await this.#call(send, () => item.sentBytes);
      if (signal.aborted) return;
      this.#change(item, { state: "stored", id });
      this.#announce("announceStored", item);
      this.#dispatch("upload-stored", item);
      void this.#follow(item, id, signal);
    } catch (error) {
      if (signal.aborted) return;
      const isResumable = error instanceof StowageError && (error.isTransient || error.status === 401);
      if (!isResumable) void this.#forget(item);
      this.#fail(item, error instanceof StowageError ? error.code : "unexpected_error", error);
    }
    this.#startWaiting();
  }

  /** Waits until the service has processed a stored file. */
  async #follow(item: Item, id: string, signal: AbortSignal): Promise<void> {
    const end = performance.now() + FOLLOW_MILLISECONDS;
    const fetchStatus = (connection: Connection) => connection.data("GET /docs/v1/uploads/{id}/status", { id, signal });
    try {
      for (
        let delay = FIRST_POLL_MILLISECONDS;
        performance.now() < end;
        delay = Math.min(delay * 1.3, MAX_POLL_MILLISECONDS)
      ) {
        const { status, failure } = await this.#call(fetchStatus);
        if (status === "failed") return this.#fail(item, failure?.code ?? "unexpected_error", failure);
        if (status === "completed") {
          this.#change(item, { state: "completed" });
          return this.#dispatch("upload-completed", item);
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
        if (isCurrent && (isRejected || !(error instanceof StowageError))) this.#connecting = undefined;
        if (!isRejected || !this.getToken || progress() <= before) throw error;
      }
    }
  }

  async #connect(): Promise<Connection> {
    const key = (await this.getToken?.()) ?? this.getAttribute("token") ?? undefined;
    return new Connection({ url: this.getAttribute("url") ?? "", key });
  }

  #cancel(item: Item, isAnnounced = false): void {
    const { row, stop, state } = item;
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const hasFocus = row.contains(this.#root.activeElement);
    stop.abort();
    this.#items.delete(item);
    row.remove();
    if (hasFocus) (next?.querySelector<HTMLElement>("button:not([hidden])") ?? this.#input ?? this.#recorder).focus();
    if (isAnnounced) this.#announce("announceCanceled", item);
    this.#startWaiting();
    if (state !== "stored" && state !== "completed") void this.#delete(item);
  }

  /** Deletes the saved state of an upload. */
  async #forget(item: Item): Promise<void> {
    item.saved = undefined;
    await savedUploads.delete([item.key]);
  }

  /** Deletes an unfinished upload everywhere. If the service can't be reached, it deletes the upload after a day. */
  async #delete(item: Item): Promise<void> {
    const { url } = item.saved ?? (await savedUploads.get(item.key))?.saved ?? {};
    await this.#forget(item);
    if (url) await this.#call((connection) => cancelUpload(connection, url)).catch(() => {});
  }

  #fail(item: Item, code: string, error: unknown): void {
    this.#change(item, { state: "failed", code, error });
    this.#announce("announceFailed", item);
    this.#dispatch("upload-failed", item);
  }

  #change(item: Item, changes: Partial<Item>): void {
    // Progress is frequent, and changes nothing else.
    const isProgress = changes.state === undefined;
    Object.assign(item, changes);
    if (isProgress) this.#show(item);
    else this.#update();
  }

  #text(name: string, { file, code, error, sentBytes }: Partial<Item> = {}): string {
    const { size = 0 } = file ?? {};
    const values: Record<string, string> = {
      name: file?.name ?? "",
      percent: String(Math.floor((100 * (sentBytes ?? 0)) / Math.max(1, size))),
      message: this.#texts[code ?? ""] ?? (error as Partial<Error> | null)?.message ?? "",
    };
    return (this.#texts[name] ?? "").replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
  }

  #show(item: Item): void {
    const { state, row, progress, status, retry, cancel, file, sentBytes } = item;
    row.setAttribute("part", `item ${state}`);
    progress.max = Math.max(1, file.size);
    progress.value = sentBytes;
    progress.hidden = !isUnfinished(item);
    status.textContent = this.#text(state, item);
    retry.hidden = state !== "failed";
    const action = state === "stored" || state === "completed" ? "remove" : "cancel";
    for (const [button, name] of [[retry, "retry"] as const, [cancel, action] as const]) {
      button.textContent = this.#text(name);
      button.ariaLabel = `${this.#text(name)} ${file.name}`;
      button.disabled = this.#isDisabled;
    }
  }

  /** Shows the state of everything, and passes ids and validity to the form. */
  #update(): void {
    const items = [...this.#items];
    for (const item of items) this.#show(item);
    this.#recorder.update(this.hasAttribute("record"), this.#isDisabled);

    const has = (...states: FileState[]) => items.some(({ state }) => states.includes(state));
    const all = (["failed", "stored", "completed"] as const).find((state) => has(state)) ?? "empty";
    const state = this.#recorder.state ?? (has("waiting", "sending") ? "sending" : all);
    // A constructor must not set attributes.
    if (this.isConnected && this.dataset.state !== state) this.dataset.state = state;

    const values = new FormData();
    for (const id of this.value) values.append(this.getAttribute("name") ?? "", id);
    this.#internals.setFormValue(this.hasAttribute("name") ? values : null);
    const isMissing = this.hasAttribute("required") && this.value.length === 0;
    const problem = { recording: "unsent", recorded: "unsent", sending: "busy", failed: "unresolved" }[state as string];
    const anchor = this.#input ?? undefined;
    if (problem) this.#internals.setValidity({ customError: true }, this.#text(problem), anchor);
    else if (isMissing) this.#internals.setValidity({ valueMissing: true }, this.#text("required"), anchor);
    else this.#internals.setValidity({});
  }

  #announce(name: string, item?: Item): void {
    this.#announcement.textContent = this.#text(name, item);
  }

  #dispatch(type: keyof UploadEvents, { file, id, sentBytes, code, error }: UploadDetail): void {
    const detail: UploadDetail = { file, id, sentBytes, code, error };
    this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
  }
}

if (globalThis.customElements && !customElements.get("stowage-upload"))
  customElements.define("stowage-upload", StowageUpload);
