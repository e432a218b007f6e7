import type { SavedUpload, UploadStore } from "./upload.ts";

/*
 * Unfinished uploads in IndexedDB: what the service needs to resume them, and the files themselves, so that they resume
 * after a reload. If the browser denies storage, nothing is saved and nothing fails.
 */

interface SavedFile {
  file: File;
  place: string;
  at: number;
}

/** The service deletes an unfinished upload after the same time. */
const RETENTION_MILLISECONDS = 24 * 3_600_000;
/** The limit for all files together, because each takes its size on disk a second time. */
const MAX_SAVED_BYTES = 200_000_000;

type Stores = { uploads: IDBObjectStore; files: IDBObjectStore };

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("stowage-upload", 1);
    request.onupgradeneeded = () => {
      for (const name of ["uploads", "files"]) request.result.createObjectStore(name);
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Runs `work` in one transaction. @returns its result; undefined if the browser denies it */
async function transact<T>(work: (stores: Stores) => IDBRequest<T>): Promise<T | undefined> {
  let database: IDBDatabase | undefined;
  try {
    database = await open();
    const transaction = database.transaction(["uploads", "files"], "readwrite");
    const request = work({ uploads: transaction.objectStore("uploads"), files: transaction.objectStore("files") });
    await new Promise<unknown>((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = reject;
    });
    return request.result;
  } catch {
    return undefined;
  } finally {
    database?.close();
  }
}

/** A store for the option `store` of an upload. Deleting an upload also deletes its file. */
export const browserStore: UploadStore = {
  get: (key) => transact<SavedUpload | undefined>(({ uploads }) => uploads.get(key)),
  set: (key, upload) => transact(({ uploads }) => uploads.put(upload, key)),
  delete: (key) =>
    transact(({ uploads, files }) => {
      files.delete(key);
      return uploads.delete(key);
    }),
};

/**
 * Identifies an element of this tab, also after a reload. Another tab or a later visitor never gets its files.
 * @param name the element's name in the form
 */
export function placeOf(name: string): string {
  try {
    const tab = sessionStorage.getItem("stowage.upload") ?? crypto.getRandomValues(new Uint32Array(4)).join("");
    sessionStorage.setItem("stowage.upload", tab);
    return `${tab} ${location.pathname} ${name}`;
  } catch {
    return "";
  }
}

const readFiles = (work: (stores: Stores, key: string, saved: SavedFile) => void) =>
  transact(({ files, uploads }) => {
    const request = files.openCursor();
    request.onsuccess = () => {
      const { result } = request;
      if (!result) return;
      work({ files, uploads }, String(result.key), result.value);
      result.continue();
    };
    return request;
  });

/** Saves the file of an upload until `browserStore` deletes the upload. */
export async function saveFile(key: string, place: string, file: File): Promise<void> {
  let free = MAX_SAVED_BYTES - file.size;
  await readFiles((_, other, { file: { size } }) => {
    if (other !== key) free -= size;
  });
  if (free >= 0 && place) await transact(({ files }) => files.put({ file, place, at: Date.now() }, key));
}

/** Deletes what has expired. @returns the unfinished files of a place, in the order of their keys */
export async function findFiles(place: string): Promise<File[]> {
  const found: File[] = [];
  await readFiles(({ files, uploads }, key, saved) => {
    if (Date.now() - saved.at > RETENTION_MILLISECONDS) {
      files.delete(key);
      uploads.delete(key);
    } else if (saved.place === place && place) found.push(saved.file);
  });
  return found;
}
