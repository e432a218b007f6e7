import { signal } from "@preact/signals";

const BAR_PIXELS = 2;
const STEP_PIXELS = 3;
const PLAIN_BAR_PIXELS = 4;

/** The file whose waveform this tab stored last, because no event reports that. */
export const storedWaveform = signal<string | null>(null);

const highestPeak = (peaks: number[], from: number, to: number): number => {
  let peak = 0;
  for (let place = from; place < to; place++) peak = Math.max(peak, Math.abs(peaks[place] ?? 0));
  return peak;
};

/**
 * Draws peaks as bars, the first channel upward and the last one downward; without peaks, a plain bar. The played part has
 * the canvas' `color`, the rest its `caret-color`, because scripts can read both. @param played from 0 to 1
 */
export function drawWaveform(canvas: HTMLCanvasElement, channels: number[][] | null, played: number): void {
  const ratio = devicePixelRatio;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  const middle = Math.round(height / 2);
  const paint = canvas.getContext("2d");
  if (!paint || width === 0) return;
  // Setting the size clears the canvas, even if it stays the same.
  canvas.width = width;
  canvas.height = height;
  const { color, caretColor } = getComputedStyle(canvas);
  const [top] = channels ?? [];
  if (!top) {
    const thickness = Math.round(PLAIN_BAR_PIXELS * ratio);
    const y = middle - Math.round(thickness / 2);
    paint.fillStyle = caretColor;
    paint.fillRect(0, y, width, thickness);
    paint.fillStyle = color;
    paint.fillRect(0, y, width * played, thickness);
    return;
  }
  const bottom = channels?.at(-1) ?? top;
  const count = Math.floor(width / (STEP_PIXELS * ratio));
  for (let bar = 0; bar < count; bar++) {
    const from = Math.floor((bar * top.length) / count);
    const to = Math.max(from + 1, Math.floor(((bar + 1) * top.length) / count));
    const above = Math.round(Math.max(ratio, highestPeak(top, from, to) * middle));
    const below = Math.round(Math.max(ratio, highestPeak(bottom, from, to) * middle));
    paint.fillStyle = (bar + 0.5) / count < played ? color : caretColor;
    paint.fillRect(
      Math.round(bar * STEP_PIXELS * ratio),
      middle - above,
      Math.round(BAR_PIXELS * ratio),
      above + below,
    );
  }
}
