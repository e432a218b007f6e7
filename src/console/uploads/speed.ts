import type { UploadRunner } from "../../client/upload-runner.ts";
import { change, type Details, type Upload } from "./upload.ts";

const DISPLAY_INTERVAL_MILLISECONDS = 250;
const SAVE_INTERVAL_MILLISECONDS = 1000;
/** The speed is an average over this time. */
const SPEED_WINDOW_MILLISECONDS = 5000;

interface Measured {
  samples: { at: number; sentBytes: number }[];
  savedAt: number;
}

const measured = new WeakMap<Upload, Measured>();

/** Shows the progress and speed of an upload, and saves the progress. */
export function measureProgress(runner: UploadRunner<Details>, upload: Upload): void {
  const { key, size, saved, kept } = upload;
  const at = performance.now();
  const { samples, savedAt } = measured.get(upload) ?? { samples: [], savedAt: at };
  const now = { at, sentBytes: Math.min(runner.sentBytesOf(key), size) };
  const last = samples.at(-1);
  // Bytes that did not arrive are sent again, so the count may decrease.
  const isBehind = last !== undefined && now.sentBytes < last.sentBytes;
  if (last && !isBehind && at - last.at < DISPLAY_INTERVAL_MILLISECONDS && now.sentBytes < size) return;
  const recent = isBehind ? [] : samples.filter((one) => at - one.at < SPEED_WINDOW_MILLISECONDS);
  const first = recent[0] ?? now;
  const bytes = now.sentBytes - first.sentBytes;
  change(upload, { sentBytes: now.sentBytes, bytesPerSecond: bytes && (bytes * 1000) / (at - first.at) });
  // Without an upload URL, nothing is stored until all bytes are.
  const isSaved = saved?.url !== undefined && kept !== undefined && at - savedAt >= SAVE_INTERVAL_MILLISECONDS;
  measured.set(upload, { samples: [...recent, now], savedAt: isSaved ? at : savedAt });
  if (isSaved) void runner.store.save([{ record: { key, sentBytes: now.sentBytes, at: Date.now() } }]);
}
