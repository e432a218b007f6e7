import { foldedWordsIn, needleOf, type Term } from "./words.ts";

/*
 * Where the words of a search stand in a transcript, and how well it matches. Works on the words of the transcript as one text, in which
 * each stands between two spaces, and on the times of its cues. Nothing here depends on other transcripts, so a score is the same for
 * each page of a search, and shows nothing of transcripts that the caller doesn't see. Pure, and shared by the Worker and the console.
 */

/** Words that stand this close together are one place. */
const PLACE_MILLISECONDS = 30_000;
/** Places of a transcript that count for its score. */
export const MAX_SCORED = 25;

/** A cue with its words, each after a space. */
export interface CueWords {
  start: number;
  end: number;
  words: string;
}

/** The words of these texts, each after a space. */
export const wordsOf = (texts: string[]): string =>
  texts
    .flatMap(foldedWordsIn)
    .map((word) => ` ${word}`)
    .join("");

const milliseconds = (seconds: number) => Math.min(MAX_MILLISECONDS, Math.round(seconds * 1000));
const MAX_MILLISECONDS = 2 ** 32 - 1;

/** The words of all cues as one text, each between two spaces, and the numbers of `CueTimes`. */
export function joinWords(cues: CueWords[]): { words: string; times: Uint32Array } {
  const times = new Uint32Array(3 * cues.length);
  let offset = 0;
  cues.forEach(({ start, end, words }, i) => {
    times.set([milliseconds(start), milliseconds(end), offset], 3 * i);
    offset += words.length;
  });
  return { words: `${cues.map(({ words }) => words).join("")} `, times };
}

/** The cues of a text: of each, three numbers: its start and end in milliseconds, and where its words begin in the text. */
export class CueTimes {
  readonly #numbers: Uint32Array;

  constructor(numbers: Uint32Array) {
    this.#numbers = numbers;
  }

  get length(): number {
    return this.#numbers.length / 3;
  }
  startOf(cue: number): number {
    return this.#numbers[3 * cue] ?? 0;
  }
  offsetOf(cue: number): number {
    return this.#numbers[3 * cue + 2] ?? 0;
  }

  /** The cue that has the word at this offset. */
  cueAt(offset: number): number {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsetOf(middle) <= offset) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }
}

/** A part of a transcript, from one of its cues to another. */
export interface Place {
  firstCue: number;
  lastCue: number;
  /** 1 if its words stand side by side, less if there are others between. */
  closeness: number;
}

interface Found {
  places: Place[];
  /** Greater for more places, and for words that stand closer. Above 1 if all words stand within a place. */
  score: number;
}

/** The offsets of a needle, up to a number of them. A needle ends with a space with which the next one may begin. */
function offsetsOf(text: string, needle: string, limit: number): number[] {
  const offsets: number[] = [];
  for (let at = text.indexOf(needle); at >= 0 && offsets.length < limit; at = text.indexOf(needle, at + 1)) {
    offsets.push(at);
  }
  return offsets;
}

/**
 * The shortest range around a word, at `at`, in which the other words stand, too. For each of them, only its nearest places before and
 * after matter.
 */
function rangeAround(text: string, at: number, own: string, others: string[], from: number, to: number) {
  const window = text.slice(from, to);
  const inWindow = at - from;
  const sides = others.map((needle) => {
    const before = window.lastIndexOf(needle, inWindow - 1);
    const after = window.indexOf(needle, inWindow);
    return {
      left: before < 0 ? Number.POSITIVE_INFINITY : inWindow - before,
      right: after < 0 ? Number.POSITIVE_INFINITY : after + needle.length - inWindow,
    };
  });
  let best = { left: 0, right: Number.POSITIVE_INFINITY };
  for (const left of [0, ...sides.map((side) => side.left)]) {
    const right = sides.reduce((max, side) => (side.left <= left ? max : Math.max(max, side.right)), own.length);
    if (left + right < best.left + best.right) best = { left, right };
  }
  return Number.isFinite(best.left + best.right) ? { start: at - best.left, end: at + best.right } : null;
}

const rounded = (score: number) => Math.round(score * 1e6) / 1e6;

/**
 * The places in a transcript at which all terms of a search stand within 30 s, in their order. If there are none, those of the term that
 * it has least often. Null if a term is missing. Of a word that it has in every second sentence, only the places near the others are read.
 */
export function findPlaces(text: string, times: CueTimes, terms: Term[], limit = MAX_SCORED): Found | null {
  const needles = terms.map(needleOf);
  const all = needles.map((needle) => offsetsOf(text, needle, limit));
  if (all.some((offsets) => offsets.length === 0)) return null;
  const rarest = all.reduce((least, offsets, i) => (offsets.length < (all[least]?.length ?? 0) ? i : least), 0);
  const own = needles[rarest] ?? "";
  const others = needles.filter((_, i) => i !== rarest);
  // Neighbors share a space.
  const leastLength = needles.reduce((sum, needle) => sum + needle.length - 1, 1);
  const close: Place[] = [];
  const single: Place[] = [];
  let [low, high] = [0, 0];
  for (const at of all[rarest] ?? []) {
    const ownCue = times.cueAt(at + 1);
    const start = times.startOf(ownCue);
    while (low < ownCue && times.startOf(low) < start - PLACE_MILLISECONDS) low++;
    high = Math.max(high, ownCue);
    while (high < times.length && times.startOf(high) <= start + PLACE_MILLISECONDS) high++;
    const to = high < times.length ? times.offsetOf(high) + 1 : text.length;
    const range = rangeAround(text, at, own, others, Math.max(0, times.offsetOf(low) - 1), to);
    const placeOf = (from: number, end: number): Place => ({
      firstCue: times.cueAt(from + 1),
      lastCue: times.cueAt(end - 2),
      closeness: Math.min(1, leastLength / (end - from)),
    });
    add(single, placeOf(at, at + own.length));
    if (!range) continue;
    const place = placeOf(range.start, range.end);
    if (times.startOf(place.lastCue) - times.startOf(place.firstCue) <= PLACE_MILLISECONDS) add(close, place);
  }
  const places = close.length > 0 ? close : single;
  const more = Math.log2(1 + Math.min(places.length, MAX_SCORED)) / Math.log2(1 + MAX_SCORED);
  const closest = places.reduce((max, { closeness }) => Math.max(max, closeness), 0);
  return { places, score: rounded(close.length > 0 ? 1 + closest + more : more / 2) };
}

/** Adds a place. If two share a cue, the one whose words stand closer stays. */
function add(places: Place[], place: Place): void {
  const last = places.at(-1);
  if (!last || place.firstCue > last.lastCue) places.push(place);
  else if (place.closeness > last.closeness) {
    const firstCue = Math.max(place.firstCue, (places.at(-2)?.lastCue ?? -1) + 1);
    places[places.length - 1] = { ...place, firstCue };
  }
}
