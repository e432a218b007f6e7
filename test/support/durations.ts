import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/*
 * How long each test file takes. The last run's durations are kept on this machine. `test/durations.json` is checked in: it
 * orders the first run in a fresh clone, and shows which files have grown. `npm run test:durations` renews it.
 */

const root = join(import.meta.dirname, "../..");
export const RECORDED = join(root, "test/durations.json");
const LAST = join(root, "node_modules/.cache/stowage-tests/durations.json");

/** Seconds by the file's path from the root, on a machine that is as fast as the goals assume. */
export type Durations = Record<string, number>;
/** `npm test`, and `npm run test:all`, in which the same file may do more. */
export type Mode = "fast" | "all";
type DurationsByMode = Record<Mode, Durations>;

function read(path: string): DurationsByMode {
  try {
    return { fast: {}, all: {}, ...JSON.parse(readFileSync(path, "utf8")) };
  } catch {
    return { fast: {}, all: {} };
  }
}

export const readRecorded = (mode: Mode): Durations => read(RECORDED)[mode];

/** The last run's durations, and the recorded ones of files that haven't run here. */
export const readExpected = (mode: Mode): Durations => ({ ...readRecorded(mode), ...read(LAST)[mode] });

/** Keeps the durations of a run, and those of the files that it left out. */
export function keepLast(mode: Mode, durations: Durations): void {
  const last = read(LAST);
  mkdirSync(dirname(LAST), { recursive: true });
  writeFileSync(LAST, JSON.stringify({ ...last, [mode]: { ...last[mode], ...durations } }));
}

/** Writes the checked-in record. @returns its text */
export function record(): string {
  const expected = { fast: readExpected("fast"), all: readExpected("all") };
  const rounded = Object.entries(expected).map(([mode, durations]) => {
    const files = Object.entries(durations).sort(([a], [b]) => (a < b ? -1 : 1));
    const existing = files.filter(([file]) => existsSync(join(root, file)));
    return [mode, Object.fromEntries(existing.map(([file, seconds]) => [file, Math.round(seconds)]))];
  });
  const text = `${JSON.stringify(Object.fromEntries(rounded), null, 2)}\n`;
  writeFileSync(RECORDED, text);
  return text;
}

/** Vite's mode is "all" for `npm run test:all`. */
export const modeOf = (viteMode: string): Mode => (viteMode === "all" ? "all" : "fast");
