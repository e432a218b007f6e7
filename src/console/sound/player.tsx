import { effect, useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatDuration } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Popover } from "../parts/menu.tsx";
import { useTask } from "../parts/task.ts";
import { href, query } from "../router.ts";
import { can, client, noteFailure } from "../session.ts";
import { addShortcuts } from "../shortcuts.ts";
import { UserError } from "../user-error.ts";
import { measurability, measurePeaks } from "./peaks.ts";
import {
  close,
  duration,
  isMuted,
  isPlaying,
  neighbor,
  pageTrack,
  playNext,
  position,
  problem,
  retry,
  SPEEDS,
  seek,
  signedUrl,
  skip,
  skipsSilence,
  speed,
  type Track,
  toggle,
  track,
  volume,
} from "./playback.ts";
import { drawWaveform, followCanvas, loadWaveform, rememberWaveform, waveformOf } from "./waveforms.ts";

const [BACK_SECONDS, FORWARD_SECONDS] = [15, 30];
const STEP_SECONDS = 5;
const PAGE_SECONDS = 30;
/** Before the end of a file, the player names the next one. */
const UP_NEXT_SECONDS = 5;

/** The state of a file in the player, at its start if another one is there. Changes once a second. */
function usePlace(file: Track) {
  const isCurrent = useComputed(() => track.value?._id === file._id).value;
  const isActive = useComputed(() => isPlaying.value && track.value?._id === file._id).value;
  const total = useComputed(() => (track.value?._id === file._id && duration.value) || (file.durationSeconds ?? 0));
  const seconds = useComputed(() => (track.value?._id === file._id ? Math.floor(position.value) : 0));
  return { isCurrent, isActive, total: total.value, seconds: seconds.value };
}

interface PlayButtonProps {
  file: Track;
  class?: string;
  /** The list to play on. */
  tracks?: () => Track[];
  tabIndex?: number;
}

/** Starts or pauses a file. */
export function PlayButton({ file, class: className = "", tracks, tabIndex = 0 }: PlayButtonProps) {
  const { isActive, isCurrent } = usePlace(file);
  return (
    <button
      type="button"
      class={`button player-play ${className}`}
      aria-label={`${isActive ? "Pause" : "Play"} ${file.name}`}
      tabIndex={tabIndex}
      data-playing={isActive}
      data-current={isCurrent}
      onClick={() => toggle(file, tracks?.())}
    />
  );
}

/** The time to a URL that starts there: `?t=83`. */
const momentUrl = (file: Track) =>
  location.origin + href(`/files/${file._id}`, { t: String(Math.floor(position.peek())) });

async function copyMoment(file: Track): Promise<void> {
  try {
    await navigator.clipboard.writeText(momentUrl(file));
    announce(`Copied link to ${formatDuration(Math.floor(position.peek()))}`);
  } catch {
    announce("Couldn't copy the link");
  }
}

/** A slider over the duration of a file, drawn as its waveform. Hovering shows the time under the pointer. */
function SeekBar({ file, channels }: { file: Track; channels: number[][] | null | undefined }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { seconds, total, isCurrent } = usePlace(file);
  const [hovered, setHovered] = useState<number | null>(null);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    let drawn = -1;
    const playedNow = () => (isCurrent && total > 0 ? position.peek() / total : 0);
    const redraw = () => drawWaveform(element, channels, playedNow());
    redraw();
    const unfollow = followCanvas(element, redraw);
    const stop = effect(() => {
      position.value;
      const pixel = Math.round(playedNow() * element.clientWidth);
      if (pixel !== drawn) redraw();
      drawn = pixel;
    });
    return () => {
      stop();
      unfollow();
    };
  }, [file._id, channels, total, isCurrent]);
  const shareAt = (event: PointerEvent) => {
    const { left, width } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const now = isCurrent ? position.peek() : 0;
    const step = event.shiftKey ? PAGE_SECONDS : STEP_SECONDS;
    const to = {
      ArrowLeft: now - step,
      ArrowDown: now - step,
      ArrowRight: now + step,
      ArrowUp: now + step,
      PageDown: now - PAGE_SECONDS,
      PageUp: now + PAGE_SECONDS,
      Home: 0,
      End: total,
    }[event.key];
    if (event.key === " ") toggle(file);
    else if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    else seek(file, to);
    event.preventDefault();
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
      aria-valuenow={seconds}
      aria-valuetext={`${formatDuration(seconds)} of ${formatDuration(total)}`}
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

interface IconButtonProps {
  label: string;
  icon: Parameters<typeof Icon>[0]["name"];
  isDisabled?: boolean;
  isPressed?: boolean;
  class?: string;
  onClick: () => void;
}

const IconButton = ({
  label,
  icon,
  isDisabled = false,
  isPressed,
  class: className = "",
  onClick,
}: IconButtonProps) => (
  <button
    type="button"
    class={`button ghost ${className}`}
    aria-label={label}
    title={label}
    aria-disabled={isDisabled}
    aria-pressed={isPressed}
    onClick={() => !isDisabled && onClick()}
  >
    <Icon name={icon} size={18} />
  </button>
);

function SkipButton({ seconds }: { seconds: number }) {
  const label = `${seconds < 0 ? "Back" : "Forward"} ${Math.abs(seconds)} seconds`;
  return (
    <button
      type="button"
      class="button ghost number player-far"
      aria-label={label}
      title={label}
      onClick={() => skip(seconds)}
    >
      {seconds < 0 ? "−" : "+"}
      {Math.abs(seconds)}
    </button>
  );
}

/** Speed, volume, and a link to the present moment. */
function Settings({ file }: { file: Track }) {
  return (
    <div class="player-settings">
      <Popover button={`${speed.value}×`} label={`Speed: ${speed.value}×`} class="ghost number">
        {() => (
          <div class="stack">
            <label class="field">
              <span>Speed</span>
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
            <label>
              <input
                type="checkbox"
                checked={skipsSilence.value}
                onChange={({ currentTarget }) => {
                  skipsSilence.value = currentTarget.checked;
                }}
              />{" "}
              Skip silence
            </label>
          </div>
        )}
      </Popover>
      <Popover
        button={<Icon name={isMuted.value || volume.value === 0 ? "muted" : "volume"} size={18} />}
        label="Volume"
        class="ghost"
      >
        {() => (
          <div class="stack">
            <label class="field">
              <span>Volume</span>
              <input
                type="range"
                min="0"
                max="100"
                value={Math.round(volume.value * 100)}
                onInput={({ currentTarget: { valueAsNumber } }) => {
                  volume.value = valueAsNumber / 100;
                }}
              />
            </label>
            <label>
              <input
                type="checkbox"
                checked={isMuted.value}
                onChange={({ currentTarget }) => {
                  isMuted.value = currentTarget.checked;
                }}
              />{" "}
              Mute
            </label>
          </div>
        )}
      </Popover>
      <IconButton label="Copy link to this moment" icon="link" onClick={() => copyMoment(file)} />
    </div>
  );
}

const PlaybackFailure = () => <Failure error={problem.value} onRetry={retry} />;

const Times = ({ file }: { file: Track }) => {
  const { seconds, total } = usePlace(file);
  return (
    <p class="number player-times">
      {formatDuration(seconds)} / {formatDuration(total)}
    </p>
  );
};

/** The player at the bottom of every page while a file is open in it, except on the page of that file. */
export function PlayerBar() {
  const file = track.value;
  if (!file || pageTrack.value?._id === file._id) return null;
  return <OpenPlayerBar file={file} />;
}

function OpenPlayerBar({ file }: { file: Track }) {
  const isOpen = useSignal(false);
  const channels = waveformOf(file._id).value;
  const { seconds, total } = usePlace(file);
  const next = neighbor(1);
  useEffect(() => void loadWaveform(file._id), [file._id]);
  useEffect(() => addShortcuts({ c: () => void copyMoment(file) }), [file._id]);
  const isEnding = next && total - seconds <= UP_NEXT_SECONDS && seconds > 0;
  return (
    <section class="player-bar" aria-label="Player" data-open={isOpen.value}>
      <div class="player-controls">
        <IconButton label="Previous file" icon="previous" onClick={() => playNext(-1)} />
        <SkipButton seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton seconds={FORWARD_SECONDS} />
        <IconButton label="Next file" icon="next" isDisabled={!next} onClick={() => playNext()} />
      </div>
      <div class="player-name">
        <a href={href(`/files/${file._id}`)} title={file.name}>
          <bdi>{file.name}</bdi>
        </a>
        <span class="quiet">
          <bdi>{isEnding ? `Up next: ${next.name}` : file.folder || file.artist || ""}</bdi>
        </span>
      </div>
      <SeekBar file={file} channels={channels} />
      <Times file={file} />
      <Settings file={file} />
      <IconButton
        label="All player controls"
        icon="chevron"
        class="player-expand"
        isPressed={isOpen.value}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      />
      <IconButton label="Close" icon="close" onClick={close} />
      <PlaybackFailure />
    </section>
  );
}

/** The moment that the URL asks for: `?t=83` or `?t=1:23`. */
function linkedSeconds(): number {
  const parts = (query.peek().get("t") ?? "").split(":").map(Number);
  const seconds = parts.reduce((sum, part) => sum * 60 + part, 0);
  return Number.isFinite(seconds) ? seconds : 0;
}

/** The player on the page of a file: its waveform, and all settings. */
export function FilePlayer({ file }: { file: FileMetadata }) {
  const { isCurrent } = usePlace(file);
  const { channels, note } = useWaveform(file);
  useEffect(() => {
    pageTrack.value = file;
    const seconds = linkedSeconds();
    if (seconds > 0) seek(file, seconds);
    const remove = addShortcuts({ c: () => void copyMoment(file) });
    return () => {
      remove();
      pageTrack.value = null;
    };
  }, [file._id]);
  return (
    <section class="card player" aria-label="Player">
      <SeekBar file={file} channels={channels} />
      <Ruler seconds={file.durationSeconds ?? 0} />
      <div class="player-controls">
        <PlayButton file={file} class="primary" />
        <SkipButton seconds={-BACK_SECONDS} />
        <SkipButton seconds={FORWARD_SECONDS} />
        <Times file={file} />
      </div>
      {note}
      <Settings file={file} />
      {isCurrent && <PlaybackFailure />}
    </section>
  );
}

/** The times below a waveform, at every quarter. */
const Ruler = ({ seconds }: { seconds: number }) => (
  <div class="player-ruler quiet" aria-hidden="true">
    {[0, 1, 2, 3, 4].map((quarter) => (
      <span key={quarter}>{formatDuration((seconds * quarter) / 4)}</span>
    ))}
  </div>
);

/** The stored waveform of a file. If there is none, measures it, or says why that is not possible. */
function useWaveform(file: FileMetadata) {
  const { _id, audio, mimeType, size } = file;
  const channels = waveformOf(_id).value;
  const [isUndecodable, setUndecodable] = useState(false);
  const { run, isRunning, error } = useTask();
  useEffect(() => {
    if (file.hasWaveform) void loadWaveform(_id);
  }, [_id, file.hasWaveform]);
  // Only who may store the result measures it: otherwise each visit would download the file.
  const measurable = !file.hasWaveform && !channels && audio && measurability({ ...audio, mimeType }, size);
  const isUnasked = measurable === "unasked" && file.status === "completed" && can("files:write");
  const measure = () =>
    run(async () => {
      if (!audio) return;
      const caller = client.peek();
      const response = await fetch(await signedUrl(_id)).catch(() => null);
      if (!response?.ok) throw new UserError("Couldn't download the file to draw its waveform.");
      const peaks = await measurePeaks(await response.blob(), { ...audio, mimeType });
      setUndecodable(!peaks);
      if (!peaks) return;
      rememberWaveform(_id, peaks);
      if (can("files:write"))
        await caller.files.setWaveform(_id, peaks).catch((failure) => noteFailure(failure, caller));
    });
  useEffect(() => {
    if (isUnasked) void measure();
  }, [_id, isUnasked]);
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
    !isUnasked && (
      <button type="button" class="button" onClick={measure}>
        Draw waveform (downloads {formatBytes(size)})
      </button>
    )
  );
  return { channels, note };
}
