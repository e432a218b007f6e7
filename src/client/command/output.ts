import type { Writable } from "node:stream";
import { Layout, type Table } from "./table.ts";
import { plain } from "./text.ts";

/** A terminal shows the first items of a longer list before the next ones are requested. */
const PART_ITEMS = 100;
const DEFAULT_COLUMNS = 80;

/** JSON without raw control and format characters, for the same reason. */
function jsonOf(row: object): string {
  const escapeUnits = (text: string) =>
    Array.from({ length: text.length }, (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`).join("");
  return JSON.stringify(row).replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, escapeUnits);
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[power]}`;
}

export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "--:--";
  const whole = Math.ceil(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const shown = parts[0] === 0 ? parts.slice(1) : parts;
  return shown.map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0"))).join(":");
}

function alignColumns(texts: string[], widths: number[]): string {
  return texts
    .map((text, index) => plain(text).padEnd(widths[index] ?? 0))
    .join("  ")
    .trimEnd();
}

type Output = Writable & { isTTY?: boolean; columns?: number };

/** Prints results to stdout: columns on a terminal, otherwise fields with tabs, or one JSON object per line. */
export class Results {
  readonly isJson: boolean;
  readonly #stdout: Output;

  constructor(stdout: Output, isJson: boolean) {
    this.#stdout = stdout;
    this.isJson = isJson;
  }

  /** Prints one result: `row` as JSON, or `texts` for people. */
  print(row: object, texts: string[], widths: number[] = []): void {
    if (this.isJson) this.#printLine(jsonOf(row));
    else if (this.#stdout.isTTY) this.#printLine(alignColumns(texts, widths));
    else this.#printLine(texts.map(plain).join("\t"));
  }

  /** Prints one result of several rows: `lines`, which have no control characters of the service, on a terminal. */
  printRows(row: object, rows: string[][], lines: string[]): void {
    if (this.isJson) this.#printLine(jsonOf(row));
    else if (this.#stdout.isTTY) for (const line of lines) this.#printLine(line);
    else for (const texts of rows) this.print(row, texts);
  }

  /** Prints a list, on a terminal with a heading. */
  async printList<T>(items: AsyncIterable<T> | Iterable<T>, table: Table<T>): Promise<void> {
    if (this.isJson || !this.#stdout.isTTY) {
      for await (const item of items) this.print(table.json?.(item) ?? (item as object), table.fields(item));
      return;
    }
    const layout = new Layout(table.columns, this.#stdout.columns || DEFAULT_COLUMNS);
    let part: T[] = [];
    const flush = () => {
      for (const line of layout.lines(part)) this.#printLine(line);
      part = [];
    };
    try {
      for await (const item of items) {
        part.push(item);
        if (part.length === PART_ITEMS) flush();
      }
    } catch (error) {
      if (part.length > 0) flush();
      throw error;
    }
    flush();
  }

  /** Prints a text of several lines: as it is to a file or pipe, and without control characters to a terminal. */
  printText(text: string): void {
    const lines = text.replaceAll(/\r\n?/g, "\n").replaceAll(/[^\n\t]+/g, plain);
    this.#stdout.write(this.#stdout.isTTY ? lines : text);
  }

  /** Prints one result as JSON also without --json. */
  printJson(row: object): void {
    this.#printLine(jsonOf(row));
  }

  /** Prints one record, for people one field per line. */
  printRecord(row: object): void {
    const fields = this.isJson ? [["", ""]] : flatten(row);
    const width = Math.max(...fields.map(([name = ""]) => name.length));
    for (const field of fields) this.print(row, field, [width]);
  }

  #printLine(text: string): void {
    this.#stdout.write(`${text}\n`);
  }
}

const isObject = (value: unknown): value is object => value !== null && typeof value === "object";

function flatten(row: object, prefix = ""): [string, string][] {
  return Object.entries(row).flatMap(([name, value]): [string, string][] => {
    const path = prefix + name;
    const isNested = Array.isArray(value) ? value.some(isObject) : isObject(value);
    if (isNested) return flatten(value, `${path}.`);
    return [[path, Array.isArray(value) ? value.join(", ") : String(value ?? "-")]];
  });
}

/** Prints one line to stderr: a message for people or, if there is one, an object. */
export function complain(stderr: Writable, message: string, row?: object): void {
  stderr.write(`${row ? jsonOf(row) : `stowage: ${plain(message)}`}\n`);
}
