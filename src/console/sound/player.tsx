import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { Failure } from "../parts/failure.tsx";
import { useTask } from "../parts/task.ts";
import { formatDuration } from "../parts/values.tsx";
import { Refusal } from "../refusal.ts";
import { client } from "../session.ts";
import { drawnFile, drawWaveform } from "./waveform.ts";

const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const STEP_SECONDS = 5;
const PAGE_SECONDS = 30;

/** What became of a sound that can't be heard, in words. */
function wordsFor(audio: HTMLAudioElement, { mimeType }: FileMetadata): string {
  if (audio.error?.code === MediaError.MEDIA_ERR_NETWORK) return "The sound broke off: the store can't be reached.";
  return audio.canPlayType(mimeType)
    ? "The sound can't be loaded, or this browser does not play it. Download the file to hear it."
    : `This browser does not play ${mimeType}. Download the file to hear it.`;
}

/** Plays a file's sound, a video's too. Its address ends after an hour: then it goes on with another. */
export function Player({ file }: { file: FileMetadata }) {
  const audio = useRef<HTMLAudioElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [round, setRound] = useState(0);
  const signing = useTask();
  const [source, setSource] = useState<{ address: string } | null>(null);
  const [channels, setChannels] = useState<number[][] | null>(null);
  const [isPlaying, setPlaying] = useState(false);
  const [second, setSecond] = useState(0);
  const [length, setLength] = useState(Number.NaN);
  const [isMuted, setMuted] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const position = useRef(0);
  /** Where a new address goes on; null while none is being taken. */
  const resumed = useRef<{ at: number; isPlaying: boolean } | null>(null);
  const renewedAt = useRef<number | null>(null);

  // Browsers don't know how long what was recorded live is; its metadata may.
  const duration = Number.isFinite(length) ? length : (file.audio?.durationSeconds ?? 0);
  const show = (at: number) => {
    position.current = at;
    setSecond(Math.floor(at));
  };
  const seek = (to: number) => {
    const at = Math.min(Math.max(to, 0), duration);
    show(at);
    if (audio.current) audio.current.currentTime = at;
    draw();
  };
  const drawn = useRef("");
  const draw = (isForced = false) => {
    if (!canvas.current) return;
    const played = duration > 0 ? position.current / duration : 0;
    const look = `${duration} ${Math.round(played * canvas.current.clientWidth)}`;
    if (isForced || look !== drawn.current) drawWaveform(canvas.current, channels, played);
    drawn.current = look;
  };
  const latestDraw = useRef(draw);
  latestDraw.current = draw;

  useEffect(() => {
    signing.run(async () => {
      try {
        setSource({ address: await client.value.files.sign(file._id) });
      } catch (error) {
        setPlaying(false);
        throw error;
      }
    });
  }, [file._id, round]);
  useEffect(() => {
    // Within a second, addresses are the same: the element would not take it as another.
    if (resumed.current) audio.current?.load();
  }, [source]);
  const hasWaveform = file.hasWaveform || drawnFile.value === file._id;
  useEffect(() => {
    if (!hasWaveform) return;
    const stop = new AbortController();
    // Where it can't be had, the plain bar serves.
    client.value.files.waveform(file._id, stop).then(setChannels, () => {});
    return () => stop.abort();
  }, [file._id, hasWaveform]);
  useLayoutEffect(() => {
    const redraw = () => latestDraw.current(true);
    const resizing = new ResizeObserver(redraw);
    if (canvas.current) resizing.observe(canvas.current);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", redraw);
    return () => {
      resizing.disconnect();
      theme.removeEventListener("change", redraw);
    };
  }, []);
  useEffect(() => latestDraw.current(true), [channels, duration]);
  useEffect(() => {
    if (!isPlaying) return;
    const follow = () => {
      if (!resumed.current && audio.current) position.current = audio.current.currentTime;
      latestDraw.current();
      frame = requestAnimationFrame(follow);
    };
    let frame = requestAnimationFrame(follow);
    return () => cancelAnimationFrame(frame);
  }, [isPlaying]);

  const renew = (wasPlaying: boolean) => {
    resumed.current = { at: position.current, isPlaying: wasPlaying };
    renewedAt.current = position.current;
    setProblem(null);
    setPlaying(wasPlaying);
    setRound(round + 1);
  };
  const onError = () => {
    if (!audio.current) return;
    // An address that has ended is replaced; where the new one fails at the same place, it is something else.
    const isSame = renewedAt.current !== null && Math.abs(renewedAt.current - position.current) < 1;
    if (!isSame) return renew(isPlaying);
    resumed.current = null;
    setPlaying(false);
    setProblem(wordsFor(audio.current, file));
  };
  const toggle = () => {
    const { current: element } = audio;
    if (signing.error) renew(true);
    else if (resumed.current) {
      // It begins, or does not, once it has its new address.
      resumed.current.isPlaying = !isPlaying;
      setPlaying(!isPlaying);
    } else if (element && !element.paused) element.pause();
    // A refusal is told by the element's error.
    else element?.play().catch(() => {});
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const to = {
      ArrowLeft: position.current - STEP_SECONDS,
      ArrowDown: position.current - STEP_SECONDS,
      ArrowRight: position.current + STEP_SECONDS,
      ArrowUp: position.current + STEP_SECONDS,
      PageDown: position.current - PAGE_SECONDS,
      PageUp: position.current + PAGE_SECONDS,
      Home: 0,
      End: duration,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    seek(to);
  };
  const seekTo = (event: PointerEvent) => {
    const bar = event.currentTarget as HTMLElement;
    if (event.type === "pointerdown") bar.setPointerCapture(event.pointerId);
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const { left, width } = bar.getBoundingClientRect();
    seek(((event.clientX - left) / width) * duration);
  };
  const places = `${formatDuration(second)} of ${formatDuration(Math.floor(duration))}`;
  return (
    <section class="card player" aria-label="Player">
      {/* biome-ignore lint/a11y/useMediaCaption: what people upload comes without captions. */}
      <audio
        ref={audio}
        src={source?.address}
        preload="metadata"
        onLoadedMetadata={({ currentTarget }) => {
          setLength(currentTarget.duration);
          const { current: earlier } = resumed;
          resumed.current = null;
          if (!earlier) return;
          currentTarget.currentTime = earlier.at;
          if (earlier.isPlaying) currentTarget.play().catch(() => setPlaying(false));
        }}
        onDurationChange={({ currentTarget }) => setLength(currentTarget.duration)}
        onTimeUpdate={({ currentTarget }) => resumed.current || show(currentTarget.currentTime)}
        onPlay={() => setPlaying(true)}
        onPause={() => resumed.current || setPlaying(false)}
        onError={onError}
      />
      <button type="button" class="button primary" disabled={!source} onClick={toggle}>
        {isPlaying ? "Pause" : "Play"}
      </button>
      <div
        class="seek"
        role="slider"
        tabIndex={0}
        aria-label="Position"
        aria-valuemin={0}
        aria-valuemax={Math.floor(duration)}
        aria-valuenow={second}
        aria-valuetext={places}
        onKeyDown={onKeyDown}
        onPointerDown={seekTo}
        onPointerMove={seekTo}
      >
        <canvas ref={canvas} />
      </div>
      <p class="number">{places.replace(" of ", " / ")}</p>
      <button
        type="button"
        class="button small"
        aria-pressed={isMuted}
        onClick={() => {
          if (audio.current) audio.current.muted = !isMuted;
          setMuted(!isMuted);
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
          onInput={({ currentTarget: { valueAsNumber } }) => {
            if (audio.current) audio.current.volume = valueAsNumber / 100;
          }}
        />
      </label>
      <label>
        Speed
        <select
          onChange={({ currentTarget: { value } }) => {
            // The one by default is what a new address begins with.
            if (audio.current) audio.current.defaultPlaybackRate = audio.current.playbackRate = Number(value);
          }}
        >
          {SPEEDS.map((speed) => (
            <option key={speed} value={speed} selected={speed === 1}>
              {speed}×
            </option>
          ))}
        </select>
      </label>
      <Failure
        error={signing.error ?? (problem && new Refusal(problem))}
        onRetry={() => {
          renewedAt.current = null;
          renew(resumed.current?.isPlaying ?? false);
        }}
      />
    </section>
  );
}
