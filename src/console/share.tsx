import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import type { Schemas } from "../client/api.ts";
import { Announcements, announce } from "./parts/announce.tsx";
import { Failure } from "./parts/failure.tsx";
import { formatBytes, formatDuration } from "./parts/format.ts";
import { Icon, type IconName } from "./parts/icon.tsx";
import { addShortcuts, runShortcut } from "./parts/keys.ts";
import {
  BACK_SECONDS,
  FORWARD_SECONDS,
  PlayButton,
  PlaybackFailure,
  Ruler,
  SeekBar,
  Settings,
  SkipButton,
  SpeedSelect,
  Times,
} from "./sound/controls.tsx";
import { pageTrack, parseMoment, position, seek, startPlayback, type Track } from "./sound/playback.ts";
import { rememberWaveform, waveformOf } from "./sound/waveforms.ts";
import { UserError } from "./user-error.ts";

/* The page of a link at /share/{id}.{secret}, and at /embed/… only its player, which other sites frame. */

type SharedFile = Schemas["SharedFile"];

const [, kind, token = ""] = location.pathname.split("/");
const isEmbedded = kind === "embed";
const PAGE = `/share/${token}`;

const file = signal<SharedFile | null>(null);
const problem = signal<unknown>(null);

async function fetchFile(): Promise<SharedFile> {
  const response = await fetch(`/docs/v1/links/${token}`).catch(() => {
    throw new UserError("Can't reach the service. Check your connection and try again.");
  });
  if (response.ok) return (await response.json()).data;
  // The link has ended. Its page shows this.
  if (response.status === 404) location.reload();
  throw new UserError(
    response.status === 429 ? "Too many requests. Try again in a minute." : "Can't load this file. Try again.",
  );
}

async function load(): Promise<void> {
  problem.value = null;
  try {
    const loaded = await fetchFile();
    if (loaded.waveform) rememberWaveform(token, loaded.waveform);
    document.title = loaded.name;
    file.value = loaded;
  } catch (error) {
    problem.value = error;
  }
}

const trackOf = ({ name, mimeType, durationSeconds }: SharedFile): Track => ({
  ...{ _id: token, name, mimeType, durationSeconds },
  folder: "",
  artist: null,
});

async function copyMoment(): Promise<void> {
  const seconds = Math.floor(position.peek());
  try {
    await navigator.clipboard.writeText(`${location.origin}${PAGE}#t=${seconds}`);
    announce(`Copied link to ${formatDuration(seconds)}`);
  } catch {
    announce("Couldn't copy the link");
  }
}

/** Moves to the moment in the URL, such as `#t=90`. */
function seekToHash(track: Track): void {
  const seconds = parseMoment(new URLSearchParams(location.hash.slice(1)).get("t"));
  if (seconds > 0) seek(track, seconds);
}

/** The waveform of a shared recording. Space and the arrow keys control its player. */
function Wave({ track }: { track: Track }) {
  useEffect(() => {
    pageTrack.value = track;
    const follow = () => seekToHash(track);
    follow();
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return <SeekBar file={track} channels={waveformOf(token).value} />;
}

const Player = ({ track }: { track: Track }) => (
  <section class="player" aria-label="Player" data-flat={!waveformOf(token).value}>
    <Wave track={track} />
    {waveformOf(token).value && <Ruler seconds={track.durationSeconds ?? 0} />}
    <div class="player-controls">
      <SkipButton seconds={-BACK_SECONDS} />
      <PlayButton file={track} class="primary" />
      <SkipButton seconds={FORWARD_SECONDS} />
      <Times file={track} />
    </div>
    <Settings onCopyMoment={copyMoment} />
    <PlaybackFailure />
  </section>
);

const ICONS: Record<string, IconName> = { image: "image", video: "video" };

const Download = ({ url }: { url: string }) => (
  <a class="button" href={url} download>
    <Icon name="download" /> Download
  </a>
);

function Page({ shared }: { shared: SharedFile }) {
  const { name, mimeType, size, durationSeconds, url } = shared;
  const isAudio = mimeType.startsWith("audio/");
  return (
    <>
      <div class="share-title">
        {!isAudio && <Icon name={ICONS[mimeType.split("/")[0] ?? ""] ?? "document"} size={32} />}
        <h1 title={name}>
          <bdi>{name}</bdi>
        </h1>
        <p class="quiet">
          {durationSeconds !== null && `${formatDuration(durationSeconds)} · `}
          {formatBytes(size)}
        </p>
      </div>
      {isAudio && <Player track={trackOf(shared)} />}
      <Download url={url} />
    </>
  );
}

function Embed({ shared }: { shared: SharedFile }) {
  const { name, mimeType, size, url } = shared;
  const title = (
    <h1>
      <a href={PAGE} target="_blank" rel="noopener" title={name}>
        <bdi>{name}</bdi>
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
  const track = trackOf(shared);
  return (
    <>
      {title}
      <Times file={track} />
      <SpeedSelect />
      <PlayButton file={track} class="primary" />
      <Wave track={track} />
      <PlaybackFailure />
    </>
  );
}

const Loading = () => (
  <div class="skeleton" role="status">
    <span class="visually-hidden">Loading</span>
    <span />
    <span />
  </div>
);

function Shared() {
  const Content = isEmbedded ? Embed : Page;
  const content = problem.value ? (
    <Failure error={problem.value} onRetry={load} />
  ) : file.value ? (
    <Content shared={file.value} />
  ) : (
    <Loading />
  );
  if (isEmbedded) return <main class="embed">{content}</main>;
  return (
    <main class="share">
      <p class="brand quiet">
        <img src="/assets/icon.svg" alt="" width="20" height="20" /> Stowage
      </p>
      <div class="card">{content}</div>
      <Announcements />
    </main>
  );
}

// A new URL is requested only if playing fails, so a link that has ended shows its page.
startPlayback(async (_, isNew) => (isNew || !file.value ? await fetchFile() : file.value).url);
addShortcuts({ c: copyMoment });
addEventListener("keydown", (event) => runShortcut(event));
void load();
render(<Shared />, document.getElementById("page") as HTMLElement);
