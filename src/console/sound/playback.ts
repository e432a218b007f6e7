import { computed, effect, untracked } from "@preact/signals";
import { UserError } from "../framework/errors.ts";
import { pageSignal, tabSignal } from "../framework/signals.ts";
import { setting } from "../framework/storage.ts";
import { silencesOf } from "./drawing.ts";
import {
  duration,
  isMuted,
  isPlaying,
  momentOf,
  neighbor,
  pageTrack,
  playNext,
  position,
  seek,
  seeks,
  skip,
  speed,
  type Track,
  toggle,
  track,
} from "./player-state.ts";
import { waveformOf } from "./waveforms.ts";

/* Plays what the state of the player says, by an audio element, and marks clips. */

/** A second failure within this distance has another cause than an expired URL. */
const SAME_PLACE_SECONDS = 1;
/** The steps of the buttons. */
export const [BACK_SECONDS, FORWARD_SECONDS] = [15, 30];
/** Clips are marked to this precision, which is also their shortest duration. */
const CLIP_STEPS_PER_SECOND = 10;

/** A part of a recording, in seconds. */
export interface Clip {
  from: number;
  to: number;
}
/** The marked part of the file of the open page. At its end, playback stops or starts it again. */
export const clip = pageSignal<Clip | null>(null);
/** Whether the clip, or without one the file, starts again at its end. */
export const isLooping = tabSignal(false);
/** Why the file can't be played. */
export const problem = tabSignal<unknown>(null);

/** From 0 to 1. */
export const volume = setting("volume", 1);
export const skipsSilence = setting("skip-silence", false);

const audio = new Audio();
audio.preload = "metadata";
/** Returns the URL of a file's bytes; with `isNew`, not the one that failed. */
type UrlOf = (fileId: string, isNew: boolean) => Promise<string>;
let urlOf: UrlOf;
/** Whether the URL of the file failed. */
let isUrlStale = false;
/** Whether the element has the source of the file: no, soon, or yes. */
let phase: "empty" | "loading" | "ready" = "empty";
/** Where the signed URL was renewed last. */
let renewedAt: number | null = null;
let loads = 0;

/** Starts the element. Browsers may refuse that if the user's last action is too long ago. */
function start(): void {
  audio.play().catch((error) => {
    if (error instanceof DOMException && error.name === "NotAllowedError") isPlaying.value = false;
  });
}

async function load(): Promise<void> {
  const file = track.peek();
  if (!file) return;
  const round = ++loads;
  phase = "loading";
  problem.value = null;
  try {
    const url = await urlOf(file._id, isUrlStale);
    if (round !== loads) return;
    isUrlStale = false;
    audio.src = url;
    audio.load();
  } catch (error) {
    if (round === loads) fail(error);
  }
}

function fail(error: unknown): void {
  phase = "empty";
  isPlaying.value = false;
  problem.value = error;
}

/** Forgets the file that was in the player before. */
function empty(): void {
  loads++;
  phase = "empty";
  audio.pause();
  audio.removeAttribute("src");
  problem.value = null;
  renewedAt = null;
  isUrlStale = false;
}

function followPlaying(isWanted: boolean): void {
  if (!isWanted) audio.pause();
  else if (phase === "ready") start();
  // While it loads, it starts, or not, once its source is ready.
  else if (phase === "empty") {
    renewedAt = null;
    isUrlStale = problem.peek() !== null;
    void load();
  }
}

/** Loads the file again after a failure, and plays it from where it was. */
export function retry(): void {
  isPlaying.value = true;
}

const roundToStep = (seconds: number) => Math.round(seconds * CLIP_STEPS_PER_SECOND) / CLIP_STEPS_PER_SECOND;

/** Marks the part between two moments of the file of the open page. */
export function markClip(one: number, other: number): void {
  const [from, to] = [Math.min(one, other), Math.max(one, other)].map(roundToStep) as [number, number];
  clip.value = to > from ? { from, to } : null;
}

/** Moves one end of the clip. It stays before the other one. */
export function moveClip(end: keyof Clip, seconds: number): void {
  const { from, to } = clip.peek() as Clip;
  const step = 1 / CLIP_STEPS_PER_SECOND;
  if (end === "from") markClip(Math.max(0, Math.min(seconds, to - step)), to);
  else markClip(from, Math.max(seconds, from + step));
}

/** Starts or ends the clip at the present position. The other end stays, or is that of the file. */
export function markHere(file: Track, end: keyof Clip): void {
  const here = momentOf(file);
  const { from, to } = clip.peek() ?? { from: 0, to: file.durationSeconds ?? 0 };
  if (end === "from") markClip(here, to > here ? to : (file.durationSeconds ?? here));
  else markClip(from < here ? from : 0, here);
}

/** The part that a link plays: a clip, or all from a moment on. */
export type Part = Pick<Clip, "from"> & Partial<Clip>;

/** The value of `t` in a URL: `83` or `83,97`, as in a media fragment, which browsers understand, too. */
export const fragmentOf = ({ from, to }: Part): string => (to === undefined ? `${from}` : `${from},${to}`);

/** The seconds of a moment: `83` or `1:23`. */
function parseMoment(text: string): number {
  const seconds = text.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
  return Number.isFinite(seconds) ? seconds : 0;
}

/** Makes a file that of the open page, at the moment or the clip that a URL names as a media fragment: `83` or `83,97`. */
export function openOnPage(file: Track, fragment: string | null): void {
  pageTrack.value = file;
  const [from = 0, to = 0] = (fragment ?? "").replace(/^npt:/, "").split(",").map(parseMoment);
  clip.value = to > from ? { from, to: Math.min(to, file.durationSeconds ?? to) } : null;
  if (to > from || from > 0) seek(file, from);
}

export function leavePage(): void {
  pageTrack.value = null;
  clip.value = null;
}

function explain({ mimeType }: Track): string {
  if (audio.error?.code === MediaError.MEDIA_ERR_NETWORK) return "Playback stopped because the connection was lost.";
  return audio.canPlayType(mimeType)
    ? "Can't play this file here. Download it to listen."
    : `This browser can't play ${mimeType}. Download the file to listen.`;
}

/** The silent parts of the file in the player, if the user skips them. */
const silences = computed(() => {
  const channels = skipsSilence.value && waveformOf(track.value?._id ?? "").value;
  return channels ? silencesOf(channels, duration.value) : [];
});

/** The clip, if it is one of the file in the player. */
const clipInPlayer = () => (pageTrack.peek()?._id === track.peek()?._id ? clip.peek() : null);

/** Takes the position from the element, beyond a silence. The clip of the page ends, unless the user has moved on. */
function follow(): void {
  if (phase !== "ready") return;
  const now = audio.currentTime;
  const silence = isPlaying.peek() && silences.value.find(([from, to]) => now > from && now < to - 0.1);
  if (silence) audio.currentTime = silence[1];
  const before = position.peek();
  position.value = audio.currentTime;
  const { from, to } = clipInPlayer() ?? { from: 0, to: Number.POSITIVE_INFINITY };
  if (!isPlaying.peek() || before >= to || audio.currentTime < to) return;
  if (!isLooping.peek()) isPlaying.value = false;
  position.value = isLooping.peek() ? from : to;
  audio.currentTime = position.peek();
}

/** Browsers do not know the duration of a live recording, and WebKit may know only that of its first part. The record may. */
function updateDuration(): void {
  const known = Number.isFinite(audio.duration) ? audio.duration : 0;
  duration.value = Math.max(known, track.peek()?.durationSeconds ?? 0);
}

audio.addEventListener("durationchange", () => phase === "ready" && updateDuration());
audio.addEventListener("loadedmetadata", () => {
  updateDuration();
  phase = "ready";
  if (position.peek() > 0) audio.currentTime = position.peek();
  audio.playbackRate = speed.peek();
  if (isPlaying.peek()) start();
});
// While the tab is in the background, nothing else follows the element.
audio.addEventListener("timeupdate", follow);
audio.addEventListener("ended", () => {
  isPlaying.value = false;
  const file = track.peek();
  if (file && isLooping.peek()) {
    seek(file, clipInPlayer()?.from ?? 0);
    toggle(file);
  } else if (neighbor(1)) playNext();
});
// Keys of the system pause and play the element, too.
audio.addEventListener("play", () => {
  if (phase !== "empty") isPlaying.value = true;
});
audio.addEventListener("pause", () => {
  if (phase === "ready") isPlaying.value = false;
});
audio.addEventListener("error", () => {
  const file = track.peek();
  if (!file || !audio.getAttribute("src")) return;
  // An expired URL is replaced. If the new one fails at the same place, the reason is another.
  const at = position.peek();
  const isNew = renewedAt === null || Math.abs(renewedAt - at) >= SAME_PLACE_SECONDS;
  if (!isNew) return fail(new UserError(explain(file)));
  renewedAt = at;
  isUrlStale = true;
  void load();
});

/** Shows the file on the lock screen, and follows the keys of headsets. */
function followSystem(): void {
  const { mediaSession } = navigator;
  if (!mediaSession) return;
  effect(() => {
    const file = track.value;
    mediaSession.metadata = file && new MediaMetadata({ title: file.name, artist: file.artist ?? "" });
  });
  const actions: Partial<Record<MediaSessionAction, MediaSessionActionHandler>> = {
    nexttrack: () => playNext(),
    previoustrack: () => playNext(-1),
    seekbackward: () => skip(-BACK_SECONDS),
    seekforward: () => skip(FORWARD_SECONDS),
    seekto: ({ seekTime = 0 }) => skip(seekTime - position.peek()),
  };
  for (const [action, handler] of Object.entries(actions))
    mediaSession.setActionHandler(action as MediaSessionAction, handler);
}

/** Plays what the state of the player says, also what it said before. @param source has the bytes of the files */
export function startPlayback(source: UrlOf): void {
  urlOf = source;
  document.body.append(audio);
  followSystem();
  let opened: Track | null = null;
  const followState = (file: Track | null, isWanted: boolean) => {
    if (file !== opened) empty();
    opened = file;
    followPlaying(isWanted);
  };
  // In one effect, because both may change at once.
  effect(() => {
    const state = [track.value, isPlaying.value] as const;
    untracked(() => followState(...state));
  });
  seeks.subscribe(() => {
    if (phase === "ready") audio.currentTime = position.peek();
  });
  effect(() => {
    audio.muted = isMuted.value;
    audio.volume = volume.value;
    audio.playbackRate = speed.value;
  });
  effect(() => {
    if (!isPlaying.value) return;
    let frame = 0;
    const followFrame = () => {
      follow();
      frame = requestAnimationFrame(followFrame);
    };
    frame = requestAnimationFrame(followFrame);
    return () => cancelAnimationFrame(frame);
  });
}
