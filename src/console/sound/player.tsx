import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { FileMetadata } from "../../client/stowage.ts";
import { Failure } from "../parts/failure.tsx";
import { formatBytes } from "../parts/format.ts";
import { addShortcuts } from "../parts/keys.ts";
import { useTask } from "../parts/task.ts";
import { href, query } from "../router.ts";
import { can, client, noteFailure } from "../session.ts";
import { UserError } from "../user-error.ts";
import {
  copyMoment,
  formatClip,
  IconButton,
  PlayButton,
  PlaybackFailure,
  Player,
  SeekBar,
  Settings,
  SkipButton,
  Times,
  usePlace,
} from "./controls.tsx";
import { measurability, measurePeaks } from "./peaks.ts";
import {
  BACK_SECONDS,
  clip,
  close,
  FORWARD_SECONDS,
  leavePage,
  markClip,
  markHere,
  neighbor,
  openOnPage,
  pageTrack,
  playNext,
  type Track,
  track,
} from "./playback.ts";
import { signedUrl } from "./signed-playback.ts";
import { loadWaveform } from "./waveform-loading.ts";
import { rememberWaveform, waveformOf } from "./waveforms.ts";

/** Before the end of a file, the player names the next one. */
const UP_NEXT_SECONDS = 5;

/** Copies a URL of the file's page that starts at the present moment: `?t=83`. Only the team can open it. */
const copyFileMoment = (file: Track) =>
  copyMoment(
    file,
    (seconds) => location.origin + href(`/files/${file._id}`, { t: String(seconds) }),
    "a link for your team, at",
  );

/** The player at the bottom of every page while a file is open in it, except on the page of that file. */
export function PlayerBar() {
  const file = track.value;
  if (!file || pageTrack.value?._id === file._id) return null;
  return <OpenPlayerBar file={file} />;
}

function OpenPlayerBar({ file }: { file: Track }) {
  const isOpen = useSignal(false);
  const channels = waveformOf(file._id).value;
  const { seconds, total } = usePlace(file);
  const next = neighbor(1);
  useEffect(() => void loadWaveform(file._id), [file._id]);
  useEffect(() => addShortcuts({ c: () => void copyFileMoment(file) }), [file._id]);
  const isEnding = next && total - seconds <= UP_NEXT_SECONDS && seconds > 0;
  return (
    <section class="player-bar" aria-label="Player" data-open={isOpen.value}>
      <div class="player-controls">
        <IconButton label="Previous file" icon="previous" onClick={() => playNext(-1)} />
        <SkipButton seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton seconds={FORWARD_SECONDS} />
        <IconButton label="Next file" icon="next" isDisabled={!next} onClick={() => playNext()} />
      </div>
      <div class="player-name">
        <a href={href(`/files/${file._id}`)} title={file.name}>
          <bdi>{file.name}</bdi>
        </a>
        <span class="quiet">
          <bdi>{isEnding ? `Up next: ${next.name}` : file.folder || file.artist || ""}</bdi>
        </span>
      </div>
      <SeekBar file={file} channels={channels} />
      <Times file={file} />
      <Settings onCopyMoment={() => copyFileMoment(file)} />
      <IconButton
        label="All player controls"
        icon="chevron"
        class="player-expand"
        isPressed={isOpen.value}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      />
      <IconButton label="Close" icon="close" onClick={close} />
      <PlaybackFailure />
    </section>
  );
}

/** The player on the page of a file, in which a clip can be marked. */
export function FilePlayer({ file }: { file: FileMetadata }) {
  const { channels, note } = useWaveform(file);
  useEffect(() => {
    openOnPage(file, query.peek().get("t"));
    const remove = addShortcuts({
      c: () => void copyFileMoment(file),
      "[": () => markHere(file, "from"),
      "]": () => markHere(file, "to"),
    });
    return () => {
      remove();
      leavePage();
    };
  }, [file._id]);
  const marked = clip.value;
  return (
    <Player
      file={file}
      channels={channels}
      class="card"
      isMarkable={file.durationSeconds !== null}
      onCopyMoment={() => copyFileMoment(file)}
    >
      {file.durationSeconds !== null && (
        <div class="player-marking actions">
          <p class="quiet" role="status">
            {marked ? `Clip: ${formatClip(marked)}` : "Drag over the waveform to mark a clip."}
          </p>
          <button type="button" class="button" onClick={() => markHere(file, "from")}>
            Start clip here
          </button>
          <button type="button" class="button" onClick={() => markHere(file, "to")}>
            End clip here
          </button>
          {marked && (
            <button type="button" class="button ghost" onClick={() => markClip(0, 0)}>
              Clear
            </button>
          )}
        </div>
      )}
      {note}
    </Player>
  );
}

/** The stored waveform of a file. If there is none, measures it, or says why that is not possible. */
function useWaveform(file: FileMetadata) {
  const { _id, audio, mimeType, size } = file;
  const channels = waveformOf(_id).value;
  const [isUndecodable, setUndecodable] = useState(false);
  const { run, isRunning, error } = useTask();
  useEffect(() => {
    if (file.hasWaveform) void loadWaveform(_id);
  }, [_id, file.hasWaveform]);
  // Only who may store the result measures it: otherwise each visit would download the file.
  const measurable = !file.hasWaveform && !channels && audio && measurability({ ...audio, mimeType }, size);
  const isUnasked = measurable === "unasked" && file.status === "completed" && can("files:write");
  const measure = () =>
    run(async () => {
      if (!audio) return;
      const caller = client.peek();
      const response = await fetch(await signedUrl(_id)).catch(() => null);
      if (!response?.ok) throw new UserError("Couldn't download the file to draw its waveform.");
      const peaks = await measurePeaks(await response.blob(), { ...audio, mimeType });
      setUndecodable(!peaks);
      if (!peaks) return;
      rememberWaveform(_id, peaks);
      if (can("files:write"))
        await caller.files.setWaveform(_id, peaks).catch((failure) => noteFailure(failure, caller));
    });
  useEffect(() => {
    if (isUnasked) void measure();
  }, [_id, isUnasked]);
  if (channels || !measurable) return { channels, note: null };
  if (error) return { channels, note: <Failure error={error} onRetry={measure} /> };
  const text = isUndecodable
    ? "This browser can't decode this format to draw a waveform."
    : isRunning
      ? "Drawing the waveform…"
      : measurable === "too long" && "This file is too long to draw a waveform in the browser.";
  const note = text ? (
    <p class="quiet" role="status">
      {text}
    </p>
  ) : (
    !isUnasked && (
      <button type="button" class="button" onClick={measure}>
        Draw waveform (downloads {formatBytes(size)})
      </button>
    )
  );
  return { channels, note };
}
