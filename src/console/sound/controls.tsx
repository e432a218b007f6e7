import { effect, type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { hasCharacterKeys } from "../framework/keys.ts";
import { Failure } from "../parts/failure.tsx";
import { formatDuration, formatTenths } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { Popover } from "../parts/popover.tsx";
import { drawWaveform, followCanvas, rulerTicks } from "./drawing.ts";
import { PlayButton, usePlace } from "./play-button.tsx";
import {
  BACK_SECONDS,
  type Clip,
  clip,
  FORWARD_SECONDS,
  isLooping,
  markClip,
  moveClip,
  problem,
  retry,
  skipsSilence,
  volume,
} from "./playback.ts";
import {
  isMuted,
  momentOf,
  PAGE_SECONDS,
  pageTrack,
  position,
  SPEEDS,
  STEP_SECONDS,
  seek,
  speed,
  type Track,
  toggle,
} from "./player-state.ts";

/* The controls of every player: in the console, and on the page of a link. */

/** A drag marks whole seconds where a second is narrower than this, and otherwise tenths. */
const SECOND_PIXELS = 20;
/** The width of the time under the pointer. */
const HOVER_PIXELS = 60;
/** The seconds by which arrow keys move a handle of the clip, without and with Shift. */
const HANDLE_STEPS = [0.1, 1] as const;
/** The most and the fewest of a recording that a zoomed waveform shows. A ruler of more parts would be slow. */
const MAX_ZOOM = 64;
const MIN_SHOWN_SECONDS = 5;
const ZOOM_STEP = 2;
/** A zoom to a clip shows this many times the clip. */
const CLIP_SURROUNDINGS = 1.25;
/** How far a wheel turns to zoom by a factor of e. */
const WHEEL_PIXELS = 150;
/** Where the position is after the waveform has scrolled to it: a share of the visible part. */
const FOLLOWED_PLACE = 0.1;
/** The position moves further only if somebody seeks. */
const MAX_FRAME_SECONDS = 1;

/** The times of a clip: "1:23 – 1:37.5". */
export const formatClip = ({ from, to }: Clip): string => `${formatTenths(from)} – ${formatTenths(to)}`;

/** The moment under the pointer. @param bar spans the duration */
function timeAt(bar: Element, x: number, total: number): number {
  const { left, width } = bar.getBoundingClientRect();
  return Math.min(1, Math.max(0, (x - left) / width)) * total;
}

/** A moment as it can be marked by dragging. */
const snap = (bar: Element, seconds: number, total: number): number =>
  bar.clientWidth < total * SECOND_PIXELS ? Math.round(seconds) : seconds;

/** The value that a key sets a slider to. Undefined for other keys. */
function valueByKey(event: KeyboardEvent, now: number, total: number, [step, page]: readonly [number, number]) {
  if (event.altKey || event.ctrlKey || event.metaKey) return undefined;
  const by = event.shiftKey ? page : step;
  return {
    ArrowLeft: now - by,
    ArrowDown: now - by,
    ArrowRight: now + by,
    ArrowUp: now + by,
    PageDown: now - page,
    PageUp: now + page,
    Home: 0,
    End: total,
  }[event.key];
}

interface SeekBarProps {
  file: Track;
  channels: number[][] | undefined;
  /** Whether dragging with Shift marks a clip. Otherwise, the position follows the pointer. */
  isMarkable?: boolean;
}

/** A slider over the duration of a file, drawn as its waveform. Hovering shows the time under the pointer. */
export function SeekBar({ file, channels, isMarkable = false }: SeekBarProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { seconds, total, isCurrent } = usePlace(file);
  const [hovered, setHovered] = useState<{ at: number; isFlipped: boolean } | null>(null);
  const marked = pageTrack.value?._id === file._id && total > 0 ? clip.value : null;
  useEffect(() => {
    const element = canvas.current;
    const bar = element?.parentElement;
    if (!element || !bar) return;
    let drawn = -1;
    const shareOf = (time: number) => (isCurrent && total > 0 ? time / total : 0);
    const redraw = () => {
      const now = position.peek();
      // The sound before a clip was not played.
      const from = marked && now >= marked.from && now <= marked.to ? marked.from : 0;
      const [all, { left, width }] = [bar.getBoundingClientRect(), element.getBoundingClientRect()];
      const shown = { from: (left - all.left) / all.width, to: (left - all.left + width) / all.width };
      drawWaveform(element, channels, {
        played: { from: shareOf(from), to: shareOf(now) },
        shown,
        marked: marked && { from: marked.from / total, to: marked.to / total },
      });
    };
    redraw();
    const unfollow = followCanvas(bar, redraw);
    // A zoomed bar scrolls, and the canvas stays.
    const view = bar.closest(".player-view");
    view?.addEventListener("scroll", redraw);
    const stop = effect(() => {
      const pixel = Math.round(shareOf(position.value) * bar.clientWidth);
      if (pixel !== drawn) redraw();
      drawn = pixel;
    });
    return () => {
      stop();
      unfollow();
      view?.removeEventListener("scroll", redraw);
    };
  }, [file._id, channels, total, isCurrent, marked]);
  /** Whether the time doesn't fit after the pointer: at the end of the visible part, or on a handle of the clip. */
  const lacksRoom = (bar: HTMLElement, x: number) => {
    const view = (bar.closest(".player-view") ?? bar).getBoundingClientRect();
    if (x + HOVER_PIXELS > view.right) return true;
    const { left, width } = bar.getBoundingClientRect();
    const handles = marked && isMarkable ? [marked.from, marked.to] : [];
    return handles.some((end) => Math.abs(left + (end / total) * width - x - HOVER_PIXELS / 2) < HOVER_PIXELS);
  };
  /** Where a drag with Shift began. */
  const markedFrom = useRef<number | null>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    const to = valueByKey(event, isCurrent ? position.peek() : 0, total, [STEP_SECONDS, PAGE_SECONDS]);
    if (event.key === " ") toggle(file);
    else if (to === undefined) return;
    else seek(file, to);
    event.preventDefault();
  };
  const onPointer = (event: PointerEvent) => {
    const bar = event.currentTarget as HTMLElement;
    const at = timeAt(bar, event.clientX, total);
    setHovered(event.pointerType === "mouse" ? { at, isFlipped: lacksRoom(bar, event.clientX) } : null);
    if (event.type === "pointerdown") {
      bar.setPointerCapture(event.pointerId);
      markedFrom.current = isMarkable && event.shiftKey ? snap(bar, at, total) : null;
    }
    if (!bar.hasPointerCapture(event.pointerId)) return;
    if (markedFrom.current === null) return seek(file, at);
    const to = snap(bar, at, total);
    if (to !== markedFrom.current) markClip(markedFrom.current, to);
    if (event.type === "pointerup") seek(file, clip.peek()?.from ?? at);
  };
  return (
    <>
      <div
        class="player-seek"
        role="slider"
        tabIndex={0}
        aria-label="Position"
        aria-valuemin={0}
        aria-valuemax={Math.floor(total)}
        aria-valuenow={seconds}
        aria-valuetext={`${formatDuration(seconds)} of ${formatDuration(total)}`}
        aria-keyshortcuts={isMarkable && hasCharacterKeys.value ? "[ ]" : undefined}
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
          <span
            class="player-hover"
            style={{ insetInlineStart: `${(hovered.at / total) * 100}%` }}
            data-flipped={hovered.isFlipped}
            aria-hidden="true"
          >
            <span>{formatDuration(Math.floor(hovered.at))}</span>
          </span>
        )}
      </div>
      {marked && isMarkable && (
        <>
          <ClipHandle end="from" file={file} marked={marked} total={total} />
          <ClipHandle end="to" file={file} marked={marked} total={total} />
        </>
      )}
    </>
  );
}

interface ClipHandleProps {
  end: keyof Clip;
  file: Track;
  marked: Clip;
  total: number;
}

/** Moves one end of the clip. It is outside of the clip, so that both ends of a short one can be reached. */
function ClipHandle({ end, file, marked, total }: ClipHandleProps) {
  const isStart = end === "from";
  /** From the end of the clip to the pointer. */
  const offset = useRef(0);
  const share = `${(marked[end] / total) * 100}%`;
  const onPointer = (event: PointerEvent) => {
    const handle = event.currentTarget as HTMLElement;
    const bar = handle.parentElement as HTMLElement;
    if (event.type === "pointerdown") {
      handle.setPointerCapture(event.pointerId);
      const { left, width } = bar.getBoundingClientRect();
      offset.current = event.clientX - left - (marked[end] / total) * width;
    }
    if (!handle.hasPointerCapture(event.pointerId)) return;
    if (event.type === "pointermove")
      moveClip(end, snap(bar, timeAt(bar, event.clientX - offset.current, total), total));
    if (event.type === "pointerup" && isStart) seek(file, clip.peek()?.from ?? 0);
  };
  return (
    <div
      class="player-handle"
      data-end={end}
      style={{ insetInlineStart: isStart ? `max(0px, ${share} - 24px)` : `min(100% - 24px, ${share})` }}
      role="slider"
      tabIndex={0}
      aria-label={isStart ? "Start of clip" : "End of clip"}
      aria-valuemin={isStart ? 0 : marked.from}
      aria-valuemax={isStart ? marked.to : total}
      aria-valuenow={marked[end]}
      aria-valuetext={formatTenths(marked[end])}
      onKeyDown={(event) => {
        const to = valueByKey(event, marked[end], total, HANDLE_STEPS);
        if (to === undefined) return;
        event.preventDefault();
        moveClip(end, Math.min(to, total));
      }}
      onPointerDown={onPointer}
      onPointerMove={onPointer}
      onPointerUp={onPointer}
    />
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

/** A circular arrow around the number of seconds. It moves the file of its own player. */
export function SkipButton({ file, seconds }: { file: Track; seconds: number }) {
  const label = `${seconds < 0 ? "Back" : "Forward"} ${Math.abs(seconds)} seconds`;
  return (
    <button
      type="button"
      class="button ghost player-far"
      aria-label={label}
      title={label}
      onClick={() => seek(file, momentOf(file) + seconds)}
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
    class="player-speed"
    aria-label="Speed"
    title="Speed"
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

/** Speed, repetition, sound, and a button that copies a link to the present moment. */
export function Settings({ copyButton, children }: { copyButton: ComponentChildren; children?: ComponentChildren }) {
  const box = (label: string, value: Signal<boolean>, className?: string) => (
    <label class={className}>
      <input
        type="checkbox"
        checked={value.value}
        onChange={({ currentTarget }) => {
          value.value = currentTarget.checked;
        }}
      />{" "}
      {label}
    </label>
  );
  return (
    <div class="player-settings">
      {children}
      <SpeedSelect />
      <IconButton
        label="Loop"
        icon="loop"
        class="player-more"
        isPressed={isLooping.value}
        onClick={() => {
          isLooping.value = !isLooping.peek();
        }}
      />
      <Popover
        button={<Icon name={isMuted.value || volume.value === 0 ? "muted" : "volume"} size={18} />}
        label="Sound"
        class="ghost"
      >
        {() => (
          <div class="stack">
            <label class="field player-more">
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
            {box("Mute", isMuted, "player-more")}
            {box("Skip silence", skipsSilence)}
          </div>
        )}
      </Popover>
      {copyButton}
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
const Ruler = ({ seconds, zoom }: { seconds: number; zoom: number }) => (
  <div class="player-ruler quiet" aria-hidden="true">
    {rulerTicks(seconds, zoom).map(({ at, isCoarse }) => (
      <span key={at} data-coarse={isCoarse} style={{ insetInlineStart: `${(at / seconds) * 100}%` }}>
        {formatDuration(at)}
      </span>
    ))}
    <span>{formatDuration(seconds)}</span>
  </div>
);

/** Zooms a waveform by buttons, the wheel with Ctrl, or two fingers. It scrolls, also to the position that is played. */
function useZoom(file: Track) {
  const { total, isCurrent } = usePlace(file);
  const view = useRef<HTMLDivElement>(null);
  const level = useSignal(1);
  const max = Math.max(1, Math.min(MAX_ZOOM, total / MIN_SHOWN_SECONDS));
  /** Zooms so that what is `x` pixels from the start of the view moves to `to`. */
  const zoom = (factor: number, x: number, to = x) => {
    const box = view.current as HTMLDivElement;
    const share = (box.scrollLeft + x) / box.scrollWidth;
    level.value = Math.min(max, Math.max(1, level.peek() * factor));
    box.style.setProperty("--zoom", String(level.peek()));
    box.scrollLeft = share * box.scrollWidth - to;
  };
  /** How far a moment is from the start of the view. */
  const placeOf = (seconds: number) => {
    const { scrollLeft = 0, scrollWidth = 0 } = view.current ?? {};
    return (seconds / total) * scrollWidth - scrollLeft;
  };
  const isShown = (place: number) => place >= 0 && place <= (view.current?.clientWidth ?? 0);
  const marked = pageTrack.value?._id === file._id ? clip.value : null;
  /** How often the clip, with a margin on both sides, fits into the recording. */
  const clipLevel = marked ? Math.min(max, total / ((marked.to - marked.from) * CLIP_SURROUNDINGS)) : 1;
  /** Zooms to the clip, or, once it is that large, further at the position. */
  const zoomIn = () => {
    const width = view.current?.clientWidth ?? 0;
    if (marked && level.peek() < clipLevel)
      return zoom(clipLevel / level.peek(), placeOf((marked.from + marked.to) / 2), width / 2);
    return zoomAtPosition(ZOOM_STEP);
  };
  const zoomAtPosition = (factor: number) => {
    const place = placeOf(momentOf(file));
    zoom(factor, isShown(place) ? place : (view.current?.clientWidth ?? 0) / 2);
  };
  useEffect(() => {
    let before = position.peek();
    return effect(() => {
      const now = position.value;
      // Whoever has scrolled away sees that part until they seek.
      const isFollowed = Math.abs(now - before) > MAX_FRAME_SECONDS || isShown(placeOf(before));
      before = now;
      const box = view.current;
      if (!box || !isCurrent || level.peek() === 1 || !isFollowed || isShown(placeOf(now))) return;
      box.scrollLeft += placeOf(now) - box.clientWidth * FOLLOWED_PLACE;
    });
  }, [isCurrent, total]);
  const fingers = useRef(new Map<number, PointerEvent>()).current;
  const pinch = useRef({ isActive: false, seconds: 0 }).current;
  const spread = () => {
    const [one, other] = [...fingers.values()] as [PointerEvent, PointerEvent];
    const { left } = (view.current as HTMLDivElement).getBoundingClientRect();
    const width = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    return { width: Math.max(1, width), center: (one.clientX + other.clientX) / 2 - left };
  };
  const onFinger = (event: PointerEvent) => {
    if (event.pointerType !== "touch") return;
    if (event.type === "pointerdown") {
      fingers.set(event.pointerId, event);
      if (fingers.size === 1) pinch.seconds = momentOf(file);
      // The first finger has moved the position.
      else if (!pinch.isActive) seek(file, pinch.seconds);
      pinch.isActive ||= fingers.size > 1;
    }
    if (pinch.isActive) event.stopPropagation();
    if (event.type === "pointermove" && fingers.has(event.pointerId)) {
      const before = fingers.size === 2 && spread();
      fingers.set(event.pointerId, event);
      if (before) zoom(spread().width / before.width, before.center, spread().center);
    } else if (event.type !== "pointerdown") fingers.delete(event.pointerId);
    if (fingers.size === 0) pinch.isActive = false;
  };
  const button = (label: string, icon: "zoom-in" | "zoom-out", end: number, onClick: () => void) => (
    <IconButton label={label} icon={icon} class="player-zoom" isDisabled={level.value === end} onClick={onClick} />
  );
  useLayoutEffect(() => hideCutTimes(view.current as HTMLDivElement));
  return {
    level: level.value,
    buttons: [
      button("Zoom out", "zoom-out", 1, () => zoomAtPosition(1 / ZOOM_STEP)),
      button(level.value < clipLevel ? "Zoom to clip" : "Zoom in", "zoom-in", max, zoomIn),
    ],
    props: {
      ref: view,
      onScroll: () => hideCutTimes(view.current as HTMLDivElement),
      onPointerDownCapture: onFinger,
      onPointerMoveCapture: onFinger,
      onPointerUpCapture: onFinger,
      onPointerCancelCapture: onFinger,
      // A pinch on a trackpad is such a wheel, too.
      onWheel: (event: WheelEvent) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        const { left } = (event.currentTarget as Element).getBoundingClientRect();
        zoom(Math.exp(-event.deltaY / WHEEL_PIXELS), event.clientX - left);
      },
    },
  };
}

/** Hides the times of the ruler that the edges of a zoomed view would cut. */
function hideCutTimes(view: HTMLElement): void {
  const { left, right } = view.getBoundingClientRect();
  for (const time of view.querySelectorAll<HTMLElement>(".player-ruler [style]")) {
    const place = time.getBoundingClientRect();
    const isCut = (place.left < left && place.right > left) || (place.left < right && place.right > right);
    time.style.visibility = isCut ? "hidden" : "";
  }
}

interface PlayerProps extends SeekBarProps {
  class?: string;
  copyButton: ComponentChildren;
  /** Shown below the buttons. */
  children?: ComponentChildren;
}

/**
 * The player on the page of a file or of a link: its waveform with the clip, and all settings. On a phone, a user who scrolls
 * down to the transcript still has its button.
 */
export function Player({ class: className = "", copyButton, children, ...bar }: PlayerProps) {
  const { file, channels } = bar;
  const { isCurrent } = usePlace(file);
  const { level, buttons, props } = useZoom(file);
  const section = useRef<HTMLElement>(null);
  const isAway = useSignal(false);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => {
      isAway.value = matchMedia("(max-width: 44rem)").matches && entry?.isIntersecting === false;
    });
    observer.observe(section.current as HTMLElement);
    return () => observer.disconnect();
  }, []);
  return (
    <section ref={section} class={`player ${className}`} aria-label="Player" data-flat={!channels}>
      <div class="player-view" {...props}>
        <div class="player-wave">
          <SeekBar {...bar} />
        </div>
        <Ruler seconds={file.durationSeconds ?? 0} zoom={level} />
      </div>
      <div class="player-controls">
        <SkipButton file={file} seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton file={file} seconds={FORWARD_SECONDS} />
        <Times file={file} />
      </div>
      <Settings copyButton={copyButton}>{buttons}</Settings>
      {children}
      {isCurrent && <PlaybackFailure />}
      {isAway.value && isCurrent && (
        <div class="player-bar">
          <PlayButton file={file} class="primary" />
          <Times file={file} />
        </div>
      )}
    </section>
  );
}
