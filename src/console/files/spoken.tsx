import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { StoredFile, TranscriptFilters } from "../../client/index.ts";
import { href } from "../framework/router.ts";
import { can, client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { Failure } from "../parts/failure.tsx";
import { formatDuration } from "../parts/format.ts";
import { MarkedRanges } from "../parts/words.tsx";
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

/** The recordings in which words are said, best first. Empty without words. */
export function useSpoken(words: string, filters: TranscriptFilters) {
  const { value, ...loaded } = useData(
    ["spoken", words, JSON.stringify(filters)],
    async (signal) => {
      if (!words) return { items: [], hasMore: false, isComplete: true };
      const { items, next, isComplete } = await search(words, filters, signal);
      return { items, hasMore: next !== undefined, isComplete };
    },
    { of: ["file"], interval: () => INTERVAL_MILLISECONDS },
  );
  const { items, hasMore = false, isComplete = true } = value ?? {};
  useEffect(() => {
    const timer = isComplete ? 0 : window.setTimeout(loaded.reload, INCOMPLETE_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [value]);
  return { ...loaded, items, hasMore, isComplete };
}

/** The page of a file at the second of a match, with the search. */
export const urlOfMatch = ({ _id }: StoredFile, { startSeconds }: Match, words: string) =>
  href(`/files/${_id}`, { t: String(startSeconds), q: words });

/** Plays from a match, if the page of the file has a player. */
export function playMatch(file: StoredFile, { startSeconds }: Match): void {
  if (isPlayable(file) && !file.mimeType.startsWith("video/") && can("files:download"))
    playFrom(file, startSeconds, []);
}

export const INCOMPLETE = "Transcripts are still being indexed, so there may be more.";

interface SpokenProps {
  words: string;
  /** Limits the search to files. */
  filters: TranscriptFilters;
}

/** The group of recordings in which the words of the search are said. Arrow keys move between them, and Enter plays one. */
export function Spoken({ words, filters }: SpokenProps) {
  const [limit, setLimit] = useState(FIRST_FILES);
  const { items, hasMore, isComplete, isLoading, error, reload } = useSpoken(words, { ...filters, limit });
  const list = useRef<HTMLOListElement>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const stops = [...(list.current?.querySelectorAll<HTMLElement>("a, button") ?? [])];
    const at = stops.indexOf(event.target as HTMLElement);
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (event.key === "Escape") document.querySelector<HTMLElement>("search input")?.focus();
    else if (to === undefined || at < 0) return;
    else stops[Math.min(Math.max(to, 0), stops.length - 1)]?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  const isEmpty = items?.length === 0;
  return (
    <section class="spoken stack" aria-labelledby="spoken">
      <div class="actions">
        <h2 id="spoken">In transcripts</h2>
        <p role="status" class="quiet">
          {!items && isLoading && "Searching transcripts…"}
          {isEmpty && !isLoading && !error && isComplete && `Nobody says “${words}” in a transcript.`}
          {items && !isComplete && INCOMPLETE}
        </p>
      </div>
      <Failure error={error} onRetry={reload} />
      {items && !isEmpty && (
        <ol ref={list} class="stack" onKeyDown={onKeyDown}>
          {items.map((found) => (
            <Recording key={found.file._id} found={found} words={words} />
          ))}
        </ol>
      )}
      {hasMore && limit < MORE_FILES && (
        <button type="button" class="button start" onClick={() => setLimit(MORE_FILES)}>
          More recordings
        </button>
      )}
    </section>
  );
}

/** A recording with its best matches, and on demand all of them. */
function Recording({ found: { file, matches, matchCount }, words }: { found: Found; words: string }) {
  const [isAll, setAll] = useState(false);
  const all = useSpoken(isAll ? words : "", { file: file._id });
  const shown = (isAll && all.items?.[0]?.matches) || matches;
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
      <p class="actions">
        <strong>
          <bdi>{file.name}</bdi>
        </strong>
        <span class="quiet">
          <bdi>{file.folder}</bdi>
        </span>
        {file.durationSeconds !== null && <span class="quiet number">{formatDuration(file.durationSeconds)}</span>}
      </p>
      <ol ref={list} aria-label={file.name}>
        {shown.map((match) => (
          <li key={`${match.startSeconds} ${match.text}`}>
            <a
              href={urlOfMatch(file, match, words)}
              onClick={(event) => {
                const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
                if (isPlain) playMatch(file, match);
              }}
            >
              <span class="number quiet">{formatDuration(Math.floor(match.startSeconds))}</span>{" "}
              <Sentence match={match} />
            </a>
          </li>
        ))}
      </ol>
      <Failure error={all.error} onRetry={all.reload} />
      {count > 0 && shown === matches && (
        <button type="button" class="button ghost start" aria-disabled={isAll} onClick={() => setAll(true)}>
          More in this recording ({count >= MAX_COUNTED ? `${count}+` : count})
        </button>
      )}
    </li>
  );
}
/** A search counts up to 100 matches of a file, three of which it shows. */
const MAX_COUNTED = 97;

/** What is said, after the name of who says it. */
export const Sentence = ({ match: { speaker, text, marks } }: { match: Match }) => (
  <span dir="auto">
    {speaker !== null && <strong>{speaker}: </strong>}
    <MarkedRanges text={text} ranges={marks as [number, number][]} />
  </span>
);
