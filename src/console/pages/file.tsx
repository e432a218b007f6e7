import { useRef, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { Actor, useNames } from "../parts/event.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { FactCard, Facts } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatCount, formatDuration, TYPE_LABELS } from "../parts/format.ts";
import { useEvents, useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { Copyable, StatusBadge, Time } from "../parts/values.tsx";
import { lastList, navigate } from "../router.ts";
import { can, client } from "../session.ts";
import { FilePlayer } from "../sound/player.tsx";
import { DeleteFiles } from "./delete-files.tsx";
import { folderUrl, MoveDialog } from "./folders.tsx";
import { Rename } from "./rename.tsx";
import { Sharing } from "./sharing.tsx";
import { TagDialog, Tags } from "./tags.tsx";

/** The API explains these to developers; users need to know what to do. */
const FAILURES: Record<NonNullable<FileMetadata["failure"]>["code"], string> = {
  audio_unreadable: "We couldn't find any audio in this file. It may be damaged.",
  retries_exhausted: "Processing failed after several attempts. Try reprocessing the file.",
  inspection_failed: "We couldn't read this file because of an error on our side.",
  bytes_altered: "The stored file is corrupted. Upload it again.",
  bytes_missing: "The stored file is missing. Upload it again.",
  type_not_allowed: "The key that uploaded this file isn't allowed to upload files of this type.",
};

export function FilePage({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.value.files.get(id, { signal }), [id]);
  const { value: file, error, reload } = loaded;
  useEvents(({ subject }) => subject.id === id, reload);
  const back = <a href={lastList.url}>← Files</a>;
  if (isMissing(error)) return <Unloaded noun="File" of={loaded} back={back} />;
  return (
    <Page
      title={file?.name ?? "File"}
      back={back}
      actions={file && <Actions file={file} onChanged={reload} />}
      call={{ path: `/docs/v1/uploads/${id}/metadata` }}
    >
      <Failure error={error} onRetry={reload} />
      {file ? <Details file={file} /> : !error && <p role="status">Loading…</p>}
    </Page>
  );
}

function Actions({ file, onChanged }: { file: FileMetadata; onChanged: () => void }) {
  const { run, isRunning, error } = useTask();
  const [dialog, setDialog] = useState<"rename" | "move" | "tag" | "delete" | null>(null);
  const close = () => setDialog(null);
  const isDeleted = useRef(false);
  const isSettled = file.status === "completed" || file.status === "failed";
  const download = () =>
    run(async () => {
      const link = document.createElement("a");
      link.href = await client.value.files.createSignedUrl(file._id);
      // The file is stored as an attachment with its name. The attribute keeps this page open if it is not.
      link.download = file.name;
      link.click();
    });
  const reprocess = () =>
    run(async () => {
      await client.value.files.reprocess(file._id);
      announce("Reprocessing started");
    });
  return (
    <>
      {can("files:download") && (
        <button type="button" class="button primary" aria-disabled={isRunning} onClick={download}>
          Download
        </button>
      )}
      {can("files:write") && (
        <>
          {(["rename", "move", "tag"] as const).map((name) => (
            <button key={name} type="button" class="button" onClick={() => setDialog(name)}>
              {ORGANIZE_LABELS[name]}
            </button>
          ))}
          <button
            type="button"
            class="button"
            aria-disabled={isRunning || !isSettled}
            onClick={() => isSettled && reprocess()}
          >
            Reprocess
          </button>
        </>
      )}
      {can("files:delete") && (
        <button type="button" class="button danger" onClick={() => setDialog("delete")}>
          Delete file
        </button>
      )}
      <Failure error={error} />
      {dialog === "rename" && <Rename file={file} onRenamed={onChanged} onClose={close} />}
      {dialog === "move" && <MoveDialog files={[file]} folders={[]} onMoved={onChanged} onClose={close} />}
      {dialog === "tag" && <TagDialog files={[file]} onTagged={onChanged} onClose={close} />}
      {dialog === "delete" && (
        <DeleteFiles
          files={[file]}
          onDeleted={() => {
            isDeleted.current = true;
          }}
          onClose={() => (isDeleted.current ? navigate(lastList.url) : close())}
        />
      )}
    </>
  );
}

const ORGANIZE_LABELS = { rename: "Rename", move: "Move", tag: "Tags" };
const channelsLabel = (channels: number) => ({ 1: "Mono", 2: "Stereo" })[channels] ?? formatCount(channels);

function Details({ file }: { file: FileMetadata }) {
  const { audio, failure, processedAt, sha256, size } = file;
  const isPlayable = /^(audio|video)\//.test(file.mimeType) && size > 0 && !failure;
  return (
    <>
      {failure && (
        <div class="failure">
          <p>{FAILURES[failure.code] ?? failure.message}</p>
          <p class="quiet">
            <code>{failure.code}</code>: {failure.message}
          </p>
        </div>
      )}
      <MissingScopes scopes={["files:download", "files:write", "files:delete"]} />
      {isPlayable && can("files:download") && <FilePlayer file={file} />}
      <div class="columns file-columns">
        <div class="stack">
          <FactCard
            title="File"
            facts={{
              Status: (
                <span role="status">
                  <StatusBadge status={file.status} />
                </span>
              ),
              Type: TYPE_LABELS[file.fileType],
              Size: formatBytes(size),
              Folder: file.folder && (
                <a href={folderUrl(file.folder)}>
                  <bdi>{file.folder}</bdi>
                </a>
              ),
              Tags: file.tags.length > 0 && <Tags tags={file.tags} />,
              Reference: file.reference && <bdi>{file.reference}</bdi>,
              Uploaded: <Time at={file.createdAt} />,
            }}
          />
        </div>
        <div class="stack">
          {can("files:download") && <Sharing file={file} />}
          {can("events:read") && <Activity id={file._id} />}
        </div>
        <div class="stack">
          {audio && (
            <FactCard
              title="Audio"
              facts={{
                Duration: audio.durationSeconds !== null && formatDuration(audio.durationSeconds),
                Codec: audio.codec,
                "Sample rate": audio.sampleRate && `${formatCount(audio.sampleRate / 1000)} kHz`,
                Channels: audio.channels && channelsLabel(audio.channels),
                "Bit rate": audio.bitrate && `${formatCount(Math.round(audio.bitrate / 1000))} kbit/s`,
                Lossless: audio.lossless === null ? null : audio.lossless ? "Yes" : "No",
              }}
            />
          )}
          {audio && Object.keys(audio.tags).length > 0 && (
            <section class="card stack">
              <h2>Audio tags</h2>
              <AudioTags tags={audio.tags} />
            </section>
          )}
          <details class="card">
            <summary>Technical details</summary>
            <Facts
              facts={{
                ID: <Copyable text={file._id} label="ID" />,
                "Uploaded as": file.originalName === file.name ? null : <bdi>{file.originalName}</bdi>,
                "Media type": <code>{file.mimeType}</code>,
                Container: audio?.container,
                Bytes: formatCount(size),
                "SHA-256": sha256 && <Copyable text={sha256} label="SHA-256" />,
                Processed: processedAt && <Time at={processedAt} />,
                "Last modified": <Time at={file.updatedAt} />,
                Version: file.__v,
                "Storage path": <Copyable text={file.path} label="storage path" />,
              }}
            />
          </details>
        </div>
      </div>
    </>
  );
}

/** The events of a file, newest first. A request reads about 500 events of the team, so older ones load on demand. */
function Activity({ id }: { id: string }) {
  const events = useListing((signal) => client.value.events.list({ subject: id }, { signal }), [id]);
  useEvents(({ subject }) => subject.id === id, events.reload);
  useNames();
  const items = events.items ?? [];
  const isComplete = items.some(({ type }) => type === "file.uploaded");
  if (items.length === 0 && !events.more) return null;
  return (
    <section class="card stack" aria-labelledby="activity">
      <h2 id="activity">Activity</h2>
      <ul class="activity">
        {items.map((event) => (
          <li key={event._id}>
            {EVENT_LABELS[event.type] ?? event.type}{" "}
            <span class="quiet">
              by <Actor event={event} /> · <Time at={event.createdAt} isRelative />
            </span>
          </li>
        ))}
      </ul>
      <More of={isComplete ? { ...events, more: undefined } : events} label="Search older events" />
    </section>
  );
}

/** The file's own words, shown as text only. */
const AudioTags = ({ tags }: { tags: Record<string, string | number> }) => (
  <dl class="facts">
    {Object.entries(tags).map(([name, value]) => (
      <div key={name}>
        <dt>
          <bdi>{name}</bdi>
        </dt>
        <dd>
          <span dir="auto" class="text">
            {value}
          </span>
        </dd>
      </div>
    ))}
  </dl>
);
