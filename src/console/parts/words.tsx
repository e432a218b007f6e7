/* The words of a search. */

/** Whether a text has every word of a search, in any order and case. */
export const hasWords = (text: string, search: string): boolean =>
  wordsOf(search).every((word) => text.toLowerCase().includes(word));

const wordsOf = (search: string) => search.toLowerCase().split(/\s+/).filter(Boolean);

/** A text with the words of a search that it has. One with another accent is not marked. */
export function Marked({ text, search }: { text: string; search: string }) {
  const escaped = wordsOf(search).map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  if (escaped.length === 0) return <>{text}</>;
  // Each second part is a match.
  const parts = text.split(new RegExp(`(${escaped.join("|")})`, "iu"));
  return <>{parts.map((part, place) => (place % 2 === 1 ? <mark key={place}>{part}</mark> : part))}</>;
}
