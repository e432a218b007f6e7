import { BrowserStore, type UploadRecord } from "./browser-store.ts";
import type { RecordingProperties } from "./recording-file.ts";
import type { UploadState } from "./upload-queue.ts";

/* The data that the upload element keeps in the browser's storage, and for whom. */

/** A file in the browser's storage. */
export interface SavedFile extends UploadRecord {
  /** The element that gets the file after a reload. */
  place: string;
  /** A recording whose bytes are saved in parts. */
  recording?: RecordingProperties & { isSent?: boolean };
  /** A file that the service has, so that the form still submits it. */
  stored?: { id?: string | undefined; name: string; size: number; state: UploadState };
}

/** Files are saved for their element. */
export const savedUploads = new BrowserStore<SavedFile>("stowage-upload");

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
    // The browser denies all storage.
    return "";
  }
}

/** Identifies an element in any tab: a recording must survive its tab. */
export const recordingPlaceOf = (name: string) => `recordings ${location.pathname} ${name}`;

/** Waits until no other tab has a recording. @returns a function that unlocks it */
export const lock = (key: string) =>
  new Promise<() => void>((resolve) => {
    if (!navigator.locks) resolve(() => {});
    else void navigator.locks.request(`stowage-upload ${key}`, () => new Promise<void>((unlock) => resolve(unlock)));
  });
