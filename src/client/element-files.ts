import { filesOf, shownState } from "./element-state.ts";
import { create, createButton } from "./element-view.ts";
import { StowageError } from "./errors.ts";
import type { UploadRunner } from "./upload-runner.ts";
import { type Item, isFinal, isStored, type UploadState } from "./upload-state.ts";

/* The list of files of an upload element. upload-state.ts says what happens to them. */

export type FormItem = Item<null>;

export type EventType = UploadState | "progress" | "kept";

/** The element, for its parts. */
export interface Host {
  readonly uploads: UploadRunner<null>;
  serviceUrl(): string;
  /** The bits per second of a recording. */
  bitrate(): number;
  /** Texts that are loaded later. */
  addTexts(texts: Record<string, string>): void;
  text(name: string, item?: FormItem): string;
  announce(name: string, item: FormItem): void;
  /** Deletes a stored file, if the token may. Rejects if the service keeps it nevertheless. */
  remove(id: string): Promise<void>;
  /** Focuses what adds files. */
  focusAdd(): void;
  dispatch(type: EventType, detail: UploadDetail): void;
  /** Dispatches an event of an item. */
  report(type: EventType, item: FormItem): void;
}

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

interface Row {
  element: HTMLLIElement;
  progress: HTMLProgressElement;
  status: HTMLElement;
  retry: HTMLButtonElement;
  cancel: HTMLButtonElement;
}

export const codeOf = ({ error }: Pick<FormItem, "error">): string | undefined =>
  error === null ? undefined : error instanceof StowageError ? error.code : "unexpected_error";

export class ElementFiles {
  readonly element = create("ul", "list");
  readonly #host: Host;
  readonly #rows = new Map<string, Row>();
  /** The texts that say why the service keeps files that the user has removed. */
  readonly #kept = new Map<string, string>();

  constructor(host: Host) {
    this.#host = host;
    this.element.role = "list";
  }

  /** The button by which the user resolves what a file needs. */
  buttonOf(key: string): HTMLButtonElement | undefined {
    const row = this.#rows.get(key);
    return row && (row.retry.hidden ? row.cancel : row.retry);
  }

  update(items: Iterable<FormItem>, isDisabled: boolean): void {
    const files = filesOf(items);
    for (const item of files) this.show(item, isDisabled);
    const keys = new Set(files.map(({ key }) => key));
    for (const [key, row] of this.#rows) if (!keys.has(key)) this.#remove(key, row);
  }

  show(item: FormItem, isDisabled: boolean): void {
    const { key, name, size, error } = item;
    const state = shownState(item);
    let row = this.#rows.get(key);
    if (!row) {
      row = this.#createRow(item);
      this.#rows.set(key, row);
      this.element.append(row.element);
    }
    const { element, progress, status, retry, cancel } = row;
    const isInterrupted = state === "waiting" && error !== null;
    element.setAttribute("part", `item ${state}`);
    progress.max = Math.max(1, size);
    progress.value = this.#host.uploads.sentBytesOf(key);
    progress.hidden = state !== "waiting" && state !== "sending";
    status.textContent = this.#host.text(this.#kept.get(key) ?? (isInterrupted ? "interrupted" : state), item);
    retry.hidden = !isInterrupted && (state !== "failed" || isFinal(item));
    for (const [button, text] of [[retry, "retry"] as const, [cancel, isStored(item) ? "remove" : "cancel"] as const]) {
      button.textContent = this.#host.text(text);
      button.ariaLabel = `${button.textContent} ${name}`;
      button.disabled = isDisabled;
    }
  }

  #createRow(item: FormItem): Row {
    const { key, name } = item;
    const progress = create("progress", "progress");
    progress.ariaLabel = name;
    const status = create("span", "status");
    const retry = createButton("retry", () => {
      this.#host.uploads.send({ type: "retry", keys: [key] });
      cancel.focus();
    });
    const cancel = createButton("cancel", () => this.#cancel(key));
    const element = create("li", "item", create("span", "name", new Text(name)), progress, status, retry, cancel);
    return { element, progress, status, retry, cancel };
  }

  /** Takes a file out of the form once the service has deleted it, if the token may delete files. */
  async #cancel(key: string): Promise<void> {
    const host = this.#host;
    const item = host.uploads.uploads.items.get(key);
    if (!item) return;
    try {
      if (item.id !== undefined) await host.remove(item.id);
      host.announce("announceCanceled", item);
      host.uploads.send({ type: "cancel", keys: [key] });
    } catch (error) {
      const kept = { ...item, error };
      const text = codeOf(kept) === "forbidden" ? "used" : "notRemoved";
      this.#kept.set(key, text);
      host.uploads.send({ type: "wake" });
      host.announce(text, kept);
      host.report("kept", kept);
    }
  }

  /** A row that goes leaves the focus to its neighbor. */
  #remove(key: string, { element }: Row): void {
    const next = element.nextElementSibling ?? element.previousElementSibling;
    const hasFocus = element.matches(":focus-within");
    this.#rows.delete(key);
    element.remove();
    if (!hasFocus) return;
    const button = next?.querySelector<HTMLElement>("button:not([hidden])");
    if (button) button.focus();
    else this.#host.focusAdd();
  }
}
