import { BrowserStore, type UploadRecord } from "../../client/browser-store.ts";

/** An upload in progress, as it is saved to resume after a reload. */
export interface SavedRecord extends UploadRecord {
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
  sentBytes: number;
}

export const savedUploads = new BrowserStore<SavedRecord>("stowage");

/** Each tab holds a lock of this name while it lives. */
const lockName = (tab: string) => `stowage.tab.${tab}`;

/** Identifies this tab until it is reloaded. */
export const tab = `${Date.now()}-${Math.random()}`;

/** Marks this tab as alive until it is closed or reloaded, so that no other tab takes over its uploads. */
export function holdTabLock(): void {
  // Browsers provide locks only over a secure connection.
  void navigator.locks?.request(lockName(tab), () => new Promise<never>(() => {}));
}

/**
 * Waits until another tab is closed, and takes over its uploads. Each upload gets one new tab, even if several wait.
 * @returns the uploads that now belong to this tab
 */
export async function takeOver(otherTab: string, owner: string, signal: AbortSignal): Promise<SavedRecord[]> {
  const claim = async () => {
    const records = await savedUploads.list();
    const claimed = records.filter((record) => record.tab === otherTab && record.owner === owner);
    await savedUploads.update(
      claimed.map(({ key }) => key),
      { tab },
    );
    return claimed;
  };
  if (!navigator.locks) return claim();
  return navigator.locks.request(lockName(otherTab), { signal }, claim);
}
