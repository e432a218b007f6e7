import { createHash, randomUUID } from "node:crypto";
import {
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { hostname, uptime } from "node:os";
import { join } from "node:path";
import { STATE_VARIABLE } from "./config.ts";
import { Failure, failureOf } from "./failures.ts";
import type { LocalFile } from "./local-files.ts";

/** A smaller journal is read in milliseconds. */
const MIN_COMPACTED_BYTES = 1024 * 1024;
/** Older entries are dropped when the journal is compacted. Their files would be uploaded again. */
const MAX_AGE_MILLISECONDS = 400 * 24 * 60 * 60 * 1000;
/** Two readings of the boot time differ by clock adjustments. */
const BOOT_TOLERANCE_SECONDS = 60;
const CLAIM_POLL_MILLISECONDS = 250;

/** The upload of one version of a file. */
export interface Entry {
  /** Set if a form upload may have been sent. */
  idempotencyKey?: string;
  /** Set if a resumable upload may be resumed. The URL contains a secret. */
  uploadUrl?: string;
  /** Set once the upload has finished. */
  id?: string;
  sha256?: string;
}

interface Saved extends Entry {
  size: number;
  changedAt: number;
  savedAt: number;
}

/** Identifies a run of the command, so that other runs can detect whether it is alive. */
interface Run {
  id: string;
  host: string;
  pid: number;
  bootAt: number;
}

type Line =
  | { path: string; entry: Saved }
  | { run: Run }
  | { endOf: string }
  | { claim: string; by: string }
  | { unclaim: string; by: string };

const bootSeconds = () => Math.round(Date.now() / 1000 - uptime());

/**
 * Records the uploads from this machine to one team. Each line is appended before the request or after the response that it
 * is about, so a run that dies can be resumed. Later lines replace earlier ones; a line that was cut off is ignored.
 *
 * Runs that share a journal read each other's lines. A large file is claimed first: the earliest claim of a live run
 * wins, and the other runs wait. For small files, the first idempotency key wins, and the service stores them once.
 */
export class Journal {
  readonly #file: string;
  readonly #run: Run = { id: randomUUID(), host: hostname(), pid: process.pid, bootAt: bootSeconds() };
  #handle = -1;
  #readBytes = 0;
  #entries = new Map<string, Saved>();
  #runs = new Map<string, Run>();
  #claims = new Map<string, string[]>();

  /** `scope` names the service and the team. */
  constructor(folder: string, scope: string) {
    this.#file = join(folder, `uploads-${createHash("sha256").update(scope).digest("hex").slice(0, 16)}.jsonl`);
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      this.#open();
    } catch (error) {
      const { message } = failureOf(error, folder);
      throw new Failure(
        "failed",
        `${message} Uploads keep a journal there: set ${STATE_VARIABLE} to a writable folder.`,
      );
    }
    this.#compact();
  }

  /** Returns the entry of exactly this version of the file, or an empty one. */
  find({ path, size, changedAt }: LocalFile): Entry {
    const entry = this.#entries.get(path);
    return entry?.size === size && entry.changedAt === changedAt ? entry : {};
  }

  /** Returns the entry of a version with another modification time, which may have the same content. */
  findTouched({ path, size, changedAt }: LocalFile): Entry {
    const entry = this.#entries.get(path);
    return entry?.size === size && entry.changedAt !== changedAt ? entry : {};
  }

  save({ path, size, changedAt }: LocalFile, entry: Entry): void {
    this.#append({ path, entry: { size, changedAt, savedAt: Date.now(), ...entry } });
    this.refresh();
  }

  /** Waits until no other live run uploads this file. `onWait` is called once if it has to wait. */
  async claim({ path }: LocalFile, signal: AbortSignal, onWait: (pid: number) => void): Promise<void> {
    this.#append({ claim: path, by: this.#run.id });
    for (let isFirst = true; ; isFirst = false) {
      this.refresh();
      const owner = this.#claims.get(path)?.find((id) => this.#isAlive(id)) ?? this.#run.id;
      if (owner === this.#run.id) return;
      if (isFirst) onWait(this.#runs.get(owner)?.pid ?? 0);
      await new Promise((resolve) => setTimeout(resolve, CLAIM_POLL_MILLISECONDS));
      signal.throwIfAborted();
    }
  }

  unclaim({ path }: LocalFile): void {
    this.#append({ unclaim: path, by: this.#run.id });
  }

  /** Reads the lines that this and other runs have appended since. */
  refresh(): void {
    const bytes = Buffer.alloc(Math.max(0, fstatSync(this.#handle).size - this.#readBytes));
    const text = bytes.subarray(0, readSync(this.#handle, bytes, 0, bytes.length, this.#readBytes));
    const end = text.lastIndexOf("\n") + 1;
    this.#readBytes += end;
    for (const line of text.toString("utf8", 0, end).split("\n")) {
      try {
        this.#take(JSON.parse(line));
      } catch {}
    }
  }

  close(): void {
    try {
      this.#append({ endOf: this.#run.id });
    } catch {
      // Without this line, other runs find out by the process id.
    }
    closeSync(this.#handle);
  }

  #take(line: Line): void {
    if ("path" in line) {
      const { path, entry } = line;
      const earlier = this.#entries.get(path);
      const isSameVersion = earlier?.size === entry.size && earlier.changedAt === entry.changedAt;
      // If two runs start the same form upload at once, both use the key of the first.
      if (!(isSameVersion && entry.idempotencyKey && earlier?.idempotencyKey)) this.#entries.set(path, entry);
    } else if ("run" in line) this.#runs.set(line.run.id, line.run);
    else if ("endOf" in line) this.#runs.delete(line.endOf);
    else if ("claim" in line) this.#claims.set(line.claim, [...(this.#claims.get(line.claim) ?? []), line.by]);
    else {
      const left = (this.#claims.get(line.unclaim) ?? []).filter((id) => id !== line.by);
      this.#claims.set(line.unclaim, left);
    }
  }

  #isAlive(id: string): boolean {
    const run = this.#runs.get(id);
    if (!run || run.host !== this.#run.host) return false;
    if (Math.abs(run.bootAt - this.#run.bootAt) > BOOT_TOLERANCE_SECONDS) return false;
    try {
      return process.kill(run.pid, 0);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === "EPERM";
    }
  }

  #open(): void {
    // Upload URLs hold secrets.
    this.#handle = openSync(this.#file, "a+", 0o600);
    this.#readBytes = 0;
    this.#entries = new Map();
    this.#runs = new Map();
    this.#claims = new Map();
    this.refresh();
    // A line that was cut off must not swallow the next one.
    if (fstatSync(this.#handle).size > this.#readBytes) this.#write("\n");
    this.#append({ run: this.#run });
    this.refresh();
  }

  #append(line: Line): void {
    this.#write(`${JSON.stringify(line)}\n`);
    // Another run may have replaced the file by a compacted one.
    if (statSync(this.#file, { throwIfNoEntry: false })?.ino === fstatSync(this.#handle).ino) return;
    closeSync(this.#handle);
    this.#open();
    this.#write(`${JSON.stringify(line)}\n`);
  }

  #write(text: string): void {
    try {
      writeSync(this.#handle, text);
    } catch (error) {
      throw failureOf(error, this.#file);
    }
  }

  /** Rewrites a journal that is mostly outdated lines, unless another run uses it. */
  #compact(): void {
    const { size } = fstatSync(this.#handle);
    const isShared = [...this.#runs.keys()].some((id) => id !== this.#run.id && this.#isAlive(id));
    if (size < MIN_COMPACTED_BYTES || isShared) return;
    const oldest = Date.now() - MAX_AGE_MILLISECONDS;
    const lines = [...this.#entries]
      .filter(([, { savedAt }]) => savedAt >= oldest)
      .map(([path, entry]) => `${JSON.stringify({ path, entry })}\n`);
    const text = lines.join("");
    if (Buffer.byteLength(text) > size / 2) return;
    const draft = `${this.#file}.${this.#run.id}`;
    try {
      writeFileSync(draft, text, { mode: 0o600 });
      if (fstatSync(this.#handle).size === size) renameSync(draft, this.#file);
    } catch (error) {
      throw failureOf(error, this.#file);
    }
    closeSync(this.#handle);
    this.#open();
  }
}
