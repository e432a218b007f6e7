import type { Api } from "./api.ts";
import type { Access } from "./element-access.ts";
import { loadSound } from "./element-load.ts";
import { savedUploads } from "./element-saved.ts";
import { create, createButton } from "./element-view.ts";
import { type ErrorCode, StowageError } from "./errors.ts";
import { isUnmeasured } from "./measured.ts";
import { sleep } from "./retrying.ts";
import { hasStatus, type UploadOptions, uploadSource } from "./upload.ts";
import { type QueuedUpload, UploadProgress, UploadQueue } from "./upload-queue.ts";
import { blobSource } from "./upload-source.ts";
import { cancelUpload } from "./upload-url.ts";

/* The files of an upload element, until the service has processed them. upload-queue.ts sends them. */

/** A file with its row in the list. */
export interface Item extends QueuedUpload {
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

/** The beginning of an item. A stored one has no file. */
export type NewItem = Pick<Item, "key" | "name" | "size" | "file" | "saved"> &
  Partial<Pick<Item, "id" | "state" | "error" | "isRecording">>;

/** The parts of its element that the files need. */
interface Host {
  access: Access;
  serviceUrl(): string;
  /** Whether files may be sent: scripts of the page may set the URL and the token later. */
  isReady(): boolean;
  isDisabled(): boolean;
  isMultiple(): boolean;
  /** Identifies the element after a reload. */
  place(): string;
  text(name: string, item?: Item): string;
  announce(name: string, item: Item): void;
  dispatch(name: "progress" | "waiting" | "stored" | "completed" | "failed", item: Item): void;
  onChange(): void;
  /** Called with the key of a file that is stored, or no longer in the form. */
  onEnd(key: string): void;
  /** Focuses what adds files. */
  focus(): void;
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

export const isUnfinished = ({ state }: Pick<Item, "state">) => state === "waiting" || state === "sending";
const isStored = ({ state }: Item) => state === "stored" || state === "completed";
const codeOf = (error: unknown) =>
  error === null ? undefined : error instanceof StowageError ? error.code : "unexpected_error";

/** Whether a file is one that an input with this `accept` offers. The service decides on a file whose type is unknown. */
export function isAccepted({ name, type }: File, accept: string): boolean {
  const rules = accept
    .toLowerCase()
    .split(",")
    .map((rule) => rule.trim())
    .filter(Boolean);
  const fits = (rule: string) => {
    if (rule.startsWith(".")) return name.toLowerCase().endsWith(rule);
    return type === "" || type === rule || (rule.endsWith("/*") && type.startsWith(rule.slice(0, -1)));
  };
  return rules.length === 0 || rules.some(fits);
}

type Status = Api["GET /docs/v1/uploads/{id}/status"]["response"];
const readStatus = async (response: Response) => ((await response.json()) as Status).data;

export class ElementFiles {
  readonly element = create("ul", "list");
  readonly items = new Set<Item>();
  readonly #host: Host;
  readonly #queue: UploadQueue<Item>;

  constructor(host: Host) {
    this.#host = host;
    this.element.role = "list";
    this.#queue = new UploadQueue<Item>(savedUploads, {
      uploads: () => (host.isReady() ? this.items : []),
      upload: (item, file, options) => this.#upload(item, file, options),
      cancel: (_, url) => host.access.call((sender) => cancelUpload(sender, url)),
      isTemporary: (error) => host.access.isTemporary(error),
      onChange: (item) => this.#showChange(item),
    });
  }

  /** The ids of the files that the service has. */
  get ids(): string[] {
    return [...this.items].flatMap(({ id, state }) => (id && state !== "failed" ? [id] : []));
  }

  /**
   * Adds files, and retries failed ones that are added again. Unless there may be several, a file replaces the one before.
   * @returns those to send
   */
  add(given: NewItem[]): Item[] {
    const isMultiple = this.#host.isMultiple();
    const added = given.slice(0, isMultiple ? undefined : 1);
    // The same file, chosen again, continues.
    if (added[0] && !isMultiple) for (const item of this.items) if (item.key !== added[0].key) this.cancel(item);
    const sent: Item[] = [];
    for (const one of added) {
      const known = [...this.items].find(({ key }) => key === one.key);
      if (known && known.state !== "failed") continue;
      const item = known ?? this.#createItem(one);
      this.items.add(item);
      this.element.append(item.row);
      if (one.state === "failed") {
        this.#showChange(Object.assign(item, one));
        continue;
      }
      sent.push(item);
      if (!known) continue;
      known.file = one.file;
      this.#queue.retry([known]);
    }
    this.start();
    return sent;
  }

  /** Sends what waits, and follows what is stored. */
  start(): void {
    this.#queue.start();
    for (const item of this.#host.isReady() ? this.items : [])
      if (item.state === "stored" && item.id && !item.isFollowed) void this.#follow(item, item.id);
    this.#host.onChange();
  }

  /** Tries at once what waits for a connection, when there may be one again. */
  wake(): void {
    this.#queue.wake();
    this.start();
  }

  /** Takes a file out of the form, and the bytes of an unfinished upload from the service. */
  cancel(item: Item, isAnnounced = false): void {
    const { row, key } = item;
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const hasFocus = row.matches(":focus-within");
    this.items.delete(item);
    this.#host.onEnd(key);
    row.remove();
    if (hasFocus) {
      const button = next?.querySelector<HTMLElement>("button:not([hidden])");
      if (button) button.focus();
      else this.#host.focus();
    }
    if (isAnnounced) this.#host.announce("announceCanceled", item);
    if (isStored(item)) {
      item.stop.abort();
      void savedUploads.delete([key]);
    } else this.#queue.cancel(item);
    this.start();
  }

  /** The element was removed. */
  stop(): void {
    for (const item of this.items) {
      item.stop.abort();
      item.isFollowed = false;
    }
  }

  /** The button by which the user resolves what the first file in this state needs. */
  buttonOf(state: string): HTMLButtonElement | undefined {
    const item = [...this.items].find((one) => (state === "failed" ? one.state === state : isUnfinished(one)));
    return item && (item.retry.hidden ? item.cancel : item.retry);
  }

  show(): void {
    for (const item of this.items) this.#show(item);
  }

  #createItem(given: NewItem): Item {
    const progress = create("progress", "progress");
    progress.ariaLabel = given.name;
    const name = create("span", "name", new Text(given.name));
    const status = create("span", "status");
    const retry = createButton("retry", () => {
      this.#queue.retry([item]);
      item.cancel.focus();
    });
    const cancel = createButton("cancel", () => this.cancel(item, true));
    const row = create("li", "item", name, progress, status, retry, cancel);
    const view = { row, progress, status, retry, cancel };
    const item: Item = { ...new UploadProgress(), isRecording: false, isFollowed: false, ...given, ...view };
    return item;
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
      this.#host.dispatch("progress", item);
    };
    return this.#host.access.call(
      (sender) => uploadSource(sender, blobSource(file, file.name), { ...options, onProgress }),
      () => item.sentBytes,
    );
  }

  /** Shows and reports the new state of an item. */
  #showChange(item: Item): void {
    // It was canceled.
    if (!this.items.has(item)) return;
    const { key, error } = item;
    item.code = codeOf(error);
    if (item.state === "interrupted") item.state = "failed";
    this.#host.onChange();
    const { state, code } = item;
    if (state === "sending" && !item.announced) this.#host.announce("announceSending", item);
    if (state === "waiting" && code) {
      if (code !== item.announced) this.#host.announce("announceWaiting", item);
      item.announced = code;
      this.#host.dispatch("waiting", item);
    }
    if (state === "failed") {
      // A recording exists nowhere else, so only the user deletes it.
      if (!item.isRecording && !hasStatus(error, 401)) void savedUploads.delete([key]);
      this.#host.announce("announceFailed", item);
      this.#host.dispatch("failed", item);
    }
    if (state !== "stored" && state !== "completed") return;
    // After a reload, the form still has the file.
    const { id, name, size } = item;
    const stored = { id, name, size, state };
    void savedUploads.replace({ key, place: this.#host.place(), at: Date.now(), stored });
    this.#host.dispatch(state, item);
    if (state === "completed") return;
    this.#host.onEnd(key);
    this.#host.announce("announceStored", item);
    this.start();
    void this.#sendWaveform(item).catch(() => {});
  }

  /** Sends the waveform of a stored file, if the service does not measure it. Nothing else needs it. */
  async #sendWaveform({ id = "", file }: Item): Promise<void> {
    if (!file || !(await isUnmeasured(file))) return;
    const { sendWaveform } = await loadSound(this.#host.serviceUrl());
    await sendWaveform(this.#host.access, id, file);
  }

  /** Waits until the service has processed a stored file. */
  async #follow(item: Item, id: string): Promise<void> {
    item.isFollowed = true;
    if (item.stop.signal.aborted) item.stop = new AbortController();
    const { signal } = item.stop;
    const { access } = this.#host;
    const end = performance.now() + FOLLOW_MILLISECONDS;
    try {
      for (
        let delay = FIRST_POLL_MILLISECONDS;
        performance.now() < end;
        delay = Math.min(delay * 1.3, MAX_POLL_MILLISECONDS)
      ) {
        const found = await access
          .call((sender) => sender.stream(`/docs/v1/uploads/${id}/status`, { signal }, readStatus))
          .catch((error) => {
            if (!access.isTemporary(error)) throw error;
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

  #show(item: Item): void {
    const { state, row, progress, status, retry, cancel, name, size, sentBytes, code } = item;
    const isInterrupted = state === "waiting" && code !== undefined;
    row.setAttribute("part", `item ${state}`);
    progress.max = Math.max(1, size);
    progress.value = sentBytes;
    progress.hidden = !isUnfinished(item);
    status.textContent = this.#host.text(isInterrupted ? "interrupted" : state, item);
    retry.hidden = !isInterrupted && (state !== "failed" || FINAL_CODES.has(code));
    for (const [button, name_] of [
      [retry, "retry"] as const,
      [cancel, isStored(item) ? "remove" : "cancel"] as const,
    ]) {
      button.textContent = this.#host.text(name_);
      button.ariaLabel = `${button.textContent} ${name}`;
      button.disabled = this.#host.isDisabled();
    }
  }
}
