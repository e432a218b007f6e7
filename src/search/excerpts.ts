import { lazy } from "../lazy.ts";
import { marksOf, type Term } from "../words.ts";
import type { Match, MatchTurn } from "./indexes.ts";
import type { PartText } from "./parts.ts";

/*
 * What a match shows: the sentences in which its words stand, by who says them. A sentence may begin before the first cue of a place and
 * end after its last one. It ends where somebody else speaks, and at a pause.
 */

/** A range of cues. */
interface Cues {
  first: number;
  last: number;
}

/** A longer pause ends a sentence, whatever its punctuation. */
const MAX_PAUSE_SECONDS = 5;
/** A sentence is shown from its beginning and to its end if these are this close to the words. Otherwise, some words around them are. */
const MAX_SENTENCE_LENGTH = 150;
const SHORT_LENGTH = 60;
/** A match shows this much of a transcript. Its words are sought in a longer text. */
const MAX_MATCH_LENGTH = 400;
const MAX_JOINED_LENGTH = 20_000;
const ELLIPSIS = "…";

const sentences = lazy(() => new Intl.Segmenter("en", { granularity: "sentence" }));

/** What one speaker says in several cues, as a range of the joined text. */
interface Run {
  speaker: string | null;
  from: number;
  to: number;
}

/** Cues with those around them that may have the rest of a sentence. */
function withNeighbors({ cues }: PartText, { first, last }: Cues): Cues {
  const around = { first, last };
  const lengthOf = (cue: number) => {
    const [, , ...turns] = cues[cue] ?? [0, 0];
    return turns.reduce((sum, [, text]) => sum + text.length, 0);
  };
  const isPause = (cue: number) => (cues[cue + 1]?.[0] ?? 0) - (cues[cue]?.[1] ?? 0) > MAX_PAUSE_SECONDS;
  for (let length = 0; around.first > 0 && length <= MAX_SENTENCE_LENGTH && !isPause(around.first - 1); ) {
    around.first--;
    length += lengthOf(around.first);
  }
  for (let length = 0; around.last + 1 < cues.length && length <= MAX_SENTENCE_LENGTH && !isPause(around.last); ) {
    around.last++;
    length += lengthOf(around.last);
  }
  return around;
}

class JoinedText {
  text = "";
  readonly runs: Run[] = [];
  readonly #first: number;
  /** Where each cue begins. */
  readonly #starts: number[] = [];

  constructor({ speakers, cues }: PartText, { first, last }: Cues) {
    this.#first = first;
    for (const [, , ...turns] of cues.slice(first, last + 1)) {
      if (this.text.length > MAX_JOINED_LENGTH) break;
      this.#starts.push(this.text === "" ? 0 : this.text.length + 1);
      for (const [number, text] of turns) this.#add(speakers[number] ?? null, text);
    }
  }

  #add(speaker: string | null, text: string): void {
    if (this.text !== "") this.text += " ";
    const from = this.text.length;
    this.text += text;
    const run = this.runs.at(-1);
    if (run && run.speaker === speaker) run.to = this.text.length;
    else this.runs.push({ speaker, from, to: this.text.length });
  }

  startOf(cue: number): number {
    return this.#starts[Math.max(0, cue - this.#first)] ?? this.text.length;
  }
  endOf(cue: number): number {
    const next = this.#starts[cue + 1 - this.#first];
    return next === undefined ? this.text.length : next - 1;
  }
  /** The cue that has the character at an offset. */
  cueAt(offset: number): number {
    return this.#first + this.#starts.findLastIndex((start) => start <= offset);
  }

  /** The sentence that has the character at an offset. */
  sentenceAt(offset: number): Run {
    const run = this.runs.find(({ to }) => offset < to) ?? { speaker: null, from: 0, to: this.text.length };
    const found = sentences()
      .segment(this.text.slice(run.from, run.to))
      .containing(Math.max(0, offset - run.from));
    const from = run.from + (found?.index ?? 0);
    return { ...run, from, to: from + (found?.segment.trimEnd().length ?? 0) };
  }
}

/** The offset, or the one before if it would divide a character. */
const wholeAt = (text: string, offset: number) => (text.slice(0, offset).isWellFormed() ? offset : offset - 1);

/** Where an excerpt begins: with the sentence of the first word, or some words before it. */
function beginOf(joined: JoinedText, first: number, min: number): { from: number; isCut: boolean } {
  const { text } = joined;
  const sentence = joined.sentenceAt(first);
  if (sentence.from >= min && first - sentence.from <= MAX_SENTENCE_LENGTH)
    return { from: sentence.from, isCut: false };
  const earliest = Math.max(min, sentence.from, first - SHORT_LENGTH);
  const space = text.indexOf(" ", earliest - 1);
  const from = earliest > 0 && space >= 0 && space < first ? space + 1 : wholeAt(text, earliest);
  return { from, isCut: from > sentence.from };
}

/** Where it ends: with the sentence of the last word, or some words after it. */
function endOf(joined: JoinedText, first: number, last: number, max: number): { to: number; isCut: boolean } {
  const { text } = joined;
  const sentence = joined.sentenceAt(last - 1);
  if (sentence.to <= max && sentence.to - last <= MAX_SENTENCE_LENGTH) return { to: sentence.to, isCut: false };
  const latest = Math.min(max, sentence.to, last + SHORT_LENGTH);
  const space = latest === text.length ? latest : text.lastIndexOf(" ", latest);
  const to = space > (last <= latest ? last - 1 : first) ? space : wholeAt(text, latest);
  return { to, isCut: true };
}

/**
 * What a place shows.
 * @param limits other places have the cues outside of them
 */
export function excerptOf(part: PartText, place: Cues, terms: Term[], limits: Cues): Match {
  const joined = new JoinedText(part, withNeighbors(part, place));
  const { text, runs } = joined;
  const ownFrom = joined.startOf(place.first);
  const own = marksOf(text.slice(ownFrom, joined.endOf(place.last)), terms);
  const first = ownFrom + (own[0]?.[0] ?? 0);
  const last = ownFrom + (own.at(-1)?.[1] ?? 1);
  const begin = beginOf(joined, first, joined.startOf(limits.first));
  const { from } = begin;
  const end = endOf(joined, first, last, Math.min(joined.endOf(limits.last), from + MAX_MATCH_LENGTH));
  const { to } = end;
  const marks = marksOf(text.slice(from, to), terms);
  const shown = runs.filter((run) => run.to > from && run.from < to);
  const turns = shown.map((run, at): MatchTurn => {
    const [start, stop] = [Math.max(run.from, from), Math.min(run.to, to)];
    const before = begin.isCut && at === 0 ? ELLIPSIS : "";
    const after = end.isCut && at === shown.length - 1 ? ELLIPSIS : "";
    const shift = from - start + before.length;
    return {
      speaker: run.speaker,
      text: before + text.slice(start, stop) + after,
      marks: marks
        .filter(([markFrom, markTo]) => from + markTo > start && from + markFrom < stop)
        .map(([markFrom, markTo]) => [Math.max(markFrom, start - from) + shift, Math.min(markTo, stop - from) + shift]),
    };
  });
  const cues = part.cues.slice(joined.cueAt(from), joined.cueAt(to - 1) + 1);
  return {
    startSeconds: cues[0]?.[0] ?? 0,
    endSeconds: cues.reduce((max, [, seconds]) => Math.max(max, seconds), 0),
    turns,
  };
}
