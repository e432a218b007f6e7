import { bytesText, durationText, plain } from "./output.ts";

const REDRAW_MILLISECONDS = 100;
const SPEED_WINDOW_MILLISECONDS = 5000;
const BAR_CELLS = 20;
const MAX_ROWS = 8;

/** Bytes a second over the last seconds. */
class Speed {
  readonly #samples: { at: number; bytes: number }[] = [];

  measure(bytes: number, at = performance.now()): number {
    this.#samples.push({ at, bytes });
    while (this.#samples.length > 2 && (this.#samples[0]?.at ?? 0) < at - SPEED_WINDOW_MILLISECONDS)
      this.#samples.shift();
    const first = this.#samples[0];
    // What a transfer that failed had done counts no more.
    return first && at > first.at ? Math.max(0, ((bytes - first.bytes) * 1000) / (at - first.at)) : 0;
  }
}

interface Transfer {
  name: string;
  doneBytes: number;
  totalBytes: number;
  /** Of those done: from an earlier run. */
  skippedBytes: number;
  speed: Speed;
}

/**
 * Bars on a terminal's stderr, one for each transfer under way and one for all, with speed and time left. Without a
 * terminal it draws nothing. What is printed meanwhile goes through `above`, or the two would overwrite each other.
 */
export class Progress {
  readonly #transfers = new Set<Transfer>();
  readonly #speed = new Speed();
  readonly #timer: NodeJS.Timeout | undefined;
  #drawnRows = 0;
  #finishedBytes = 0;
  #totalBytes: number;
  #skippedBytes = 0;

  constructor(totalBytes: number, isShown = process.stderr.isTTY === true) {
    this.#totalBytes = totalBytes;
    if (isShown) this.#timer = setInterval(() => this.#draw(), REDRAW_MILLISECONDS);
  }

  /** A transfer begins. `advance` takes its bytes so far, `end` whether all of them are through. */
  begin(name: string, totalBytes: number) {
    const transfer: Transfer = { name, totalBytes, doneBytes: 0, skippedBytes: 0, speed: new Speed() };
    this.#transfers.add(transfer);
    if (this.#timer) this.#draw();
    return {
      advance: (bytes: number) => {
        transfer.doneBytes = bytes;
      },
      /** Bytes that are there from an earlier run: they count as done, and not as fast. */
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
    if (this.#drawnRows > 0) process.stderr.write(`\u001b[${this.#drawnRows}A\u001b[J`);
    this.#drawnRows = 0;
  }

  #draw(): void {
    const active = [...this.#transfers].slice(0, MAX_ROWS);
    const doneBytes = this.#finishedBytes + [...this.#transfers].reduce((sum, { doneBytes }) => sum + doneBytes, 0);
    const rows = active.map(({ name, doneBytes, totalBytes, skippedBytes, speed }) =>
      rowOf(name, doneBytes, totalBytes, speed.measure(doneBytes - skippedBytes)),
    );
    const total = rowOf("total", doneBytes, this.#totalBytes, this.#speed.measure(doneBytes - this.#skippedBytes));
    const shown = active.length > 1 || this.#finishedBytes > 0 ? [...rows, total] : rows;
    this.#erase();
    // Without wrapping: wide characters make a row longer than it counts, and the erased rows would be too few.
    process.stderr.write(`\u001b[?7l${shown.map((row) => `${row}\n`).join("")}\u001b[?7h`);
    this.#drawnRows = shown.length;
  }
}

function rowOf(name: string, doneBytes: number, totalBytes: number, speed: number): string {
  const share = totalBytes === 0 ? 1 : Math.min(1, doneBytes / totalBytes);
  const full = Math.round(share * BAR_CELLS);
  const bar = "#".repeat(full) + "-".repeat(BAR_CELLS - full);
  const left = durationText(speed > 0 ? (totalBytes - doneBytes) / speed : Number.POSITIVE_INFINITY);
  const facts = `[${bar}] ${String(Math.floor(share * 100)).padStart(3)} %  ${bytesText(speed)}/s  ${left}`;
  const columns = process.stderr.columns || 80;
  const width = Math.max(8, Math.min(40, columns - facts.length - 3));
  const shown = [...plain(name)];
  const text = shown.length > width ? `…${shown.slice(1 - width).join("")}` : shown.join("");
  return `${text.padEnd(width)}  ${facts}`.slice(0, columns - 1);
}
