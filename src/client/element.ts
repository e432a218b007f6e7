import { normalizeUrl } from "./connection.ts";
import { Access } from "./element-access.ts";
import { FormControl } from "./element-control.ts";
import { ElementFiles, type Item, isAccepted, isUnfinished, type NewItem } from "./element-files.ts";
import { Recordings } from "./element-recordings.ts";
import { placeOf, savedUploads } from "./element-saved.ts";
import { problemOf, stateOf } from "./element-state.ts";
import { Announcer, create, createButton, STYLES, TEXTS, type UploadTexts } from "./element-view.ts";
import { StowageError } from "./errors.ts";

export type { UploadTexts } from "./element-view.ts";

/*
 * <stowage-upload> wraps the page's own <input type="file">, uploads what the user chooses, drops or records, and submits
 * the ids of the files with the form. The input stays in the page, and a button takes its place, because browsers say
 * "No file chosen" next to an input whose files are uploaded. What the element adds is in a shadow root, where the page's
 * styles don't reach it except by ::part(). This file has what the page sees; element-files.ts has the files, and
 * element-recordings.ts the recordings.
 */

/** The `detail` of the element's events. */
export interface UploadDetail {
  /** Undefined if the microphone failed, or if the file was stored before a reload. */
  file?: File | undefined;
  /** The id of the stored file. */
  id?: string | undefined;
  /** How many bytes the service has. */
  sentBytes: number;
  /** Why it failed: a code of the service or the client, `microphone_denied`, `microphone_missing`, or `unexpected_error`. */
  code?: string | undefined;
  /** The error itself. */
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

/**
 * An upload control of a form. Its attributes are also properties: `url` of the service, `token` (an upload token or public
 * key), `name` of the ids in the form, `required`, `disabled`, `multiple`, and `record` for a button that records from the
 * microphone, with the `bitrate` of its recordings. It sets `data-state` to the state of all files.
 */
export class StowageUpload extends FormControl {
  static readonly observedAttributes = ["url", "token", "name", "record", "required", "multiple"];

  readonly #root = this.attachShadow({ mode: "open", delegatesFocus: false });
  readonly #choose = createButton("choose", () => this.#input?.click());
  readonly #drop = create("span", "drop");
  readonly #chooser = create("div", "chooser", this.#choose, this.#drop);
  readonly #panel = create("div", "panel");
  readonly #announcer = new Announcer();
  readonly #access = new Access(() => ({ url: this.url, token: this.getAttribute("token"), getToken: this.getToken }));
  readonly #files = new ElementFiles({
    access: this.#access,
    serviceUrl: () => this.#serviceUrl,
    isReady: () =>
      this.isConnected && this.hasAttribute("url") && (this.#getToken !== undefined || this.hasAttribute("token")),
    isDisabled: () => this.#isDisabled,
    isMultiple: () => this.#input?.multiple ?? this.multiple,
    place: () => placeOf(this.name),
    text: (name, item) => this.#text(name, item),
    announce: (name, item) => this.#announcer.announce(this.#text(name, item)),
    dispatch: (name, item) => this.#dispatch(`upload-${name}`, item),
    onChange: () => this.#update(),
    onEnd: (key) => this.#recordings.unlock(key),
    focus: () => this.#focus(),
  });
  readonly #recordings = new Recordings({
    name: () => this.name,
    serviceUrl: () => this.#serviceUrl,
    bitrate: () => this.bitrate,
    text: (name) => this.#text(name),
    announce: (name) => this.#announcer.announce(this.#text(name)),
    onChange: () => this.#update(),
    onSend: ({ key, file }) => this.#files.add([{ key, file, name: file.name, size: file.size, isRecording: true }]),
    onResume: ({ key, file }, saved) => {
      // Otherwise it would replace what the user has chosen. It stays saved.
      if (this.#files.items.size === 0 || this.#input?.multiple)
        this.#files.add([{ key, file, name: file.name, size: file.size, saved, isRecording: true }]);
    },
    onError: (code, error) => this.#dispatch("upload-failed", { sentBytes: 0, code, error }),
  });
  #texts: UploadTexts = TEXTS;
  #getToken: (() => string | Promise<string>) | undefined;
  #isDisabled = false;
  #isRestored = false;
  #form: HTMLFormElement | null = null;

  constructor() {
    super();
    this.#panel.append(this.#chooser, this.#recordings.element, this.#files.element, this.#announcer.element);
    // If nothing can be added, it takes the focus of an invalid form.
    this.#panel.tabIndex = -1;
    this.#root.append(document.createElement("slot"), this.#panel);
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

  /** The ids of the stored files. To set others takes the files whose ids are missing out of the form. */
  get value(): string[] {
    return this.#files.ids;
  }

  set value(ids: string[] | string | null | undefined) {
    const kept = ids ?? [];
    for (const item of this.#files.items) if (item.id && !kept.includes(item.id)) this.#files.cancel(item);
  }

  /** Returns a token in place of the attribute, again after the service has rejected the last one with 401. */
  get getToken(): (() => string | Promise<string>) | undefined {
    return this.#getToken;
  }

  set getToken(getToken: (() => string | Promise<string>) | null | undefined) {
    this.#getToken = getToken ?? undefined;
    this.#access.reset();
    this.#files.wake();
  }

  /** All texts. Setting some of them replaces these. The messages of errors are named by their codes. */
  get texts(): UploadTexts {
    return this.#texts;
  }

  set texts(texts: Partial<UploadTexts>) {
    this.#texts = { ...TEXTS, ...texts } as UploadTexts;
    this.#update();
  }

  /** Uploads files as if the user had chosen them. Unless it has `multiple`, a file replaces the one before. */
  add(files: Iterable<File>): void {
    if (this.#isDisabled) return;
    const accept = this.#input?.accept ?? "";
    const added = [...files].map((file): NewItem & { file: File } => {
      const key = `${this.url} ${file.name} ${file.lastModified} ${file.size}`;
      const item = { key, file, name: file.name, size: file.size };
      if (isAccepted(file, accept)) return item;
      // Browsers let users drop what they can't choose.
      const error = new StowageError("type_not_allowed", `The input accepts ${accept}.`);
      return { ...item, state: "failed", error };
    });
    const record = { place: placeOf(this.name), at: Date.now() };
    for (const { key, file } of this.#files.add(added))
      if (file) void savedUploads.save([{ record: { ...record, key }, file }]);
  }

  connectedCallback(): void {
    this.upgrade("getToken", "texts");
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
      void this.#recordings.leave(() => {
        if (!this.isConnected) this.#isRestored = false;
        return !this.isConnected;
      });
      this.#files.stop();
    });
  }

  attributeChangedCallback(name: string): void {
    if (name === "multiple" && this.#input) this.#input.multiple = this.multiple;
    this.#access.reset();
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
    this.#recordings.discard();
    for (const item of this.#files.items) this.#files.cancel(item);
  }

  get #serviceUrl(): string {
    return normalizeUrl(this.url) ?? "";
  }

  get #input(): HTMLInputElement | null {
    return this.querySelector<HTMLInputElement>("input[type=file]");
  }

  /** The page asks before it stops recording or sending. */
  readonly #warn = (event: Event) => {
    if (this.#recordings.state || [...this.#files.items].some(isUnfinished)) event.preventDefault();
  };

  readonly #wake = () => this.#files.wake();

  /** After the form was submitted, a reload must not offer its files again. */
  readonly #forgetSubmitted = (event: Event) => {
    const keys = [...this.#files.items].flatMap(({ key, id }) => (id === undefined ? [] : [key]));
    // A script of the page may still prevent the submission.
    setTimeout(() => !event.defaultPrevented && void savedUploads.delete(keys));
  };

  /** Takes over the name, `required` and `multiple` of the input, which would submit the bytes as well. */
  #adoptInput(): void {
    const input = this.#input;
    if (input?.name && !this.hasAttribute("name")) this.name = input.name;
    input?.removeAttribute("name");
    if (input?.required) {
      input.required = false;
      this.required = true;
    }
    if (input?.multiple) this.multiple = true;
    else if (input) input.multiple = this.multiple;
    this.#update();
    // Chosen before this script was loaded.
    this.#addChosen();
    if (this.#isRestored || !this.hasAttribute("name")) return;
    this.#isRestored = true;
    void this.#recordings.restore();
    void this.#restore();
  }

  /** Continues with the files that this element had before a reload. */
  async #restore(): Promise<void> {
    const place = placeOf(this.name);
    const own = (await savedUploads.list()).filter((record) => record.place === place);
    const files = await savedUploads.files(own.map(({ key }) => key));
    const items = own.flatMap(({ key, stored, saved }): NewItem[] => {
      const file = files.get(key);
      return stored ? [{ key, ...stored }] : file ? [{ key, file, name: file.name, size: file.size, saved }] : [];
    });
    // The user may already have chosen others.
    if (this.#files.items.size === 0) this.#files.add(items);
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

  #text(text: string, { name = "", size = 0, code, error, sentBytes = 0 }: Partial<Item> = {}): string {
    const values: Record<string, string> = {
      name,
      percent: String(Math.floor((100 * sentBytes) / Math.max(1, size))),
      message: this.#texts[code ?? ""] ?? (error as Partial<Error> | null)?.message ?? "",
    };
    return (this.#texts[text] ?? "").replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
  }

  /** Focuses what adds files. */
  #focus(): void {
    (this.#input ? this.#choose : this.#recordings.button)?.focus();
  }

  /** Shows the state of everything, and passes ids and validity to the form. */
  #update(): void {
    this.#files.show();
    this.#showChooser();
    this.#recordings.update(this.record, this.#isDisabled);
    const state = stateOf(this.#files.items, this.#recordings.state);
    // A constructor must not set attributes.
    if (this.isConnected && this.dataset.state !== state) this.dataset.state = state;
    const values = new FormData();
    for (const id of this.value) values.append(this.name, id);
    this.submits(this.hasAttribute("name") ? values : null);
    this.#validate(problemOf(state), state);
  }

  /** The browser shows the problem at the button that solves it. Without such an anchor, it would not submit the form, silently. */
  #validate(problem: string | undefined, state: string): void {
    const add = (this.#input ? this.#choose : this.#recordings.button) ?? this.#panel;
    if (problem) {
      const button = problem === "unsent" ? this.#recordings.button : this.#files.buttonOf(state);
      this.validate({ customError: true }, this.#text(problem), button ?? add);
    } else if (this.required && this.value.length === 0)
      this.validate({ valueMissing: true }, this.#text(this.#input ? "required" : "requiredRecording"), add);
    else this.validate({});
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

  #dispatch(type: keyof UploadEvents, { file, id, sentBytes, code, error }: UploadDetail): void {
    const detail: UploadDetail = { file, id, sentBytes, code, error: error ?? undefined };
    this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
  }
}

if (globalThis.customElements && !customElements.get("stowage-upload"))
  customElements.define("stowage-upload", StowageUpload);
