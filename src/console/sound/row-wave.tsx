import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { duration, playFrom, position, type Track, track } from "./playback.ts";
import { drawWaveform, followCanvas, waveformOf } from "./waveforms.ts";

/** Waveforms are drawn a little before their row is visible. */
const MARGIN = "200px";

const onVisible = new WeakMap<Element, (isVisible: boolean) => void>();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) onVisible.get(target)?.(isIntersecting);
  },
  { rootMargin: MARGIN },
);

/** The highest of the peaks that a list has of each file. */
const MAX_LISTED_PEAK = 99;

interface RowWaveProps {
  file: Track & { peaks: number[] | null };
  tracks: () => Track[];
}

/** The waveform of a file in a list, by the few peaks that the list has. Only visible ones are drawn. A click plays from there. */
export function RowWave({ file, tracks }: RowWaveProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { _id, peaks } = file;
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    const listed = peaks && [peaks.map((peak) => peak / MAX_LISTED_PEAK)];
    let end = () => {};
    const show = () => {
      let drawn = "";
      const draw = () => {
        const isCurrent = track.value?._id === _id;
        const played = isCurrent && duration.value > 0 ? position.value / duration.value : 0;
        // The list may be older than the waveform that this tab has measured.
        const channels = listed ?? waveformOf(_id).value;
        const next = `${Math.round(played * element.clientWidth)} ${channels?.length} ${isCurrent}`;
        if (next !== drawn && channels) drawWaveform(element, channels, played);
        drawn = next;
      };
      const stop = effect(draw);
      const unfollow = followCanvas(element, () => {
        drawn = "";
        draw();
      });
      end = () => {
        stop();
        unfollow();
        end = () => {};
      };
    };
    onVisible.set(element, (visible) => {
      end();
      if (visible) show();
    });
    observer.observe(element);
    return () => {
      observer.unobserve(element);
      end();
    };
  }, [_id, peaks?.join()]);
  const play = (event: MouseEvent) => {
    event.stopPropagation();
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    playFrom(file, ((event.clientX - left) / width) * (file.durationSeconds ?? 0), tracks());
  };
  // The player's slider does the same by keyboard.
  return <canvas ref={canvas} class="row-wave" onClick={play} />;
}
