import type { Cue } from "../../cues.ts";
import { CueTimes, findPlaces, joinWords, type Place, wordsOf } from "../../places.ts";
import { marksOf, type Term, termsOf } from "../../words.ts";

/* Finds words in a transcript: the places that the search of transcripts finds, and the names of speakers. */

type Ranges = [from: number, to: number][];

/** What is marked of a turn. */
export interface TurnMarks {
  speaker: Ranges;
  text: Ranges;
}

/** Bounds the time of a search. Nobody says a word this often in a day. */
const MAX_PLACES = 10_000;

export class FoundPlace {
  readonly firstCue: number;
  readonly lastCue: number;
  readonly #cues: Cue[];
  readonly #terms: Term[];
  #marks: TurnMarks[][] | undefined;

  constructor(all: Cue[], { firstCue, lastCue }: Place, terms: Term[]) {
    this.firstCue = firstCue;
    this.lastCue = lastCue;
    this.#cues = all.slice(firstCue, lastCue + 1);
    this.#terms = terms;
  }

  has(cue: number): boolean {
    return cue >= this.firstCue && cue <= this.lastCue;
  }

  /** The marks of a cue, of each of its turns. */
  marksOf(cue: number): TurnMarks[] {
    this.#marks ??= this.#markAll();
    return this.#marks[cue - this.firstCue] ?? [];
  }

  /** A phrase may begin in one cue, and end in another. */
  #markAll(): TurnMarks[][] {
    const joined = this.#cues.flatMap(({ turns }) => turns.map(({ text }) => text)).join(" ");
    const marks = marksOf(joined, this.#terms);
    let at = 0;
    let next = 0;
    return this.#cues.map(({ turns }) =>
      turns.map(({ speaker, text }) => {
        const [from, to] = [at, at + text.length];
        at = to + 1;
        const ranges: Ranges = [];
        while ((marks[next]?.[1] ?? 0) <= from && next < marks.length) next++;
        for (let i = next; i < marks.length && (marks[i]?.[0] ?? to) < to; i++) {
          const [start, end] = marks[i] ?? [to, to];
          ranges.push([Math.max(start, from) - from, Math.min(end, to) - from]);
        }
        return { speaker: marksOf(speaker ?? "", this.#terms), text: ranges };
      }),
    );
  }
}

export interface Found {
  /** In their order. No two share a cue. */
  places: FoundPlace[];
  placeOf: ReadonlyMap<number, FoundPlace>;
}

type SearchedText = (terms: Term[]) => Place[];

/** The texts in which words are sought: what is said, and the same with names, which would divide a phrase. */
function textsOf(cues: Cue[]): SearchedText[] {
  const said = cues.map(({ start, end, turns }) => {
    const words = turns.map(({ text }) => wordsOf([text]));
    const named = words.map((one, turn) => wordsOf([turns[turn]?.speaker ?? ""]) + one);
    return { start, end, words: words.join(""), named: named.join("") };
  });
  return [said, said.map(({ start, end, named }) => ({ start, end, words: named }))].map((all) => {
    const { words, times } = joinWords(all);
    const cueTimes = new CueTimes(times);
    return (terms) => findPlaces(words, cueTimes, terms, MAX_PLACES)?.places ?? [];
  });
}

/** Returns the search of a transcript, which keeps its last result. */
export function createFinder(cues: Cue[]): (search: string) => Found {
  let texts: SearchedText[] | undefined;
  let last: { search: string; found: Found } | undefined;
  const find = (search: string): Found => {
    const terms = termsOf(search);
    const placeOf = new Map<number, FoundPlace>();
    if (terms.length === 0) return { places: [], placeOf };
    texts ??= textsOf(cues);
    const places: FoundPlace[] = [];
    for (const one of texts.flatMap((text) => text(terms))) {
      const place = new FoundPlace(cues, one, terms);
      const own = Array.from({ length: place.lastCue + 1 - place.firstCue }, (_, i) => place.firstCue + i);
      if (own.some((cue) => placeOf.has(cue))) continue;
      for (const cue of own) placeOf.set(cue, place);
      places.push(place);
    }
    return { places: places.sort((a, b) => a.firstCue - b.firstCue), placeOf };
  };
  return (search) => {
    if (last?.search !== search) last = { search, found: find(search) };
    return last.found;
  };
}
