import type { Cue } from "../cues.ts";
import { joinWords, wordsOf } from "../places.ts";

/*
 * A transcript as the index stores it. A row holds 2 MB at most, so a very long one is in parts, which overlap: what is said within 30 s
 * is in one of them. Twenty hours of English speech are one part.
 */

/** Both of the words of a part and of its cues as JSON. */
const MAX_PART_BYTES = 1_500_000;
/** A longer turn is cut into several, with the same times. */
const MAX_TURN_LENGTH = 10_000;
const OVERLAP_SECONDS = 30;
/** The most that a part repeats of the one before. */
const MAX_OVERLAP_BYTES = 100_000;
/** The numbers and brackets of a cue, and those of a turn. */
const CUE_BYTES = 30;
const TURN_BYTES = 10;

/** A cue as it is stored: its start and end in seconds, and its turns, each with the number of its speaker, or -1. */
type StoredCue = [start: number, end: number, ...turns: [speaker: number, text: string][]];

/** The text by which the object shows places of a part. */
export interface PartText {
  speakers: string[];
  cues: StoredCue[];
}

export interface Part {
  /** The words, each between two spaces. */
  words: string;
  /** For `CueTimes`. */
  times: Uint32Array;
  text: PartText;
  /** The first cue that the part before does not have. */
  ownFrom: number;
}

/** Short enough for a row. Cut where a word ends, if there is one. */
function* shortTexts(text: string): Generator<string> {
  let rest = text;
  while (rest.length > MAX_TURN_LENGTH) {
    const space = rest.lastIndexOf(" ", MAX_TURN_LENGTH);
    const end = space > 0 ? space : MAX_TURN_LENGTH;
    yield rest.slice(0, end);
    rest = rest.slice(end);
  }
  yield rest;
}

function* shortCues(cues: Iterable<Cue>): Generator<Cue> {
  for (const { start, end, turns } of cues) {
    let kept: Cue["turns"] = [];
    let length = 0;
    for (const { speaker, text } of turns) {
      for (const short of shortTexts(text)) {
        if (length > 0 && length + short.length > MAX_TURN_LENGTH) {
          yield { start, end, turns: kept };
          [kept, length] = [[], 0];
        }
        kept.push({ speaker, text: short });
        length += short.length;
      }
    }
    yield { start, end, turns: kept };
  }
}

/** A cue, with its words, each after a space. */
interface CueWithWords {
  cue: Cue;
  words: string;
}

const withWords = (cue: Cue): CueWithWords => ({ cue, words: wordsOf(cue.turns.map(({ text }) => text)) });

/** How much of a part it takes. */
function bytesOf({ cue, words }: CueWithWords): number {
  const json = cue.turns.reduce(
    (sum, { text }) => sum + Buffer.byteLength(JSON.stringify(text)) + TURN_BYTES,
    CUE_BYTES,
  );
  return Math.max(Buffer.byteLength(words), json);
}

class PartBuilder {
  readonly #cues: CueWithWords[];
  #bytes: number;
  readonly #ownFrom: number;

  constructor(overlapping: CueWithWords[]) {
    this.#cues = overlapping;
    this.#bytes = overlapping.reduce((sum, one) => sum + bytesOf(one), 0);
    this.#ownFrom = overlapping.length;
  }

  hasRoom(one: CueWithWords): boolean {
    return this.#cues.length === this.#ownFrom || this.#bytes + bytesOf(one) <= MAX_PART_BYTES;
  }

  add(one: CueWithWords): void {
    this.#cues.push(one);
    this.#bytes += bytesOf(one);
  }

  /** The last cues, which the next part repeats. */
  get overlapping(): CueWithWords[] {
    const from = (this.#cues.at(-1)?.cue.start ?? 0) - OVERLAP_SECONDS;
    let first = this.#cues.length;
    let bytes = 0;
    for (; first > 0; first--) {
      const one = this.#cues[first - 1] as CueWithWords;
      bytes += bytesOf(one);
      if (one.cue.start < from || bytes > MAX_OVERLAP_BYTES) break;
    }
    return this.#cues.slice(first);
  }

  build(): Part {
    const speakers = new Map<string, number>();
    const numberOf = (speaker: string | null) => {
      if (speaker === null) return -1;
      const number = speakers.get(speaker) ?? speakers.size;
      speakers.set(speaker, number);
      return number;
    };
    const cues = this.#cues.map(
      ({ cue: { start, end, turns } }): StoredCue => [
        start,
        end,
        ...turns.map(({ speaker, text }): [number, string] => [numberOf(speaker), text]),
      ],
    );
    const joined = joinWords(this.#cues.map(({ cue: { start, end }, words }) => ({ start, end, words })));
    return { ...joined, text: { speakers: [...speakers.keys()], cues }, ownFrom: this.#ownFrom };
  }
}

/** The parts of a transcript, at least one. */
export function partsOf(cues: Iterable<Cue>): Part[] {
  const parts: Part[] = [];
  let part = new PartBuilder([]);
  for (const cue of shortCues(cues)) {
    const one = withWords(cue);
    if (!part.hasRoom(one)) {
      parts.push(part.build());
      part = new PartBuilder(part.overlapping);
    }
    part.add(one);
  }
  return [...parts, part.build()];
}
