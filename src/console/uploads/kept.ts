/*
 * What this browser keeps of uploads that are under way, so that they go on after the page was closed: what they are, and
 * apart from that their bytes where they are few. Where the browser refuses, nothing is kept, and nothing fails.
 */

export interface Kept {
  key: string;
  /** Who began it, and alone may go on: the session's. */
  owner: string;
  name: string;
  /** Its place in the folder that was chosen, with its name: what is shown. */
  path: string;
  size: number;
  lastModified: number;
  /** Of the resumable upload. It holds a secret. */
  address?: string | undefined;
  sentBytes: number;
}

/** After which the service forgets an upload too. */
const HOURS = 24;
/** Of all files together: each is copied onto the disk once more. */
const MAX_BYTES = 200_000_000;

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

/** @returns what `work` asked for; undefined where it can't be had */
async function within<T>(work: (stores: Stores) => IDBRequest<T>): Promise<T | undefined> {
  try {
    database ??= open().catch((error) => {
      // The next one tries again.
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

export async function keep(record: Kept): Promise<void> {
  await within(({ records }) => records.put({ ...record, at: Date.now() }));
}

export async function keepFile(key: string, file: File): Promise<void> {
  if (file.size > MAX_BYTES) return;
  await within(({ files }) => {
    const request: IDBRequest<File[]> = files.getAll();
    request.onsuccess = () => {
      const keptBytes = request.result.reduce((sum, { size }) => sum + size, 0);
      if (keptBytes + file.size <= MAX_BYTES) files.put(file, key);
    };
    return request;
  });
}

export async function forget(key: string): Promise<void> {
  await within(({ records, files }) => {
    files.delete(key);
    return records.delete(key);
  });
}

export const find = (key: string): Promise<Kept | undefined> =>
  within<Kept | undefined>(({ records }) => records.get(key));

export const findFile = (key: string): Promise<File | undefined> =>
  within<File | undefined>(({ files }) => files.get(key));

/** Forgets what the service has forgotten too, of all people. @returns what stays */
export async function forgetOld(): Promise<Kept[]> {
  const records = (await within<(Kept & { at: number })[]>(({ records }) => records.getAll())) ?? [];
  const isOld = ({ at }: { at: number }) => Date.now() - at > HOURS * 3_600_000;
  await Promise.all(records.filter(isOld).map(({ key }) => forget(key)));
  return records.filter((record) => !isOld(record));
}

/** Takes an upload for this tab alone, until what is answered is called. Null where another tab has it. */
export function hold(key: string): Promise<(() => void) | null> {
  return new Promise((resolve) => {
    // Browsers have locks only where the connection is secure.
    if (!navigator.locks) return resolve(() => {});
    // A page that was just loaded anew may have to wait for what it was before.
    const signal = AbortSignal.timeout(HOLD_MILLISECONDS);
    const held = () => new Promise<void>((release) => resolve(release));
    navigator.locks.request(`stowage.upload.${key}`, { signal }, held).catch(() => resolve(null));
  });
}

const HOLD_MILLISECONDS = 2000;
