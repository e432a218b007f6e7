import { effect, useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Cue, cueAt, findCues, parseCues, textOf } from "../../cues.ts";
import { fold } from "../../folding.ts";
import { formatDuration } from "../parts/format.ts";
import { Marked } from "../parts/words.tsx";
import { IconButton } from "./controls.tsx";
import { position, seek, type Track, track } from "./player-state.ts";

/*
 * The transcript of a recording next to its player: the cue that is spoken is marked, a click seeks, and a search finds words.
 * If it is long, only the blocks near the visible part are in the page.
 */

/** Cues of a block. */
const BLOCK_CUES = 100;
/** The list fades at its end (player.css), where no line can be read. */
const FADE_PIXELS = 32;
/** The height of a cue until its block is in the page. */
const CUE_REMS = 2.25;
/** Blocks are added before they can be seen. */
const MARGIN = "600px 0px";
/** On a narrow screen, a list of more cues is shortened. */
const SHORT_CUES = 5;

interface TranscriptProps {
  file: Track;
  /** WebVTT. */
  vtt: string;
  language: string | null;
  /** Stands next to the search. */
  children?: ComponentChildren;
}

export function Transcript({ file, vtt, language, children }: TranscriptProps) {
  const cues = useMemo(() => parseCues(vtt), [vtt]);
  const texts = useMemo(() => cues.map((cue) => fold(textOf(cue))), [cues]);
  const [query, setQuery] = useState("");
  const found = useMemo(() => findCues(texts, query), [texts, query]);
  const isFound = useMemo(() => new Set(found), [found]);
  const [match, setMatch] = useState(0);
  const [isAll, setAll] = useState(false);
  const list = useRef<CueListHandle | null>(null);
  const go = (to: number) => {
    const at = (to + found.length) % found.length;
    setMatch(at);
    list.current?.show(found[at] ?? 0);
  };
  if (cues.length === 0 && !children) return null;
  const onFindKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || found.length === 0) return;
    event.preventDefault();
    go(match + (event.shiftKey ? -1 : 1));
  };
  return (
    <section class="transcript" aria-label="Transcript">
      <div class="transcript-find">
        <h2>Transcript</h2>
        <input
          type="search"
          aria-label="Find in transcript"
          placeholder="Find…"
          autocomplete="off"
          spellcheck={false}
          value={query}
          onKeyDown={onFindKey}
          onInput={({ currentTarget: { value } }) => {
            setQuery(value);
            setMatch(0);
            const [first] = findCues(texts, value);
            if (first !== undefined) list.current?.show(first);
          }}
        />
        <span class="quiet number" role="status">
          {query.trim() && (found.length > 0 ? `${match + 1} of ${found.length}` : "No matches")}
        </span>
        {found.length > 1 && (
          <>
            <IconButton label="Previous match" icon="chevron" class="up" onClick={() => go(match - 1)} />
            <IconButton label="Next match" icon="chevron" onClick={() => go(match + 1)} />
          </>
        )}
        {children}
      </div>
      <CueList
        key={vtt}
        file={file}
        cues={cues}
        language={language}
        isAll={isAll}
        handle={list}
        found={isFound}
        query={query}
        match={found[match]}
      />
      {cues.length > SHORT_CUES && (
        <button type="button" class="button transcript-all" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
          {isAll ? "Show less" : "Show all"}
        </button>
      )}
    </section>
  );
}

interface CueListHandle {
  /** Scrolls to a cue. */
  show(at: number): void;
}

interface CueListProps {
  file: Track;
  cues: Cue[];
  language: string | null;
  /** Whether a narrow screen shows the list in full length, in the page. */
  isAll: boolean;
  /** The cues in which the words of the query are marked. */
  found: ReadonlySet<number>;
  query: string;
  match: number | undefined;
  handle: { current: CueListHandle | null };
}

function CueList({ file, cues, language, isAll, found, query, match, handle }: CueListProps) {
  const scroller = useRef<HTMLOListElement>(null);
  const blocks = Math.ceil(cues.length / BLOCK_CUES);
  const [shown, setShown] = useState<ReadonlySet<number>>(new Set([0]));
  /** The cue that the keyboard reaches by Tab. */
  const [stop, setStop] = useState(0);
  /** The cue to keep visible until the reader scrolls: blocks that come into the page move it. */
  const target = useRef({ at: -1, isFocused: false });
  /** Whether the list follows the recording: not once the reader has scrolled away. */
  const isFollowing = useRef(true);
  const spoken = useComputed(() => (track.value?._id === file._id ? cueAt(cues, position.value) : -1));

  const elementOf = (at: number) => scroller.current?.querySelector<HTMLElement>(`[data-cue="${at}"]`) ?? null;
  const isVisible = (box: HTMLElement, { offsetTop, offsetHeight }: HTMLElement) =>
    offsetTop >= box.scrollTop && offsetTop + offsetHeight <= box.scrollTop + box.clientHeight - FADE_PIXELS;
  const add = (added: number[]) =>
    setShown((before) => (added.every((block) => before.has(block)) ? before : new Set([...before, ...added])));
  const settle = () => {
    const [box, { at, isFocused }] = [scroller.current, target.current];
    const cue = elementOf(at);
    if (!box || !cue) return;
    target.current.isFocused = false;
    if (isFocused) cue.focus({ preventScroll: true });
    // Only the list scrolls, and not the page.
    if (!isVisible(box, cue)) box.scrollTop = cue.offsetTop - box.clientHeight / 3;
    // A list in full length moves the page, once, to what the reader looks for.
    if (!isAll || isFollowing.current) return;
    cue.scrollIntoView({ block: "nearest" });
    target.current.at = -1;
  };
  const reach = (at: number, isFocused = false) => {
    target.current = { at, isFocused };
    add([Math.floor(at / BLOCK_CUES)]);
    settle();
  };
  const leave = () => {
    isFollowing.current = false;
    target.current.at = -1;
  };
  const onScroll = () => {
    const [box, cue] = [scroller.current, elementOf(spoken.peek())];
    if (box && cue && isVisible(box, cue)) isFollowing.current = true;
  };
  handle.current = {
    show(at) {
      isFollowing.current = false;
      reach(at);
    },
  };
  useLayoutEffect(settle, [shown]);

  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const observer = new IntersectionObserver(
      (entries) =>
        add(
          entries
            .filter((one) => one.isIntersecting)
            .map(({ target }) => Number((target as HTMLElement).dataset.block)),
        ),
      { root: isAll ? null : box, rootMargin: MARGIN },
    );
    for (const block of box.children) observer.observe(block);
    return () => observer.disconnect();
  }, [isAll]);

  // Changed by hand, so that no cue renders again while the recording plays. The list has another key for other cues.
  useEffect(() => {
    let last = -1;
    return effect(() => {
      const at = spoken.value;
      elementOf(last)?.removeAttribute("aria-current");
      elementOf(at)?.setAttribute("aria-current", "true");
      last = at;
      if (at >= 0 && isFollowing.current) reach(at);
    });
  }, []);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const last = cues.length - 1;
    const to = { ArrowUp: stop - 1, ArrowDown: stop + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const at = Math.min(Math.max(to, 0), last);
    setStop(at);
    isFollowing.current = false;
    reach(at, true);
  };
  const onClick = ({ target }: MouseEvent) => {
    const cue = target instanceof Element && target.closest<HTMLElement>("[data-cue]");
    if (!cue) return;
    const at = Number(cue.dataset.cue);
    setStop(at);
    isFollowing.current = true;
    seek(file, cues[at]?.start ?? 0);
  };
  return (
    <ol
      ref={scroller}
      class="transcript-cues"
      data-short={!isAll && cues.length > SHORT_CUES}
      lang={language ?? undefined}
      onKeyDown={onKeyDown}
      onClick={onClick}
      onScroll={onScroll}
      onWheel={leave}
      onTouchMove={leave}
      // The scrollbar.
      onPointerDown={({ target, currentTarget }) => target === currentTarget && leave()}
    >
      {Array.from({ length: blocks }, (_, block) => {
        const from = block * BLOCK_CUES;
        const part = cues.slice(from, from + BLOCK_CUES);
        return (
          <Block
            key={block}
            block={block}
            from={from}
            part={part}
            found={found}
            query={query}
            isShown={shown.has(block)}
            stop={stop >= from && stop < from + BLOCK_CUES ? stop : undefined}
            match={match !== undefined && match >= from && match < from + BLOCK_CUES ? match : undefined}
            spoken={spoken.peek()}
          />
        );
      })}
    </ol>
  );
}

interface BlockProps {
  block: number;
  from: number;
  part: Cue[];
  found: ReadonlySet<number>;
  query: string;
  isShown: boolean;
  stop: number | undefined;
  match: number | undefined;
  spoken: number;
}

function Block({ block, from, part, found, query, isShown, stop, match, spoken }: BlockProps) {
  if (!isShown) return <li data-block={block} style={{ blockSize: `${part.length * CUE_REMS}rem` }} />;
  return (
    <li data-block={block}>
      <ol start={from + 1}>
        {part.map((cue, index) => {
          const [at, text] = [from + index, textOf(cue)];
          return (
            <li key={at}>
              <button
                type="button"
                data-cue={at}
                data-match={match === at}
                tabIndex={stop === at ? 0 : -1}
                aria-current={spoken === at ? "true" : undefined}
              >
                <span class="quiet number">{formatDuration(Math.floor(cue.start))}</span>{" "}
                <span dir="auto">{found.has(at) ? <Marked text={text} search={query} /> : text}</span>
              </button>
            </li>
          );
        })}
      </ol>
    </li>
  );
}
