import type { Writable } from "node:stream";
import { formatBytes, formatDuration } from "./output.ts";
import { plain } from "./text.ts";

const REDRAW_MILLISECONDS = 100;
const SPEED_WINDOW_MILLISECONDS = 5000;
const BAR_CELLS = 20;
const MAX_ROWS = 8;

/** Measures bytes per second over the last seconds. */
class Speed {
  readonly #samples: { at: number; bytes: number }[] = [];

  measure(bytes: number, at = performance.now()): number {
    this.#samples.push({ at, bytes });
    while (this.#samples.length > 2 && (this.#samples[0]?.at ?? 0) < at - SPEED_WINDOW_MILLISECONDS)
      this.#samples.shift();
    const first = this.#samples[0];
    // The bytes of a failed transfer no longer count, so the sum may decrease.
    return first && at > first.at ? Math.max(0, ((bytes - first.bytes) * 1000) / (at - first.at)) : 0;
  }
}

interface Transfer {
  name: string;
  doneBytes: number;
  totalBytes: number;
  /** The part of doneBytes that an earlier run transferred. */
  skippedBytes: number;
  speed: Speed;
}

type Terminal = Writable & { isTTY?: boolean; columns?: number };

/**
 * Draws progress bars on a terminal: one per transfer in flight and one for the total, with speed and time left.
 * Anything else that is printed must go through `above`, or the bars overwrite it.
 */
export class Progress {
  readonly #transfers = new Set<Transfer>();
  readonly #speed = new Speed();
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #stderr: Terminal;
  #drawnRows = 0;
  #finishedBytes = 0;
  #totalBytes: number;
  #skippedBytes = 0;

  constructor(stderr: Terminal, totalBytes = 0) {
    this.#stderr = stderr;
    this.#totalBytes = totalBytes;
    if (stderr.isTTY) this.#timer = setInterval(() => this.#draw(), REDRAW_MILLISECONDS);
  }

  /** Adds a transfer to the total. */
  expect(bytes: number): void {
    this.#totalBytes += bytes;
  }

  /** Starts a transfer. `advance` takes the bytes done so far. */
  begin(name: string, totalBytes: number) {
    const transfer: Transfer = { name, totalBytes, doneBytes: 0, skippedBytes: 0, speed: new Speed() };
    this.#transfers.add(transfer);
    if (this.#timer) this.#draw();
    return {
      advance: (bytes: number) => {
        transfer.doneBytes = bytes;
      },
      /** Bytes of an earlier run count as done, but not as speed. */
      resumeAt: (bytes: number) => {
        transfer.doneBytes = bytes;
        transfer.skippedBytes = bytes;
        this.#skippedBytes += bytes;
      },
      end: (isDone: boolean) => {
        this.#transfers.delete(transfer);
        if (isDone) this.#finishedBytes += totalBytes;
        else this.#totalBytes -= totalBytes;
      },
    };
  }

  skip(bytes: number): void {
    this.#finishedBytes += bytes;
    this.#skippedBytes += bytes;
  }

  /** Prints above the bars. */
  above(print: () => void): void {
    this.#erase();
    print();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#erase();
  }

  #erase(): void {
    if (this.#drawnRows > 0) this.#stderr.write(`\u001b[${this.#drawnRows}A\u001b[J`);
    this.#drawnRows = 0;
  }

  #draw(): void {
    const columns = this.#stderr.columns || 80;
    const active = [...this.#transfers].slice(0, MAX_ROWS);
    const doneBytes = this.#finishedBytes + [...this.#transfers].reduce((sum, { doneBytes }) => sum + doneBytes, 0);
    const rows = active.map(({ name, doneBytes, totalBytes, skippedBytes, speed }) =>
      formatRow(columns, name, doneBytes, totalBytes, speed.measure(doneBytes - skippedBytes)),
    );
    const speed = this.#speed.measure(doneBytes - this.#skippedBytes);
    const total = formatRow(columns, "total", doneBytes, this.#totalBytes, speed);
    const shown = active.length > 1 || this.#finishedBytes > 0 ? [...rows, total] : rows;
    this.#erase();
    // Turn off wrapping: wide characters could make a row take two lines, of which only one would be erased.
    this.#stderr.write(`\u001b[?7l${shown.map((row) => `${row}\n`).join("")}\u001b[?7h`);
    this.#drawnRows = shown.length;
  }
}

function formatRow(columns: number, name: string, doneBytes: number, totalBytes: number, speed: number): string {
  const share = totalBytes === 0 ? 1 : Math.min(1, doneBytes / totalBytes);
  const full = Math.round(share * BAR_CELLS);
  const bar = "#".repeat(full) + "-".repeat(BAR_CELLS - full);
  const left = formatDuration(speed > 0 ? (totalBytes - doneBytes) / speed : Number.POSITIVE_INFINITY);
  const facts = `[${bar}] ${String(Math.floor(share * 100)).padStart(3)}%  ${formatBytes(speed)}/s  ${left}`;
  const width = Math.max(8, Math.min(40, columns - facts.length - 3));
  const shown = [...plain(name)];
  const text = shown.length > width ? `…${shown.slice(1 - width).join("")}` : shown.join("");
  return `${text.padEnd(width)}  ${facts}`.slice(0, columns - 1);
}
