import { fold, foldWithOffsets, joinRanges } from "./folding.ts";

/*
 * How what is said becomes words, and a search a list of them. Pure, and shared by the Worker and the console. The index, a search and
 * the page of a transcript use the same functions, so a word is found however it is written: folded as by the search of files, without
 * punctuation.
 *
 * Texts in Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese have no spaces between words, or particles at their ends. There, each
 * character is a word of the index, and a word of a search is a phrase of its characters. `Intl.Segmenter` finds words, but not the same
 * ones in a sentence as in a search, and others in each version of its dictionary.
 */

/** A letter or digit of a script in which each character is a word. */
const ALONE =
  "(?=[\\p{L}\\p{N}])[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Hang}\\p{scx=Thai}\\p{scx=Laoo}\\p{scx=Khmr}\\p{scx=Mymr}]";
const WORD = new RegExp(`${ALONE}|(?:(?!${ALONE})[\\p{L}\\p{N}])+`, "gu");

/** Words of the index are cut here, and so are those of a search. */
const MAX_WORD_LENGTH = 64;

/** A word of a text, and where it begins and ends in it. */
export interface WordInText {
  word: string;
  start: number;
  end: number;
}

/** The words of a text in their order, folded. */
export function wordsIn(text: string): WordInText[] {
  const folded = foldWithOffsets(text);
  return [...folded.text.matchAll(WORD)].map(({ 0: found, index }) => ({
    word: found.slice(0, MAX_WORD_LENGTH),
    start: folded.starts[index] ?? 0,
    end: folded.ends[index + found.length - 1] ?? text.length,
  }));
}

/** The same words, without their places. */
export const foldedWordsIn = (text: string): string[] =>
  Array.from(fold(text).matchAll(WORD), ([word]) => word.slice(0, MAX_WORD_LENGTH));

/** A term of a search: words that stand side by side. The last one may be the beginning of a longer word. */
export interface Term {
  words: string[];
  isPrefix: boolean;
}

/** More than a sentence has. */
export const MAX_TERMS = 50;
/** From this length on, the last word of a search is a prefix. */
const MIN_PREFIX_LENGTH = 2;

/** A text in quotes, also in those of other languages. A quote that does not close is left out. */
const QUOTED =
  /["\u201c\u201d\u201e\u00ab\u00bb]([^"\u201c\u201d\u201e\u00ab\u00bb]*)["\u201c\u201d\u201e\u00ab\u00bb]|([^\s"\u201c\u201d\u201e\u00ab\u00bb]+)/gu;

/** The different terms of a search: its words, and its texts in quotes. The last word is a prefix. Nothing in it is an operator. */
export function termsOf(search: string): Term[] {
  const terms = new Map<string, Term>();
  let last: Term | undefined;
  for (const [, phrase, word = ""] of search.matchAll(QUOTED)) {
    const words = wordsIn(phrase ?? word).map((one) => one.word);
    if (words.length === 0) continue;
    last = { words, isPrefix: false };
    if (phrase !== undefined) last = undefined;
    const key = words.join(" ");
    if (last && terms.has(key)) last = terms.get(key);
    else terms.set(key, last ?? { words, isPrefix: false });
  }
  if (last && (last.words.at(-1) ?? "").length >= MIN_PREFIX_LENGTH) last.isPrefix = true;
  return [...terms.values()];
}

/** The text of a term between the words of an index: it begins with a space, and unless it is a prefix, ends with one. */
export const needleOf = ({ words, isPrefix }: Term): string => ` ${words.join(" ")}${isPrefix ? "" : " "}`;

/** The ranges of a text that are terms of a search, in order. Ranges that overlap are one. */
export function marksOf(text: string, terms: Term[]): [from: number, to: number][] {
  const words = wordsIn(text);
  const found: [number, number][] = [];
  for (const { words: sought, isPrefix } of terms) {
    const last = sought.length - 1;
    for (let at = 0; at + last < words.length; at++) {
      const isFound = sought.every((word, i) => {
        const given = words[at + i]?.word ?? "";
        return i === last && isPrefix ? given.startsWith(word) : given === word;
      });
      if (isFound) found.push([words[at]?.start ?? 0, words[at + last]?.end ?? 0]);
    }
  }
  return joinRanges(found);
}
