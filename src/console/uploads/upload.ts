import { computed } from "@preact/signals";
import type { FileMetadata } from "../../client/index.ts";
import type { UploadRunner } from "../../client/upload-runner.ts";
import type { Item } from "../../client/upload-state.ts";
import { speak } from "../framework/announce.tsx";
import { session } from "../framework/session.ts";
import { tabSignal } from "../framework/signals.ts";
import { countOf } from "../parts/format.ts";

/* The uploads of the console as its card shows them, independent of any page. */

/** The properties of a file that the console needs besides its bytes, also after a reload. */
export interface Details {
  /** The path within the chosen folder, including the name. */
  path: string;
  /** The folder of the stored file; empty outside all folders. */
  folder: string;
  lastModified: number;
}

export interface Upload extends Item<Details> {
  /** The user who started it. */
  owner: string;
  runner: UploadRunner<Details>;
  path: string;
  file?: File | undefined;
  sentBytes: number;
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
export function markChanged(): void {
  if (frame > 0) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    revision.value++;
  });
}

export function change(upload: Upload, changes: Partial<Upload>): void {
  Object.assign(upload, changes);
  if (upload.stored) byFileId.set(upload.stored._id, upload);
  markChanged();
}

const byKey = new Map<string, Upload>();

/** Shows the state of an item, which may be new. */
export function show(runner: UploadRunner<Details>, owner: string, item: Item<Details>): Upload {
  const { key, name, details } = item;
  const upload = byKey.get(key) ?? {
    ...item,
    owner,
    runner,
    path: details?.path ?? name,
    sentBytes: 0,
    bytesPerSecond: 0,
  };
  Object.assign(upload, item, { file: runner.fileOf(key), sentBytes: runner.sentBytesOf(key) });
  byKey.set(key, upload);
  return upload;
}

/** Shows which uploads there are, if that has changed. */
export function list(gone: string[]): void {
  for (const key of gone) {
    byFileId.delete(byKey.get(key)?.stored?._id ?? "");
    byKey.delete(key);
  }
  if (gone.length > 0 || byKey.size !== all.peek().length) all.value = [...byKey.values()];
}

const keysOf = (some: Upload[]) => some.map(({ key }) => key);
/** Tries uploads of a user again. */
export const retry = (some: Upload[]) => some[0]?.runner.send({ type: "retry", keys: keysOf(some) });
/** Cancels uploads of a user, or takes stored ones out of the list. */
export const cancel = (some: Upload[]) => some[0]?.runner.send({ type: "cancel", keys: keysOf(some) });

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
