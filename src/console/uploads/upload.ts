import { computed, type Signal, signal } from "@preact/signals";
import type { FileMetadata } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { countOf } from "../parts/format.ts";
import { session } from "../session.ts";
import { type SavedRecord, savedUploads } from "./saved.ts";

/*
 * The state of all uploads, independent of any page.
 *
 *   waiting -> sending -> stored           all bytes have arrived, and the file is being processed
 *                |  ^---- waiting          the connection failed or the session expired: the upload will resume
 *                +------> failed           rejected, until the user retries
 *   interrupted -> waiting                 started before a reload: the user has to select the file again
 *   any but stored -> canceling -> gone    or stored, if it completed before it could be canceled
 */

export type UploadState = "waiting" | "sending" | "interrupted" | "canceling" | "failed" | "stored";

export interface Progress {
  state: UploadState;
  sentBytes: number;
  bytesPerSecond: number;
  /** Why it failed, or why it waits. */
  error: unknown;
  /** The stored file. Its type is known once it is processed. */
  file?: Pick<FileMetadata, "_id" | "status" | "failure"> & Partial<Pick<FileMetadata, "fileType">>;
}

export interface Upload extends Omit<SavedRecord, "sentBytes" | "tab" | "at"> {
  progress: Signal<Progress>;
  /** Undefined if it must be selected again, and once it is no longer needed. */
  file: File | undefined;
  stop?: AbortController;
  isCanceled: boolean;
  consecutiveFailures: number;
}

/** Results of uploads that end within this time share one announcement. */
const ANNOUNCEMENT_MILLISECONDS = 1000;

/** The uploads of all users who have signed in to this tab. */
export const all = signal<Upload[]>([]);
/** The uploads of the current user, in the order in which they were added. */
export const uploads = computed(() => all.value.filter(({ owner }) => owner === session.value?.team?.owner));
/** Increments at most once per frame while uploads change, however many there are. */
export const revision = signal(0);
/** How many uploads are being sent, for all users. */
export const sendingCount = signal(0);

/** The stored uploads by the id of their file. */
const byFileId = new Map<string, Upload>();

export const stateOf = (upload: Upload) => upload.progress.peek().state;
export const findByFileId = (fileId: string) => byFileId.get(fileId);
/** The current user's uploads that this browser has saved. */
export const unfinishedUploads = () => uploads.peek().filter((upload) => stateOf(upload) !== "stored");

let frame = 0;
function markChanged(): void {
  if (frame > 0) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    revision.value++;
  });
}

export function change(upload: Upload, changes: Partial<Progress>): void {
  const before = upload.progress.peek();
  const after = { ...before, ...changes };
  upload.progress.value = after;
  const sending = Number(after.state === "sending") - Number(before.state === "sending");
  if (sending !== 0) sendingCount.value = sendingCount.peek() + sending;
  if (after.file) byFileId.set(after.file._id, upload);
  markChanged();
}

export function createUpload(
  record: Omit<SavedRecord, "sentBytes" | "tab" | "at">,
  file: File | undefined,
  progress: Partial<Progress> = {},
): Upload {
  const initial: Progress = { state: "waiting", sentBytes: 0, bytesPerSecond: 0, error: null, ...progress };
  return { ...record, file, progress: signal(initial), isCanceled: false, consecutiveFailures: 0 };
}

export function addUploads(added: Upload[]): void {
  if (added.length > 0) all.value = [...all.peek(), ...added];
}

/** Removes uploads from the list and from the saved ones. */
export function dismiss(dismissed: Upload[]): void {
  const gone = new Set(dismissed);
  all.value = all.peek().filter((upload) => !gone.has(upload));
  for (const { progress } of dismissed) byFileId.delete(progress.peek().file?._id ?? "");
  void savedUploads.delete(dismissed.map(({ key }) => key));
}

const ended = new Set<Upload>();

/** Whether an upload is being sent, or will be by itself. */
const isActive = (upload: Upload) => stateOf(upload) === "sending" || stateOf(upload) === "waiting";

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
  const stored = own.filter((upload) => stateOf(upload) === "stored").length;
  const failed = own.length - stored;
  if (own.length === 1) announce(stored ? `Uploaded ${own[0]?.name}` : `Couldn't upload ${own[0]?.name}`);
  else if (own.length > 1) announce(`${countOf(stored, "file")} uploaded${failed ? `, ${failed} failed` : ""}`);
}
