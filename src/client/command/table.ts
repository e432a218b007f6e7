import { formatAge, formatDuration } from "../internal.ts";
import { cellsOf, pad, plain, truncateMiddle } from "./text.ts";

/* Lists for people on a terminal: a heading, and columns that fit its width. */

/** How the items of a list are printed. */
export interface Table<T> {
  /** The fields of a line of a file or pipe. Scripts rely on them. */
  fields(item: T): string[];
  /** The columns on a terminal. The name is the first one, and the ID the last. */
  columns: Column<T>[];
  /** The object that --json prints. Default: the item. */
  json?(item: T): object;
}

type Column<T> = [title: string, text: (item: T) => string, align?: "right"];

const GAP_CELLS = 2;
/** In a shorter name, too little is left to recognize it. */
const MIN_NAME_CELLS = 16;
/** A long value must not push out other columns. */
const MAX_CELLS = 32;

/** Lays out a list. Of a list that is printed in parts, later parts keep the columns of the first one. */
export class Layout<T> {
  #columns: Column<T>[];
  #widths: number[];
  readonly #cells: number;
  #isBegun = false;

  /** @param cells the width of the terminal */
  constructor(columns: Column<T>[], cells: number) {
    this.#columns = columns;
    this.#widths = columns.map(([title]) => cellsOf(title));
    this.#cells = cells;
  }

  /** Returns the lines of these items, the first time below the heading. */
  lines(items: T[]): string[] {
    const rows = items.map((item) => this.#columns.map(([, text]) => plain(text(item))));
    const widths = this.#widths.map((width, i) => Math.max(width, ...rows.map((row) => cellsOf(row[i] ?? ""))));
    const kept = this.#fit(widths);
    const pick = <V>(values: V[]): V[] => kept.flatMap((i) => values.slice(i, i + 1));
    const heading = this.#isBegun ? [] : [pick(this.#columns).map(([title]) => title)];
    this.#isBegun = true;
    this.#columns = pick(this.#columns);
    this.#widths = pick(widths);
    return [...heading, ...rows.map(pick)].map((row) => this.#line(row));
  }

  /**
   * Makes the columns fit, with a name of at least MIN_NAME_CELLS: first truncates long values, then leaves out columns
   * before the ID, from the right. The name gets what is left.
   * @returns the numbers of the columns that stay
   */
  #fit(widths: number[]): number[] {
    const kept = widths.map((_, i) => i);
    const others = () => kept.slice(1).reduce((sum, i) => sum + (widths[i] ?? 0) + GAP_CELLS, 0);
    const [name = 0] = widths;
    const room = this.#cells - Math.min(name, MIN_NAME_CELLS);
    if (others() > room) for (const i of kept.slice(1, -1)) widths[i] = Math.min(widths[i] ?? 0, MAX_CELLS);
    while (!this.#isBegun && kept.length > 2 && others() > room) kept.splice(-2, 1);
    widths[0] = Math.max(1, Math.min(name, this.#cells - others()));
    return kept;
  }

  /** An ID is never truncated, because people copy it. */
  #line(texts: string[]): string {
    const cells = texts.map((text, i) => {
      const width = this.#widths[i] ?? 0;
      const isId = i > 0 && i === texts.length - 1;
      return pad(isId ? text : truncateMiddle(text, width), width, this.#columns[i]?.[2]);
    });
    return cells.join(" ".repeat(GAP_CELLS)).trimEnd();
  }
}

export { formatBytes as sizeOf } from "../internal.ts";

export const durationOf = (seconds: number | null): string => (seconds === null ? "" : formatDuration(seconds));
/** How long ago an instant was, or when it will be. */
export const ageOf = (instant: string | null, none = ""): string =>
  instant === null ? none : formatAge(new Date(instant), Date.now());
