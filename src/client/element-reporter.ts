import { codeOf, type EventType, type FormItem, type Host } from "./element-files.ts";
import { shownState } from "./element-state.ts";
import { isStored, type Uploads } from "./upload-state.ts";

/** Announces what becomes of the items of an element, and dispatches its events. */
export class Reporter {
  readonly #host: Host;
  /** The codes that were announced last, by the keys of their files. */
  readonly #announced = new Map<string, string | undefined>();

  constructor(host: Host) {
    this.#host = host;
  }

  /** @returns the items that are stored since */
  report({ items }: Uploads<null>): FormItem[] {
    const changed = this.#host.uploads.items.filter((item) => {
      const earlier = items.get(item.key);
      return item.state !== earlier?.state || item.error !== earlier.error;
    });
    for (const item of changed) this.#report(item, items.get(item.key));
    return changed.filter(({ key, state }) => state === "stored" && items.has(key));
  }

  dispatch(type: EventType, item: FormItem): void {
    const { key, id, error } = item;
    const { uploads } = this.#host;
    const [file, sentBytes] = [uploads.fileOf(key), uploads.sentBytesOf(key)];
    this.#host.dispatch(type, { file, id, sentBytes, code: codeOf(item), error: error ?? undefined });
  }

  /** @param earlier undefined if the item is new or restored */
  #report(item: FormItem, earlier: FormItem | undefined): void {
    const { key } = item;
    const host = this.#host;
    const state = shownState(item);
    const code = codeOf(item);
    if (state === "recording") host.announce("announceRecording", item);
    if (state === "recorded" && earlier) host.announce("announceRecorded", item);
    if (state === "sending" && !this.#announced.has(key)) {
      this.#announced.set(key, undefined);
      host.announce("announceSending", item);
    }
    if (state === "waiting" && code) {
      if (this.#announced.get(key) !== code) host.announce("announceWaiting", item);
      this.#announced.set(key, code);
      this.dispatch("waiting", item);
    }
    if (state === "failed") {
      host.announce("announceFailed", item);
      this.dispatch("failed", item);
    }
    if (!earlier || !isStored(item)) return;
    this.dispatch(item.state, item);
    if (state === "stored") host.announce("announceStored", item);
  }
}
