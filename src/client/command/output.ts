import type { Writable } from "node:stream";

/**
 * Removes control and format characters: a file name must not move the cursor or change colors. It keeps the joiners,
 * which Persian, Hindi, and emoji need.
 */
export const plain = (text: string) => text.replaceAll(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu, "\ufffd");

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

/** Prints results to stdout: columns on a terminal, otherwise fields with tabs, or one JSON object per line. */
export class Results {
  readonly isJson: boolean;
  readonly #stdout: Writable & { isTTY?: boolean };

  constructor(stdout: Writable & { isTTY?: boolean }, isJson: boolean) {
    this.#stdout = stdout;
    this.isJson = isJson;
  }

  /** Prints one result: `row` as JSON, or `texts` for people. */
  print(row: object, texts: string[], widths: number[] = []): void {
    if (this.isJson) this.#printLine(jsonOf(row));
    else if (this.#stdout.isTTY) this.#printLine(alignColumns(texts, widths));
    else this.#printLine(texts.map(plain).join("\t"));
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
