import { useEffect, useRef } from "preact/hooks";
import type { FileMetadata, Hold } from "../../client/index.ts";
import { useFile } from "../data.ts";
import { Named, NameOf } from "../events/names.tsx";
import { isWaveform, Sentence } from "../events/sentence.tsx";
import { FileCrumbs } from "../folders/folders.tsx";
import { ActionButton, type Actions, allowed, perform, shortcutsOf } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { ask } from "../framework/dialog.tsx";
import { addShortcuts } from "../framework/keys.ts";
import { href, lastUrl } from "../framework/router.ts";
import { can, client, deletionScope, seesOwnFilesOnly } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { Sharing } from "../links/sharing.tsx";
import { MissingScopes, SCOPES } from "../parts/access.tsx";
import { Copyable, copy } from "../parts/copy.tsx";
import { copyAsCurl } from "../parts/curl.tsx";
import { Facts } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { formatBytes, formatCount, formatDuration, TYPE_LABELS } from "../parts/format.ts";
import { Menu } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Page, Skeleton } from "../parts/page.tsx";
import { isMissing, Missing } from "../parts/record-page.tsx";
import { Time } from "../parts/values.tsx";
import { FilePlayer } from "../sound/player.tsx";
import { isPlayable } from "../sound/player-state.ts";
import { fileActions } from "./file-actions.tsx";
import { downloadFiles } from "./file-changes.ts";
import { EditDetails, metadataFacts } from "./file-metadata.tsx";
import { Preview } from "./file-preview.tsx";
import { lacksAudio } from "./file-rows.ts";
import { StatusBadge } from "./file-status.tsx";
import { addTranscript, TranscriptCard } from "./file-transcript.tsx";
import { Rename, renaming } from "./rename.tsx";
import { Tags } from "./tags.tsx";

/** The API explains these to developers; users need to know what to do. */
const FAILURES: Record<NonNullable<FileMetadata["failure"]>["code"], string> = {
  audio_unreadable: "We couldn't find any audio in this file. It may be damaged.",
  retries_exhausted: "Processing failed after several attempts. Try reprocessing the file.",
  inspection_failed: "We couldn't read this file because of an error on our side.",
  bytes_altered: "The stored file is corrupted. Upload it again.",
  bytes_missing: "The stored file is missing. Upload it again.",
  type_not_allowed: "The key that uploaded this file isn't allowed to upload files of this type.",
};
const CHANNELS: Record<number, string> = { 1: "Mono", 2: "Stereo" };

/** The kind of the file, the encoding of its audio, and its size, in one line. */
function formatOf({ fileType, audio, size }: FileMetadata): string {
  const parts = audio
    ? [
        audio.codec ?? TYPE_LABELS[fileType],
        audio.bitrate && `${formatCount(Math.round(audio.bitrate / 1000))} kbit/s`,
        audio.sampleRate && `${formatCount(audio.sampleRate / 1000)} kHz`,
        audio.channels && (CHANNELS[audio.channels] ?? `${audio.channels} channels`),
        audio.lossless && "Lossless",
      ]
    : [TYPE_LABELS[fileType]];
  return [...parts, formatBytes(size)].filter(Boolean).join(" · ");
}

export function FilePage({ id }: { id: string }) {
  const { value: file, error, reload } = useFile(id);
  const latest = useRef(file);
  latest.current = file;
  useEffect(() => addShortcuts(() => shortcutsOf(latest.current ? pageActions(latest.current) : [])), []);
  if (isMissing(error)) return <Missing noun="File" list={{ href: lastUrl("/files"), label: "Files" }} />;
  const rename = file && allowed(pageActions(file)).find(({ label }) => label === "Rename");
  return (
    <Page
      title={file?.name ?? "File"}
      onEdit={rename && (() => void perform(rename))}
      heading={file && renaming.value === file._id && <Rename file={file} />}
      back={<FileCrumbs folder={file?.folder ?? ""} listUrl={lastUrl("/files")} />}
      subtitle={file && <Summary file={file} />}
      actions={
        file && (
          <>
            <ActionButton
              class="download"
              action={{ label: "Download", scope: "files:download", run: () => downloadFiles([file]) }}
            />
            <Menu label="Actions for this file" items={pageActions(file)} />
          </>
        )
      }
    >
      <Failure error={error} onRetry={reload} />
      {file ? <Details file={file} /> : !error && <Skeleton first="14rem" />}
    </Page>
  );
}

const holdFile = ({ _id, name, hold }: FileMetadata) =>
  ask({
    title: `Hold “${name}”`,
    text: (
      <>
        <p>The file can't be deleted until an admin, or an app with a secret key, releases it.</p>
        <TextField label="Reason" name="reason" required maxLength={200} defaultValue={hold?.reason ?? ""} />
      </>
    ),
    action: "Hold file",
    run: (form) => client.value.files.hold(_id, textOf(form, "reason")),
    done: "File held",
  });

/** The actions of files, and those of this page. */
function pageActions(file: FileMetadata): Actions {
  const { _id, status, hold, audio } = file;
  const row = { ...file, durationSeconds: audio?.durationSeconds ?? null };
  return [
    ...fileActions([row]),
    !file.transcript && isRecording(file) && addTranscript(file),
    {
      label: "Reprocess",
      icon: "refresh",
      scope: "files:write",
      isDisabled: status !== "completed" && status !== "failed",
      run: async () => {
        await client.value.files.reprocess(_id);
        announce("Reprocessing started");
      },
    },
    { label: "Copy ID", icon: "copy", run: () => copy(_id, "ID") },
    copyAsCurl({ path: `/docs/v1/uploads/${_id}/metadata` }),
    !seesOwnFilesOnly() && {
      label: hold ? "Edit hold" : "Hold",
      icon: "lock",
      scope: "files:delete",
      run: () => holdFile(file),
    },
    // As the API, which releases for a secret key or an admin.
    hold !== null &&
      !seesOwnFilesOnly() &&
      SCOPES.every(can) && {
        label: "Release hold",
        icon: "lock",
        run: async () => {
          await client.value.files.release(_id);
          announce("Hold released");
        },
      },
  ];
}

/** Whether the page has a player, and so a transcript. */
const isRecording = (file: FileMetadata): boolean =>
  !file.failure && isPlayable(file) && !file.mimeType.startsWith("video/") && can("files:download");

function Details({ file }: { file: FileMetadata }) {
  const { failure } = file;
  const canOpen = can("files:download");
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
      {lacksAudio(file) && (
        <div class="notice">
          <p>
            <strong>No audio found</strong>
          </p>
          <p>The name says audio, but the content isn't. Check the original on your device, and upload it again.</p>
        </div>
      )}
      <MissingScopes scopes={["files:download", "files:write", deletionScope()]} />
      <div class="file-columns">
        {isRecording(file) ? <FilePlayer file={file} /> : canOpen && !failure && <Preview file={file} />}
        {isRecording(file) && file.transcript && <TranscriptCard file={file} />}
        {canOpen && (
          <div class="file-side">
            <Sharing file={file} />
            {isRecording(file) && !file.transcript && <TranscriptCard file={file} />}
          </div>
        )}
        <DetailsCard file={file} />
        {can("events:read") && <Activity id={file._id} />}
      </div>
    </>
  );
}

/** The facts of the file besides its recording. Apps and users set the reference and the other fields. */
function DetailsCard({ file }: { file: FileMetadata }) {
  const { _id, audio, hold, name, originalName, processedAt, sha256, updatedAt } = file;
  return (
    <section class="card stack" aria-labelledby="details">
      <header class="page-header">
        <h2 id="details">Details</h2>
        <EditDetails file={file} />
      </header>
      <Facts facts={{ Hold: hold && <Held hold={hold} />, ...tagFacts(audio?.tags ?? {}) }} />
      <Facts facts={metadataFacts(file)} />
      <details>
        <summary>Technical details</summary>
        <Facts
          facts={{
            ID: <Copyable text={_id} label="ID" />,
            "Uploaded as": originalName === name ? null : <bdi>{originalName}</bdi>,
            "SHA-256": sha256 && <Copyable text={sha256} label="SHA-256" />,
            Processed: processedAt && <Time at={processedAt} />,
            "Last modified": <Time at={updatedAt} />,
          }}
        />
      </details>
    </section>
  );
}

/** Why a file can't be deleted. */
function Held({ hold: { reason, createdAt, createdBy } }: { hold: Hold }) {
  return (
    <>
      <bdi>{reason}</bdi>
      <br />
      <span class="quiet">
        Held by <NameOf {...createdBy} />, <Time at={createdAt} isRelative />. Only an admin, or an app with a secret
        key, can release it.
      </span>
    </>
  );
}

/** The facts that matter most, in a row. Only an exceptional status is visible. */
function Summary({ file }: { file: FileMetadata }) {
  const { status, audio, hold, tags, createdAt } = file;
  return (
    <Facts
      isRow
      facts={{
        Duration: audio?.durationSeconds != null && formatDuration(audio.durationSeconds),
        Format: formatOf(file),
        Tags: tags.length > 0 && <Tags tags={tags} />,
        Uploaded: (
          <>
            by <Uploader file={file} /> · <Time at={createdAt} />
          </>
        ),
        Deletion: hold && <span class="badge busy">Held</span>,
        Status: (
          <span role="status" class={status === "completed" ? "visually-hidden" : undefined}>
            <StatusBadge status={status} />
          </span>
        ),
      }}
    />
  );
}

/** The user who uploaded a file, which leads to all files of this user, or the key. */
function Uploader({ file: { uploadedBy } }: { file: FileMetadata }) {
  const { userId } = uploadedBy;
  return userId ? (
    <a href={href("/files", { user: userId })}>
      <Named {...uploadedBy} />
    </a>
  ) : (
    <Named {...uploadedBy} />
  );
}

/** The events of a file, newest first. A request reads about 500 events of the team, so older ones load on demand. */
function Activity({ id }: { id: string }) {
  const events = useList(["activity", id], (signal) => client.value.events.list({ subject: id }, { signal }), {
    on: ({ subject }) => subject.id === id,
  });
  const items = events.items ?? [];
  const isComplete = items.some(({ type }) => type === "file.uploaded");
  if (items.length === 0 && !events.more) return null;
  return (
    <section class="card stack" aria-labelledby="activity">
      <h2 id="activity">Activity</h2>
      <ul class="activity">
        {items
          .filter((event) => !isWaveform(event))
          .map((event) => (
            <li key={event._id}>
              <Sentence event={event} isOnPage />{" "}
              <span class="quiet">
                · <Time at={event.createdAt} isRelative />
              </span>
            </li>
          ))}
      </ul>
      <More of={isComplete ? { ...events, more: undefined } : events} label="Search older events" />
    </section>
  );
}

/** The tags of the audio, as text only. */
const tagFacts = (tags: Record<string, string | number>) =>
  Object.fromEntries(
    Object.entries(tags).map(([name, value]) => [
      name.charAt(0).toUpperCase() + name.slice(1),
      <span dir="auto" class="text">
        {value}
      </span>,
    ]),
  );
