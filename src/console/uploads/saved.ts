/*
 * Uploads in progress are saved in IndexedDB, so that they resume after a reload: their records, and separately the bytes
 * of small files. If the browser denies storage, nothing is saved and nothing fails.
 */

export interface SavedUpload {
  key: string;
  /** The user who started it. Nobody else may resume it. */
  owner: string;
  /** The tab that sends it. */
  tab: string;
  name: string;
  /** The path within the chosen folder, including the name. */
  path: string;
  /** The folder of the stored file; empty outside all folders. */
  folder: string;
  size: number;
  lastModified: number;
  /** The upload URL. It contains a secret. */
  url?: string | undefined;
  sentBytes: number;
}

/** The record as it is stored. */
interface StoredUpload extends SavedUpload {
  at: number;
  /** The size of the file if its bytes are saved too. */
  savedBytes: number;
}

/** The service deletes an unfinished upload after the same time. */
const RETENTION_HOURS = 24;
/** The limit for all files together, because each takes its size on disk a second time. */
const MAX_SAVED_BYTES = 200_000_000;
/** Records of one transaction. Thousands would block the page for longer than a user notices. */
const BATCH_RECORDS = 500;
/** Each tab holds a lock of this name while it lives. */
const lockName = (tab: string) => `stowage.tab.${tab}`;

/** Identifies this tab until it is reloaded. */
export const tab = `${Date.now()}-${Math.random()}`;

type Stores = { records: IDBObjectStore; files: IDBObjectStore };

let database: Promise<IDBDatabase> | undefined;

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("stowage", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("records", { keyPath: "key" });
      request.result.createObjectStore("files");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Runs `work` in one transaction. @returns its result; undefined if the browser denies it */
async function transact<T>(work: (stores: Stores) => IDBRequest<T>): Promise<T | undefined> {
  try {
    database ??= open().catch((error) => {
      // The next transaction tries again.
      database = undefined;
      throw error;
    });
    const transaction = (await database).transaction(["records", "files"], "readwrite");
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

/** Runs `work` for each item, in as many transactions as needed. */
async function transactInBatches<T>(items: T[], work: (stores: Stores, item: T) => unknown): Promise<void> {
  for (let first = 0; first < items.length; first += BATCH_RECORDS) {
    await transact((stores) => {
      for (const item of items.slice(first, first + BATCH_RECORDS)) work(stores, item);
      return stores.records.count();
    });
  }
}

const readRecords = async () =>
  (await transact<StoredUpload[]>(({ records }: Stores) => records.getAll())) ?? ([] as StoredUpload[]);

/** Changes a record unless it has been deleted. */
function updateRecord(records: IDBObjectStore, key: string, changes: Partial<StoredUpload>): IDBRequest {
  const request: IDBRequest<StoredUpload | undefined> = records.get(key);
  request.onsuccess = () => request.result && records.put({ ...request.result, ...changes });
  return request;
}

let lastSave: Promise<void> = Promise.resolve();

/** Saves new uploads: first all records, then the bytes of each file, up to the limit. */
export function saveUploads(uploads: { record: SavedUpload; file: File }[]): Promise<void> {
  const at = Date.now();
  // Not after the bytes of earlier uploads: a record that is deleted meanwhile would be saved again.
  const recorded = transactInBatches(uploads, ({ records }, { record }) =>
    records.put({ ...record, at, savedBytes: 0 }),
  );
  lastSave = Promise.all([lastSave, recorded]).then(async () => {
    let free = (await readRecords()).reduce((sum, { savedBytes }) => sum - savedBytes, MAX_SAVED_BYTES);
    for (const { record, file } of uploads) {
      if (file.size > free) continue;
      // A transaction for each file: one that exceeds the browser's quota must not undo the others.
      const saved = await transact(({ records, files }) => {
        const request: IDBRequest<StoredUpload | undefined> = records.get(record.key);
        request.onsuccess = () => {
          if (!request.result) return;
          files.put(file, record.key);
          records.put({ ...request.result, savedBytes: file.size });
        };
        return request;
      });
      if (saved) free -= file.size;
    }
  });
  return lastSave;
}

export async function updateUpload(
  key: string,
  changes: Partial<Pick<SavedUpload, "url" | "sentBytes">>,
): Promise<void> {
  await transact(({ records }) => updateRecord(records, key, { ...changes, at: Date.now() }));
}

export const deleteUploads = (keys: string[]): Promise<void> =>
  transactInBatches(keys, ({ records, files }, key) => {
    records.delete(key);
    files.delete(key);
  });

/** Finds the saved files, by the keys of their uploads. */
export async function findFiles(keys: string[]): Promise<Map<string, File>> {
  const found = new Map<string, File>();
  await transactInBatches(keys, ({ files }, key) => {
    const request: IDBRequest<File | undefined> = files.get(key);
    request.onsuccess = () => request.result && found.set(key, request.result);
  });
  return found;
}

/** Deletes what the service has deleted too, for all users. @returns the other records */
export async function deleteExpired(): Promise<SavedUpload[]> {
  const records = await readRecords();
  const isExpired = ({ at }: StoredUpload) => Date.now() - at > RETENTION_HOURS * 3_600_000;
  const expired = records.filter(isExpired).map(({ key }) => key);
  if (expired.length > 0) await deleteUploads(expired);
  return records.filter((record) => !isExpired(record));
}

/** Marks this tab as alive until it is closed or reloaded, so that no other tab takes over its uploads. */
export function holdTabLock(): void {
  // Browsers provide locks only over a secure connection.
  void navigator.locks?.request(lockName(tab), () => new Promise<never>(() => {}));
}

/**
 * Waits until another tab is closed, and takes over its uploads. Each upload gets one new tab, even if several wait.
 * @returns the uploads that now belong to this tab
 */
export async function takeOver(otherTab: string, owner: string, signal: AbortSignal): Promise<SavedUpload[]> {
  const claim = async () => {
    const records = await readRecords();
    const claimed = records.filter((record) => record.tab === otherTab && record.owner === owner);
    await transactInBatches(claimed, ({ records }, record) => records.put({ ...record, tab }));
    return claimed;
  };
  if (!navigator.locks) return claim();
  return navigator.locks.request(lockName(otherTab), { signal }, claim);
}
