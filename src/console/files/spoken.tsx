import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { StoredFile, TranscriptFilters } from "../../client/index.ts";
import { href, query } from "../framework/router.ts";
import { can, client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatCount, formatDuration } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { MarkedRanges, quoted } from "../parts/words.tsx";
import { isPlayable, playFrom } from "../sound/player-state.ts";

/* What is said in the recordings: the sentences in which the words of a search are found. */

type Found = Awaited<ReturnType<typeof search>>["items"][number];
export type Match = Found["matches"][number];

const [FIRST_FILES, MORE_FILES] = [5, 50];
/** The index follows changes of transcripts within seconds, and a new one is built in minutes. */
const INCOMPLETE_MILLISECONDS = 5000;
const INTERVAL_MILLISECONDS = 2000;

const search = (words: string, filters: TranscriptFilters, signal: AbortSignal) =>
  client.value.files.searchTranscripts(words, filters, { signal });

const NOTHING = { items: [], hasMore: false, isComplete: true, isFull: false };

/** The recordings in which words are said, best first. Empty without words. */
export function useSpoken(words: string, filters: TranscriptFilters) {
  const selected = JSON.stringify(filters);
  const { value, ...loaded } = useData(
    ["spoken", words, selected],
    async (signal) => {
      if (!words) return { ...NOTHING, words, selected };
      const { items, next, isComplete, isFull } = await search(words, filters, signal);
      return { items, hasMore: next !== undefined, isComplete, isFull, words, selected };
    },
    { of: ["file"], interval: () => INTERVAL_MILLISECONDS },
  );
  // While it loads, the value is that of the search before.
  const isCurrent = value?.words === words && value.selected === selected;
  const found = loaded.error && !isCurrent ? undefined : value;
  useEffect(() => {
    const isGrowing = value && !value.isComplete && !value.isFull;
    const timer = isGrowing ? window.setTimeout(loaded.reload, INCOMPLETE_MILLISECONDS) : 0;
    return () => clearTimeout(timer);
  }, [value]);
  return { ...loaded, ...NOTHING, words, ...found, items: found?.items, isSearching: !isCurrent && !loaded.error };
}

/** The page of a file at the second of a match, with the search. */
export const urlOfMatch = ({ _id }: StoredFile, { startSeconds }: Match, words: string) =>
  href(`/files/${_id}`, { t: String(startSeconds), q: words });

/** Whether the page of the file has a player. */
const canPlay = (file: StoredFile) => isPlayable(file) && !file.mimeType.startsWith("video/") && can("files:download");

/** Plays from a match, if that is possible. */
export function playMatch(file: StoredFile, { startSeconds }: Match): void {
  if (canPlay(file)) playFrom(file, startSeconds, []);
}

/** Says if transcripts may be missing. */
export function missingOf({
  items,
  isComplete,
  isFull,
}: Pick<ReturnType<typeof useSpoken>, "items" | "isComplete" | "isFull">) {
  if (isFull) return "The search has only the transcripts of the newest files: there are more than it holds.";
  if (isComplete) return "";
  return items?.length
    ? "Transcripts are still being indexed, so there may be more."
    : "Nothing yet: transcripts are still being indexed.";
}

/** A search counts up to 100 matches of a file. */
const MAX_COUNTED = 100;

/** How many places are found. */
function countPlaces(items: Found[], hasMore: boolean): string {
  const places = items.reduce((sum, { matchCount }) => sum + matchCount, 0);
  const isMore = items.some(({ matchCount }) => matchCount >= MAX_COUNTED);
  const count = isMore ? `${formatCount(places)}+ places` : countOf(places, "place");
  return `${count} in ${countOf(items.length, "recording")}${hasMore ? ", and there are more" : ""}`;
}

interface SpokenProps {
  words: string;
  /** Limits the search to files. */
  filters: TranscriptFilters;
  /** Whether files are found by other facts. */
  hasFiles: boolean;
  /** Says that no files are found, unless there are recordings. */
  noFiles: ComponentChildren;
  /** The parameters of the filters of the page. */
  names: string[];
}

const hasModifier = ({ altKey, ctrlKey, metaKey, shiftKey }: KeyboardEvent | MouseEvent) =>
  altKey || ctrlKey || metaKey || shiftKey;

/** The search of the page, above all that is found. */
const searchField = () => document.querySelector<HTMLElement>("search input");

/** The down arrow in the search reaches what is found. */
function followArrow(event: KeyboardEvent): void {
  if (event.key !== "ArrowDown" || hasModifier(event)) return;
  const first = document.querySelector<HTMLElement>(":is(.table th, .spoken ol ol) a");
  if (!first) return;
  event.preventDefault();
  first.focus();
}

/** The group of recordings in which the words of the search are said. Arrow keys move between them, and Enter plays one. */
export function Spoken({ names, ...props }: SpokenProps) {
  const { words, filters, noFiles } = props;
  // Only users filter what is said, and most recordings are audio.
  const isFilteredOut = names.some((name) => {
    const value = query.value.get(name);
    return value && name !== "user" && value !== "audio file";
  });
  if (!isFilteredOut) return <Groups {...props} />;
  const folder = filters.under;
  return (
    <section class="spoken stack" aria-labelledby="spoken">
      {noFiles}
      <h2 id="spoken">In transcripts</h2>
      <p class="quiet">
        Transcripts aren't searched while filters are on.{" "}
        <a href={href("/files", { folder, search: words, user: filters.uploadedBy })}>Clear them</a> to search what is
        said.
      </p>
    </section>
  );
}

function Groups({ words, filters, hasFiles, noFiles }: Omit<SpokenProps, "names">) {
  const [limit, setLimit] = useState(FIRST_FILES);
  const found = useSpoken(words, { ...filters, limit });
  const { items, hasMore, isSearching, error, reload } = found;
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const field = searchField();
    field?.addEventListener("keydown", followArrow);
    return () => field?.removeEventListener("keydown", followArrow);
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (hasModifier(event)) return;
    const stops = [...(list.current?.querySelectorAll<HTMLElement>("li li a, button") ?? [])];
    const at = stops.indexOf(event.target as HTMLElement);
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (event.key === "Escape") searchField()?.focus();
    else if (to === undefined || at < 0) return;
    else stops[Math.min(Math.max(to, 0), stops.length - 1)]?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  const isEmpty = items?.length === 0 && !isSearching;
  const place = filters.under === undefined ? "" : " in this folder";
  const missing = missingOf(found);
  const summary = () => {
    if (isSearching) return "Searching transcripts…";
    if (!items) return "";
    if (isEmpty) return missing || `Nobody says ${quoted(words)} in a transcript${place}.`;
    const count = countPlaces(items, hasMore);
    return missing ? `${count}. ${missing}` : count;
  };
  // What is found by name is enough.
  if (isEmpty && hasFiles && !error && !missing) return null;
  const isInstead = noFiles && !isSearching && !items?.length;
  return (
    <section class="spoken stack" aria-labelledby="spoken" aria-busy={isSearching}>
      <div class="actions">
        <h2 id="spoken">In transcripts{place}</h2>
        <p role="status" class="quiet">
          {summary()}
        </p>
        {place && !isInstead && <a href={href("/files", { search: words })}>Search all files</a>}
      </div>
      <Failure error={error} onRetry={reload} />
      {items && items.length > 0 && (
        <ol ref={list} class="stack" style={{ opacity: isSearching ? 0.5 : 1 }} onKeyDown={onKeyDown}>
          {items.map((one) => (
            <Recording key={one.file._id} found={one} words={found.words} />
          ))}
        </ol>
      )}
      {hasMore && limit < MORE_FILES && (
        <button type="button" class="button start" onClick={() => setLimit(MORE_FILES)}>
          More recordings
        </button>
      )}
      {isInstead
        ? noFiles
        : noFiles && <p class="quiet">No files found by name, title, artist, tag, folder, or reference.</p>}
    </section>
  );
}

/** A time has an icon in front of it. The first page loads no styles of what is loaded later. */
const TIME_COLUMN = "5rem minmax(0, 1fr)";

/** A recording with its best matches, and on demand all of them. */
function Recording({ found: { file, language, matches, matchCount }, words }: { found: Found; words: string }) {
  const [isAll, setAll] = useState(false);
  const all = useSpoken(isAll ? words : "", { file: file._id });
  const shown = (isAll && !all.isSearching && all.items?.[0]?.matches) || matches;
  const count = matchCount - matches.length;
  const list = useRef<HTMLOListElement>(null);
  const first = useRef(true);
  // The button disappears, so the focus moves to the first of the other matches.
  useLayoutEffect(() => {
    if (first.current || document.activeElement !== document.body) first.current = false;
    else list.current?.querySelectorAll("a")[matches.length]?.focus();
  }, [shown.length]);
  return (
    <li class="card stack">
      <div class="actions">
        <h3>
          <a href={href(`/files/${file._id}`)}>
            <bdi>{file.name}</bdi>
          </a>
        </h3>
        {file.folder && (
          <span class="quiet">
            <bdi>{file.folder}</bdi>
          </span>
        )}
        {file.durationSeconds !== null && <span class="quiet number">{formatDuration(file.durationSeconds)}</span>}
      </div>
      <ol ref={list} aria-label={file.name}>
        {shown.map((match) => (
          <li key={`${match.startSeconds} ${match.turns[0]?.text}`}>
            <a
              href={urlOfMatch(file, match, words)}
              style={{ gridTemplateColumns: TIME_COLUMN }}
              onClick={(event) => !hasModifier(event) && playMatch(file, match)}
            >
              <span class="number quiet">
                {canPlay(file) && <Icon name="play" size={12} />} {formatDuration(Math.floor(match.startSeconds))}
              </span>{" "}
              <Sentence match={match} language={language} />
            </a>
          </li>
        ))}
      </ol>
      <Failure error={all.error} onRetry={all.reload} />
      {count > 0 && shown === matches && (
        <button type="button" class="button ghost start" aria-disabled={isAll} onClick={() => setAll(true)}>
          <span style={{ whiteSpace: "normal" }}>
            More in <bdi>{file.name}</bdi> ({matchCount >= MAX_COUNTED ? `${count}+` : count})
          </span>
        </button>
      )}
    </li>
  );
}

/** What is said, by who says it. */
export const Sentence = ({ match: { turns }, language }: { match: Match; language: string | null }) => (
  <span>
    {turns.map(({ speaker, text, marks }, at) => (
      <span key={at} dir="auto">
        {at > 0 && " "}
        {speaker !== null && <strong>{speaker}: </strong>}
        <span lang={language ?? undefined}>
          <MarkedRanges text={text} ranges={marks} />
        </span>
      </span>
    ))}
  </span>
);
