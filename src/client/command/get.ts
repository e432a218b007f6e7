import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { link, lstat, open, rename, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Transform, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { FileMetadata, Stowage } from "../stowage.ts";
import { type Command, type Context, textOf } from "./command.ts";
import { Failure, failureAbout, failureOf } from "./failures.ts";
import { digestOf } from "./local-files.ts";
import { complain, plain } from "./output.ts";
import { Progress } from "./progress.ts";

const sizeOf = async (path: string): Promise<number | undefined> => (await stat(path).catch(() => undefined))?.size;
const isFolder = async (path: string): Promise<boolean> =>
  /[\\/]$/.test(path) || (await stat(path).catch(() => undefined))?.isDirectory() === true;

/**
 * No name that a service tells may lead out of the folder, be one that Windows keeps for itself, or one that a shell or
 * another program reads by itself, such as `.bashrc`.
 */
function localName(name: string): string {
  const base = plain(name)
    .replaceAll(/[\\/:*?"<>|]/g, "_")
    .replace(/[. ]+$/, "");
  const isUnsafe = /^[.~-]|^$/.test(base) || /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(base);
  return isUnsafe ? `_${base}` : base;
}

async function destinationOf(output: string | undefined, { originalName }: FileMetadata): Promise<string> {
  const name = localName(originalName);
  if (output === undefined) return name;
  return (await isFolder(output)) ? join(output, name) : output;
}

/** Where a file's bytes go. */
interface Target {
  name: string;
  /** How many it has. */
  size(): Promise<number>;
  /** Takes those from byte `from` on. */
  open(from: number): Promise<Writable>;
}

/** A link would lead to a file of somebody else's choice. Windows has no such flag. */
const PARTIAL_FLAGS = constants.O_RDWR | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0);

/** A file of another name until it is whole. Two that fetch the same one write the same bytes: none may cut the other's. */
const partialTarget = (path: string): Target => ({
  name: path,
  size: async () => {
    const found = await lstat(path).catch(() => undefined);
    if (found && !found.isFile()) throw new Failure("failed", `${path} is no file: remove it.`);
    return found?.size ?? 0;
  },
  open: async (start) => (await open(path, PARTIAL_FLAGS)).createWriteStream({ start }),
});

/** Hashes on the way: what was printed can't be read again. */
function stdoutTarget(): Target & { sha256(): string } {
  const hash = createHash("sha256");
  let size = 0;
  const write = (bytes: Buffer, _: string, done: (error?: Error | null) => void) => {
    hash.update(bytes);
    size += bytes.length;
    process.stdout.write(bytes, done);
  };
  return {
    name: "stdout",
    size: async () => size,
    open: async () => new Writable({ write }),
    sha256: () => hash.digest("hex"),
  };
}

interface Download {
  stowage: Stowage;
  file: FileMetadata;
  target: Target;
  signal: AbortSignal;
  onProgress(doneBytes: number): void;
}

/** Streams the bytes from `from` on to the target, telling how many are through. */
async function stream({ stowage, file, target, signal, onProgress }: Download, from: number): Promise<void> {
  const writable = await target.open(from);
  try {
    const response = await stowage.files.download(file._id, { from, signal });
    if (from > 0 && response.status !== 206) throw new Failure("failed", `${file._id}: the store knows no ranges.`);
    let doneBytes = from;
    const counter = new Transform({
      transform(chunk: Buffer, _, done) {
        doneBytes += chunk.length;
        onProgress(doneBytes);
        done(null, chunk);
      },
    });
    const body = Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]);
    await pipeline(body, counter, writable, { signal });
  } finally {
    writable.destroy();
  }
}

/** Tries again from where a broken line left it, as long as each try brings something. */
async function download(run: Download): Promise<void> {
  const { file, target, signal } = run;
  const broken = new Failure("unreachable", `${file._id}: the line broke.`);
  let from = await target.size();
  while (from < file.size) {
    const before = from;
    let problem: unknown = broken;
    try {
      await stream(run, from);
    } catch (error) {
      signal.throwIfAborted();
      const { code = "", syscall } = error as NodeJS.ErrnoException;
      const isLocal = syscall === "open" || syscall === "write" || code === "ENOSPC";
      if (isLocal) throw failureOf(error, target.name);
      if (error instanceof Failure || (error as Error).name === "StowageError") problem = failureOf(error, file._id);
    }
    from = await target.size();
    if (problem !== broken || (from <= before && from < file.size)) throw problem;
  }
}

/** Gives the finished file its name, and replaces none that is there unless it is meant to. */
async function place(partial: string, path: string, isForced: boolean): Promise<void> {
  if (isForced) return rename(partial, path);
  try {
    // Unlike a rename it fails where a file of the name has come up meanwhile.
    await link(partial, path);
    await unlink(partial);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (code === "EEXIST")
      throw new Failure("failed", `${path} is there already: name another with -o, or add --force.`);
    // File systems without links.
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EOPNOTSUPP", "EMLINK"].includes(code)) throw error;
    await rename(partial, path);
  }
}

/** Compares with what the service has stored, which it knows of a large file once that is processed. @throws `altered` */
async function check(stowage: Stowage, file: FileMetadata, digest: string, signal: AbortSignal): Promise<void> {
  const { sha256 } = file.sha256 === null ? await stowage.files.get(file._id, { signal }) : file;
  if (sha256 === null) complain(`${file._id}: not checked, since it is not processed yet.`);
  else if (digest !== sha256) throw new Failure("altered", `${file._id}: what came has another SHA-256.`);
}

async function getOne(context: Context, stowage: Stowage, progress: Progress, file: FileMetadata): Promise<void> {
  const { results, signal, values } = context;
  const path = await destinationOf(textOf(context, "output"), file);
  const row = { id: file._id, path, size: file.size, sha256: file.sha256 };
  const present = values.force ? undefined : await sizeOf(path);
  if (present !== undefined) {
    if (present === file.size && file.sha256 !== null && (await digestOf(path, signal)) === file.sha256) {
      return progress.above(() => results.print({ ...row, skipped: true }, [path, "already there"]));
    }
    throw new Failure("failed", `${path} is there already: name another with -o, or add --force.`);
  }
  const partial = `${path}.${file._id}.part`;
  const target = partialTarget(partial);
  // Of a file that was altered on the way.
  if ((await target.size()) > file.size) await unlink(partial);
  const bar = progress.begin(file.originalName, file.size);
  bar.resumeAt(await target.size());
  await download({ stowage, file, target, signal, onProgress: bar.advance });
  bar.end(true);
  await check(stowage, file, await digestOf(partial, signal), signal).catch(async (error) => {
    if (error instanceof Failure) await unlink(partial);
    throw error;
  });
  await place(partial, path, values.force === true);
  progress.above(() => results.print({ ...row, skipped: false }, [path]));
}

async function run(context: Context): Promise<void> {
  const { args, signal } = context;
  const output = textOf(context, "output");
  if (args.length === 0) throw new Failure("usage", "Name the id of a file.");
  if (args.length > 1 && output !== undefined && output !== "-" && !(await isFolder(output)))
    throw new Failure("usage", `${output} is no folder, and can't take several files.`);
  const stowage = await context.connect();
  for (const id of args) {
    const file = await stowage.files.get(id, { signal }).catch(failureAbout(id));
    if (output === "-") {
      const target = stdoutTarget();
      await download({ stowage, file, target, signal, onProgress: () => {} });
      await check(stowage, file, target.sha256(), signal);
      continue;
    }
    const progress = new Progress(file.size);
    try {
      await getOne(context, stowage, progress, file);
    } finally {
      progress.close();
    }
  }
}

export const get: Command = {
  summary: "Fetch files; what was begun is resumed, and the SHA-256 checked",
  usage: ["get ID... [-o PATH] [--force]"],
  options: { output: { type: "string", short: "o" }, force: { type: "boolean" } },
  meanings: { output: "file or folder to write to; `-` for stdout", force: "replace a file that is there" },
  examples: ["stowage get 0193477c0a5e2b7f4d1c8e90", "stowage get 0193477c0a5e2b7f4d1c8e90 -o - | ffprobe -"],
  isResumable: true,
  run,
};
