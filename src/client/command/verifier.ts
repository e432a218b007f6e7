import { type FileMetadata, type Stowage, StowageError } from "../stowage.ts";

/** So many digests come with one page of the trail. */
const BATCH_FILES = 100;
/** So few are asked for one by one. */
const MAX_SINGLE_FILES = 4;
const MAX_DELAY_MILLISECONDS = 1000;

interface Waiting {
  id: string;
  resolve(sha256: string | null): void;
  reject(error: unknown): void;
}

export const isForbidden = (error: unknown) => error instanceof StowageError && error.code === "forbidden";
export const isAltered = ({ failure }: FileMetadata) =>
  failure?.code === "bytes_altered" || failure?.code === "bytes_missing";

/**
 * Asks what the service has stored. A request for each file would cost a small one half of its speed, so digests are
 * read from the trail of events, a hundred with one request, and from the file itself where the trail has none.
 */
export class Verifier {
  readonly #stowage: Stowage;
  readonly #signal: AbortSignal;
  #waiting: Waiting[] = [];
  #timer: NodeJS.Timeout | undefined;
  #after: Promise<string | undefined>;

  /** `files`: how many may be asked for. */
  constructor(stowage: Stowage, signal: AbortSignal, files: number) {
    this.#stowage = stowage;
    this.#signal = signal;
    this.#after = files > MAX_SINGLE_FILES ? this.#latestEvent() : Promise.resolve(undefined);
  }

  /** @returns the digest of what is stored in hex; null where this key may not know, "" where nothing good is stored */
  digestOf(id: string): Promise<string | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject });
      if (this.#waiting.length >= BATCH_FILES) this.flush();
      this.#timer ??= setTimeout(() => this.flush(), MAX_DELAY_MILLISECONDS);
    });
  }

  /** Waits for no others to ask for. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const batch = this.#waiting.splice(0);
    this.#after = this.#after.then((after) => this.#answer(batch, after));
  }

  async #latestEvent(): Promise<string | undefined> {
    try {
      return (await this.#stowage.events.list({ limit: 1 }, { signal: this.#signal }).page()).items[0]?._id;
    } catch {
      return undefined;
    }
  }

  /** @returns the event to read on behind */
  async #answer(batch: Waiting[], after: string | undefined): Promise<string | undefined> {
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
    for (const one of waiting.values()) await this.#fromFile(one.id).then(one.resolve, one.reject);
    return last;
  }

  async #fromFile(id: string): Promise<string | null> {
    try {
      const stored = await this.#stowage.files.get(id, { signal: this.#signal });
      if (isAltered(stored)) return "";
      if (stored.sha256 !== null) return stored.sha256;
      return (await this.#stowage.files.waitFor(id, { signal: this.#signal })).sha256 ?? "";
    } catch (error) {
      // A public key may upload, and see nothing.
      if (isForbidden(error)) return null;
      throw error;
    }
  }
}
