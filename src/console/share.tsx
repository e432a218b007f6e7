import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import type { Schemas } from "../client/api.ts";
import { isVisual, Picture } from "./files/picture.tsx";
import { Announcements } from "./framework/announce.tsx";
import { UserError } from "./framework/errors.ts";
import { isCharacter, runShortcut } from "./framework/keys.ts";
import { copy } from "./parts/copy.tsx";
import { Failure } from "./parts/failure.tsx";
import { formatBytes, formatDuration } from "./parts/format.ts";
import { Icon } from "./parts/icon.tsx";
import { Skeleton } from "./parts/page.tsx";
import { Time } from "./parts/values.tsx";
import {
  formatClip,
  IconButton,
  PlaybackFailure,
  Player,
  SeekBar,
  SkipButton,
  SpeedSelect,
  Times,
} from "./sound/controls.tsx";
import { PlayButton } from "./sound/play-button.tsx";
import {
  BACK_SECONDS,
  clip,
  FORWARD_SECONDS,
  fragmentOf,
  markClip,
  openOnPage,
  startPlayback,
} from "./sound/playback.ts";
import { followPlayerKeys, momentOf, type Track } from "./sound/player-state.ts";
import { rememberWaveform, waveformOf } from "./sound/waveforms.ts";

/* The page of a link at /share/{id}.{secret}, and at /embed/… only its player, which other sites frame. */

type SharedFile = Schemas["SharedFile"];

const [, kind, token = ""] = location.pathname.split("/");
const isEmbedded = kind === "embed";
const PAGE = `/share/${token}`;

const file = signal<SharedFile | null>(null);
/** Null until it is loaded. */
const transcript = signal<{
  vtt: string;
  language: string | null;
  Transcript: typeof import("./sound/transcript.tsx").Transcript;
} | null>(null);
const problem = signal<unknown>(null);

const MESSAGES: Partial<Record<number, string>> = {
  404: "This link doesn't work anymore.",
  429: "Too many requests. Try again in a minute.",
};
const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
const isReload = navigation?.type === "reload";

async function fetchFile(): Promise<SharedFile> {
  const response = await fetch(`/docs/v1/links/${token}`).catch(() => {
    throw new UserError("Can't reach the service. Check your connection and try again.");
  });
  if (response.ok) return (await response.json()).data;
  // The link has ended. Its page shows this, unless it has just been loaded.
  if (response.status === 404 && (file.peek() || !isReload)) location.reload();
  throw new UserError(MESSAGES[response.status] ?? "Can't load this file. Try again.");
}

async function load(): Promise<void> {
  problem.value = null;
  try {
    const loaded = await fetchFile();
    if (loaded.waveform) rememberWaveform(token, loaded.waveform);
    document.title = titleOf(loaded);
    file.value = loaded;
    if (loaded.transcriptUrl && !isEmbedded) void loadTranscript(loaded.transcriptUrl);
  } catch (error) {
    problem.value = error;
  }
}

/** Without it, the page still plays the recording. */
async function loadTranscript(url: string): Promise<void> {
  // Most files have none, so its code is loaded with it.
  const loaded = await Promise.all([fetch(url), import("./sound/transcript.tsx")]).catch(() => null);
  if (!loaded?.[0].ok) return;
  const [{ headers }, { Transcript }] = loaded;
  transcript.value = { vtt: await loaded[0].text(), language: headers.get("Content-Language"), Transcript };
}

/** The title by which listeners know a recording. */
const titleOf = ({ title, name }: SharedFile): string => title ?? name;

const trackOf = (shared: SharedFile): Track => ({
  _id: token,
  name: titleOf(shared),
  mimeType: shared.mimeType,
  durationSeconds: shared.durationSeconds,
  folder: "",
  artist: shared.artist,
  peaks: null,
});

/** Copies a link to the marked clip, or the present moment. */
function copySharedPart() {
  if (!file.value) return;
  const from = Math.floor(momentOf(trackOf(file.value)));
  const marked = clip.peek();
  const url = `${location.origin}${PAGE}#t=${fragmentOf(marked ?? { from })}`;
  void copy(url, `link to ${marked ? formatClip(marked) : formatDuration(from)}`);
}

/** A shared recording, opened at the moment or the clip in the URL, such as `#t=90`, or that of the link. Space and the arrow keys control it. */
function useShared(shared: SharedFile) {
  const file = trackOf(shared);
  useEffect(() => {
    const { startSeconds, endSeconds } = shared;
    const part = startSeconds === null && endSeconds === null ? null : `${startSeconds ?? 0},${endSeconds ?? ""}`;
    const follow = () => openOnPage(file, new URLSearchParams(location.hash.slice(1)).get("t") ?? part);
    follow();
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return { file, channels: waveformOf(token).value };
}

function SharedPlayer({ shared }: { shared: SharedFile }) {
  const { file, channels } = useShared(shared);
  const marked = clip.value;
  const label = `Copy link to ${marked ? formatClip(marked) : "this moment"}`;
  return (
    <Player
      file={file}
      channels={channels}
      copyButton={<IconButton label={label} icon="link" onClick={copySharedPart} />}
    >
      {/* It is there before the selection that marks a clip, which must not move while it is made. */}
      {(marked || transcript.value) && (
        <div class="player-marking actions">
          <p class="quiet">
            <span role="status">{marked && `Plays ${formatClip(marked)}`}</span>
            {!marked && "Select a part of the text to share it."}
          </p>
          {marked && (
            <button type="button" class="button ghost" onClick={() => markClip(0, 0)}>
              Clear
            </button>
          )}
        </div>
      )}
    </Player>
  );
}

/** Below the player. `?q=words` opens it with a search. */
function SharedTranscript({ shared }: { shared: SharedFile }) {
  const loaded = transcript.value;
  const search = new URLSearchParams(location.search).get("q") ?? "";
  if (!loaded) return null;
  return (
    <loaded.Transcript {...loaded} file={trackOf(shared)} search={search} copyClip={{ onClick: copySharedPart }} />
  );
}

const Download = ({ url }: { url: string }) => (
  <a class="button" href={url} download>
    <Icon name="download" /> Download
  </a>
);

function Page({ shared }: { shared: SharedFile }) {
  const { name, title, artist, mimeType, size, durationSeconds, expiresAt, url } = shared;
  const isAudio = mimeType.startsWith("audio/");
  const heading = titleOf(shared);
  return (
    <>
      <div class="share-title">
        {!isAudio && !isVisual(shared) && <Icon name="document" size={32} />}
        <h1 title={heading}>
          <bdi>{heading}</bdi>
        </h1>
        {artist && (
          <p title={artist}>
            <bdi>{artist}</bdi>
          </p>
        )}
        <p class="quiet">
          {title && (
            <>
              <bdi>{name}</bdi>
              {" · "}
            </>
          )}
          {durationSeconds !== null && `${formatDuration(durationSeconds)} · `}
          {formatBytes(size)}
          {expiresAt && (
            <>
              {" · "}Expires <Time at={expiresAt} isRelative />
            </>
          )}
        </p>
      </div>
      <Download url={url} />
      {isAudio && <SharedPlayer shared={shared} />}
      {isAudio && <SharedTranscript shared={shared} />}
      {isVisual(shared) && <Picture file={shared} url={url} />}
    </>
  );
}

function Embed({ shared }: { shared: SharedFile }) {
  const { mimeType, size, url } = shared;
  const heading = titleOf(shared);
  const title = (
    <h1>
      <a href={PAGE} target="_blank" rel="noopener" title={heading}>
        <bdi>{heading}</bdi> <Icon name="external" size={12} />
      </a>
    </h1>
  );
  if (!mimeType.startsWith("audio/"))
    return (
      <>
        {title}
        <p class="quiet number">{formatBytes(size)}</p>
        <Download url={url} />
      </>
    );
  return (
    <>
      {title}
      <EmbeddedPlayer shared={shared} />
    </>
  );
}

function EmbeddedPlayer({ shared }: { shared: SharedFile }) {
  const { file, channels } = useShared(shared);
  return (
    <>
      <Times file={file} />
      <SpeedSelect />
      <div class="player-controls">
        <SkipButton file={file} seconds={-BACK_SECONDS} />
        <PlayButton file={file} class="primary" />
        <SkipButton file={file} seconds={FORWARD_SECONDS} />
      </div>
      <SeekBar file={file} channels={channels} />
      <PlaybackFailure />
    </>
  );
}

function Shared() {
  const Content = isEmbedded ? Embed : Page;
  const content = problem.value ? (
    <Failure error={problem.value} onRetry={load} />
  ) : file.value ? (
    <Content shared={file.value} />
  ) : (
    <Skeleton rows={2} />
  );
  if (isEmbedded) return <main class="embed">{content}</main>;
  return (
    <main class="share">
      <p class="brand quiet">
        <img src="/assets/icon.svg" alt="" width="20" height="20" />{" "}
        {file.value ? (
          <span>
            <bdi>{file.value.teamName}</bdi> shared this
          </span>
        ) : (
          "Stowage"
        )}
      </p>
      <div class="card">{content}</div>
      <Announcements />
    </main>
  );
}

// A new URL is requested only if playing fails, so a link that has ended shows its page.
startPlayback(async (_, isNew) => (isNew || !file.value ? await fetchFile() : file.value).url);
followPlayerKeys();
// Letters are not shortcuts here, because the page has no place to turn them off.
addEventListener("keydown", (event) => !isCharacter(event.key) && runShortcut(event));
void load();
render(<Shared />, document.getElementById("page") as HTMLElement);
