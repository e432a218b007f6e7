import { type FileMetadata, type Stowage, StowageError } from "../stowage.ts";

/** One page of events has this many digests. */
const BATCH_FILES = 100;
/** Up to this many files are requested one by one. */
const MAX_SINGLE_FILES = 4;
const MAX_DELAY_MILLISECONDS = 1000;

interface Waiting {
  id: string;
  resolve(sha256: string | null): void;
  reject(error: unknown): void;
}

export const isForbidden = (error: unknown) =>
  error instanceof StowageError && (error.code === "forbidden" || error.code === "insufficient_scope");
export const isAltered = ({ failure }: Pick<FileMetadata, "failure">) =>
  failure?.code === "bytes_altered" || failure?.code === "bytes_missing";

/**
 * Looks up the digests of stored files. One request per file would halve the speed of small uploads. So it reads
 * digests from the event log, 100 per request, and from the file only if the event log has none.
 */
export class Verifier {
  readonly #stowage: Stowage;
  readonly #signal: AbortSignal;
  #waiting: Waiting[] = [];
  #timer: NodeJS.Timeout | undefined;
  #after: Promise<string | undefined>;

  /** `files` is the maximum number of lookups. */
  constructor(stowage: Stowage, signal: AbortSignal, files: number) {
    this.#stowage = stowage;
    this.#signal = signal;
    this.#after = files > MAX_SINGLE_FILES ? this.#latestEvent() : Promise.resolve(undefined);
  }

  /** Returns the stored digest in hex, null if it is not known to this key, or "" if the stored bytes are damaged. */
  digestOf(id: string): Promise<string | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject });
      if (this.#waiting.length >= BATCH_FILES) this.flush();
      this.#timer ??= setTimeout(() => this.flush(), MAX_DELAY_MILLISECONDS);
    });
  }

  /** Looks up at once, without waiting for a full batch. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const batch = this.#waiting.splice(0);
    this.#after = this.#after.then((after) => this.#lookUp(batch, after));
  }

  async #latestEvent(): Promise<string | undefined> {
    try {
      return (await this.#stowage.events.list({ limit: 1 }, { signal: this.#signal }).page()).items[0]?._id;
    } catch {
      return undefined;
    }
  }

  /** @returns the event after which the next batch continues */
  async #lookUp(batch: Waiting[], after: string | undefined): Promise<string | undefined> {
    const waiting = new Map(batch.map((one) => [one.id, one]));
    let last = after;
    try {
      if (waiting.size > MAX_SINGLE_FILES && after !== undefined) {
        const filters = { type: "file.uploaded", order: "asc", after } as const;
        for await (const event of this.#stowage.events.list(filters, { signal: this.#signal })) {
          last = event._id;
          const { sha256 } = event.data;
          if (typeof sha256 !== "string") continue;
          waiting.get(event.subject.id)?.resolve(sha256);
          waiting.delete(event.subject.id);
          if (waiting.size === 0) break;
        }
      }
    } catch {}
    // Not awaited: a slow file must not delay the next batch.
    void this.#requestEach([...waiting.values()]);
    return last;
  }

  async #requestEach(waiting: Waiting[]): Promise<void> {
    for (let at = 0; at < waiting.length; at += MAX_SINGLE_FILES) {
      const some = waiting.slice(at, at + MAX_SINGLE_FILES);
      await Promise.all(some.map(({ id, resolve, reject }) => this.#requestDigest(id).then(resolve, reject)));
    }
  }

  async #requestDigest(id: string): Promise<string | null> {
    try {
      const stored = await this.#stowage.files.get(id, { signal: this.#signal });
      return isAltered(stored) ? "" : stored.sha256;
    } catch (error) {
      // A public key may upload, but read nothing.
      if (isForbidden(error)) return null;
      throw error;
    }
  }
}
