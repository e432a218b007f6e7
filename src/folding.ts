/*
 * How texts are compared for people: without accents, and in any case. Pure, and shared by the Worker and the console. Identity
 * is never compared this way: two folders, tags or emails that fold to the same text stay two.
 */

/** A character with those that may join it: marks, and Hangul letters, which compose to one syllable. */
const CLUSTER = /.[\p{M}\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\ud7b0-\ud7ff\uffa0-\uffdc]*/gsu;

/**
 * Folds a text for comparison: NFKD without combining marks (so `é` = `e`, `й` = `и`, `ガ` = `カ`, and a Thai or Devanagari letter
 * is the same with each vowel sign), and with full case folding (`ß` = `ss`, `ς` = `σ`, `İ` = `ı` = `i`). Hangul is composed
 * again, so half a syllable is not a part of a word. Folding twice changes nothing.
 */
export function fold(text: string): string {
  const base = text.normalize("NFKD").replaceAll(/\p{M}/gu, "");
  // JavaScript has no case folding. Only lower case has one form of `ẞ`, and only upper case one of `ß`, `ſ` and `ς`.
  const lower = base.toLowerCase().toUpperCase().toLowerCase();
  // The last letter of a word depends on its place.
  return lower.replaceAll("ς", "σ").normalize("NFC");
}

/** The different words of a search, folded. */
export const foldedWords = (search: string): string[] => [...new Set(fold(search).split(/\s+/).filter(Boolean))];

/** A folded text, and for each of its code units where the characters that it comes from begin and end in the given text. */
export interface Folded {
  text: string;
  starts: number[];
  ends: number[];
}

/** Folds a text as `fold` does, with a map of offsets, to show the matches of the folded text in the given one. */
export function foldWithOffsets(given: string): Folded {
  const folded: Folded = { text: "", starts: [], ends: [] };
  for (const { 0: cluster, index } of given.matchAll(CLUSTER)) {
    const text = fold(cluster);
    folded.text += text;
    for (let unit = 0; unit < text.length; unit++) {
      folded.starts.push(index);
      folded.ends.push(index + cluster.length);
    }
  }
  return folded;
}

/** Ranges in their order. Those that overlap are one. */
export function joinRanges(found: [start: number, end: number][]): [start: number, end: number][] {
  const ranges: [number, number][] = [];
  for (const [start, end] of found.sort(([a], [b]) => a - b)) {
    const last = ranges.at(-1);
    if (last && start < last[1]) last[1] = Math.max(last[1], end);
    else ranges.push([start, end]);
  }
  return ranges;
}

/** The ranges of a text that are words of a search, in order. Ranges that overlap are one, also of the same word. */
export function rangesOf(given: string, search: string): [start: number, end: number][] {
  const words = foldedWords(search);
  if (words.length === 0) return [];
  const { text, starts, ends } = foldWithOffsets(given);
  const found: [number, number][] = [];
  for (const word of words) {
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
      found.push([starts[at] ?? 0, ends[at + word.length - 1] ?? given.length]);
    }
  }
  return joinRanges(found);
}
