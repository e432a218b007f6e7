import { computed, effect } from "@preact/signals";
import { RESUMABLE_BYTES, type Stowage, StowageError, type UploadStore } from "../../client/stowage.ts";
import { reconnects } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { client, isExpired, noteFailure, session } from "../session.ts";
import { UserError } from "../user-error.ts";
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
  stateOf,
  type Upload,
  unfinishedUploads,
  uploads,
} from "./upload.ts";

/** Browsers send at most six requests to a host at a time, and the pages need some. */
const MAX_IN_FLIGHT = 3;
/** More files than this at once would take more memory than a phone has. */
const MAX_ADDED_FILES = 10_000;
const FIRST_RETRY_MILLISECONDS = 4000;
const MAX_RETRY_MILLISECONDS = 60_000;

let addedCount = 0;
/** Keys sort in the order in which uploads are added. */
const newKey = () => `${Date.now()}-${String(addedCount++).padStart(7, "0")}-${Math.random()}`;
const isSameFile = (file: File, { size, lastModified }: Upload) =>
  file.size === size && file.lastModified === lastModified;
const fileIdIn = (uploadUrl: string) => uploadUrl.slice(uploadUrl.lastIndexOf("/") + 1).split(".")[0] ?? "";

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
    announce(`Only the first ${MAX_ADDED_FILES.toLocaleString()} files were added. Add the others afterward.`);
  const interrupted = new Map<string, Upload>();
  for (const upload of uploads.peek()) if (stateOf(upload) === "interrupted") interrupted.set(upload.path, upload);
  const added: Upload[] = [];
  for (const one of chosen.slice(0, MAX_ADDED_FILES)) {
    const earlier = interrupted.get(one.path);
    if (earlier && isSameFile(one.file, earlier)) resume(earlier, one.file);
    else added.push(newUpload(one, owner));
  }
  addUploads(added);
  const started = added.flatMap(
    ({ file, progress: _, stop: __, isCanceled: ___, consecutiveFailures: ____, ...upload }) =>
      file ? [{ record: { ...upload, tab, sentBytes: 0, at: Date.now() }, file }] : [],
  );
  void savedUploads.save(started);
  for (const upload of added) if (stateOf(upload) === "failed") announceResult(upload);
  sendNext();
}

function newUpload({ file, path, folder }: ChosenFile, owner: string): Upload {
  const { name, size, lastModified } = file;
  const record = { key: newKey(), owner, name, path, folder, size, lastModified };
  if (size > 0) return createUpload(record, file);
  return createUpload(record, undefined, { state: "failed", error: new UserError("This file is empty (0 bytes).") });
}

/** Resumes an interrupted upload with the file that the user selected. */
export function resume(upload: Upload, file: File): void {
  if (isSameFile(file, upload)) {
    upload.file = file;
    retry(upload);
  } else {
    const message = "That isn't the same file. Select the original to resume, or start over.";
    change(upload, { error: new UserError(message) });
  }
}

export const retry = (upload: Upload) => retryAll([upload]);

export function retryAll(failed: Upload[]): void {
  for (const upload of failed) {
    upload.consecutiveFailures = 0;
    change(upload, { state: "waiting", error: null });
  }
  sendNext();
}

/** Cancels an upload and deletes its stored bytes, unless it is complete. */
export function cancel(upload: Upload): void {
  const isSending = stateOf(upload) === "sending";
  upload.isCanceled = true;
  change(upload, { state: "canceling", error: null });
  if (!isSending) void discard(upload);
  else if (canStop(upload)) upload.stop?.abort();
}

/**
 * Without an upload URL, an upload continues until it has one, or it would stay on the service for a day. A small file,
 * which has none, continues once all of it is sent, because it may be stored.
 */
function canStop({ size, saved, progress }: Upload): boolean {
  if (size < RESUMABLE_BYTES) return progress.peek().sentBytes < size;
  return saved?.url !== undefined;
}

async function discard(upload: Upload): Promise<void> {
  const url = upload.saved?.url;
  const caller = client.peek();
  try {
    if (url) await caller.unfinishedUploads.cancel(url);
    dismiss([upload]);
  } catch (error) {
    noteFailure(error, caller);
    if (url && error instanceof StowageError && error.status === 403) {
      finish(upload, fileIdIn(url), true);
    } else {
      upload.isCanceled = false;
      change(upload, { state: "failed", error });
    }
  }
}

/** Deletes unfinished uploads from this browser. Ending the session cancels them on the service. */
export function discardUnfinished(): void {
  const discarded = unfinishedUploads();
  for (const { stop } of discarded) stop?.abort();
  dismiss(discarded);
}

const canSend = () => session.peek()?.team && !isExpired.peek();
const isReady = ({ progress }: Upload) => {
  const { state, error } = progress.peek();
  return state === "waiting" && error === null;
};

function sendNext(): void {
  if (!canSend() || sendingCount.peek() >= MAX_IN_FLIGHT) return;
  for (const upload of uploads.peek()) {
    if (isReady(upload)) void send(upload);
    if (sendingCount.peek() >= MAX_IN_FLIGHT) return;
  }
}

/** Keeps what resumes an upload: in memory, and for a reload in the browser's storage. */
function storeOf(upload: Upload): UploadStore {
  const keep = (resume: Upload["saved"]) => {
    upload.saved = resume;
    void savedUploads.update([upload.key], { saved: resume, at: Date.now() });
  };
  return {
    get: () => upload.saved,
    set: (_, resume) => {
      keep(resume);
      if (resume.url && upload.isCanceled) upload.stop?.abort();
    },
    delete: () => keep(undefined),
  };
}

async function send(upload: Upload): Promise<void> {
  const file = upload.file as File;
  const stop = new AbortController();
  upload.stop = stop;
  const caller = client.peek();
  change(upload, { state: "sending", bytesPerSecond: 0 });
  try {
    const { id } = await caller.files.upload(file, {
      name: upload.name,
      properties: upload.folder ? { folder: upload.folder } : undefined,
      store: storeOf(upload),
      storeKey: upload.key,
      signal: stop.signal,
      onProgress: measureProgress(upload),
    });
    finish(upload, id, upload.isCanceled);
  } catch (error) {
    if (upload.isCanceled) await discard(upload);
    else if (stop.signal.aborted) change(upload, { state: "waiting" });
    else if (await isReadable(file)) handleFailure(upload, error, caller);
    else handleLostFile(upload);
  }
  sendNext();
}

const isReadable = (file: File): Promise<boolean> =>
  file
    .slice(0, 1)
    .arrayBuffer()
    .then(
      () => true,
      () => false,
    );

/** The file was edited, moved, or deleted on disk. */
function handleLostFile(upload: Upload): void {
  upload.file = undefined;
  const error = new UserError("Your browser lost access to this file. Select it again to resume.");
  change(upload, { state: "interrupted", error });
  announceResult(upload);
}

function handleFailure(upload: Upload, error: unknown, caller: Stowage): void {
  noteFailure(error, caller);
  const { status = 0, isTransient = false } = error instanceof StowageError ? error : {};
  if (status === 401) {
    // It resumes when the same user signs in again.
    change(upload, { state: "waiting" });
  } else if (isTransient) {
    change(upload, { state: "waiting", error });
    const delay = Math.min(MAX_RETRY_MILLISECONDS, FIRST_RETRY_MILLISECONDS * 2 ** upload.consecutiveFailures++);
    setTimeout(() => {
      if (upload.progress.peek().error === error) wake([upload]);
    }, delay);
  } else {
    change(upload, { state: "failed", error });
    announceResult(upload);
  }
}

/** Retries uploads that wait after a failure. */
function wake(waiting: Upload[]): void {
  for (const upload of waiting) {
    if (stateOf(upload) === "waiting" && upload.progress.peek().error !== null) change(upload, { error: null });
  }
  sendNext();
}

function finish(upload: Upload, fileId: string, isLate = false): void {
  if (isLate) announce(`${upload.name} had already finished uploading`);
  upload.isCanceled = false;
  void savedUploads.delete([upload.key]);
  const file = { _id: fileId, status: "pending" as const, failure: null };
  change(upload, { state: "stored", sentBytes: upload.size, error: null, file });
  announceResult(upload);
  void fetchProcessing(upload);
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
        sendNext();
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
    sendNext();
    document.addEventListener("visibilitychange", look, { signal });
    return () => signedOut.abort();
  });
  addEventListener("online", () => wake(uploads.peek()));
  effect(() => {
    if (reconnects.value > 0) wake(uploads.peek());
  });
  const isSending = computed(() => sendingCount.value > 0);
  const warn = (event: Event) => event.preventDefault();
  effect(() => {
    if (isSending.value) addEventListener("beforeunload", warn);
    else removeEventListener("beforeunload", warn);
  });
}
