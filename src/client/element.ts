import { normalizeUrl } from "./connection.ts";
import { Access } from "./element-access.ts";
import { Chooser } from "./element-chooser.ts";
import { FormControl } from "./element-control.ts";
import { codeOf, ElementFiles, type FormItem, type Host, type UploadDetail } from "./element-files.ts";
import { loadGerman, loadSound } from "./element-load.ts";
import { placeOf, recordingPlaceOf } from "./element-places.ts";
import { followProcessing } from "./element-processing.ts";
import { Recordings } from "./element-recordings.ts";
import { Reporter } from "./element-reporter.ts";
import { blockerOf, idsOf, stateOf } from "./element-state.ts";
import { Submission } from "./element-submission.ts";
import { Announcer, create, STYLES, TEXTS, type UploadTexts } from "./element-view.ts";
import { isUnmeasured } from "./measured.ts";
import { uploadSource } from "./upload.ts";
import { fileIdIn, type UploadPage, UploadRunner } from "./upload-runner.ts";
import { blobSource } from "./upload-source.ts";
import { isLeaving, isStored, isTake } from "./upload-state.ts";
import { cancelUpload } from "./upload-url.ts";

export type { UploadDetail } from "./element-files.ts";
export type { UploadTexts } from "./element-view.ts";

/*
 * <stowage-upload> wraps the page's own <input type="file">, uploads what the user chooses, drops or records, and submits
 * the ids of the files with the form. The input stays in the page, and a button takes its place, because browsers say
 * "No file chosen" next to an input whose files are uploaded. What the element adds is in a shadow root, where the page's
 * styles don't reach it except by ::part(). The element shows the uploads of upload-state.ts: element-files.ts their list, and
 * element-recordings.ts the recordings that are not sent.
 */

/** After these, what waits may succeed. */
const WAKING = ["load", "online", "visibilitychange"];

type UploadEvents = Record<
  "upload-progress" | "upload-waiting" | "upload-stored" | "upload-completed" | "upload-failed" | "upload-kept",
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
  static readonly observedAttributes = [
    "url",
    "token",
    "name",
    "record",
    "required",
    "multiple",
    "defer-submit",
    "lang",
  ];

  readonly #root = this.attachShadow({ mode: "open", delegatesFocus: false });
  readonly #chooser = new Chooser(() => this.#input?.click());
  readonly #panel = create("div", "panel");
  readonly #announcer = new Announcer();
  readonly #access = new Access(() => ({ url: this.url, token: this.getAttribute("token"), getToken: this.getToken }));
  readonly #runner = new UploadRunner<null>("stowage-upload", { isForm: true }, this.#createPage());
  readonly #host = this.#createHost();
  readonly #files = new ElementFiles(this.#host);
  readonly #recordings = new Recordings(this.#host);
  readonly #reporter = new Reporter(this.#host);
  readonly #submission = new Submission(this.#runner);
  readonly #waiting = create("p", "message");
  /** The texts of the page take the place of those of its language. */
  #defaults: Record<string, string> = TEXTS;
  #translated: Partial<UploadTexts> | undefined;
  #ownTexts: Partial<UploadTexts> = {};
  #getToken: (() => string | Promise<string>) | undefined;
  #isDisabled = false;
  #form: HTMLFormElement | null = null;

  constructor() {
    super();
    this.#waiting.role = "alert";
    this.#panel.append(this.#chooser.element, this.#recordings.element, this.#files.element, this.#waiting);
    this.#panel.append(this.#announcer.element);
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
    return idsOf(this.#runner.uploads);
  }

  set value(ids: string[] | string | null | undefined) {
    const kept = ids ?? [];
    this.#cancel(({ id }) => id !== undefined && !kept.includes(id));
  }

  /** Returns a token in place of the attribute, again after the service has rejected the last one with 401. */
  get getToken(): (() => string | Promise<string>) | undefined {
    return this.#getToken;
  }

  set getToken(getToken: (() => string | Promise<string>) | null | undefined) {
    this.#getToken = getToken ?? undefined;
    this.#access.reset();
    this.#wake();
  }

  /** All texts, those of the recorder once it is loaded. Setting some of them replaces these. The messages of errors are named by their codes. */
  get texts(): UploadTexts {
    return this.#texts;
  }

  set texts(texts: Partial<UploadTexts>) {
    this.#ownTexts = texts;
    this.#update();
  }

  /** Uploads files as if the user had chosen them. Unless it has `multiple`, a file replaces the one before. */
  add(files: Iterable<File>): void {
    this.#set();
    const added = [...files].map((file) => {
      const { name, lastModified, size } = file;
      return { file, item: { name, source: `${this.url} ${name} ${lastModified} ${size}` } };
    });
    this.#runner.add(added);
  }

  connectedCallback(): void {
    this.upgrade();
    addEventListener("beforeunload", this.#warn);
    for (const type of WAKING) addEventListener(type, this.#wake, true);
    this.#adoptInput();
    void this.#translate().catch(() => {});
    this.#runner.send({ type: "open" });
  }

  disconnectedCallback(): void {
    // An element that only moves is connected again at once.
    queueMicrotask(() => {
      if (this.isConnected) return;
      removeEventListener("beforeunload", this.#warn);
      for (const type of WAKING) removeEventListener(type, this.#wake, true);
      this.#runner.send({ type: "close" });
    });
  }

  attributeChangedCallback(name: string): void {
    if (name === "multiple" && this.#input) this.#input.multiple = this.multiple;
    if (name === "lang") void this.#translate().catch(() => {});
    this.#access.reset();
    this.#wake();
  }

  formAssociatedCallback(form: HTMLFormElement | null): void {
    this.#form?.removeEventListener("submit", this.#defer, true);
    this.#form?.removeEventListener("submit", this.#forgetSubmitted);
    this.#form = form;
    form?.addEventListener("submit", this.#defer, true);
    form?.addEventListener("submit", this.#forgetSubmitted);
  }

  formDisabledCallback(isDisabled: boolean): void {
    this.#isDisabled = isDisabled;
    if (this.#input) this.#input.disabled = isDisabled;
    this.#set();
    this.#addChosen();
  }

  formResetCallback(): void {
    this.#cancel(() => true);
  }

  get #texts(): UploadTexts {
    return { ...this.#defaults, ...this.#translated, ...this.#ownTexts } as UploadTexts;
  }

  get #place(): string {
    return `${this.name} ${this.visitor}`;
  }

  get #input(): HTMLInputElement | null {
    return this.querySelector<HTMLInputElement>("input[type=file]");
  }

  /** The page asks before it stops recording or sending. */
  readonly #warn = (event: Event) => {
    if (this.#runner.items.some((item) => isTake(item) || ["waiting", "sending"].includes(item.state)))
      event.preventDefault();
  };

  /** There may be a connection again, a token, or the recording of a closed tab. */
  readonly #wake = () => {
    this.#set();
    this.#runner.send({ type: "wake" });
  };

  readonly #defer = (event: SubmitEvent) => {
    if (!this.deferSubmit || this.#isDisabled) return;
    this.#submission.defer(event);
    this.#update();
  };

  /** After the form was submitted, a reload must not offer its files again. */
  readonly #forgetSubmitted = (event: Event) => {
    // A script of the page may still prevent the submission.
    setTimeout(() => !event.defaultPrevented && this.#runner.send({ type: "submit" }));
  };

  #createHost(): Host {
    return {
      uploads: this.#runner,
      text: (name, item) => this.#text(name, item),
      announce: (name, item) => this.#announce(name, item),
      remove: (id) => this.#access.remove(id),
      focusAdd: () => (this.#input ? this.#chooser.button : this.#recordings.button)?.focus(),
      dispatch: (type, detail) =>
        this.dispatchEvent(new CustomEvent(`upload-${type}`, { detail, bubbles: true, composed: true })),
      report: (type, item) => this.#reporter.dispatch(type, item),
      serviceUrl: () => normalizeUrl(this.url) ?? "",
      bitrate: () => this.bitrate,
      addTexts: (texts) => {
        this.#defaults = { ...texts, ...this.#defaults };
      },
    };
  }

  #createPage(): UploadPage<null> {
    return {
      places: () => (this.hasAttribute("name") ? [placeOf(this.#place), recordingPlaceOf(this.#place)] : []),
      placeOf: (item) => (item.isRecording && !isStored(item) ? recordingPlaceOf : placeOf)(this.#place),
      upload: async ({ key }, file, options) => {
        const id = await this.#access.call(
          (sender) => uploadSource(sender, blobSource(file, file.name), options),
          () => this.#runner.sentBytesOf(key),
        );
        const item = this.#runner.uploads.items.get(key);
        // It was stored before it could be canceled.
        if (item && isLeaving(item)) await this.#access.remove(id).catch(() => {});
        return id;
      },
      cancel: (_, url) =>
        this.#access
          .call((sender) => cancelUpload(sender, url))
          // It may have been stored before.
          .catch(() => this.#access.remove(fileIdIn(url))),
      isTokenRenewed: () => this.#getToken !== undefined,
      follow: (id, signal) => followProcessing(this.#access, id, signal),
      record: (key, bytes) => this.#recordings.record(key, bytes),
      compose: (item, parts) => this.#recordings.compose(item, parts),
      onChange: (before) => {
        for (const item of this.#reporter.report(before)) void this.#sendWaveform(item).catch(() => {});
        this.#update();
      },
      onProgress: (item) => {
        this.#files.show(item, this.#isDisabled);
        this.#reporter.dispatch("progress", item);
      },
    };
  }

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
    this.#set();
    // Chosen before this script was loaded.
    this.#addChosen();
  }

  /** Tells the uploads what the page allows. Until it is loaded, its scripts may still set the URL and the token. */
  #set(): void {
    const isReady = this.#access.isSet || document.readyState === "complete";
    const { multiple = this.multiple, accept = "" } = this.#input ?? {};
    this.#runner.send({ type: "set", isReady, isDisabled: this.#isDisabled, isSingle: !multiple, accept });
  }

  #cancel(isCanceled: (item: FormItem) => boolean): void {
    const keys = this.#runner.items.filter(isCanceled).map(({ key }) => key);
    this.#runner.send({ type: "cancel", keys });
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

  #text(text: string, item?: FormItem): string {
    const { key = "", name = "", size = 0, error } = item ?? {};
    const values: Record<string, string> = {
      name,
      percent: String(Math.floor((100 * this.#runner.sentBytesOf(key)) / Math.max(1, size))),
      message:
        this.#texts[(item && codeOf(item)) ?? ""] ??
        ((error as Partial<Error> | null)?.message || this.#texts.unexpected_error),
    };
    return (this.#texts[text] ?? "").replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
  }

  /** Takes the texts of the element's language, or of the page's when it is connected. */
  async #translate(): Promise<void> {
    const isGerman = () => this.matches(":lang(de)");
    const texts = isGerman() ? (await loadGerman(this.#host.serviceUrl())).GERMAN : undefined;
    // It may have changed in the meantime.
    if (isGerman() !== (texts !== undefined)) return;
    this.#translated = texts;
    this.#update();
  }

  #announce(name: string, item?: FormItem): void {
    this.#announcer.announce(this.#text(name, item));
  }

  async #sendWaveform({ key, id = "" }: FormItem): Promise<void> {
    const file = this.#runner.fileOf(key);
    if (!file || !(await isUnmeasured(file))) return;
    await (await loadSound(this.#host.serviceUrl())).sendWaveform(this.#access, id, file);
  }

  /** Shows the state of everything, and passes ids and validity to the form. */
  #update(): void {
    const { items } = this.#runner;
    this.#files.update(items, this.#isDisabled);
    this.#chooser.update(this.#input, this.#isDisabled, (name) => this.#text(name));
    this.#recordings.update(this.record, this.#isDisabled);
    const state = stateOf(items);
    // A constructor must not set attributes.
    if (this.isConnected && this.dataset.state !== state) this.dataset.state = state;
    const values = new FormData();
    for (const id of this.value) values.append(this.name, id);
    this.submits(this.hasAttribute("name") ? values : null);
    this.#validate();
    this.#submission.update();
    const message = this.#submission.isDue ? this.#text("submitting") : "";
    if (this.#waiting.textContent !== message) this.#waiting.textContent = message;
    this.#waiting.hidden = message === "";
  }

  /** The browser shows the problem at the button that solves it. */
  #validate(): void {
    const { button } = this.#recordings;
    const offered = {
      hasChooser: this.#input !== null,
      hasRecorder: button !== undefined,
      isRequired: this.required,
      isDeferred: this.deferSubmit,
    };
    const blocker = blockerOf(this.#runner.uploads, offered);
    if (!blocker) {
      this.validate({});
      return;
    }
    const { flag, text, anchor } = blocker;
    const parts: Record<string, HTMLElement | undefined> = {
      chooser: this.#chooser.button,
      recorder: button,
      take: button,
    };
    this.validate({ [flag]: true }, this.#text(text), parts[anchor] ?? this.#files.buttonOf(anchor) ?? this.#panel);
  }
}

if (globalThis.customElements && !customElements.get("stowage-upload"))
  customElements.define("stowage-upload", StowageUpload);
