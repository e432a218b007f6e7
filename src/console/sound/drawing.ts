import { levelsOf, type Part, spread } from "./waveforms.ts";

/* How a player draws a waveform and its ruler, and the silent parts of a recording. */

const BAR_PIXELS = 2;
const STEP_PIXELS = 3;
const PLAIN_BAR_PIXELS = 4;
const PLAYHEAD_PIXELS = 2;
/** How much is left of the bars outside of a clip. */
const OUTSIDE_ALPHA = 0.4;
/** Quieter than -40 dB for longer than this counts as silence. */
const SILENT_PEAK = 0.01;
const MIN_SILENCE_SECONDS = 1.2;

/** The most parts of a recording's ruler, on a wide and on a narrow screen. */
const [MAX_PARTS, MAX_COARSE_PARTS] = [8, 5];
const RULER_STEPS = [1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 21_600, 86_400];
/** A time this near to the end would overlap that of the end: a share of the visible part. */
const [MIN_REST, MIN_COARSE_REST] = [0.08, 0.25];

/** The round times below a recording, which end before its duration. The coarse ones fit a narrow screen. @param zoom how many times it is as wide as the screen */
export function rulerTicks(seconds: number, zoom = 1): { at: number; isCoarse: boolean }[] {
  const shown = seconds / zoom;
  const stepFor = (parts: number) => RULER_STEPS.find((step) => shown / step <= parts) ?? seconds;
  const [step, coarse] = [stepFor(MAX_PARTS), stepFor(MAX_COARSE_PARTS)];
  const ticks = Array.from({ length: Math.max(1, Math.ceil(seconds / step)) }, (_, place) => place * step);
  return ticks
    .filter((at) => at === 0 || seconds - at >= shown * MIN_REST)
    .map((at) => ({ at, isCoarse: at === 0 || (at % coarse === 0 && seconds - at >= shown * MIN_COARSE_REST) }));
}

/** The silent parts of a recording, as pairs of seconds. */
export function silencesOf(channels: number[][], durationSeconds: number): [number, number][] {
  const [first = []] = channels;
  const seconds = durationSeconds / first.length;
  const found: [number, number][] = [];
  let from = 0;
  for (let place = 0; place <= first.length; place++) {
    const isSilent = place < first.length && channels.every((peaks) => Math.abs(peaks[place] ?? 0) < SILENT_PEAK);
    if (isSilent) continue;
    if ((place - from) * seconds > MIN_SILENCE_SECONDS) found.push([from * seconds, place * seconds]);
    from = place + 1;
  }
  return found;
}

interface Parts {
  /** The played part, up to the position. */
  played: Part;
  /** The state that the canvas shows. */
  shown: Part;
  /** The clip. The rest is dimmed. */
  marked?: Part | null;
}

/**
 * Draws peaks as bars, the first channel upward and the last one downward, with a line at the position; without peaks, a plain
 * bar. The played part has the `fill` of the canvas and the rest its `stroke`, because scripts can read both.
 */
export function drawWaveform(
  canvas: HTMLCanvasElement,
  channels: number[][] | undefined,
  { played, shown, marked }: Parts,
): void {
  const ratio = devicePixelRatio;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  const middle = Math.round(height / 2);
  const paint = canvas.getContext("2d");
  if (!paint || width === 0) return;
  // Setting the size clears the canvas, even if it stays the same.
  canvas.width = width;
  canvas.height = height;
  const { fill, stroke } = getComputedStyle(canvas);
  const placesOf = ({ from, to }: Part) =>
    [from, to].map((share) => (share - shown.from) / (shown.to - shown.from)) as [number, number];
  const [from, to] = placesOf(played);
  const [clipFrom, clipTo] = placesOf(marked ?? shown);
  const [top] = channels ?? [];
  if (!top || canvas.clientHeight <= PLAIN_BAR_PIXELS) {
    const thickness = Math.round(PLAIN_BAR_PIXELS * ratio);
    const y = middle - Math.round(thickness / 2);
    paint.fillStyle = stroke;
    paint.fillRect(0, y, width, thickness);
    paint.fillStyle = fill;
    paint.fillRect(width * from, y, width * (to - from), thickness);
    return;
  }
  const count = Math.floor(width / (STEP_PIXELS * ratio));
  const sides = [top, channels?.at(-1) ?? top];
  const [up, down] = sides.map((peaks) => levelsOf(peaks, count, shown)) as [number[], number[]];
  // A part is drawn as high as it is in the whole.
  const heightOf = spread(sides.flatMap((peaks) => levelsOf(peaks, count)));
  for (let bar = 0; bar < count; bar++) {
    const [above, below] = [up, down].map((levels) =>
      Math.round(Math.max(ratio, Math.min(1, heightOf(levels[bar] ?? 0)) * middle)),
    ) as [number, number];
    const at = (bar + 0.5) / count;
    paint.fillStyle = at >= from && at < to ? fill : stroke;
    paint.globalAlpha = at >= clipFrom && at < clipTo ? 1 : OUTSIDE_ALPHA;
    paint.fillRect(
      Math.round(bar * STEP_PIXELS * ratio),
      middle - above,
      Math.round(BAR_PIXELS * ratio),
      above + below,
    );
  }
  if (played.to === 0 || to < 0 || to > 1) return;
  const line = PLAYHEAD_PIXELS * ratio;
  paint.fillStyle = fill;
  paint.globalAlpha = 1;
  paint.fillRect(Math.min(Math.round(width * to), width - line), 0, line, height);
}

/** Calls `redraw` if the size of an element or the theme changes. @returns a function that ends this */
export function followCanvas(element: Element, redraw: () => void): () => void {
  const resizing = new ResizeObserver(redraw);
  resizing.observe(element);
  const themes = ["prefers-color-scheme: dark", "forced-colors: active"].map((theme) => matchMedia(`(${theme})`));
  for (const theme of themes) theme.addEventListener("change", redraw);
  return () => {
    resizing.disconnect();
    for (const theme of themes) theme.removeEventListener("change", redraw);
  };
}
