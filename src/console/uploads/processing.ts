import { effect } from "@preact/signals";
import { type FileEvent, isFileEvent } from "../../client/stowage.ts";
import { isLive, onEvent } from "../live.ts";
import { client, noteFailure } from "../session.ts";
import { peaksOf, type Sound } from "../sound/peaks.ts";
import { drawnFile } from "../sound/waveform.ts";
import { change, dismiss, type Upload, uploads } from "./upload.ts";

/** Events tell how processing ends, but for what they told before the file's id was known. */
export async function look(upload: Upload): Promise<void> {
  const { file } = upload.progress.peek();
  if (!file || file.status === "completed" || file.status === "failed") return;
  const asked = client.peek();
  try {
    learn(upload, await asked.files.get(file._id));
  } catch (error) {
    noteFailure(error, asked);
  }
}

function learn(
  upload: Upload,
  { _id, status, failure, audio }: Pick<FileEvent["data"], "_id" | "status" | "failure" | "audio">,
): void {
  change(upload, { file: { _id, status, failure } });
  if (status !== "completed" && status !== "failed") return;
  const { file } = upload;
  upload.file = undefined;
  if (file && audio) void draw(_id, file, audio);
}

/** Whoever opens the file sees its waveform, without decoding it. What fails here is missed by nobody. */
async function draw(id: string, file: File, audio: Sound): Promise<void> {
  const asked = client.peek();
  const peaks = await peaksOf(file, audio);
  if (!peaks) return;
  try {
    await asked.files.setWaveform(id, peaks);
    drawnFile.value = id;
  } catch (error) {
    noteFailure(error, asked);
  }
}

/** From the start of the page. */
export function followProcessing(): void {
  onEvent((event) => {
    if (!isFileEvent(event)) return;
    const upload = uploads.peek().find(({ progress }) => progress.peek().file?._id === event.subject.id);
    if (!upload) return;
    if (event.type === "file.deleted") dismiss(upload);
    else learn(upload, event.data);
  });
  effect(() => {
    if (isLive.value) for (const upload of uploads.peek()) void look(upload);
  });
}
