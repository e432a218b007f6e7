/**
 * What is shown to people: no name may move their cursor or change their colours. The joiners stay, without which Persian,
 * Hindi and families of emoji fall apart.
 */
export const plain = (text: string) => text.replaceAll(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu, "\ufffd");

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytesText(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[power]}`;
}

export function durationText(seconds: number): string {
  if (!Number.isFinite(seconds)) return "--:--";
  const whole = Math.ceil(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const shown = parts[0] === 0 ? parts.slice(1) : parts;
  return shown.map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0"))).join(":");
}

function aligned(texts: string[], widths: number[]): string {
  return texts
    .map((text, index) => plain(text).padEnd(widths[index] ?? 0))
    .join("  ")
    .trimEnd();
}

/** The results on stdout: for people in columns, with `--json` one object a line. */
export class Results {
  readonly isJson: boolean;

  constructor(isJson: boolean) {
    this.isJson = isJson;
  }

  /** One result: `row` for programs, `texts` for people. Without a terminal the texts are separated by tabs. */
  print(row: object, texts: string[], widths: number[] = []): void {
    if (this.isJson) this.#line(JSON.stringify(row));
    else if (process.stdout.isTTY) this.#line(aligned(texts, widths));
    else this.#line(texts.map(plain).join("\t"));
  }

  /** One record, for people a field a line. */
  printRecord(row: object): void {
    const fields = this.isJson ? [["", ""]] : flattened(row);
    const width = Math.max(...fields.map(([name = ""]) => name.length));
    for (const field of fields) this.print(row, field, [width]);
  }

  #line(text: string): void {
    process.stdout.write(`${text}\n`);
  }
}

function flattened(row: object, prefix = ""): [string, string][] {
  return Object.entries(row).flatMap(([name, value]): [string, string][] => {
    const path = prefix + name;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return flattened(value, `${path}.`);
    const text = Array.isArray(value) ? value.join(", ") : String(value ?? "-");
    return [[path, text]];
  });
}

/** One line on stderr. */
export function complain(message: string): void {
  process.stderr.write(`stowage: ${plain(message)}\n`);
}
