import type { BrowserStore } from "./browser-store.ts";
import { StowageError } from "./errors.ts";
import { hasStatus, RESUMABLE_BYTES, type SavedUpload, type UploadOptions, type UploadStore } from "./upload.ts";

/*
 * The uploads of a page, which the console and the upload element share.
 *
 *   waiting -> sending -> stored        all bytes have arrived. Then the page may set completed, or failed
 *      ^          +-----> failed        rejected, until the user retries
 *      |          +-----> interrupted   the browser can't read the file any more: the user has to select it again
 *      +----------+                     no connection, token or service: tried again as long as the page lives
 *   any but stored -> canceling -> canceled, or stored if it completed before it could be canceled
 */

export type UploadState =
  | "waiting"
  | "sending"
  | "interrupted"
  | "canceling"
  | "canceled"
  | "failed"
  | "stored"
  | "completed";

/** The state of a new upload. */
export class UploadProgress {
  state: UploadState = "waiting";
  sentBytes = 0;
  /** Why it failed, or why it waits. */
  error: unknown = null;
  /** The id of the stored file. */
  id?: string | undefined;
  /** The data that resume the upload. */
  saved?: SavedUpload | undefined;
  /** Attempts that failed since bytes were sent. */
  failures = 0;
  /** When to try again, as a time of `performance`. */
  retryAt = 0;
  stop = new AbortController();
}

/** An upload of the queue. The page itself asks whether a stored file is completed. */
export interface QueuedUpload extends UploadProgress {
  /** Identifies the upload in the browser's storage. */
  key: string;
  name: string;
  size: number;
  /** Undefined if it must be selected again, and once it is no longer needed. */
  file?: File | undefined;
}

interface QueueHost<U> {
  /** The uploads in the order in which they are sent; none while nothing may be sent. */
  uploads(): Iterable<U>;
  /** @returns the id of the file */
  upload(upload: U, file: File, options: UploadOptions): Promise<string>;
  cancel(upload: U, url: string): Promise<unknown>;
  /** Whether the same upload may succeed later, without the user. */
  isTemporary(error: unknown): boolean;
  /** Called after an upload has changed its state. */
  onChange(upload: U, before: UploadState): void;
}

/** Browsers send at most six requests to a host at a time, and the page needs some. */
const MAX_SENDING = 3;
/** Between attempts, which the client itself repeats for some seconds. */
const FIRST_RETRY_MILLISECONDS = 4000;
const MAX_RETRY_MILLISECONDS = 60_000;

/** The file was edited, moved, or deleted on disk. */
const fileLost = () =>
  new StowageError("file_unreadable", "Your browser lost access to this file. Select it again to resume.");

const isReadable = (file: File): Promise<boolean> =>
  file
    .slice(0, 1)
    .arrayBuffer()
    .then(
      () => true,
      () => false,
    );

const fileIdIn = (uploadUrl: string) => uploadUrl.slice(uploadUrl.lastIndexOf("/") + 1).split(".")[0];

export class UploadQueue<U extends QueuedUpload> {
  readonly #store: Pick<BrowserStore, "update" | "delete">;
  readonly #host: QueueHost<U>;
  /** How many uploads are being sent. */
  sending = 0;

  constructor(store: Pick<BrowserStore, "update" | "delete">, host: QueueHost<U>) {
    this.#store = store;
    this.#host = host;
  }

  /** Sends what waits, up to the limit. */
  start(): void {
    for (const upload of this.#host.uploads()) {
      if (this.sending >= MAX_SENDING) return;
      const { state, file, retryAt } = upload;
      if (state === "waiting" && file && retryAt <= performance.now()) void this.#send(upload, file);
    }
  }

  /** Tries at once what waits for its next attempt: there may be a connection again. */
  wake(): void {
    for (const upload of this.#host.uploads()) Object.assign(upload, { failures: 0, retryAt: 0 });
    this.start();
  }

  /** Sends uploads that have failed, or wait after a failure. */
  retry(uploads: U[]): void {
    for (const upload of uploads) {
      Object.assign(upload, { failures: 0, retryAt: 0 });
      this.#change(upload, { state: "waiting", error: null });
    }
    this.start();
  }

  /**
   * Cancels an upload, and deletes its stored bytes. Without an upload URL, it continues until it has one, or its bytes would
   * stay on the service for a day. A small file, which has none, continues once it is sent, because it may be stored.
   * The browser's storage forgets it at once, because the same file may be added again, under the same key.
   */
  cancel(upload: U): void {
    const { state, size, sentBytes, saved, stop } = upload;
    this.#change(upload, { state: "canceling", error: null });
    void this.#store.delete([upload.key]);
    if (state !== "sending") void this.#discard(upload);
    else if (saved?.url || (size < RESUMABLE_BYTES && sentBytes < size)) stop.abort();
  }

  async #discard(upload: U): Promise<void> {
    const url = upload.saved?.url;
    try {
      if (url) await this.#host.cancel(upload, url);
      this.#change(upload, { state: "canceled" });
    } catch (error) {
      if (url && hasStatus(error, 403)) this.#change(upload, { state: "stored", id: fileIdIn(url) });
      else this.#change(upload, { state: "failed", error });
    }
  }

  async #send(upload: U, file: File): Promise<void> {
    const { key } = upload;
    const stop = new AbortController();
    upload.stop = stop;
    this.#change(upload, { state: "sending", error: null });
    try {
      const options = { store: this.#storeOf(upload), storeKey: key, signal: stop.signal };
      const id = await this.#host.upload(upload, file, options);
      this.#change(upload, { state: "stored", id, failures: 0 });
    } catch (error) {
      if ((upload.state as UploadState) === "canceling") await this.#discard(upload);
      else if (stop.signal.aborted) this.#change(upload, { state: "waiting" });
      else if (!(await isReadable(file)))
        this.#change(upload, { state: "interrupted", file: undefined, error: fileLost() });
      else if (this.#host.isTemporary(error)) this.#postpone(upload, error);
      else this.#change(upload, { state: "failed", error });
    }
    this.start();
  }

  /** Keeps what resumes an upload: in memory, and for a reload in the browser's storage. */
  #storeOf(upload: U): UploadStore {
    const { key } = upload;
    const keep = (saved?: SavedUpload) => {
      upload.saved = saved;
      if (upload.state !== "canceling") void this.#store.update([key], { saved, at: Date.now() });
    };
    return {
      // Reading the storage would wait until the bytes of all files are saved.
      get: () => upload.saved,
      set: (_, saved) => {
        keep(saved);
        if (saved.url && upload.state === "canceling") upload.stop.abort();
      },
      delete: () => keep(),
    };
  }

  #postpone(upload: U, error: unknown): void {
    const ceiling = Math.min(MAX_RETRY_MILLISECONDS, FIRST_RETRY_MILLISECONDS * 2 ** upload.failures++);
    const delay = ceiling * (0.5 + Math.random() / 2);
    upload.retryAt = performance.now() + delay;
    // A timer may fire a little early.
    setTimeout(() => this.start(), delay + 10);
    this.#change(upload, { state: "waiting", error });
  }

  #change(upload: U, changes: Partial<QueuedUpload> & { state: UploadState }): void {
    const { state: before } = upload;
    this.sending += Number(changes.state === "sending") - Number(before === "sending");
    Object.assign(upload, changes);
    this.#host.onChange(upload, before);
  }
}
