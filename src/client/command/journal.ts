import { createHash } from "node:crypto";
import { appendFileSync, fstatSync, mkdirSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { failureOf } from "./failures.ts";
import type { LocalFile } from "./local-files.ts";

/** What is known of a file's upload. Which file it was is its path, size and time of change. */
interface Entry {
  /** Of a form that may have been sent. */
  idempotencyKey?: string;
  /** Where a resumable upload goes on. */
  address?: string;
  /** Of one that has ended. */
  id?: string;
  sha256?: string;
}

const keyOf = ({ path, size, changedAt }: LocalFile) => JSON.stringify([path, size, changedAt]);

/**
 * What was sent from this machine to one team, a line at a time, each written before the request or after the answer that
 * it tells of. So whatever ends the process, the next one goes on; a line cut short by a power cut counts for nothing.
 */
export class Journal {
  readonly #file: string;
  readonly #handle: number;
  readonly #entries = new Map<string, Entry>();
  #readBytes = 0;

  /** `scope`: the service and the team. */
  constructor(folder: string, scope: string) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.#file = join(folder, `uploads-${createHash("sha256").update(scope).digest("hex").slice(0, 16)}.jsonl`);
    // The address of a resumable upload holds a secret.
    this.#handle = openSync(this.#file, "a+", 0o600);
    this.refresh();
    // A line that was cut short must not swallow the next one.
    if (fstatSync(this.#handle).size > this.#readBytes) this.#append("\n");
  }

  find(file: LocalFile): Entry {
    return this.#entries.get(keyOf(file)) ?? {};
  }

  note(file: LocalFile, entry: Entry): void {
    this.#append(`${JSON.stringify([keyOf(file), entry])}\n`);
    this.refresh();
  }

  /** Reads what was noted since, by other runs too. */
  refresh(): void {
    const bytes = Buffer.alloc(Math.max(0, fstatSync(this.#handle).size - this.#readBytes));
    const text = bytes.subarray(0, readSync(this.#handle, bytes, 0, bytes.length, this.#readBytes));
    const end = text.lastIndexOf("\n") + 1;
    this.#readBytes += end;
    for (const line of text.toString("utf8", 0, end).split("\n")) {
      try {
        const [key, entry] = JSON.parse(line) as [string, Entry];
        const earlier = this.#entries.get(key);
        // Of two runs that begin a form at once, the first has said under which key both send it.
        if (!(entry.idempotencyKey && earlier?.idempotencyKey)) this.#entries.set(key, entry);
      } catch {}
    }
  }

  #append(text: string): void {
    try {
      appendFileSync(this.#handle, text);
    } catch (error) {
      throw failureOf(error, this.#file);
    }
  }
}
