import type { SavedUpload } from "./upload.ts";

/** An unfinished upload in the browser's storage. */
export interface UploadRecord {
  key: string;
  /** When the upload was last saved, in milliseconds. */
  at: number;
  /** The state that the service needs to resume the upload, once it has started. */
  saved?: SavedUpload | undefined;
  /** Days to keep it. Default: 1, after which the service deletes an unfinished upload, too. */
  keptDays?: number;
}

const DAY_MILLISECONDS = 24 * 3_600_000;
/** The limit for all files together, because each takes its size on disk a second time. */
const MAX_SAVED_BYTES = 200_000_000;
/** Records of one transaction. Thousands would block the page for longer than a user notices. */
const BATCH_RECORDS = 500;

interface Stores {
  records: IDBObjectStore;
  files: IDBObjectStore;
}

/** The keys of the parts of a file. */
const partsOf = (key: string) => IDBKeyRange.bound([key], [key, []]);

/**
 * Unfinished uploads in IndexedDB, so that they resume after a reload: their records, and separately the bytes of small
 * files. If the browser denies storage, nothing is saved and nothing fails.
 */
export class BrowserStore<R extends UploadRecord = UploadRecord> {
  readonly #name: string;
  #database: Promise<IDBDatabase> | undefined;
  #lastSave: Promise<unknown> = Promise.resolve();

  constructor(name: string) {
    this.#name = name;
  }

  /** Deletes what the service has deleted, too. @returns the other records; undefined if the browser denies storage */
  async list(): Promise<R[] | undefined> {
    const records = await this.#records();
    const isExpired = ({ at, keptDays = 1 }: R) => Date.now() - at > keptDays * DAY_MILLISECONDS;
    const expired = records?.filter(isExpired).map(({ key }) => key) ?? [];
    if (expired.length > 0) await this.delete(expired);
    return records?.filter((record) => !isExpired(record));
  }

  /** Returns the saved files, by the keys of their uploads. */
  async files(keys: string[]): Promise<Map<string, File>> {
    const found = new Map<string, File>();
    await this.#transactEach(keys, ({ files }, key) => {
      const request: IDBRequest<File | undefined> = files.get(key);
      request.onsuccess = () => request.result && found.set(key, request.result);
    });
    return found;
  }

  /** Returns the parts of a file that `append` has saved. */
  async parts(key: string): Promise<Blob[]> {
    return (await this.#transact<Blob[]>(({ files }) => files.getAll(partsOf(key)))) ?? [];
  }

  /** Saves a part of a file. It has no size limit, because these bytes exist nowhere else. @returns whether it is saved */
  async append(key: string, number: number, part: Blob): Promise<boolean> {
    return (await this.#transact(({ files }) => files.put(part, [key, number]))) !== undefined;
  }

  /**
   * Saves records: what they say replaces what was saved before. Then it saves the bytes of each given file, up to the
   * limit. Without a file, the bytes stay as they are, and `null` deletes them.
   * @returns the keys of the uploads of which the given bytes are saved, or none are needed any more
   */
  async save(uploads: { record: Partial<R> & { key: string }; file?: File | null | undefined }[]): Promise<string[]> {
    // Not after the bytes of earlier uploads: a record that is deleted meanwhile would be saved again.
    const recorded = this.#transactEach(uploads, ({ records, files }, { record, file }) => {
      if (file === null) {
        files.delete(record.key);
        files.delete(partsOf(record.key));
        records.put({ savedBytes: 0, ...record });
        return;
      }
      const request = records.get(record.key);
      request.onsuccess = () => records.put({ savedBytes: 0, ...request.result, ...record });
    });
    const ended = uploads.flatMap(({ record, file }) => (file === null ? [record.key] : []));
    const withFiles = uploads.flatMap(({ record, file }) => (file ? [{ key: record.key, file }] : []));
    if (withFiles.length === 0) return (await recorded) ? ended : [];
    const work = Promise.all([this.#lastSave, recorded]).then(() => this.#saveFiles(withFiles));
    this.#lastSave = work;
    return [...(await work), ...((await recorded) ? ended : [])];
  }

  /** A page that is left right after this call has deleted them. */
  delete(keys: string[]): Promise<boolean> {
    return this.#transactEach(
      keys,
      ({ records, files }, key) => {
        records.delete(key);
        files.delete(key);
        files.delete(partsOf(key));
      },
      // Without it, the transaction ends after an event of its last request, and leaving the page before would undo it.
      ({ records }) => records.transaction.commit(),
    );
  }

  #records(): Promise<(R & { savedBytes: number })[] | undefined> {
    return this.#transact(({ records }) => records.getAll());
  }

  async #saveFiles(uploads: { key: string; file: File }[]): Promise<string[]> {
    const keys = new Set(uploads.map(({ key }) => key));
    let free = MAX_SAVED_BYTES;
    for (const { key, savedBytes } of (await this.#records()) ?? []) if (!keys.has(key)) free -= savedBytes;
    const saved: string[] = [];
    for (const { key, file } of uploads) {
      if (file.size > free) continue;
      // A transaction for each file: one that exceeds the browser's quota must not undo the others.
      const record = await this.#transact(({ records, files }) => {
        const request: IDBRequest<R | undefined> = records.get(key);
        request.onsuccess = () => {
          if (!request.result) return;
          files.put(file, key);
          records.put({ ...request.result, savedBytes: file.size });
        };
        return request;
      });
      if (!record) continue;
      free -= file.size;
      saved.push(key);
    }
    return saved;
  }

  #open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("records", { keyPath: "key" });
        request.result.createObjectStore("files");
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }

  /** Runs `work` in one transaction. @returns its result; undefined if the browser denies it */
  async #transact<T>(work: (stores: Stores) => IDBRequest<T>): Promise<T | undefined> {
    try {
      this.#database ??= this.#open().catch((error) => {
        // The next transaction tries again.
        this.#database = undefined;
        throw error;
      });
      const transaction = (await this.#database).transaction(["records", "files"], "readwrite");
      const request = work({ records: transaction.objectStore("records"), files: transaction.objectStore("files") });
      await new Promise<unknown>((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = reject;
      });
      return request.result;
    } catch {
      return undefined;
    }
  }

  /**
   * Runs `work` for each item, in as many transactions as needed, and `end` at the end of each.
   * @returns whether the browser has allowed all
   */
  async #transactEach<T>(
    items: T[],
    work: (stores: Stores, item: T) => unknown,
    end?: (stores: Stores) => void,
  ): Promise<boolean> {
    let isAllowed = true;
    for (let first = 0; first < items.length; first += BATCH_RECORDS) {
      const count = await this.#transact((stores) => {
        for (const item of items.slice(first, first + BATCH_RECORDS)) work(stores, item);
        const last = stores.records.count();
        end?.(stores);
        return last;
      });
      isAllowed &&= count !== undefined;
    }
    return isAllowed;
  }
}
