import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { FileMetadata } from "../../client/index.ts";
import { isMeasured } from "../../client/measured.ts";
import { useFile } from "../data.ts";
import { addShortcuts } from "../framework/keys.ts";
import { href, query } from "../framework/router.ts";
import { copy } from "../parts/copy.tsx";
import { FileName } from "../parts/file-name.tsx";
import { formatDuration } from "../parts/format.ts";
import { formatClip, IconButton, PlaybackFailure, Player, SeekBar, Settings, SkipButton, Times } from "./controls.tsx";
import { PlayButton, usePlace } from "./play-button.tsx";
import {
  BACK_SECONDS,
  clip,
  FORWARD_SECONDS,
  fragmentOf,
  leavePage,
  markClip,
  markHere,
  openOnPage,
} from "./playback.ts";
import { close, momentOf, neighbor, pageTrack, playNext, type Track } from "./player-state.ts";
import { startSignedPlayback } from "./signed-playback.ts";
import { loadWaveform } from "./waveform-loading.ts";
import { waveformOf } from "./waveforms.ts";

/* The players of the console. Once this is loaded, what the state of the player says is played. */

startSignedPlayback();

/** Before the end of a file, the player names the next one. */
const UP_NEXT_SECONDS = 5;

/** Whether there is a mouse, and so probably a keyboard. */
const canDrag = matchMedia("(hover: hover)").matches;

/** The marked part of a file. */
const markedPart = (file: Track) => (pageTrack.value?._id === file._id ? clip.value : null);

/** Copies a URL of the file's page, such as `?t=83`, which only the team can open: of the marked clip, or the present moment. */
export function copyTeamLink(file: Track) {
  const marked = markedPart(file);
  const from = Math.floor(momentOf(file));
  const url = location.origin + href(`/files/${file._id}`, { t: fragmentOf(marked ?? { from }) });
  return copy(url, `a link to ${marked ? formatClip(marked) : formatDuration(from)}, for your team only`);
}

function TeamLink({ file }: { file: Track }) {
  const marked = markedPart(file);
  // Its name does not follow the position, because a screen reader would read it again each second.
  const label = `Copy team link to ${marked ? formatClip(marked) : "this moment"}`;
  return <IconButton label={label} icon="copy" onClick={() => copyTeamLink(file)} />;
}

/** The player at the bottom of the window. */
export function PlayerBar({ file }: { file: Track }) {
  const isOpen = useSignal(false);
  // The list from which it plays may be older than the waveform, and the record may still be that of the file before.
  const latest = useFile(file.peaks ? undefined : file._id).value;
  const channels = useWaveform(file._id, file.peaks !== null || (latest?._id === file._id && latest.hasWaveform));
  const { seconds, total } = usePlace(file);
  const next = neighbor(1);
  const isEnding = next && total - seconds <= UP_NEXT_SECONDS && seconds > 0;
  return (
    <section class="player-bar" aria-label="Player" data-open={isOpen.value}>
      <div class="player-controls">
        <IconButton label="Previous file" icon="previous" onClick={() => playNext(-1)} />
        <SkipButton file={file} seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton file={file} seconds={FORWARD_SECONDS} />
        <IconButton label="Next file" icon="next" isDisabled={!next} onClick={() => playNext()} />
      </div>
      <div class="player-name">
        <a href={href(`/files/${file._id}`)} aria-label={file.name}>
          <FileName name={file.name} />
        </a>
        <span class="quiet">
          <bdi>{isEnding ? `Up next: ${next.name}` : file.folder || file.artist || ""}</bdi>
        </span>
      </div>
      <SeekBar file={file} channels={channels} />
      <Times file={file} />
      <Settings copyButton={<TeamLink file={file} />} />
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
  const { audio, status, hasWaveform } = file;
  const channels = useWaveform(file._id, hasWaveform);
  const hasNone = status === "completed" && !hasWaveform && !channels && audio !== null && !isMeasured(audio);
  useEffect(() => {
    openOnPage(file, query.peek().get("t"));
    const remove = addShortcuts({
      "[": () => markHere(file, "from"),
      "]": () => markHere(file, "to"),
    });
    return () => {
      remove();
      leavePage();
    };
  }, [file._id]);
  const marked = clip.value;
  const otherWays = [canDrag && "Shift-drag", file.transcript && "select text"].filter(Boolean);
  return (
    <Player
      file={file}
      channels={channels}
      class="card"
      isMarkable={file.durationSeconds !== null}
      copyButton={<TeamLink file={file} />}
    >
      {file.durationSeconds !== null && (
        <div class="player-marking actions">
          <p class="quiet" role="status">
            Clip: {marked && formatClip(marked)}
          </p>
          <button type="button" class="button" onClick={() => markHere(file, "from")}>
            Set start
          </button>
          <button type="button" class="button" onClick={() => markHere(file, "to")}>
            Set end
          </button>
          {marked ? (
            <button type="button" class="button ghost" onClick={() => markClip(0, 0)}>
              Clear
            </button>
          ) : (
            otherWays.length > 0 && <span class="quiet">or {otherWays.join(", or ")}</span>
          )}
        </div>
      )}
      {hasNone && <p class="quiet">No waveform for this format.</p>}
    </Player>
  );
}

/** The waveform of a file, loaded once its record says that there is one. */
function useWaveform(id: string, isStored: boolean) {
  useEffect(() => {
    if (isStored) void loadWaveform(id);
  }, [id, isStored]);
  return waveformOf(id).value;
}
