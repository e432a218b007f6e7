import { createHash } from "node:crypto";
import { openAsBlob } from "node:fs";
import { open, readdir, readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { RESUMABLE_BYTES } from "../stowage.ts";
import { Failure, failureOf } from "./failures.ts";
import { complain } from "./output.ts";

const READ_BYTES = 512 * 1024;

export interface LocalFile {
  path: string;
  size: number;
  /** Milliseconds since the epoch. */
  changedAt: number;
}

interface OpenFile {
  blob: Blob;
  /** Until the signal aborts. */
  digest(signal: AbortSignal): Promise<string>;
}

type OnFailure = (failure: Failure) => void;

async function* pathsBelow(folder: string, onFailure: OnFailure, signal: AbortSignal): AsyncGenerator<string> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error) => onFailure(failureOf(error, folder)));
  for (const entry of (entries ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* pathsBelow(path, onFailure, signal);
    else if (entry.isFile()) yield path;
    // A link may lead out of the folder, or around in circles.
    else complain(`${path} is ${entry.isSymbolicLink() ? "a link" : "no file"}, and is left out.`);
  }
}

/** The files that are meant: those named, and those below the folders named. What can't be read is told of by `onFailure`. */
export async function findFiles(paths: string[], onFailure: OnFailure, signal: AbortSignal): Promise<LocalFile[]> {
  const found = new Map<string, LocalFile>();
  const add = async (path: string, given: string) => {
    signal.throwIfAborted();
    try {
      const kind = await stat(given);
      if (kind.isDirectory()) {
        for await (const below of pathsBelow(path, onFailure, signal)) await add(below, below);
      } else if (kind.isFile()) found.set(path, { path, size: kind.size, changedAt: kind.mtimeMs });
      else onFailure(new Failure("failed", `${given} is neither a file nor a folder.`));
    } catch (error) {
      signal.throwIfAborted();
      onFailure(failureOf(error, given));
    }
  };
  for (const given of paths) await add(resolve(given), given);
  return [...found.values()];
}

/** The file's bytes, read as they are asked for, and their SHA-256 in hex. Reading fails once the file was changed. */
export async function openFile({ path, size, changedAt }: LocalFile): Promise<OpenFile> {
  if (size < RESUMABLE_BYTES) {
    const bytes = await readFile(path);
    return { blob: new Blob([bytes]), digest: async () => createHash("sha256").update(bytes).digest("hex") };
  }
  const digest = async (signal: AbortSignal) => {
    const sha256 = await digestOf(path, signal);
    const now = await stat(path);
    if (now.size === size && now.mtimeMs === changedAt) return sha256;
    throw new Failure("failed", `${path} was changed meanwhile.`);
  };
  return { blob: await openAsBlob(path), digest };
}

/** The SHA-256 in hex of a file. Through one buffer: a stream makes many, which cost as much as the hashing. */
export async function digestOf(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  const file = await open(path);
  try {
    for (;;) {
      signal.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, READ_BYTES, null);
      if (bytesRead === 0) return hash.digest("hex");
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
