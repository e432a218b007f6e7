import type { Durations, Mode } from "./durations.ts";

/** The goals of a run on two free cores of a machine with slowness 1 (`calibration.ts`), in parallel with the checks. */
export const GOAL_SECONDS: Record<Mode, number> = { fast: 5 * 60, all: 15 * 60 };
/** A run that takes more than this many times its goal fails. */
const TOLERANCE = 1.5;
const NAMED_FILES = 3;

/** Returns the limit of a run. A fast machine gets no lower one, because some tests wait and don't compute. */
export const limitOf = (mode: Mode, slowness: number): number => TOLERANCE * GOAL_SECONDS[mode] * Math.max(1, slowness);

/** Returns the files whose durations grew most, each with the seconds that it grew by. */
export function findGrowth(durations: Durations, recorded: Durations): [file: string, seconds: number][] {
  return Object.entries(durations)
    .map(([file, seconds]): [string, number] => [file, seconds - (recorded[file] ?? 0)])
    .filter(([, seconds]) => seconds > 0)
    .sort(([, a], [, b]) => b - a)
    .slice(0, NAMED_FILES);
}

/** Returns why a run of this duration fails, or null. The durations are those of a machine with slowness 1. */
export function findOverrun(
  mode: Mode,
  seconds: number,
  slowness: number,
  durations: Durations,
  recorded: Durations,
): string | null {
  const limit = limitOf(mode, slowness);
  if (seconds <= limit) return null;
  const growth = findGrowth(durations, recorded).map(([file, grown]) => `${file} by ${grown.toFixed(0)} s`);
  const files = growth.length > 0 ? ` The files that grew most: ${growth.join(", ")}.` : "";
  return `The run took ${seconds.toFixed(0)} s, more than its ${limit.toFixed(0)} s.${files}`;
}
