import { computed, type Signal, signal } from "@preact/signals";
import type { FileMetadata } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { session } from "../session.ts";
import { forget, type Kept } from "./kept.ts";

/*
 * What is to be sent, is being sent and was sent: independent of any page. An upload goes
 *
 *   waiting -> sending -> stored           its bytes are there, and it is being processed
 *                |  ^---- waiting          the line broke, or the key ended: it goes on from where it was
 *                +------> failed           refused, until somebody tries again
 *   interrupted -> waiting                 begun before this page was loaded: it needs its file again
 *   any but stored -> cancelling -> gone   or stored, where it was complete before it could be cancelled
 */

export interface Progress {
  state: "waiting" | "sending" | "interrupted" | "cancelling" | "failed" | "stored";
  sentBytes: number;
  bytesPerSecond: number;
  /** Why it failed, or why it waits. */
  error: unknown;
  /** Of what is stored. */
  file?: Pick<FileMetadata, "_id" | "status" | "failure">;
}

export interface Upload extends Omit<Kept, "sentBytes"> {
  progress: Signal<Progress>;
  /** Until it is no longer needed. */
  file: File | undefined;
  stop?: AbortController;
  isCancelled: boolean;
  /** So often in a row the line broke. */
  breaks: number;
  /** Lets other tabs have it. */
  release: () => void;
}

const NOTICE_MILLISECONDS = 1000;

/** Of all who were signed in to this page. */
export const all = signal<Upload[]>([]);
/** Of whoever is signed in, in the order in which they came. */
export const uploads = computed(() => all.value.filter(({ owner }) => owner === session.value?.team?.owner));
/** What this browser keeps something of. */
export const unfinished = computed(() => uploads.value.filter(({ progress }) => progress.value.state !== "stored"));

export const stateOf = (upload: Upload) => upload.progress.peek().state;

export function change(upload: Upload, changes: Partial<Progress>): void {
  upload.progress.value = { ...upload.progress.peek(), ...changes };
}

export function put(record: Omit<Kept, "sentBytes">, file: File | undefined, progress: Partial<Progress>): Upload {
  const initial: Progress = { state: "waiting", sentBytes: 0, bytesPerSecond: 0, error: null, ...progress };
  const upload = { ...record, file, progress: signal(initial), isCancelled: false, breaks: 0, release: () => {} };
  all.value = [...all.peek(), upload];
  return upload;
}

/** No longer shown, and nothing kept of it in this browser. */
export function dismiss(upload: Upload): void {
  all.value = all.peek().filter((one) => one !== upload);
  letGo(upload);
}

/** Nothing is kept of it for a later page. */
export function letGo(upload: Upload): void {
  void forget(upload.key);
  upload.release();
}

const noticed = new Set<Upload>();

const isUnderWay = ({ progress }: Upload) => {
  const { state, error } = progress.peek();
  return state === "sending" || (state === "waiting" && error === null);
};

/** Says how an upload ended, once for all that are sent together. */
export function notice(upload: Upload): void {
  if (noticed.size === 0) setTimeout(tellNoticed, NOTICE_MILLISECONDS);
  noticed.add(upload);
}

function tellNoticed(): void {
  if (uploads.peek().some(isUnderWay)) {
    setTimeout(tellNoticed, NOTICE_MILLISECONDS);
    return;
  }
  // Of whoever is signed in by now.
  const told = uploads.peek().filter((one) => noticed.has(one));
  noticed.clear();
  const done = told.filter((one) => stateOf(one) === "stored").length;
  const failed = told.length - done;
  if (told.length === 1) announce(`“${told[0]?.name}” ${done ? "was uploaded" : "could not be uploaded"}.`);
  else if (told.length > 1)
    announce(`${done} ${done === 1 ? "file was" : "files were"} uploaded${failed ? `, ${failed} could not be` : ""}.`);
}
