import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatDuration } from "../parts/format.ts";
import { useTask } from "../parts/task.ts";
import { href } from "../router.ts";
import { can, client, noteFailure } from "../session.ts";
import { UserError } from "../user-error.ts";
import { measurability, measurePeaks } from "./peaks.ts";
import {
  close,
  duration,
  isMuted,
  isPlaying,
  pageTrack,
  position,
  problem,
  retry,
  seek,
  setVolume,
  signedUrl,
  speed,
  type Track,
  toggle,
  track,
} from "./playback.ts";
import { drawWaveform, storedWaveform } from "./waveform.ts";

const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const STEP_SECONDS = 5;
const PAGE_SECONDS = 30;

/** Where a file is in the player; its start if another one is there. */
function usePlace(file: Track) {
  const isCurrent = track.value?._id === file._id;
  return {
    isCurrent,
    isActive: isCurrent && isPlaying.value,
    seconds: isCurrent ? position.value : 0,
    total: (isCurrent && duration.value) || (file.durationSeconds ?? 0),
  };
}

/** Starts or pauses a file. */
export function PlayButton({ file, class: className = "" }: { file: Track; class?: string }) {
  const { isActive } = usePlace(file);
  return (
    <button
      type="button"
      class={`button player-play ${className}`}
      aria-label={`${isActive ? "Pause" : "Play"} ${file.name}`}
      data-playing={isActive}
      onClick={() => toggle(file)}
    />
  );
}

/** A slider over the duration of a file, drawn as its waveform. Hovering shows the time under the pointer. */
function SeekBar({ file, channels }: { file: Track; channels: number[][] | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { seconds, total } = usePlace(file);
  const [hovered, setHovered] = useState<number | null>(null);
  const played = total > 0 ? seconds / total : 0;
  const draw = () => canvas.current && drawWaveform(canvas.current, channels, played);
  const latestDraw = useRef(draw);
  latestDraw.current = draw;
  useLayoutEffect(() => {
    const redraw = () => latestDraw.current();
    const resizing = new ResizeObserver(redraw);
    if (canvas.current) resizing.observe(canvas.current);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", redraw);
    return () => {
      resizing.disconnect();
      theme.removeEventListener("change", redraw);
    };
  }, []);
  const playedPixels = Math.round(played * (canvas.current?.clientWidth ?? 0));
  useEffect(() => latestDraw.current() ?? undefined, [channels, total, playedPixels]);
  const shareAt = (event: PointerEvent) => {
    const { left, width } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const to = {
      ArrowLeft: seconds - STEP_SECONDS,
      ArrowDown: seconds - STEP_SECONDS,
      ArrowRight: seconds + STEP_SECONDS,
      ArrowUp: seconds + STEP_SECONDS,
      PageDown: seconds - PAGE_SECONDS,
      PageUp: seconds + PAGE_SECONDS,
      Home: 0,
      End: total,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    seek(file, to);
  };
  const onPointer = (event: PointerEvent) => {
    const bar = event.currentTarget as HTMLElement;
    setHovered(event.pointerType === "mouse" ? shareAt(event) : null);
    if (event.type === "pointerdown") bar.setPointerCapture(event.pointerId);
    if (bar.hasPointerCapture(event.pointerId)) seek(file, shareAt(event) * total);
  };
  return (
    <div
      class="player-seek"
      role="slider"
      tabIndex={0}
      aria-label="Position"
      aria-valuemin={0}
      aria-valuemax={Math.floor(total)}
      aria-valuenow={Math.floor(seconds)}
      aria-valuetext={timesOf(seconds, total, " of ")}
      onKeyDown={onKeyDown}
      onPointerDown={onPointer}
      onPointerMove={onPointer}
      onPointerLeave={() => setHovered(null)}
    >
      <canvas ref={canvas} />
      {hovered !== null && total > 0 && (
        <span class="player-hover" style={{ insetInlineStart: `${hovered * 100}%` }} aria-hidden="true">
          {formatDuration(Math.floor(hovered * total))}
        </span>
      )}
    </div>
  );
}

const timesOf = (seconds: number, total: number, separator: string) =>
  formatDuration(Math.floor(seconds)) + separator + formatDuration(total);

function Settings() {
  return (
    <>
      <button
        type="button"
        class="button small"
        aria-pressed={isMuted.value}
        onClick={() => {
          isMuted.value = !isMuted.value;
        }}
      >
        Mute
      </button>
      <label>
        Volume
        <input
          type="range"
          min="0"
          max="100"
          defaultValue="100"
          onInput={({ currentTarget: { valueAsNumber } }) => setVolume(valueAsNumber / 100)}
        />
      </label>
      <label>
        Speed
        <select
          value={speed.value}
          onChange={({ currentTarget: { value } }) => {
            speed.value = Number(value);
          }}
        >
          {SPEEDS.map((value) => (
            <option key={value} value={value}>
              {value}×
            </option>
          ))}
        </select>
      </label>
    </>
  );
}

const PlaybackFailure = () => <Failure error={problem.value} onRetry={retry} />;

/** The player at the bottom of every page while a file is open in it, except on the page of that file. */
export function PlayerBar() {
  const file = track.value;
  if (!file || pageTrack.value?._id === file._id) return null;
  return <OpenPlayerBar file={file} />;
}

function OpenPlayerBar({ file }: { file: Track }) {
  const { seconds, total } = usePlace(file);
  return (
    <section class="player player-bar" aria-label="Player">
      <PlayButton file={file} class="primary" />
      <a class="player-name" href={href(`/files/${file._id}`)}>
        <bdi>{file.name}</bdi>
      </a>
      <SeekBar file={file} channels={null} />
      <p class="number">{timesOf(seconds, total, " / ")}</p>
      <button type="button" class="button small" onClick={close}>
        Close
      </button>
      <PlaybackFailure />
    </section>
  );
}

/** The player on the page of a file: its waveform, and all settings. */
export function FilePlayer({ file }: { file: FileMetadata }) {
  const { seconds, total, isCurrent } = usePlace(file);
  const { channels, note } = useWaveform(file);
  useEffect(() => {
    pageTrack.value = file;
    return () => {
      pageTrack.value = null;
    };
  }, [file._id]);
  return (
    <section class="card player" aria-label="Player">
      <SeekBar file={file} channels={channels} />
      <PlayButton file={file} class="primary" />
      <p class="number">{timesOf(seconds, total, " / ")}</p>
      <Settings />
      {note}
      {isCurrent && <PlaybackFailure />}
    </section>
  );
}

/** The stored waveform of a file. If there is none, measures it, or says why that is not possible. */
function useWaveform(file: FileMetadata) {
  const { _id, audio, mimeType, size } = file;
  const [channels, setChannels] = useState<number[][] | null>(null);
  const [isUndecodable, setUndecodable] = useState(false);
  const { run, isRunning, error } = useTask();
  const isStored = file.hasWaveform || storedWaveform.value === _id;
  useEffect(() => {
    if (!isStored || channels) return;
    const stop = new AbortController();
    // Without it, the plain bar works too.
    client.value.files.waveform(_id, stop).then(setChannels, () => {});
    return () => stop.abort();
  }, [_id, isStored]);
  const measurable = !isStored && audio && measurability({ ...audio, mimeType }, size);
  const measure = () =>
    run(async () => {
      if (!audio) return;
      const caller = client.peek();
      const response = await fetch(await signedUrl(_id)).catch(() => null);
      if (!response?.ok) throw new UserError("Couldn't download the file to draw its waveform.");
      const peaks = await measurePeaks(await response.blob(), { ...audio, mimeType });
      setUndecodable(!peaks);
      if (!peaks) return;
      setChannels(peaks);
      // The next visitor finds it stored. If that is not allowed, it is measured again.
      if (can("files:write"))
        await caller.files.setWaveform(_id, peaks).catch((failure) => noteFailure(failure, caller));
    });
  useEffect(() => {
    if (measurable === "unasked" && file.status === "completed") void measure();
  }, [_id, measurable === "unasked", file.status === "completed"]);
  if (channels || !measurable) return { channels, note: null };
  if (error) return { channels, note: <Failure error={error} onRetry={measure} /> };
  const text = isUndecodable
    ? "This browser can't decode this format to draw a waveform."
    : isRunning
      ? "Drawing the waveform…"
      : measurable === "too long" && "This file is too long to draw a waveform in the browser.";
  const note = text ? (
    <p class="quiet" role="status">
      {text}
    </p>
  ) : (
    measurable === "asked" && (
      <button type="button" class="button small" onClick={measure}>
        Draw waveform (downloads {formatBytes(size)})
      </button>
    )
  );
  return { channels, note };
}
