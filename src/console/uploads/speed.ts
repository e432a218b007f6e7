import { savedUploads } from "./saved.ts";
import { change, type Upload } from "./upload.ts";

const DISPLAY_INTERVAL_MILLISECONDS = 250;
const SAVE_INTERVAL_MILLISECONDS = 1000;
/** The speed is an average over this time. */
const SPEED_WINDOW_MILLISECONDS = 5000;

/** Turns the byte counts of an upload into its progress and speed. @returns the listener for byte counts */
export function measureProgress(upload: Upload): (sentBytes: number) => void {
  let samples: { at: number; sentBytes: number }[] = [];
  let savedAt = performance.now();
  return (reported) => {
    const now = { at: performance.now(), sentBytes: Math.min(reported, upload.size) };
    const last = samples.at(-1);
    // Bytes that did not arrive are sent again, so the count may decrease.
    if (last && now.sentBytes < last.sentBytes) samples = [];
    else if (last && now.at - last.at < DISPLAY_INTERVAL_MILLISECONDS && now.sentBytes < upload.size) return;
    samples = [...samples.filter(({ at }) => now.at - at < SPEED_WINDOW_MILLISECONDS), now];
    const first = samples[0] ?? now;
    const bytes = now.sentBytes - first.sentBytes;
    if (bytes > 0) upload.failures = 0;
    change(upload, { sentBytes: now.sentBytes, bytesPerSecond: bytes && (bytes * 1000) / (now.at - first.at) });
    // Without an upload URL, nothing is stored until all bytes are.
    if (!upload.saved?.url || now.at - savedAt < SAVE_INTERVAL_MILLISECONDS) return;
    savedAt = now.at;
    void savedUploads.update([upload.key], { sentBytes: now.sentBytes, at: Date.now() });
  };
}
