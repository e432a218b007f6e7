import type { StoredFile } from "../../client/index.ts";
import { addShortcuts } from "../framework/keys.ts";
import { pageSignal, tabSignal } from "../framework/signals.ts";
import { setting } from "../framework/storage.ts";

/*
 * The state of the one player of the console, or of the page of a link, and its keys. It belongs to no page, so files keep
 * playing, one after the other, while the user browses. playback.ts follows this state once it is loaded, so nothing that
 * the user asks for before is lost.
 */

export type Track = Pick<StoredFile, "_id" | "name" | "folder" | "mimeType" | "durationSeconds" | "artist" | "peaks">;

/** After this time, "previous" starts the same file again. */
const RESTART_SECONDS = 3;
/** The steps of the keys, and of the keys with Shift. */
export const STEP_SECONDS = 5;
export const PAGE_SECONDS = 30;
export const SPEEDS = [0.8, 1, 1.2, 1.5, 1.8, 2, 2.5];

/** Whether browsers may be able to play a file. */
export const isPlayable = ({ mimeType, size, status }: Pick<StoredFile, "mimeType" | "size" | "status">): boolean =>
  /^(audio|video)\//.test(mimeType) && size > 0 && status !== "failed";

/** The file in the player; null if it is closed. */
export const track = tabSignal<Track | null>(null);
/** The files to play one after the other: the list from which the present one was started. */
const playlist = tabSignal<Track[]>([]);
/** The file of the open page, which the space bar plays. */
export const pageTrack = pageSignal<Track | null>(null);
/** Whether the user wants it to play, even while it loads. */
export const isPlaying = tabSignal(false);
/** In seconds. */
export const position = tabSignal(0);
/** Increments when the user moves the position. */
export const seeks = tabSignal(0);
/** In seconds; 0 if unknown. */
export const duration = tabSignal(0);
export const isMuted = tabSignal(false);
export const speed = setting("speed", 1);

/** Puts a file into the player. Its bytes are requested once it is played. */
function open(file: Track): void {
  isPlaying.value = false;
  track.value = file;
  position.value = 0;
  duration.value = file.durationSeconds ?? 0;
}

const isOpen = (file: Track) => track.peek()?._id === file._id;

/** The present moment of a file in seconds: its start if another one is in the player. */
export const momentOf = (file: Track): number => (isOpen(file) ? position.peek() : 0);

/** Plays a file, or pauses it. @param from the list that is played on after it */
export function toggle(file: Track, from?: Track[]): void {
  if (from) playlist.value = from;
  if (!isOpen(file)) open(file);
  isPlaying.value = !isPlaying.peek();
}

export function seek(file: Track, seconds: number): void {
  if (!isOpen(file)) open(file);
  position.value = Math.min(Math.max(seconds, 0), duration.peek() || seconds);
  seeks.value++;
}

/** Plays a file from a moment. */
export function playFrom(file: Track, seconds: number, from: Track[]): void {
  seek(file, seconds);
  playlist.value = from;
  if (!isPlaying.peek()) toggle(file);
}

export function skip(seconds: number): void {
  const file = track.peek();
  if (file) seek(file, position.peek() + seconds);
}

/** The file after the present one in its list, or before it. */
export function neighbor(step: 1 | -1): Track | undefined {
  const place = playlist.value.findIndex(({ _id }) => _id === track.value?._id);
  return place < 0 ? undefined : playlist.value[place + step];
}

export function playNext(step: 1 | -1 = 1): void {
  const current = track.peek();
  const next = neighbor(step);
  if (step < 0 && current && (!next || position.peek() > RESTART_SECONDS)) seek(current, 0);
  else if (next) toggle(next);
}

export function close(): void {
  isPlaying.value = false;
  track.value = null;
}

function changeSpeed(step: 1 | -1): void {
  const place = SPEEDS.findIndex((value) => value >= speed.peek());
  speed.value = SPEEDS[Math.min(Math.max(place + step, 0), SPEEDS.length - 1)] ?? 1;
}

const CONTROLS = "input, button, select, textarea, a[href], summary, dialog, [contenteditable]";

/** Makes keys control the player on every page. */
export function followPlayerKeys(): void {
  const step = (sign: 1 | -1) => (event: KeyboardEvent) => {
    if (!track.peek()) return;
    event.preventDefault();
    skip(sign * (event.shiftKey ? PAGE_SECONDS : STEP_SECONDS));
  };
  addShortcuts({
    " ": (event) => {
      const file = pageTrack.peek() ?? track.peek();
      if (!file || event.repeat) return;
      if (event.target instanceof Element && event.target.closest(CONTROLS)) return;
      event.preventDefault();
      toggle(file);
    },
    ArrowLeft: step(-1),
    ArrowRight: step(1),
    n: () => playNext(),
    p: () => playNext(-1),
    "<": () => changeSpeed(-1),
    ">": () => changeSpeed(1),
    m: () => {
      isMuted.value = !isMuted.peek();
    },
  });
}
