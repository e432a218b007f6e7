import { useComputed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { duration, playFrom, position, type Track, track } from "./player-state.ts";
import { levelsOf, spread, waveformOf } from "./waveforms.ts";

/** The highest of the peaks that a list has of each file, and their count. */
const MAX_LISTED_PEAK = 99;
const LISTED_PEAKS = 56;
/** Shows silence as a line. */
const MIN_LEVEL = 0.06;

interface RowWaveProps {
  file: Track;
  tracks: () => Track[];
}

/**
 * The waveform of a file in a list, by the few peaks that the list has. A click plays from there. It is a path, because
 * browsers composite each canvas, which makes a long list scroll at half the speed.
 */
export function RowWave({ file, tracks }: RowWaveProps) {
  const { _id, peaks, durationSeconds } = file;
  const measured = useComputed(() => (peaks ? null : waveformOf(_id).value)).value;
  const bars = useMemo(() => {
    // The list may be older than the waveform that this tab has measured.
    const [first = []] = measured ?? [];
    const levels = peaks
      ? peaks.map((peak) => peak / MAX_LISTED_PEAK)
      : first.length > 0
        ? levelsOf(first, LISTED_PEAKS)
        : [];
    const heightOf = spread(levels);
    return levels.map((level, at) => {
      const height = Math.max(heightOf(level), MIN_LEVEL);
      return `M${at + 0.5} ${(1 - height).toFixed(2)}v${(2 * height).toFixed(2)}`;
    });
  }, [peaks?.join(), measured]);
  /** How many bars were played. */
  const played = useComputed(() =>
    track.value?._id === _id && duration.value > 0 ? Math.round((position.value / duration.value) * bars.length) : 0,
  ).value;
  const play = (event: MouseEvent) => {
    event.stopPropagation();
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    playFrom(file, ((event.clientX - left) / width) * (durationSeconds ?? 0), tracks());
  };
  // The player's slider does the same by keyboard.
  return (
    <svg
      class="row-wave"
      viewBox={`0 0 ${bars.length || 1} 2`}
      preserveAspectRatio="none"
      aria-hidden="true"
      onClick={play}
    >
      <path d={bars.join("")} />
      {played > 0 && <path class="played" d={bars.slice(0, played).join("")} />}
    </svg>
  );
}
