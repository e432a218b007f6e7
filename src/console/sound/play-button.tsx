import { useComputed } from "@preact/signals";
import { duration, isPlaying, position, type Track, toggle, track } from "./player-state.ts";

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
