import { computed } from "@preact/signals";
import type { FileMetadata } from "../../client/index.ts";
import { type QueuedUpload, UploadProgress } from "../../client/upload-queue.ts";
import { speak } from "../framework/announce.tsx";
import { session } from "../framework/session.ts";
import { tabSignal } from "../framework/signals.ts";
import { countOf } from "../parts/format.ts";
import { type SavedRecord, savedUploads } from "./saved.ts";

/* The uploads of the console, independent of any page. client/upload-queue.ts sends them. */

export interface Upload extends QueuedUpload, Pick<SavedRecord, "owner" | "path" | "folder" | "lastModified"> {
  bytesPerSecond: number;
  /** The stored file. Its type is known once it is processed. */
  stored?: Pick<FileMetadata, "_id" | "status" | "failure"> & Partial<Pick<FileMetadata, "fileType">>;
}

/** Results of uploads that end within this time share one announcement. */
const ANNOUNCEMENT_MILLISECONDS = 1000;

/** The uploads of all users who have signed in to this tab. */
export const all = tabSignal<Upload[]>([]);
/** The uploads of the current user, in the order in which they were added. */
export const uploads = computed(() => all.value.filter(({ owner }) => owner === session.value?.team?.owner));
/** Increments at most once per frame while uploads change, however many there are. */
export const revision = tabSignal(0);
/** How many uploads are being sent, for all users. */
export const sendingCount = tabSignal(0);

/** The stored uploads by the id of their file. */
const byFileId = new Map<string, Upload>();

export const findByFileId = (fileId: string) => byFileId.get(fileId);
/** The current user's uploads that this browser has saved. */
export const unfinishedUploads = () => uploads.peek().filter(({ state }) => state !== "stored");

let frame = 0;
function markChanged(): void {
  if (frame > 0) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    revision.value++;
  });
}

export function change(upload: Upload, changes: Partial<Upload> = {}): void {
  Object.assign(upload, changes);
  if (upload.stored) byFileId.set(upload.stored._id, upload);
  markChanged();
}

export const createUpload = (
  record: Pick<Upload, "key" | "owner" | "name" | "path" | "folder" | "size" | "lastModified" | "saved">,
  file: File | undefined,
  others: Partial<Upload> = {},
): Upload => ({ ...new UploadProgress(), bytesPerSecond: 0, ...record, file, ...others });

export function addUploads(added: Upload[]): void {
  if (added.length > 0) all.value = [...all.peek(), ...added];
}

/** Removes uploads from the list and from the saved ones. */
export function dismiss(dismissed: Upload[]): void {
  const gone = new Set(dismissed);
  all.value = all.peek().filter((upload) => !gone.has(upload));
  for (const { stored } of dismissed) byFileId.delete(stored?._id ?? "");
  void savedUploads.delete(dismissed.map(({ key }) => key));
}

const ended = new Set<Upload>();

/** Whether an upload is being sent, or will be by itself. */
const isActive = ({ state }: Upload) => state === "sending" || state === "waiting";

/** Announces the result of an upload, together with those of all others that are being sent. */
export function announceResult(upload: Upload): void {
  if (ended.size === 0) setTimeout(announceEnded, ANNOUNCEMENT_MILLISECONDS);
  ended.add(upload);
}

function announceEnded(): void {
  if (uploads.peek().some(isActive)) {
    setTimeout(announceEnded, ANNOUNCEMENT_MILLISECONDS);
    return;
  }
  // Another user may have signed in.
  const own = uploads.peek().filter((upload) => ended.has(upload));
  ended.clear();
  const stored = own.filter(({ state }) => state === "stored").length;
  const failed = own.length - stored;
  if (own.length === 1) speak(stored ? `Uploaded ${own[0]?.name}` : `Couldn't upload ${own[0]?.name}`);
  else if (own.length > 1) speak(`${countOf(stored, "file")} uploaded${failed ? `, ${failed} failed` : ""}`);
}
