import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { duration, playFrom, position, type Track, track } from "./playback.ts";
import { loadWaveform } from "./waveform-loading.ts";
import { drawWaveform, followCanvas, waveformOf } from "./waveforms.ts";

/** Waveforms load a little before their row is visible. */
const MARGIN = "200px";

const onVisible = new WeakMap<Element, (isVisible: boolean) => void>();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) onVisible.get(target)?.(isIntersecting);
  },
  { rootMargin: MARGIN },
);

/** The waveform of a file in a list. Only visible ones are loaded and drawn. A click plays from there. */
export function RowWave({ file, tracks }: { file: Track; tracks: () => Track[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { _id } = file;
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    let isVisible = false;
    let end = () => {};
    const show = () => {
      void loadWaveform(_id, () => isVisible);
      const channels = waveformOf(_id);
      let drawn = "";
      const draw = () => {
        const isCurrent = track.value?._id === _id;
        const played = isCurrent && duration.value > 0 ? position.value / duration.value : 0;
        const next = `${Math.round(played * element.clientWidth)} ${channels.value?.length} ${isCurrent}`;
        if (next !== drawn && channels.value) drawWaveform(element, channels.value, played);
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
      isVisible = visible;
      end();
      if (visible) show();
    });
    observer.observe(element);
    return () => {
      observer.unobserve(element);
      end();
    };
  }, [_id]);
  const play = (event: MouseEvent) => {
    event.stopPropagation();
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    playFrom(file, ((event.clientX - left) / width) * (file.durationSeconds ?? 0), tracks());
  };
  // The player's slider does the same by keyboard.
  return <canvas ref={canvas} class="row-wave" onClick={play} />;
}
