import { useEffect, useState } from "preact/hooks";
import type { FileMetadata, Hold } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { Actor, NameOf, titleOf, useNames } from "../parts/event.tsx";
import { FactCard, Facts } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { formatBytes, formatCount, formatDuration, TYPE_LABELS } from "../parts/format.ts";
import { addShortcuts, takeKey } from "../parts/keys.ts";
import { Menu } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Page, Skeleton } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { Copyable, StatusBadge, Time } from "../parts/values.tsx";
import { href, lastList, navigate } from "../router.ts";
import { can, client, seesOwnFilesOnly, trashDays } from "../session.ts";
import { isPlayable } from "../sound/playback.ts";
import { FilePlayer } from "../sound/player.tsx";
import { Transcript } from "../sound/transcript.tsx";
import { refreshAll, useData, useList } from "../store.ts";
import { DeleteFiles } from "./delete-files.tsx";
import { downloadFiles, trashFiles } from "./file-changes.ts";
import { AddFields, Metadata } from "./file-metadata.tsx";
import { Preview } from "./file-preview.tsx";
import { lacksAudio } from "./file-rows.ts";
import { FileCrumbs, MoveDialog } from "./folders.tsx";
import { Rename } from "./rename.tsx";
import { goToShare, Sharing, SignedUrl } from "./sharing.tsx";
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
const CHANNELS: Record<number, string> = { 1: "Mono", 2: "Stereo" };

type Action = "rename" | "move" | "tag" | "delete";

/** The kind of the file and the encoding of its audio, in one line. */
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
  const loaded = useData(`file ${id}`, (signal) => client.value.files.get(id, { signal }), {
    on: ({ subject }) => subject.id === id,
  });
  const { value: file, error, reload } = loaded;
  const [action, setAction] = useState<Action | null>(null);
  const close = () => setAction(null);
  const rename = file && can("files:write") ? () => setAction("rename") : undefined;
  const canShare = can("files:download");
  useEffect(() => (file && canShare ? addShortcuts({ s: takeKey(goToShare) }) : undefined), [file?._id, canShare]);
  useEffect(
    () => (rename ? addShortcuts({ e: takeKey(rename), F2: takeKey(rename) }) : undefined),
    [rename === undefined],
  );
  const leave = () => {
    lastList.id = "";
    refreshAll("files ");
    navigate(lastList.url);
  };
  const back = <FileCrumbs folder={file?.folder ?? ""} listUrl={lastList.url} />;
  if (isMissing(error)) return <Unloaded noun="File" of={loaded} back={<a href={lastList.url}>Back to files</a>} />;
  return (
    <Page
      title={file?.name ?? "File"}
      onEdit={rename}
      heading={action === "rename" && file && <Rename file={file} onRenamed={reload} onClose={close} />}
      back={back}
      subtitle={file && <Summary file={file} />}
      actions={file && <Actions file={file} onAction={setAction} onTrashed={leave} />}
      call={{ path: `/docs/v1/uploads/${id}/metadata` }}
    >
      <Failure error={error} onRetry={reload} />
      {file ? <Details file={file} onChanged={reload} /> : !error && <Skeleton rows={4} />}
      {file && action === "move" && <MoveDialog files={[file]} onClose={close} />}
      {file && action === "tag" && <TagDialog files={[file]} onClose={close} />}
      {file && action === "delete" && <DeleteFiles files={[file]} onDeleted={leave} onClose={close} />}
    </Page>
  );
}

interface ActionsProps {
  file: FileMetadata;
  onAction: (action: Action) => void;
  onTrashed: () => void;
}

function Actions({ file, onAction, onTrashed }: ActionsProps) {
  const { run, isRunning, error } = useTask();
  const isSettled = file.status === "completed" || file.status === "failed";
  const reprocess = () =>
    run(async () => {
      await client.value.files.reprocess(file._id);
      announce("Reprocessing started");
    });
  const copyId = () =>
    navigator.clipboard.writeText(file._id).then(
      () => announce("Copied ID"),
      () => announce("Couldn't copy the ID"),
    );
  const hold = () =>
    confirmFirst({
      title: `Hold “${file.name}”`,
      text: (
        <>
          <p>The file can't be deleted until an admin, or an app with a secret key, releases it.</p>
          <TextField label="Reason" name="reason" required maxLength={200} defaultValue={file.hold?.reason ?? ""} />
        </>
      ),
      action: "Hold file",
      isDangerous: false,
      onConfirm: async (form) => {
        await client.value.files.hold(file._id, textOf(form, "reason"));
        refreshAll(`file ${file._id}`);
        announce("File held");
      },
    });
  const canWrite = can("files:write");
  const canDelete = can("files:delete");
  return (
    <>
      {can("files:download") && (
        <button type="button" class="button" aria-disabled={isRunning} onClick={() => run(() => downloadFiles([file]))}>
          Download
        </button>
      )}
      <Menu
        label="Actions for this file"
        items={[
          can("files:download") && { label: "Share…", icon: "link", onSelect: goToShare },
          canWrite && { label: "Rename", icon: "edit", onSelect: () => onAction("rename") },
          canWrite && { label: "Move", icon: "move", onSelect: () => onAction("move") },
          canWrite && { label: "Edit tags", icon: "tag", onSelect: () => onAction("tag") },
          canWrite && {
            label: "Reprocess",
            icon: "refresh",
            isDisabled: isRunning || !isSettled,
            onSelect: () => void reprocess(),
          },
          { label: "Copy ID", icon: "copy", onSelect: () => void copyId() },
          canDelete && !seesOwnFilesOnly() && { label: file.hold ? "Edit hold" : "Hold", icon: "lock", onSelect: hold },
          canDelete && {
            label: file.hold ? "Delete (the file is held)" : "Delete",
            icon: "trash",
            isDangerous: true,
            isDisabled: isRunning || file.hold !== null,
            onSelect: () => (trashDays.value ? void run(() => trashFiles([file], onTrashed)) : onAction("delete")),
          },
        ]}
      />
      <Failure error={error} />
    </>
  );
}

function Details({ file, onChanged }: { file: FileMetadata; onChanged: () => void }) {
  const { audio, failure, processedAt, sha256, size } = file;
  const canOpen = can("files:download");
  const isVideo = file.mimeType.startsWith("video/");
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
      <MissingScopes scopes={["files:download", "files:write", "files:delete"]} />
      {canOpen && !failure && (isVideo || !isPlayable(file) ? <Preview file={file} /> : <Recording file={file} />)}
      <div class="file-columns">
        <FactCard
          title="Details"
          facts={{
            Format: formatOf(file),
            Hold: file.hold && <Held hold={file.hold} />,
            ...tagFacts(audio?.tags ?? {}),
          }}
        >
          <AddFields file={file} onChanged={onChanged} />
        </FactCard>
        <Metadata file={file} onChanged={onChanged} />
        {canOpen && <Sharing file={file} />}
        <details class="card">
          <summary>Technical details</summary>
          <div class="stack">
            <Facts
              facts={{
                ID: <Copyable text={file._id} label="ID" />,
                "Uploaded as": file.originalName === file.name ? null : <bdi>{file.originalName}</bdi>,
                "Media type": <code>{file.mimeType}</code>,
                Codec: audio?.codec,
                Container: audio?.container,
                Bytes: formatCount(size),
                "SHA-256": sha256 && <Copyable text={sha256} label="SHA-256" />,
                Processed: processedAt && <Time at={processedAt} />,
                "Last modified": <Time at={file.updatedAt} />,
                Version: file.__v,
                "Storage path": <Copyable text={file.path} label="storage path" />,
              }}
            />
            {canOpen && <SignedUrl id={file._id} />}
          </div>
        </details>
        {can("events:read") && <Activity id={file._id} />}
      </div>
    </>
  );
}

/** The player, with the transcript beside it. */
function Recording({ file }: { file: FileMetadata }) {
  return (
    <div class="with-transcript">
      <FilePlayer file={file} />
      {file.transcript && <FileTranscript file={file} transcript={file.transcript} />}
    </div>
  );
}

function FileTranscript({
  file,
  transcript,
}: {
  file: FileMetadata;
  transcript: NonNullable<FileMetadata["transcript"]>;
}) {
  const { _id } = file;
  const { value, error, reload } = useData(`transcript ${_id} ${transcript.updatedAt}`, (signal) =>
    client.value.files.getTranscript(_id, { signal }),
  );
  if (error) return <Failure error={error} onRetry={reload} />;
  if (!value) return null;
  return (
    <div class="card">
      <Transcript file={file} vtt={value} language={transcript.language} />
    </div>
  );
}

/** Why a file can't be deleted. No session can release it. */
function Held({ hold: { reason, createdAt, createdBy } }: { hold: Hold }) {
  useNames();
  return (
    <>
      <bdi>{reason}</bdi>
      <br />
      <span class="quiet">
        Held by <NameOf {...createdBy} />, <Time at={createdAt} isRelative />. Only an app with a secret key can release
        it.
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
  useNames();
  const { userId } = uploadedBy;
  return userId ? (
    <a href={href("/files", { user: userId })}>
      <NameOf {...uploadedBy} />
    </a>
  ) : (
    <NameOf {...uploadedBy} />
  );
}

/** The events of a file, newest first. A request reads about 500 events of the team, so older ones load on demand. */
function Activity({ id }: { id: string }) {
  const events = useList(`activity ${id}`, (signal) => client.value.events.list({ subject: id }, { signal }), {
    on: ({ subject }) => subject.id === id,
  });
  const items = events.items ?? [];
  const isComplete = items.some(({ type }) => type === "file.uploaded");
  if (items.length === 0 && !events.more) return null;
  return (
    <section class="card stack" aria-labelledby="activity">
      <h2 id="activity">Activity</h2>
      <ul class="activity">
        {items.map((event) => (
          <li key={event._id}>
            {titleOf(event)}{" "}
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
