/* The words of a search. */

import { fold, foldedWords, rangesOf } from "../../folding.ts";

/** Whether a text has every word of a search, in any order and case, and without accents. */
export function hasWords(text: string, search: string): boolean {
  const folded = fold(text);
  return foldedWords(search).every((word) => folded.includes(word));
}

/** A text with the words of a search that it has. */
export const Marked = ({ text, search }: { text: string; search: string }) => (
  <MarkedRanges text={text} ranges={rangesOf(text, search)} />
);

/** The words of a search in quotation marks; those of a search for phrases have them. */
export const quoted = (search: string): string =>
  search.includes('"') ? search.replaceAll(/"([^"]*)"?/g, "“$1”") : `“${search}”`;

/** @param ranges in their order */
export function MarkedRanges({ text, ranges }: { text: string; ranges: [start: number, end: number][] }) {
  return (
    <>
      {ranges.flatMap(([start, end], place) => [
        text.slice(ranges[place - 1]?.[1] ?? 0, start),
        <mark key={start}>{text.slice(start, end)}</mark>,
      ])}
      {text.slice(ranges.at(-1)?.[1] ?? 0)}
    </>
  );
}
