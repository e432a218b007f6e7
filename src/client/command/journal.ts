import { createHash, randomUUID } from "node:crypto";
import {
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { hostname, uptime } from "node:os";
import { join } from "node:path";
import type { UploadStore } from "../index.ts";
import { STATE_VARIABLE } from "./config.ts";
import { Failure, failureOf } from "./failures.ts";
import type { FileVersion } from "./local-files.ts";

/** A smaller journal is read in milliseconds. */
const MIN_COMPACTED_BYTES = 1024 * 1024;
/** Older entries are dropped when the journal is compacted. Their files would be uploaded again. */
const MAX_AGE_MILLISECONDS = 400 * 24 * 60 * 60 * 1000;
/** Two readings of the boot time differ by clock adjustments. */
const BOOT_TOLERANCE_SECONDS = 60;
const CLAIM_POLL_MILLISECONDS = 250;

/** The upload of one version of a file. */
export interface Entry {
  /** Set once the upload may have been sent. */
  idempotencyKey?: string;
  /** Set if a resumable upload may be resumed. The URL contains a secret. */
  uploadUrl?: string | undefined;
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

type Line = { path: string; entry: Saved } | { claim: string; by: Run } | { unclaim: string; by: Run };

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
  #claims = new Map<string, Run[]>();

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
        { cause: error, subject: folder },
      );
    }
    this.#compact();
  }

  /** Returns the entry of exactly this version of the file, or an empty one. */
  find({ path, size, changedAt }: FileVersion): Entry {
    const entry = this.#entries.get(path);
    return entry?.size === size && entry.changedAt === changedAt ? entry : {};
  }

  /** Returns the entry of a version with another modification time, which may have the same content. */
  findTouched({ path, size, changedAt }: FileVersion): Entry {
    const entry = this.#entries.get(path);
    return entry?.size === size && entry.changedAt !== changedAt ? entry : {};
  }

  save({ path, size, changedAt }: FileVersion, entry: Entry): void {
    this.#append({ path, entry: { size, changedAt, savedAt: Date.now(), ...entry } });
    this.refresh();
  }

  /** Returns what the client needs to resume the upload of a file. The command itself saves that it has finished. */
  storeOf(file: FileVersion, sha256: string): UploadStore {
    return {
      get: () => {
        // If other runs send the same file, the key of the first one wins.
        if (!this.find(file).idempotencyKey) this.save(file, { idempotencyKey: randomUUID(), sha256 });
        const { idempotencyKey = "", uploadUrl: url } = this.find(file);
        return { idempotencyKey, url };
      },
      set: (_, { idempotencyKey, url }) => this.save(file, { idempotencyKey, uploadUrl: url, sha256 }),
      delete: () => {},
    };
  }

  /** Waits until no other live run uploads this file. `onWait` is called once if it has to wait. */
  async claim({ path }: FileVersion, signal: AbortSignal, onWait: (pid: number) => void): Promise<void> {
    this.#append({ claim: path, by: this.#run });
    for (let isFirst = true; ; isFirst = false) {
      this.refresh();
      const owner = this.#claims.get(path)?.find((run) => this.#isAlive(run)) ?? this.#run;
      if (owner.id === this.#run.id) return;
      if (isFirst) onWait(owner.pid);
      await new Promise((resolve) => setTimeout(resolve, CLAIM_POLL_MILLISECONDS));
      signal.throwIfAborted();
    }
  }

  unclaim({ path }: FileVersion): void {
    this.#append({ unclaim: path, by: this.#run });
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
    closeSync(this.#handle);
  }

  #take(line: Line): void {
    if ("path" in line) {
      const { path, entry } = line;
      const earlier = this.#entries.get(path);
      const isSameVersion = earlier?.size === entry.size && earlier.changedAt === entry.changedAt;
      // If two runs start the same upload at once, both use the key of the first.
      const idempotencyKey = isSameVersion && entry.idempotencyKey && earlier.idempotencyKey;
      this.#entries.set(path, idempotencyKey ? { ...entry, idempotencyKey } : entry);
      return;
    }
    const path = "claim" in line ? line.claim : line.unclaim;
    const others = (this.#claims.get(path) ?? []).filter(({ id }) => id !== line.by.id);
    this.#claims.set(path, "claim" in line ? [...others, line.by] : others);
  }

  #isAlive({ host, pid, bootAt }: Run): boolean {
    if (host !== this.#run.host || Math.abs(bootAt - this.#run.bootAt) > BOOT_TOLERANCE_SECONDS) return false;
    try {
      return process.kill(pid, 0);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === "EPERM";
    }
  }

  #open(): void {
    // Upload URLs hold secrets.
    this.#handle = openSync(this.#file, "a+", 0o600);
    this.#readBytes = 0;
    this.#entries = new Map();
    this.#claims = new Map();
    this.refresh();
    // A line that was cut off must not swallow the next one.
    if (fstatSync(this.#handle).size > this.#readBytes) this.#write("\n");
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

  /** Rewrites a journal that is mostly outdated lines. Other runs that use it continue in the new file. */
  #compact(): void {
    const { size } = fstatSync(this.#handle);
    if (size < MIN_COMPACTED_BYTES) return;
    const oldest = Date.now() - MAX_AGE_MILLISECONDS;
    const lines: Line[] = [
      ...[...this.#entries].flatMap(([path, entry]) => (entry.savedAt >= oldest ? [{ path, entry }] : [])),
      ...[...this.#claims].flatMap(([claim, runs]) => runs.map((by) => ({ claim, by }))),
    ];
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    if (Buffer.byteLength(text) > size / 2) return;
    const draft = `${this.#file}.${this.#run.id}`;
    try {
      writeFileSync(draft, text, { mode: 0o600 });
      if (fstatSync(this.#handle).size === size) renameSync(draft, this.#file);
    } catch (error) {
      throw failureOf(error, this.#file);
    } finally {
      // Another run has appended a line in the meantime, or the disk is full.
      rmSync(draft, { force: true });
    }
    closeSync(this.#handle);
    this.#open();
  }
}
