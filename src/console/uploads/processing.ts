import { effect } from "@preact/signals";
import { type FileEvent, isFileEvent } from "../../client/index.ts";
import { isForBrowser, measurePeaks } from "../../client/peaks.ts";
import { canFollow, isLive, onEvent } from "../framework/live.ts";
import { call, can } from "../framework/session.ts";
import { touch } from "../framework/store.ts";
import { rememberWaveform } from "../sound/waveforms.ts";
import { isProcessing } from "./summary.ts";
import { cancel, change, findByFileId, type Upload, uploads } from "./upload.ts";

const POLL_MILLISECONDS = 3000;
/** The number of files to poll at a time. The service processes files in about their order. */
const MAX_POLLED = 5;

/** Events report the result of processing. This covers the ones that were sent before the file's id was known. */
export async function fetchProcessing(upload: Upload): Promise<void> {
  if (!upload.stored || !isProcessing(upload)) return;
  const { _id } = upload.stored;
  await call(({ files }) => files.get(_id)).then(
    (file) => update(upload, file),
    () => {},
  );
}

type Processed = Pick<FileEvent["data"], "_id" | "status" | "failure" | "audio" | "fileType">;

function update(upload: Upload, { _id, status, failure, audio, fileType }: Processed): void {
  change(upload, { stored: { _id, status, failure, fileType } });
  if (status !== "completed" && status !== "failed") return;
  // Nothing else reloads the list.
  if (!canFollow.peek()) touch("file");
  const { file } = upload;
  upload.file = undefined;
  if (file && audio && isForBrowser(audio, file.size) && can("files:write")) void storePeaks(_id, file);
}

/** Stores the waveform that the service can't measure, while the bytes are at hand. */
async function storePeaks(id: string, file: File): Promise<void> {
  const peaks = await measurePeaks(file);
  if (!peaks) return;
  rememberWaveform(id, peaks);
  await call(({ files }) => files.setWaveform(id, peaks)).catch(() => {});
}

/** Follows the processing of uploads for as long as the tab lives. */
export function followProcessing(): void {
  onEvent((event) => {
    if (!isFileEvent(event)) return;
    const upload = findByFileId(event.subject.id);
    if (!upload) return;
    if (event.type === "file.deleted" || event.type === "file.trashed") cancel([upload]);
    else update(upload, event.data);
  });
  effect(() => {
    if (isLive.value) for (const upload of uploads.peek()) void fetchProcessing(upload);
  });
  // Without events, nothing else reports the result.
  setInterval(() => {
    if (canFollow.peek()) return;
    for (const upload of uploads.peek().filter(isProcessing).slice(0, MAX_POLLED)) void fetchProcessing(upload);
  }, POLL_MILLISECONDS);
}
