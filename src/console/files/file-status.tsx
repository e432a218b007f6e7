import { StatusBadge } from "../parts/values.tsx";
import { lacksAudio } from "./file-rows.ts";

type FileLike = Parameters<typeof lacksAudio>[0];

/** The status of a file, or that it has no audio despite its name. */
export const FileStatus = ({ file }: { file: FileLike }) =>
  lacksAudio(file) ? <span class="badge busy">No audio found</span> : <StatusBadge status={file.status} />;
