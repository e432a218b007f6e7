import { computed, effect } from "@preact/signals";
import { type Stowage, StowageError } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { Refusal } from "../refusal.ts";
import { client, hasEnded, noteFailure, session } from "../session.ts";
import { find, findFile, forgetOld, hold, type Kept, keep, keepFile } from "./kept.ts";
import { look } from "./processing.ts";
import { all, change, dismiss, letGo, notice, put, stateOf, type Upload, unfinished, uploads } from "./upload.ts";

const AT_ONCE = 3;
const SHOW_MILLISECONDS = 250;
const KEEP_MILLISECONDS = 1000;
const PRELOAD_MILLISECONDS = 1000;
/** Speed is that of the last seconds. */
const SPEED_MILLISECONDS = 5000;
const FIRST_DELAY_MILLISECONDS = 4000;
const MAX_DELAY_MILLISECONDS = 60_000;
/** For a reason that passes, as that of any 5xx may: what is stored stays, so that trying again does no harm. */
const PASSING_STATUSES = [408, 423, 429];

/** Taken up in this tab, or just being so. */
const known = new Set<string>();

let begun = 0;
/** In the order in which uploads are begun. */
const newKey = () => `${Date.now()}-${String(begun++).padStart(7, "0")}-${Math.random()}`;
const isOf = (file: File, { size, lastModified }: Upload) => file.size === size && file.lastModified === lastModified;
const fileIdOf = (address: string) => address.slice(address.lastIndexOf("/") + 1).split(".")[0] ?? "";
const keepUpload = ({ key, owner, name, path, size, lastModified, address, progress }: Upload) =>
  keep({ key, owner, name, path, size, lastModified, address, sentBytes: progress.peek().sentBytes });

export interface Chosen {
  file: File;
  /** From the folder on that was chosen. */
  path: string;
}

/** Begins to send files, and goes on with those among them that were interrupted. */
export function add(files: Chosen[]): void {
  const owner = session.peek()?.team?.owner;
  if (!owner) return;
  for (const { file, path } of files) {
    const earlier = uploads
      .peek()
      .find((one) => stateOf(one) === "interrupted" && one.path === path && isOf(file, one));
    if (earlier) goOn(earlier, file);
    else begin(file, path, owner);
  }
  sendNext();
}

function begin(file: File, path: string, owner: string): void {
  const key = newKey();
  const { name, size, lastModified } = file;
  const record = { key, owner, name, path, size, lastModified };
  if (size === 0) {
    const error = new Refusal("This file is empty: there is nothing to upload.");
    notice(put(record, undefined, { state: "failed", error }));
    return;
  }
  known.add(key);
  const upload = put(record, file, {});
  void hold(key).then((release) => {
    if (release) upload.release = release;
    if (!all.peek().includes(upload) || stateOf(upload) === "stored") upload.release();
  });
  void keepUpload(upload);
  void keepFile(key, file);
}

/** Goes on with an interrupted upload, whose file somebody has chosen. */
export function goOn(upload: Upload, file: File): void {
  if (isOf(file, upload)) {
    upload.file = file;
    retry(upload);
  } else {
    change(upload, { error: new Refusal(`“${file.name}” is not the file that was begun, or was changed since.`) });
  }
}

export function retry(upload: Upload): void {
  upload.breaks = 0;
  change(upload, { state: "waiting", error: null });
  sendNext();
}

/** Ends an upload and removes what is stored of it, unless it is complete: then it stays. */
export function cancel(upload: Upload): void {
  const isSending = stateOf(upload) === "sending";
  upload.isCancelled = true;
  change(upload, { state: "cancelling", error: null });
  if (!isSending) void giveUp(upload);
  // Without an address it goes on until it has one: else what is just being created would stay for a day, unknown.
  else if (upload.address) upload.stop?.abort();
}

async function giveUp(upload: Upload): Promise<void> {
  const { address } = upload;
  const asked = client.peek();
  try {
    if (address) await asked.files.discard(address);
    dismiss(upload);
  } catch (error) {
    noteFailure(error, asked);
    upload.isCancelled = false;
    if (address && error instanceof StowageError && error.status === 403) {
      announce(`“${upload.name}” was complete before it could be cancelled.`);
      end(upload, fileIdOf(address));
    } else {
      change(upload, { state: "failed", error });
    }
  }
}

/** Keeps nothing of them in this browser. What arrived of them, the service forgets by itself. */
export function forgetUnfinished(): void {
  for (const upload of unfinished.peek()) {
    upload.stop?.abort();
    dismiss(upload);
  }
}

function sendNext(): void {
  if (!session.peek()?.team || hasEnded.peek()) return;
  const free = AT_ONCE - uploads.peek().filter((one) => stateOf(one) === "sending").length;
  const isReady = (one: Upload) => stateOf(one) === "waiting" && one.progress.peek().error === null;
  if (free > 0) for (const upload of uploads.peek().filter(isReady).slice(0, free)) void send(upload);
}

async function send(upload: Upload): Promise<void> {
  const file = upload.file as File;
  const stop = new AbortController();
  upload.stop = stop;
  const asked = client.peek();
  change(upload, { state: "sending", bytesPerSecond: 0 });
  try {
    const { id } = await asked.files.upload(file, {
      name: upload.name,
      resumableFromBytes: 1,
      resumeFrom: upload.address,
      signal: stop.signal,
      onResumable: (address) => {
        upload.address = address;
        void keepUpload(upload);
        if (upload.isCancelled) stop.abort();
      },
      onProgress: measure(upload),
    });
    end(upload, id);
  } catch (error) {
    if (upload.isCancelled) await giveUp(upload);
    else if (stop.signal.aborted) change(upload, { state: "waiting" });
    else if (await isReadable(file)) fail(upload, error, asked);
    else lose(upload);
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

/** The file was changed, moved or removed where it lies. */
function lose(upload: Upload): void {
  upload.file = undefined;
  change(upload, { state: "interrupted", error: new Refusal("The browser can no longer read this file.") });
  notice(upload);
}

/** What is told of an upload's bytes becomes its progress and its speed. */
function measure(upload: Upload): (sentBytes: number) => void {
  let samples: { at: number; sentBytes: number }[] = [];
  let keptAt = performance.now();
  return (told) => {
    const now = { at: performance.now(), sentBytes: Math.min(told, upload.size) };
    const last = samples.at(-1);
    // What did not arrive is sent again.
    if (last && now.sentBytes < last.sentBytes) samples = [];
    else if (last && now.at - last.at < SHOW_MILLISECONDS && now.sentBytes < upload.size) return;
    samples = [...samples.filter(({ at }) => now.at - at < SPEED_MILLISECONDS), now];
    const first = samples[0] ?? now;
    const bytes = now.sentBytes - first.sentBytes;
    if (bytes > 0) upload.breaks = 0;
    change(upload, { sentBytes: now.sentBytes, bytesPerSecond: bytes && (bytes * 1000) / (now.at - first.at) });
    if (now.at - keptAt < KEEP_MILLISECONDS) return;
    keptAt = now.at;
    void keepUpload(upload);
  };
}

function fail(upload: Upload, error: unknown, asked: Stowage): void {
  noteFailure(error, asked);
  const { code, status } = error instanceof StowageError ? error : { code: "", status: 0 };
  if (status === 401) {
    // It goes on when the same person signs in again.
    change(upload, { state: "waiting" });
  } else if (code === "connection_failed" || PASSING_STATUSES.includes(status) || status >= 500) {
    change(upload, { state: "waiting", error });
    const delay = Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** upload.breaks++);
    setTimeout(() => upload.progress.peek().error === error && wake(upload), delay);
  } else {
    change(upload, { state: "failed", error });
    notice(upload);
  }
}

function wake(upload: Upload): void {
  if (stateOf(upload) !== "waiting") return;
  change(upload, { error: null });
  sendNext();
}

function end(upload: Upload, id: string): void {
  letGo(upload);
  const file = { _id: id, status: "pending" as const, failure: null };
  change(upload, { state: "stored", sentBytes: upload.size, error: null, file });
  notice(upload);
  void look(upload);
}

/** Takes up what was under way when the page was closed, and is not under way in another tab. */
async function restore(owner: string): Promise<void> {
  for (const { key, ...record } of await forgetOld()) {
    if (record.owner !== owner || known.has(key)) continue;
    known.add(key);
    void hold(key).then(async (release) => {
      const record = release && (await find(key));
      if (record) {
        await take(record, release);
      } else {
        known.delete(key);
        release?.();
      }
    });
  }
}

async function take({ sentBytes, ...record }: Kept, release: () => void): Promise<void> {
  const file = await findFile(record.key);
  put(record, file, { sentBytes, state: file ? "waiting" : "interrupted" }).release = release;
  sendNext();
}

/** From the start of the page, for whoever signs in. */
export function followQueue(): void {
  // Whoever comes, also where nobody signs in.
  void forgetOld();
  const owner = computed(() => (hasEnded.value ? undefined : session.value?.team?.owner));
  const takeUp = () => {
    if (owner.peek() && !document.hidden) void restore(owner.peek() ?? "");
  };
  effect(() => {
    if (owner.value) {
      takeUp();
      sendNext();
      // Now, since the server may have another version by the time it is needed. The client asks for it again if this fails.
      setTimeout(() => import("tus-js-client").catch(() => {}), PRELOAD_MILLISECONDS);
    } else {
      for (const { stop } of all.peek()) stop?.abort();
    }
  });
  document.addEventListener("visibilitychange", takeUp);
  addEventListener("online", () => {
    for (const upload of uploads.peek()) wake(upload);
  });
  const isSending = computed(() => unfinished.value.some(({ progress }) => progress.value.state === "sending"));
  const warn = (event: Event) => event.preventDefault();
  effect(() => {
    if (isSending.value) addEventListener("beforeunload", warn);
    else removeEventListener("beforeunload", warn);
  });
}
