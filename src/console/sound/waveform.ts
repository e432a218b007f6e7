import { signal } from "@preact/signals";

const BAR_PIXELS = 2;
const STEP_PIXELS = 3;
const PLAIN_PIXELS = 4;

/** The file whose waveform this page was the last to store: no event tells of it. */
export const drawnFile = signal<string | null>(null);

const peakOf = (peaks: number[], from: number, to: number): number => {
  let peak = 0;
  for (let place = from; place < to; place++) peak = Math.max(peak, Math.abs(peaks[place] ?? 0));
  return peak;
};

/**
 * Draws peaks as bars, the first channel upwards and the last downwards; a plain bar where there are none. What is
 * played is in the canvas' `color`, the rest in its `caret-color`. @param played from 0 to 1
 */
export function drawWaveform(canvas: HTMLCanvasElement, channels: number[][] | null, played: number): void {
  const ratio = devicePixelRatio;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  const middle = Math.round(height / 2);
  const paint = canvas.getContext("2d");
  const [top] = channels ?? [];
  if (!paint || width === 0) return;
  // Setting either clears the canvas, even where it is the same.
  canvas.width = width;
  canvas.height = height;
  const { color, caretColor } = getComputedStyle(canvas);
  if (!top) {
    const plain = Math.round(PLAIN_PIXELS * ratio);
    const y = middle - Math.round(plain / 2);
    paint.fillStyle = caretColor;
    paint.fillRect(0, y, width, plain);
    paint.fillStyle = color;
    paint.fillRect(0, y, width * played, plain);
    return;
  }
  const bottom = channels?.at(-1) ?? top;
  const count = Math.floor(width / (STEP_PIXELS * ratio));
  for (let bar = 0; bar < count; bar++) {
    const from = Math.floor((bar * top.length) / count);
    const to = Math.max(from + 1, Math.floor(((bar + 1) * top.length) / count));
    const above = Math.round(Math.max(ratio, peakOf(top, from, to) * middle));
    const below = Math.round(Math.max(ratio, peakOf(bottom, from, to) * middle));
    paint.fillStyle = (bar + 0.5) / count < played ? color : caretColor;
    paint.fillRect(
      Math.round(bar * STEP_PIXELS * ratio),
      middle - above,
      Math.round(BAR_PIXELS * ratio),
      above + below,
    );
  }
}
