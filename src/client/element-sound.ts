import type { Access } from "./element-access.ts";
import { isUnknownForBrowser, measurePeaks } from "./peaks.ts";

/* The code that the upload element loads with the first recording, or with the first file whose waveform it may have to measure. */

export { Recorder } from "./element-recorder.ts";
export { RECORDER_TEXTS } from "./element-recorder-texts.ts";

/** Sends the waveform of a stored file, if the service does not measure it. Nothing else needs it. */
export async function sendWaveform(access: Access, id: string, file: File): Promise<void> {
  const channels = (await isUnknownForBrowser(file)) && (await measurePeaks(file));
  if (!channels) return;
  const body = JSON.stringify({ channels });
  const headers = { "Content-Type": "application/json" };
  await access.call((sender) =>
    sender.stream(`/docs/v1/uploads/${id}/waveform`, { method: "PUT", headers, body }, () => {}),
  );
}
