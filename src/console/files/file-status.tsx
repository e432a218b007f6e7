import type { StoredFile } from "../../client/index.ts";
import { lacksAudio } from "./file-rows.ts";

/** A status that the API gains does not compile until it has a label. */
export const STATUS_LABELS: Record<StoredFile["status"], string> = {
  pending: "Queued",
  processing: "Processing",
  completed: "Ready",
  failed: "Failed",
};

const STATUS_CLASSES: Record<StoredFile["status"], string> = {
  pending: "busy",
  processing: "busy",
  completed: "good",
  failed: "bad",
};

export const StatusBadge = ({ status }: Pick<StoredFile, "status">) => (
  <span class={`badge ${STATUS_CLASSES[status]}`}>{STATUS_LABELS[status]}</span>
);

type FileLike = Parameters<typeof lacksAudio>[0];

/** The status of a file, or that it has no audio despite its name. */
export const FileStatus = ({ file }: { file: FileLike }) =>
  lacksAudio(file) ? <span class="badge busy">No audio found</span> : <StatusBadge status={file.status} />;
