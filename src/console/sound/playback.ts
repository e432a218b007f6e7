import { effect, signal } from "@preact/signals";
import type { StoredFile } from "../../client/stowage.ts";
import { client, noteFailure, session } from "../session.ts";
import { UserError } from "../user-error.ts";

/*
 * The one player of the console. It belongs to no page, so a file keeps playing while the user browses.
 */

export type Track = Pick<StoredFile, "_id" | "name" | "mimeType" | "durationSeconds">;

/** Signed URLs expire after an hour. One that is about to expire is not used for a new request. */
const URL_REUSE_MILLISECONDS = 50 * 60_000;
/** A second failure within this distance has another cause than an expired URL. */
const SAME_PLACE_SECONDS = 1;

/** The file in the player; null if it is closed. */
export const track = signal<Track | null>(null);
/** The file of the open page, which the space bar plays. */
export const pageTrack = signal<Track | null>(null);
/** Whether the user wants it to play, even while it loads. */
export const isPlaying = signal(false);
/** In seconds. */
export const position = signal(0);
/** In seconds; 0 if unknown. */
export const duration = signal(0);
export const isMuted = signal(false);
export const speed = signal(1);
export const problem = signal<unknown>(null);

const audio = new Audio();
audio.preload = "metadata";
let signed: { fileId: string; url: string; at: number } | undefined;
/** Where playback starts once the new source is ready; null if the source is ready. */
let startAt: number | null = null;
/** Where the signed URL was renewed last. */
let renewedAt: number | null = null;
let loads = 0;

/** A signed URL of a file. It is reused while the same file is played and measured. */
export async function signedUrl(fileId: string): Promise<string> {
  if (signed?.fileId !== fileId || Date.now() - signed.at > URL_REUSE_MILLISECONDS)
    signed = { fileId, url: await client.peek().files.createSignedUrl(fileId), at: Date.now() };
  return signed.url;
}

async function load(at: number): Promise<void> {
  const file = track.peek();
  if (!file) return;
  const round = ++loads;
  const caller = client.peek();
  startAt = at;
  problem.value = null;
  try {
    const url = await signedUrl(file._id);
    if (round !== loads) return;
    audio.src = url;
    audio.load();
  } catch (error) {
    if (round !== loads) return;
    noteFailure(error, caller);
    isPlaying.value = false;
    problem.value = error;
  }
}

/** Opens a file in the player. Its bytes are requested once it is played. */
function open(file: Track): void {
  loads++;
  audio.pause();
  audio.removeAttribute("src");
  track.value = file;
  position.value = 0;
  duration.value = file.durationSeconds ?? 0;
  isPlaying.value = false;
  problem.value = null;
  startAt = null;
  renewedAt = null;
}

const isOpen = (file: Track) => track.peek()?._id === file._id;

/** Plays a file, or pauses it. */
export function toggle(file: Track): void {
  if (!isOpen(file)) open(file);
  isPlaying.value = !isPlaying.peek();
  if (!isPlaying.peek()) audio.pause();
  else if (!audio.src || problem.peek()) retry();
  // Otherwise it starts, or not, once its source is ready.
  else if (startAt === null) void audio.play().catch(() => {});
}

export function seek(file: Track, seconds: number): void {
  if (!isOpen(file)) open(file);
  position.value = Math.min(Math.max(seconds, 0), duration.peek());
  if (audio.src && startAt === null) audio.currentTime = position.peek();
  else if (audio.src) startAt = position.peek();
}

/** Loads the file again after a failure, and plays it from where it was. */
export function retry(): void {
  renewedAt = null;
  if (problem.peek()) signed = undefined;
  isPlaying.value = true;
  void load(position.peek());
}

export function close(): void {
  loads++;
  audio.pause();
  audio.removeAttribute("src");
  signed = undefined;
  track.value = null;
  isPlaying.value = false;
  problem.value = null;
}

export function setVolume(volume: number): void {
  audio.volume = volume;
}

function explain({ mimeType }: Track): string {
  if (audio.error?.code === MediaError.MEDIA_ERR_NETWORK) return "Playback stopped because the connection was lost.";
  return audio.canPlayType(mimeType)
    ? "Can't play this file here. Download it to listen."
    : `This browser can't play ${mimeType}. Download the file to listen.`;
}

audio.addEventListener("loadedmetadata", () => {
  updateDuration();
  const at = startAt;
  startAt = null;
  if (at) audio.currentTime = at;
  audio.playbackRate = speed.peek();
  if (isPlaying.peek()) void audio.play().catch(() => {});
});
/** Browsers do not know the duration of a live recording. Its metadata may. */
function updateDuration(): void {
  duration.value = Number.isFinite(audio.duration) ? audio.duration : (track.peek()?.durationSeconds ?? 0);
}
audio.addEventListener("durationchange", () => audio.src && updateDuration());
audio.addEventListener("timeupdate", () => {
  if (startAt === null && audio.src) position.value = audio.currentTime;
});
audio.addEventListener("play", () => {
  isPlaying.value = true;
});
audio.addEventListener("pause", () => {
  if (startAt === null) isPlaying.value = false;
});
audio.addEventListener("error", () => {
  const file = track.peek();
  if (!file || !audio.getAttribute("src")) return;
  // An expired URL is replaced. If the new one fails at the same place, the reason is another.
  const at = position.peek();
  const isNew = renewedAt === null || Math.abs(renewedAt - at) >= SAME_PLACE_SECONDS;
  if (isNew) {
    renewedAt = at;
    signed = undefined;
    void load(at);
    return;
  }
  startAt = null;
  isPlaying.value = false;
  problem.value = new UserError(explain(file));
});

const CONTROLS = "input, button, select, textarea, a[href], summary, dialog, [contenteditable]";

/** Connects the player to the page and to the space bar. */
export function startPlayback(): void {
  document.body.append(audio);
  effect(() => {
    if (!session.value) close();
  });
  effect(() => {
    audio.muted = isMuted.value;
    audio.playbackRate = speed.value;
  });
  effect(() => {
    if (!isPlaying.value) return;
    let frame = 0;
    const follow = () => {
      if (startAt === null) position.value = audio.currentTime;
      frame = requestAnimationFrame(follow);
    };
    frame = requestAnimationFrame(follow);
    return () => cancelAnimationFrame(frame);
  });
  document.addEventListener("keydown", (event) => {
    const file = pageTrack.peek() ?? track.peek();
    if (event.key !== " " || !file || event.defaultPrevented || event.repeat) return;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target instanceof Element && event.target.closest(CONTROLS)) return;
    event.preventDefault();
    toggle(file);
  });
}
