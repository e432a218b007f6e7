import { effect, useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { copy } from "../parts/copy.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatDuration } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Popover } from "../parts/popover.tsx";
import {
  BACK_SECONDS,
  type Clip,
  clip,
  duration,
  FORWARD_SECONDS,
  isMuted,
  isPlaying,
  markClip,
  momentOf,
  PAGE_SECONDS,
  pageTrack,
  position,
  problem,
  retry,
  SPEEDS,
  STEP_SECONDS,
  seek,
  skip,
  skipsSilence,
  speed,
  type Track,
  toggle,
  track,
  volume,
} from "./playback.ts";
import { drawWaveform, followCanvas, rulerTicks } from "./waveforms.ts";

/* The controls of every player: in the console, and on the page of a link. */

/** A shorter drag is a click. */
const MIN_DRAG_PIXELS = 4;

/** The state of a file in the player, at its start if another one is there. Changes once a second. */
export function usePlace(file: Track) {
  const isCurrent = track.value?._id === file._id;
  const isActive = isCurrent && isPlaying.value;
  const total = (isCurrent && duration.value) || (file.durationSeconds ?? 0);
  const elapsed = useComputed(() => Math.floor(position.value));
  return { isCurrent, isActive, total, seconds: isCurrent ? elapsed.value : 0 };
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

/** The times of a clip: "1:23 – 1:37". */
export const formatClip = ({ from, to }: Clip): string => `${formatDuration(from)} – ${formatDuration(to)}`;

interface SeekBarProps {
  file: Track;
  channels: number[][] | null | undefined;
  /** Whether dragging marks a clip. Otherwise, the position follows the pointer. */
  isMarkable?: boolean;
}

/** A slider over the duration of a file, drawn as its waveform. Hovering shows the time under the pointer. */
export function SeekBar({ file, channels, isMarkable = false }: SeekBarProps) {
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
  const pressedAt = useRef(0);
  const marked = pageTrack.value?._id === file._id && total > 0 ? clip.value : null;
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
    const { left, width } = bar.getBoundingClientRect();
    const shareAt = (x: number) => Math.min(1, Math.max(0, (x - left) / width));
    setHovered(event.pointerType === "mouse" ? shareAt(event.clientX) : null);
    const isPress = event.type === "pointerdown";
    if (isPress) {
      bar.setPointerCapture(event.pointerId);
      pressedAt.current = event.clientX;
    }
    if (!bar.hasPointerCapture(event.pointerId)) return;
    if (isPress || !isMarkable) return seek(file, shareAt(event.clientX) * total);
    if (Math.abs(event.clientX - pressedAt.current) < MIN_DRAG_PIXELS) return;
    markClip(shareAt(pressedAt.current) * total, shareAt(event.clientX) * total);
    if (event.type === "pointerup") seek(file, clip.peek()?.from ?? 0);
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
      onPointerUp={onPointer}
      onPointerLeave={() => setHovered(null)}
    >
      <canvas ref={canvas} />
      {marked && (
        <span
          class="player-clip"
          style={{
            insetInlineStart: `${(marked.from / total) * 100}%`,
            inlineSize: `${((marked.to - marked.from) / total) * 100}%`,
          }}
          aria-hidden="true"
        />
      )}
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

export const IconButton = ({
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

/** A circular arrow around the number of seconds. */
export function SkipButton({ seconds }: { seconds: number }) {
  const label = `${seconds < 0 ? "Back" : "Forward"} ${Math.abs(seconds)} seconds`;
  return (
    <button
      type="button"
      class="button ghost player-far"
      aria-label={label}
      title={label}
      onClick={() => skip(seconds)}
    >
      <svg class="icon" viewBox="0 0 24 24" width="28" height="28" aria-hidden="true">
        <path
          d="M12 4.500a8.500 8.500 0 1 1-8.500 8.500M14.500 1.500l-3 3 3 3"
          transform={seconds > 0 ? "matrix(-1 0 0 1 24 0)" : undefined}
        />
        <text x="12" y="16" fill="currentColor" stroke="none" font-size="8.5" font-weight="600" text-anchor="middle">
          {Math.abs(seconds)}
        </text>
      </svg>
    </button>
  );
}

export const SpeedSelect = () => (
  <select
    aria-label="Speed"
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
);

/** Copies a URL that starts at the present second of a file. @param label names it in the announcement */
export const copyMoment = (file: Track, urlAt: (seconds: number) => string, label = "link to"): Promise<boolean> => {
  const seconds = Math.floor(momentOf(file));
  return copy(urlAt(seconds), `${label} ${formatDuration(seconds)}`);
};

/** Speed, volume, and a link to the present moment, which the caller copies. */
export function Settings({ onCopyMoment }: { onCopyMoment: () => void }) {
  return (
    <div class="player-settings">
      <Popover button={`${speed.value}×`} label={`Speed: ${speed.value}×`} class="ghost number">
        {() => (
          <div class="stack">
            <div class="field">
              <span aria-hidden="true">Speed</span>
              <SpeedSelect />
            </div>
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
      <IconButton label="Copy link to this moment" icon="link" onClick={onCopyMoment} />
    </div>
  );
}

export const PlaybackFailure = () => <Failure error={problem.value} onRetry={retry} />;

export const Times = ({ file }: { file: Track }) => {
  const { seconds, total } = usePlace(file);
  return (
    <p class="number player-times">
      {formatDuration(seconds)} / {formatDuration(total)}
    </p>
  );
};

/** The times below a waveform. On a narrow screen, only the coarse ones. */
const Ruler = ({ seconds }: { seconds: number }) => (
  <div class="player-ruler quiet" aria-hidden="true">
    {rulerTicks(seconds).map(({ at, isCoarse }) => (
      <span key={at} data-coarse={isCoarse} style={{ insetInlineStart: `${(at / seconds) * 100}%` }}>
        {formatDuration(at)}
      </span>
    ))}
    <span>{formatDuration(seconds)}</span>
  </div>
);

interface PlayerProps extends SeekBarProps {
  class?: string;
  onCopyMoment: () => void;
  /** Shown below the buttons. */
  children?: ComponentChildren;
}

/** The player on the page of a file or of a link: its waveform with the clip, and all settings. */
export function Player({ class: className = "", onCopyMoment, children, ...bar }: PlayerProps) {
  const { file, channels } = bar;
  const { isCurrent } = usePlace(file);
  return (
    <section class={`player ${className}`} aria-label="Player" data-flat={!channels}>
      <SeekBar {...bar} />
      <Ruler seconds={file.durationSeconds ?? 0} />
      <div class="player-controls">
        <SkipButton seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton seconds={FORWARD_SECONDS} />
        <Times file={file} />
      </div>
      <Settings onCopyMoment={onCopyMoment} />
      {children}
      {isCurrent && <PlaybackFailure />}
    </section>
  );
}
