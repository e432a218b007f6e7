import type { FileMetadata } from "../../client/index.ts";
import { useData } from "../framework/store.ts";
import { Failure } from "../parts/failure.tsx";
import { isVisual, Picture } from "./picture.tsx";
import { signedUrl } from "./signed-url.ts";

/** As much of a text as a glance needs. */
const MAX_TEXT_BYTES = 4000;
const MAX_LINES = 40;

/** Shows a video or an image, or the start of a text; nothing for other files. */
export function Preview({ file }: { file: FileMetadata }) {
  if (isVisual(file)) return <SignedPicture file={file} />;
  return file.fileType === "text file" && file.size > 0 ? <Text file={file} /> : null;
}

function SignedPicture({ file }: { file: FileMetadata }) {
  const { value, error, reload } = useData(["url", file._id], () => signedUrl(file._id));
  return (
    <section class="card" aria-label="Preview">
      <Failure error={error} onRetry={reload} />
      <Picture file={file} url={value} />
    </section>
  );
}

/** The first lines, read by a range request. */
function Text({ file: { _id } }: { file: FileMetadata }) {
  const load = async (signal: AbortSignal) => {
    const headers = { Range: `bytes=0-${MAX_TEXT_BYTES - 1}` };
    const response = await fetch(await signedUrl(_id), { headers, signal }).catch(() => null);
    const text = response?.ok ? await response.text() : "";
    return text.split("\n").slice(0, MAX_LINES).join("\n");
  };
  const { value } = useData(["text", _id], load);
  if (!value) return null;
  return (
    <section class="card" aria-label="Start of the text">
      <pre class="preview" dir="auto">
        {value}
      </pre>
    </section>
  );
}
