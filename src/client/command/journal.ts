import { createHash } from "node:crypto";
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
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
  readonly #entries = new Map<string, Entry>();

  /** `scope`: the service and the team. */
  constructor(folder: string, scope: string) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.#file = join(folder, `uploads-${createHash("sha256").update(scope).digest("hex").slice(0, 16)}.jsonl`);
    let text = "";
    try {
      text = readFileSync(this.#file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
    for (const line of text.split("\n")) {
      try {
        const [key, entry] = JSON.parse(line) as [string, Entry];
        this.#entries.set(key, entry);
      } catch {}
    }
    // A line that was cut short must not swallow the next one.
    if (text !== "" && !text.endsWith("\n")) this.#append("\n");
  }

  find(file: LocalFile): Entry {
    return this.#entries.get(keyOf(file)) ?? {};
  }

  note(file: LocalFile, entry: Entry): void {
    this.#entries.set(keyOf(file), entry);
    this.#append(`${JSON.stringify([keyOf(file), entry])}\n`);
  }

  #append(text: string): void {
    // The address of a resumable upload holds a secret.
    appendFileSync(this.#file, text, { mode: 0o600 });
  }
}
