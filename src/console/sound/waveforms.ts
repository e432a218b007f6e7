import type { Signal } from "@preact/signals";
import { tabSignal } from "../framework/signals.ts";

/* The waveforms that this tab knows, and how high they are drawn. The page of a link uses them, too. */

const QUIET_HEIGHT = 0.5;
/** A higher power would show the noise of a steady tone. */
const MAX_POWER = 4;

/** The peaks of each channel by the id of the file. */
const waveforms = new Map<string, Signal<number[][] | undefined>>();

/** The waveform of a file, undefined until there is one that is known. */
export function waveformOf(id: string): Signal<number[][] | undefined> {
  const found = waveforms.get(id) ?? tabSignal<number[][] | undefined>(undefined);
  waveforms.set(id, found);
  return found;
}

/** Remembers a waveform that this tab has measured. */
export function rememberWaveform(id: string, channels: number[][]): void {
  waveformOf(id).value = channels;
}

/** A part of a recording, from 0 to 1. */
export interface Part {
  from: number;
  to: number;
}
const WHOLE: Part = { from: 0, to: 1 };

/** The mean peak in each of `count` sections of a part. */
export function levelsOf(peaks: number[], count: number, { from: start, to: end } = WHOLE): number[] {
  const placeOf = (section: number) =>
    Math.floor(start * peaks.length + ((end - start) * section * peaks.length) / count);
  return Array.from({ length: count }, (_, section) => {
    const from = Math.min(placeOf(section), peaks.length - 1);
    const to = Math.max(from + 1, placeOf(section + 1));
    return peaks.slice(from, to).reduce((sum, peak) => sum + Math.abs(peak), 0) / (to - from);
  });
}

/**
 * The height of each level. Long recordings are about as loud in each part. So that their parts differ, too, levels are
 * raised to a power by which the quieter ones, at the 20th percentile, have half the height of the loudest. A recording that
 * already differs keeps its proportions. A quiet recording is drawn higher than it is, but not as high as a loud one.
 */
export function spread(levels: number[]): (level: number) => number {
  const sorted = [...levels].sort((one, other) => one - other);
  const loudest = sorted.at(-1) || 1;
  const quiet = (sorted[Math.floor(sorted.length / 5)] ?? 0) / loudest;
  const power = Math.max(1, Math.min(MAX_POWER, Math.log(QUIET_HEIGHT) / Math.log(quiet)));
  return (level) => Math.sqrt(loudest) * (level / loudest) ** power;
}
