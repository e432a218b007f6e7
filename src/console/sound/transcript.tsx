import { effect, useComputed } from "@preact/signals";
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Cue, cueAt, parseCues, type Turn } from "../../cues.ts";
import { copies } from "../parts/copy.tsx";
import { formatDuration } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { MarkedRanges } from "../parts/words.tsx";
import { formatClip, IconButton } from "./controls.tsx";
import { createFinder, type Found, type FoundPlace } from "./finding.ts";
import { type Clip, clip, markClip } from "./playback.ts";
import { isPlaying, momentOf, position, seek, type Track, track } from "./player-state.ts";

/*
 * The transcript of a recording below its player. It is a text: it can be selected, which marks the clip in which that is said,
 * and copied. The cue that is spoken is marked, a click seeks, and a search finds words. If it is long, only the blocks near the
 * visible part are in the page.
 */

/** Cues of a block. */
const BLOCK_CUES = 100;
/** The list fades at its end (player.css), where no line can be read. */
const FADE_PIXELS = 32;
/** The height of a cue until its block is in the page. */
const CUE_REMS = 2.25;
/** Blocks are added before they can be seen. */
const MARGIN = "600px 0px";
/** The height that the button below a selection takes, for a mouse or a finger. */
const CHIP_PIXELS = matchMedia("(pointer: coarse)").matches ? 52 : 36;
/** On a narrow screen, a list of more cues is shortened. */
const SHORT_CUES = 5;

/** How a button copies a link to the marked clip: by submitting the form of this id, or by itself. */
type CopyClip = { form: string } | { onClick: () => void };

interface TranscriptProps {
  file: Track;
  /** WebVTT. */
  vtt: string;
  language: string | null;
  /** The words to find at first. */
  search?: string | undefined;
  copyClip: CopyClip;
  /** Stands next to the search. */
  children?: ComponentChildren;
}

/** The cues as they are shown: a speaker is named once, until another one speaks. */
function namedOnce(cues: Cue[]): Cue[] {
  let before: string | null = null;
  const nameOnce = ({ speaker, text }: Turn) => {
    const isSame = speaker === before;
    before = speaker;
    return { speaker: isSame ? null : speaker, text };
  };
  return cues.map((cue) => ({ ...cue, turns: cue.turns.map(nameOnce) }));
}

export function Transcript({ file, vtt, language, search = "", copyClip, children }: TranscriptProps) {
  const cues = useMemo(() => namedOnce(parseCues(vtt)), [vtt]);
  const find = useMemo(() => createFinder(cues), [cues]);
  const [query, setQuery] = useState(search);
  const found = find(query);
  const { places } = found;
  const [match, setMatch] = useState(0);
  const [isAll, setAll] = useState(false);
  const list = useRef<CueListHandle | null>(null);
  const go = (to: number) => {
    const at = (to + places.length) % places.length;
    setMatch(at);
    list.current?.show(places[at]?.firstCue ?? 0);
  };
  const section = useRef<HTMLElement>(null);
  // The page opens at the match that is heard there, or follows.
  useEffect(() => {
    const next = Math.max(
      places.findIndex(({ lastCue }) => (cues[lastCue]?.end ?? 0) > momentOf(file)),
      0,
    );
    const cue = cues[places[next]?.firstCue ?? -1];
    if (!cue) return;
    go(next);
    section.current?.scrollIntoView({ block: "nearest" });
    // Unless the URL names a moment, it plays from the match.
    if (!isPlaying.peek() && !clip.peek() && momentOf(file) === 0) seek(file, cue.start);
  }, [search]);
  if (cues.length === 0 && !children) return null;
  const onFindKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || places.length === 0) return;
    event.preventDefault();
    go(match + (event.shiftKey ? -1 : 1));
  };
  return (
    <section ref={section} class="transcript" aria-label="Transcript">
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
            const [first] = find(value).places;
            if (first) list.current?.show(first.firstCue);
          }}
        />
        <span class="quiet number" role="status">
          {query.trim() && (places.length > 0 ? `${match + 1} of ${places.length}` : "No matches")}
        </span>
        {places.length > 1 && (
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
        found={found}
        match={places[match]}
        copyClip={copyClip}
      />
      {cues.length > SHORT_CUES && (
        <div class="narrow-only">
          <button type="button" class="button" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
            {isAll ? "Show less" : "Show all"}
          </button>
        </div>
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
  copyClip: CopyClip;
  /** Whether a narrow screen shows the list in full length, in the page. */
  isAll: boolean;
  /** The places whose words are marked. */
  found: Found;
  match: FoundPlace | undefined;
  handle: { current: CueListHandle | null };
}

function CueList({ file, cues, language, copyClip, isAll, found, match, handle }: CueListProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const blocks = Math.ceil(cues.length / BLOCK_CUES);
  const [shown, setShown] = useState<ReadonlySet<number>>(new Set([0]));
  /** The cue that the keyboard reaches by Tab. */
  const [stop, setStop] = useState(0);
  /** Where a selection by keyboard began. */
  const anchor = useRef(0);
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
  /** The top of a cue and of those before it that some pixels have room for, so that no line is cut. */
  const topAround = (at: number, pixels: number) => {
    const { offsetTop = 0 } = elementOf(at) ?? {};
    let first = at;
    const hasRoomFor = (cue: HTMLElement | null) => cue !== null && cue.offsetTop >= offsetTop - pixels;
    while (hasRoomFor(elementOf(first - 1))) first--;
    return elementOf(first)?.offsetTop ?? 0;
  };
  const settle = () => {
    const [box, { at, isFocused }] = [scroller.current, target.current];
    const cue = elementOf(at);
    if (!box || !cue) return;
    target.current.isFocused = false;
    if (isFocused) cue.querySelector("button")?.focus({ preventScroll: true });
    // To follow the recording, only the list scrolls, and not the page.
    if (!isVisible(box, cue)) box.scrollTop = topAround(at, box.clientHeight / 3);
    // What the keyboard reaches may be below the window.
    if (isFocused) cue.scrollIntoView({ block: "nearest" });
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
      setStop(at);
      anchor.current = at;
      reach(at);
    },
  };
  useLayoutEffect(settle, [shown]);
  // A list in another length stays where it was: at the match, or at what is spoken.
  const isFirst = useRef(true);
  useEffect(() => {
    const at = match?.firstCue ?? spoken.peek();
    if (isFirst.current || at < 0) isFirst.current = false;
    else if (isAll || match !== undefined) handle.current?.show(at);
    else {
      isFollowing.current = true;
      reach(at);
    }
  }, [isAll]);

  // Only a list that scrolls has room for the fade at its end.
  useLayoutEffect(() => {
    const [box, all] = [scroller.current, scroller.current?.firstElementChild];
    if (!box || !all) return;
    const measure = () => {
      box.dataset.overflows = String((all as HTMLElement).offsetHeight > box.clientHeight);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    observer.observe(all);
    return () => observer.disconnect();
  }, []);

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
    for (const block of box.querySelectorAll("[data-block]")) observer.observe(block);
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
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = cues.length - 1;
    const to = { ArrowUp: stop - 1, ArrowDown: stop + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const at = Math.min(Math.max(to, 0), last);
    setStop(at);
    isFollowing.current = false;
    reach(at, true);
    if (!event.shiftKey) anchor.current = at;
    const [from, until] = [elementOf(anchor.current), elementOf(at)];
    if (!event.shiftKey || !from || !until) getSelection()?.removeAllRanges();
    else if (at < anchor.current) getSelection()?.setBaseAndExtent(from, from.childNodes.length, until, 0);
    else getSelection()?.setBaseAndExtent(from, 0, until, until.childNodes.length);
  };
  const isHeard = () => isPlaying.peek() && track.peek()?._id === file._id;
  /** Where the recording was before the last click. */
  const left = useRef(0);
  const onClick = ({ target, detail }: MouseEvent) => {
    const cue = target instanceof Element && target.closest<HTMLElement>("[data-cue]");
    if (!cue) return;
    const isText = !target.closest("button");
    // A drag that has selected text ends with a click, too.
    if (isText && getSelection()?.isCollapsed === false) {
      // The first click of two, which select a word, has moved what is heard.
      if (detail === 2 && isHeard()) seek(file, left.current);
      return;
    }
    if (isText && detail > 1) return;
    left.current = momentOf(file);
    getSelection()?.removeAllRanges();
    const at = Number(cue.dataset.cue);
    setStop(at);
    anchor.current = at;
    isFollowing.current = true;
    if (clip.peek() === selectedClip.current) markClip(0, 0);
    seek(file, cues[at]?.start ?? 0);
  };
  /** The clip that a selection has marked. A click in the text, which ends the selection, clears it. */
  const selectedClip = useRef<Clip | null>(null);
  const partOf = (first: number, last: number): Clip => {
    const part = cues.slice(first, last + 1);
    const to = Math.max(...part.map(({ end }) => end));
    return { from: part[0]?.start ?? 0, to: Math.min(file.durationSeconds ?? 0, to) };
  };
  const mark = ({ from, to }: Clip) => {
    markClip(from, to);
    selectedClip.current = clip.peek();
  };
  const onSelect = (part: Clip) => {
    isFollowing.current = false;
    // Playback stops at the end of a clip. What is heard continues until the button marks it.
    if (isHeard()) return;
    mark(part);
    if (!isPlaying.peek() && momentOf(file) !== part.from) seek(file, part.from);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the buttons in it are reached by keyboard.
    <div
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
      <ol>
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
              isShown={shown.has(block)}
              stop={stop >= from && stop < from + BLOCK_CUES ? stop : undefined}
              match={match}
              spoken={spoken.peek()}
            />
          );
        })}
      </ol>
      {file.durationSeconds !== null && <Selected box={scroller} {...{ partOf, onSelect, mark, copyClip }} />}
    </div>
  );
}

/** Whether a range has some of the text of an element. */
function hasTextOf(range: Range, element: Element): boolean {
  const part = range.cloneRange();
  if (!element.contains(part.startContainer)) part.setStartBefore(element);
  if (!element.contains(part.endContainer)) part.setEndAfter(element);
  return part.toString().trim() !== "";
}

/** The texts of cues that are selected, if the selection begins in the list. */
function selectedTexts(box: Element, selection: Selection): HTMLElement[] {
  if (selection.isCollapsed || selection.rangeCount === 0 || !box.contains(selection.anchorNode)) return [];
  const range = selection.getRangeAt(0);
  const texts = [...box.querySelectorAll<HTMLElement>("[data-cue] > p")].filter((text) => range.intersectsNode(text));
  // It may begin after the end of one, and end before the start of one.
  return texts.filter((text, at) => (at > 0 && at < texts.length - 1) || hasTextOf(range, text));
}

interface SelectedProps {
  box: RefObject<HTMLElement | null>;
  /** The clip in which two cues and those between them are said. */
  partOf: (first: number, last: number) => Clip;
  onSelect: (part: Clip) => void;
  mark: (part: Clip) => void;
  copyClip: CopyClip;
}

/** Below the selected text, or above it, the button that copies a link to the clip in which it is said. */
function Selected({ box, partOf, onSelect, mark, copyClip }: SelectedProps) {
  const [place, setPlace] = useState<{ top: number; left: number; part: Clip } | null>(null);
  const latest = useRef({ partOf, onSelect });
  latest.current = { partOf, onSelect };
  /** How many texts were copied before this one. */
  const [copied, setCopied] = useState(Number.POSITIVE_INFINITY);
  const [submits, setSubmits] = useState(0);
  // The form knows the clip once it has rendered.
  useEffect(() => {
    if (submits > 0 && "form" in copyClip)
      document.querySelector<HTMLFormElement>(`#${copyClip.form}`)?.requestSubmit();
  }, [submits]);
  useEffect(() => {
    let [before, closed] = ["", ""];
    let isPressed = false;
    const follow = () => {
      const [list, selection] = [box.current, getSelection()];
      if (!list || !selection) return;
      const texts = selectedTexts(list, selection);
      const cues = texts.map((text) => Number(text.closest<HTMLElement>("[data-cue]")?.dataset.cue));
      const [first, last] = [cues[0], cues.at(-1)];
      const key = `${first} ${last}`;
      const part = first === undefined || last === undefined ? null : latest.current.partOf(first, last);
      if (key !== before) {
        closed = "";
        setCopied(Number.POSITIVE_INFINITY);
        if (part) latest.current.onSelect(part);
      }
      before = key;
      const [start, end] = [texts[0], texts.at(-1)].map((text) => text?.getBoundingClientRect());
      // While text is being selected, the button would cover what follows.
      if (!start || !end || !part || part.to <= part.from || isPressed || key === closed) return setPlace(null);
      const frame = list.getBoundingClientRect();
      // Bars are at the bottom of the window.
      const bars = Number.parseFloat(getComputedStyle(list.parentElement ?? list).scrollMarginBottom);
      const lowest = Math.min(frame.bottom, innerHeight - bars) - CHIP_PIXELS;
      const above = start.top - CHIP_PIXELS;
      const top = end.bottom <= lowest || above < Math.max(frame.top, 0) ? Math.min(end.bottom, lowest) : above;
      setPlace({ top: top - frame.top + list.scrollTop, left: end.left - frame.left, part });
    };
    const close = ({ key }: KeyboardEvent) => {
      if (key !== "Escape") return;
      closed = before;
      if (document.activeElement?.matches(".transcript-clip"))
        box.current?.querySelector<HTMLElement>("[data-cue] [tabindex='0']")?.focus();
      follow();
    };
    document.addEventListener("keydown", close);
    const press = (event: PointerEvent) => {
      isPressed = event.type === "pointerdown" && !(event.target as Element).closest(".transcript-clip");
      follow();
    };
    document.addEventListener("selectionchange", follow);
    for (const type of ["pointerdown", "pointerup", "pointercancel"] as const) document.addEventListener(type, press);
    return () => {
      document.removeEventListener("keydown", close);
      document.removeEventListener("selectionchange", follow);
      for (const type of ["pointerdown", "pointerup", "pointercancel"] as const)
        document.removeEventListener(type, press);
    };
  }, []);
  if (!place) return null;
  const isCopied = copies.value > copied;
  return (
    <button
      type="button"
      onClick={() => {
        mark(place.part);
        setCopied(copies.peek());
        if ("form" in copyClip) setSubmits(submits + 1);
        else copyClip.onClick();
      }}
      class="button primary transcript-clip"
      style={{ insetBlockStart: `${place.top}px`, left: `${place.left}px` }}
      // The text stays selected.
      onPointerDown={(event) => event.preventDefault()}
      onMouseDown={(event) => event.preventDefault()}
    >
      <Icon name={isCopied ? "check" : "link"} /> {isCopied ? "Copied" : `Copy link to ${formatClip(place.part)}`}
    </button>
  );
}

interface BlockProps {
  block: number;
  from: number;
  part: Cue[];
  found: Found;
  isShown: boolean;
  stop: number | undefined;
  match: FoundPlace | undefined;
  spoken: number;
}

function Block({ block, from, part, found, isShown, stop, match, spoken }: BlockProps) {
  const id = useId();
  if (!isShown) return <li data-block={block} style={{ blockSize: `${part.length * CUE_REMS}rem` }} />;
  return (
    <li data-block={block}>
      <ol start={from + 1}>
        {part.map((cue, index) => {
          const at = from + index;
          const marks = found.placeOf.get(at)?.marksOf(at);
          const time = formatDuration(Math.floor(cue.start));
          return (
            <li
              key={at}
              data-cue={at}
              data-match={match?.has(at) === true}
              aria-current={spoken === at ? "true" : undefined}
            >
              {cue.turns.map(({ speaker, text }, turn) => (
                <>
                  {speaker !== null && (
                    <strong dir="auto">
                      <MarkedRanges text={speaker} ranges={marks?.[turn]?.speaker ?? []} />
                    </strong>
                  )}
                  {turn === 0 && (
                    <button
                      type="button"
                      class="quiet number"
                      tabIndex={stop === at ? 0 : -1}
                      aria-label={`Go to ${time}`}
                      aria-describedby={`${id}-${index}`}
                    >
                      {time}
                    </button>
                  )}
                  <p dir="auto" id={turn === 0 ? `${id}-${index}` : undefined}>
                    <MarkedRanges text={text} ranges={marks?.[turn]?.text ?? []} />
                  </p>
                </>
              ))}
            </li>
          );
        })}
      </ol>
    </li>
  );
}
