/* Texts for a terminal: what it may show, and how wide that is. */

/**
 * Removes control and format characters: a file name must not move the cursor or change colors. It keeps the joiners,
 * which Persian, Hindi, and emoji need.
 */
export const plain = (text: string) => text.replaceAll(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu, "\ufffd");

/** A text with ranges in bold. */
export function emphasized(text: string, ranges: [from: number, to: number][]): string {
  let end = 0;
  const parts = ranges.map(([from, to]) => {
    const before = plain(text.slice(end, from));
    end = to;
    return `${before}\u001b[1m${plain(text.slice(from, to))}\u001b[22m`;
  });
  return parts.join("") + plain(text.slice(end));
}

const ELLIPSIS = "…";

const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
/** Letters of East Asia and emoji take two cells of a terminal. */
const WIDE =
  /\p{Emoji_Presentation}|\ufe0f|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u;
const cellsOfOne = (grapheme: string): number => (WIDE.test(grapheme) ? 2 : 1);
const split = (text: string): string[] => Array.from(graphemes.segment(text), ({ segment }) => segment);
/** The width of a text on a terminal. */
export const cellsOf = (text: string): number => split(text).reduce((sum, one) => sum + cellsOfOne(one), 0);

/** Takes characters from the start until they fill the cells. */
function take(characters: string[], cells: number): string[] {
  let left = cells;
  const end = characters.findIndex((one) => {
    left -= cellsOfOne(one);
    return left < 0;
  });
  return end === -1 ? characters : characters.slice(0, end);
}

/** Replaces the middle of a text that is too wide: names often differ at their end. */
export function truncateMiddle(text: string, cells: number): string {
  if (cellsOf(text) <= cells) return text;
  const characters = split(text);
  const tail = Math.floor((cells - 1) / 2);
  const end = take(characters.toReversed(), tail).toReversed();
  return `${take(characters, cells - 1 - tail).join("")}${ELLIPSIS}${end.join("")}`;
}

/** Fills the cells of a column. */
export const pad = (text: string, cells: number, align?: "right"): string => {
  const space = " ".repeat(Math.max(0, cells - cellsOf(text)));
  return align ? space + text : text + space;
};
