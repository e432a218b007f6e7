import { computed, effect } from "@preact/signals";
import { StowageError } from "../../client/index.ts";
import { UploadQueue } from "../../client/upload-queue.ts";
import { announce } from "../framework/announce.tsx";
import { UserError } from "../framework/errors.ts";
import { reconnects } from "../framework/live.ts";
import { call, isExpired, session } from "../framework/session.ts";
import { countOf } from "../parts/format.ts";
import { fetchProcessing } from "./processing.ts";
import { holdTabLock, savedUploads, tab, takeOver } from "./saved.ts";
import { measureProgress } from "./speed.ts";
import {
  addUploads,
  all,
  announceResult,
  change,
  createUpload,
  dismiss,
  sendingCount,
  type Upload,
  unfinishedUploads,
  uploads,
} from "./upload.ts";

/** More files than this at once would take more memory than a phone has. */
const MAX_ADDED_FILES = 10_000;

let addedCount = 0;
/** Keys sort in the order in which uploads are added. */
const newKey = () => `${Date.now()}-${String(addedCount++).padStart(7, "0")}-${Math.random()}`;
const isSameFile = (file: File, { size, lastModified }: Upload) =>
  file.size === size && file.lastModified === lastModified;

export const queue = new UploadQueue<Upload>(savedUploads, {
  uploads: () => (session.peek()?.team && !isExpired.peek() ? uploads.peek() : []),
  upload: async (upload, file, options) => {
    const { name, folder } = upload;
    const given = { ...options, name, ...(folder && { properties: { folder } }), onProgress: measureProgress(upload) };
    return (await call(({ files }) => files.upload(file, given))).id;
  },
  cancel: (_, url) => call(({ unfinishedUploads }) => unfinishedUploads.cancel(url)),
  // It resumes when the same user signs in again.
  isTemporary: (error) => error instanceof StowageError && (error.isTransient || error.status === 401),
  onChange: (upload, before) => {
    change(upload);
    sendingCount.value = queue.sending;
    const { state, id = "", key, name, size } = upload;
    if (state === "canceled") dismiss([upload]);
    if (before === "sending" && (state === "failed" || state === "interrupted")) announceResult(upload);
    if (state !== "stored") return;
    if (before === "canceling") announce(`${name} had already finished uploading`);
    void savedUploads.delete([key]);
    change(upload, { sentBytes: size, stored: { _id: id, status: "pending", failure: null } });
    announceResult(upload);
    void fetchProcessing(upload);
  },
});

export interface ChosenFile {
  file: File;
  /** The path within the chosen folder. */
  path: string;
  folder: string;
}

/** Starts to upload files, and resumes those that were interrupted. */
export function addFiles(chosen: ChosenFile[]): void {
  const owner = session.peek()?.team?.owner;
  if (!owner) return;
  if (chosen.length > MAX_ADDED_FILES)
    announce(`Only the first ${countOf(MAX_ADDED_FILES, "file")} were added. Add the others afterward.`);
  const interrupted = new Map<string, Upload>();
  for (const upload of uploads.peek()) if (upload.state === "interrupted") interrupted.set(upload.path, upload);
  const added: Upload[] = [];
  for (const one of chosen.slice(0, MAX_ADDED_FILES)) {
    const earlier = interrupted.get(one.path);
    if (earlier && isSameFile(one.file, earlier)) resume(earlier, one.file);
    else added.push(uploadOf(one, owner));
  }
  addUploads(added);
  const started = added.flatMap(({ file, key, name, path, folder, size, lastModified }) =>
    file
      ? [{ record: { key, owner, tab, name, path, folder, size, lastModified, sentBytes: 0, at: Date.now() }, file }]
      : [],
  );
  void savedUploads.save(started);
  for (const upload of added) if (upload.state === "failed") announceResult(upload);
  queue.start();
}

function uploadOf({ file, path, folder }: ChosenFile, owner: string): Upload {
  const { name, size, lastModified } = file;
  const record = { key: newKey(), owner, name, path, folder, size, lastModified };
  if (size > 0) return createUpload(record, file);
  return createUpload(record, undefined, { state: "failed", error: new UserError("This file is empty (0 bytes).") });
}

/** Resumes an interrupted upload with the file that the user selected. */
export function resume(upload: Upload, file: File): void {
  if (isSameFile(file, upload)) {
    upload.file = file;
    queue.retry([upload]);
  } else {
    const message = "That isn't the same file. Select the original to resume, or start over.";
    change(upload, { error: new UserError(message) });
  }
}

/** Deletes unfinished uploads from this browser. Ending the session cancels them on the service. */
export function discardUnfinished(): void {
  const discarded = unfinishedUploads();
  for (const { stop } of discarded) stop?.abort();
  dismiss(discarded);
}

/** The tabs whose end this tab is waiting for. */
const awaitedTabs = new Set<string>();

/** Resumes the user's uploads of a closed tab, or of this tab before its reload. */
async function resumeSaved(owner: string, signal: AbortSignal): Promise<void> {
  const records = await savedUploads.list();
  const tabs = new Set(records.filter((record) => record.owner === owner).map((record) => record.tab));
  for (const other of tabs) {
    if (other === tab || awaitedTabs.has(other) || signal.aborted) continue;
    awaitedTabs.add(other);
    takeOver(other, owner, signal)
      .then(async (taken) => {
        const files = await savedUploads.files(taken.map(({ key }) => key));
        const resumed = taken.map(({ sentBytes, ...record }) => {
          const file = files.get(record.key);
          return createUpload(record, file, { sentBytes, state: file ? "waiting" : "interrupted" });
        });
        addUploads(resumed);
        queue.start();
      })
      // Aborted at sign-out. The next sign-in waits again.
      .catch(() => {})
      .finally(() => awaitedTabs.delete(other));
  }
}

/** Starts the queue, which resumes saved uploads for each user who signs in. */
export function startQueue(): void {
  holdTabLock();
  // Covers the records of all users, even without a sign-in.
  void savedUploads.list();
  const owner = computed(() => (isExpired.value ? undefined : session.value?.team?.owner));
  effect(() => {
    const current = owner.value;
    if (!current) {
      for (const { stop } of all.peek()) stop?.abort();
      return;
    }
    const signedOut = new AbortController();
    const { signal } = signedOut;
    const look = () => {
      if (!document.hidden) void resumeSaved(current, signal);
    };
    look();
    queue.start();
    document.addEventListener("visibilitychange", look, { signal });
    return () => signedOut.abort();
  });
  addEventListener("online", () => queue.wake());
  effect(() => {
    if (reconnects.value > 0) queue.wake();
  });
  addEventListener("beforeunload", (event) => queue.sending > 0 && event.preventDefault());
}
