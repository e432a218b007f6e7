import type { FileMetadata } from "../../client/index.ts";
import { type Action, ActionButton, type Actions } from "../framework/action.tsx";
import { ask } from "../framework/dialog.tsx";
import { UserError } from "../framework/errors.ts";
import { query } from "../framework/router.ts";
import { script } from "../framework/script.tsx";
import { can, client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { SHARE_FORM } from "../links/sharing.tsx";
import { Failure } from "../parts/failure.tsx";
import { splitName } from "../parts/file-name.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { Menu } from "../parts/menu.tsx";
import { Skeleton } from "../parts/page.tsx";
import { announceChange } from "./file-changes.ts";

/** Most files have none, and the names of all character references are large. */
const Transcript = script(() => import("../sound/transcript.tsx")).view(({ Transcript }) => Transcript);

/** The API's limit. A larger file isn't read: it may be the recording itself. */
const MAX_TRANSCRIPT_BYTES = 2 * 1024 * 1024;

async function readVtt(file: File): Promise<string> {
  if (file.size > MAX_TRANSCRIPT_BYTES) throw new UserError("A transcript can have at most 2 MiB.");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new UserError("This file isn't text in UTF-8. Choose a WebVTT file (.vtt).");
  }
}

/** Changes the transcript. Undoing restores the one before. */
async function changeTranscript({ _id, transcript }: FileMetadata, done: string, change: () => Promise<unknown>) {
  const { files } = client.value;
  const before = transcript && (await files.getTranscript(_id));
  await change();
  announceChange(done, () =>
    before
      ? files.setTranscript(_id, before, { language: transcript?.language ?? undefined })
      : files.deleteTranscript(_id),
  );
}

const setTranscript = (file: FileMetadata) =>
  ask({
    title: file.transcript ? "Replace transcript" : "Add transcript",
    text: (
      <>
        <TextField
          label="Transcript file"
          name="vtt"
          type="file"
          accept=".vtt,.srt,text/vtt,application/x-subrip"
          required
          hint="A .vtt or .srt file of up to 2 MiB."
        />
        <TextField
          label="Language"
          name="language"
          maxLength={35}
          spellcheck={false}
          defaultValue={file.transcript?.language ?? ""}
          hint="Optional, such as en or de-CH."
        />
      </>
    ),
    action: file.transcript ? "Replace transcript" : "Add transcript",
    run: async (form) => {
      const vtt = await readVtt(new FormData(form).get("vtt") as File);
      const language = textOf(form, "language") || undefined;
      await changeTranscript(file, file.transcript ? "Transcript replaced" : "Transcript added", () =>
        client.value.files.setTranscript(file._id, vtt, { language }),
      );
    },
  });

async function downloadTranscript({ _id, name }: FileMetadata) {
  const vtt = (await client.value.files.getTranscript(_id)) ?? "";
  const url = URL.createObjectURL(new Blob([vtt], { type: "text/vtt" }));
  Object.assign(document.createElement("a"), { href: url, download: `${splitName(name)[0]}.vtt` }).click();
  URL.revokeObjectURL(url);
}

/** For a file without a transcript. */
export const addTranscript = (file: FileMetadata): Action => ({
  label: "Add transcript",
  icon: "document",
  scope: "files:write",
  run: () => setTranscript(file),
});

const transcriptActions = (file: FileMetadata): Actions => [
  { label: "Replace transcript", icon: "upload", scope: "files:write", run: () => setTranscript(file) },
  { label: "Download transcript", icon: "download", run: () => downloadTranscript(file) },
  {
    label: "Remove transcript",
    icon: "trash",
    scope: "files:write",
    isDangerous: true,
    run: () => changeTranscript(file, "Transcript removed", () => client.value.files.deleteTranscript(file._id)),
  },
];

/** The transcript of a recording, or the way to add one. */
export function TranscriptCard({ file }: { file: FileMetadata }) {
  const { _id, transcript } = file;
  const { value, error, reload } = useData(["transcript", _id, transcript?.updatedAt], async (signal) =>
    transcript ? client.value.files.getTranscript(_id, { signal }) : null,
  );
  if (error) return <Failure error={error} onRetry={reload} />;
  if (transcript)
    return (
      <div class="card">
        {value ? (
          <Transcript
            file={file}
            vtt={value}
            language={transcript.language}
            search={query.value.get("q") ?? ""}
            copyClip={{ form: SHARE_FORM }}
          >
            <Menu label="Actions for the transcript" items={transcriptActions(file)} />
          </Transcript>
        ) : (
          <Skeleton />
        )}
      </div>
    );
  if (!can("files:write")) return null;
  return (
    <section class="card stack" aria-labelledby="no-transcript">
      <h2 id="no-transcript">Transcript</h2>
      <p class="quiet">Follows the recording, here and on the pages of its links.</p>
      <ActionButton action={addTranscript(file)} class="start" />
    </section>
  );
}
