/** The bytes identify as audio but cannot be read as such. The message is short and safe to show to users. */
export class UnreadableAudio extends Error {
  override readonly name = "UnreadableAudio";
}

/*
 * One unit of work is about a nanosecond on a slow core. Units are charged, not measured: the local and the deployed
 * runtime freeze the clock while code runs, and the same file must always have the same outcome.
 */

/** The work for one file, whatever its size: a walk through 128 MiB with a million MP3 frames costs 0.9e9. */
export const MAX_WORK = 1e9;
/** The work that even the smallest file may cost, 15 times what our samples need. */
const BASE_WORK = 200e6;
/** The densest valid format is an Ogg with one 3-byte packet per page: 3,300 units for each 31 bytes, up to 50,000 pages. */
const WORK_PER_BYTE = 40;
/** A parser yields after this many units, so that other requests can run. */
const PAUSE_WORK = 20e6;

/** Limits the CPU time of inspecting one file. Everything that a file's content can repeat or enlarge charges it. */
export class WorkBudget {
  #left: number;
  #sincePause = 0;

  constructor(sizeBytes: number) {
    this.#left = Math.min(MAX_WORK, BASE_WORK + WORK_PER_BYTE * sizeBytes);
  }

  /** Call it before doing the work. @throws `UnreadableAudio` if the budget is used up */
  charge(units: number): void {
    this.#left -= units;
    this.#sincePause += units;
    if (!(this.#left >= 0)) throw new UnreadableAudio("The file is too complex to inspect.");
  }

  get isPauseDue(): boolean {
    return this.#sincePause > PAUSE_WORK;
  }

  /** Lets other requests of the isolate run. Reading cached bytes never does. */
  async pause(): Promise<void> {
    this.#sincePause = 0;
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}
