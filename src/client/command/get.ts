import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { link, rename, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { FileMetadata, Stowage } from "../stowage.ts";
import { type Command, type Context, textOf } from "./command.ts";
import { Failure, failureOf } from "./failures.ts";
import { complain, plain } from "./output.ts";
import { Progress } from "./progress.ts";

const sizeOf = async (path: string): Promise<number | undefined> => (await stat(path).catch(() => undefined))?.size;

/** No name that a service tells may lead out of the folder, nor be one that Windows keeps for itself. */
function localName(name: string): string {
  const base = plain(name)
    .replaceAll(/[\\/:*?"<>|]/g, "_")
    .replace(/[. ]+$/, "");
  const isUnsafe = /^\.*$/.test(base) || /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(base);
  return isUnsafe ? `_${base}` : base;
}

async function sha256Of(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const bytes of createReadStream(path)) hash.update(bytes);
  return hash.digest("hex");
}

async function destinationOf(output: string | undefined, { originalName }: FileMetadata): Promise<string> {
  const name = localName(originalName);
  if (output === undefined) return name;
  const isFolder = /[\\/]$/.test(output) || (await stat(output).catch(() => undefined))?.isDirectory();
  return isFolder ? join(output, name) : output;
}

/** Streams the bytes from `from` on to `target`, telling how many are through. */
async function stream(
  stowage: Stowage,
  { file, from, signal }: { file: FileMetadata; from: number; signal: AbortSignal },
  target: NodeJS.WritableStream,
  onProgress: (doneBytes: number) => void,
): Promise<void> {
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
  await pipeline(body, counter, target, { signal, end: target !== process.stdout });
}

/** Tries again from where a broken line left it, as long as each try brings something. */
async function download(
  stowage: Stowage,
  { file, partial, signal }: { file: FileMetadata; partial: string; signal: AbortSignal },
  progress: Progress,
): Promise<void> {
  const bar = progress.begin(file.originalName, file.size);
  let from = (await sizeOf(partial)) ?? 0;
  // Of another file, or of one that was altered on the way.
  if (from > file.size) {
    await unlink(partial);
    from = 0;
  }
  bar.resumeAt(from);
  while (from < file.size) {
    const target = createWriteStream(partial, { flags: from === 0 ? "w" : "r+", start: from });
    const before = from;
    try {
      await stream(stowage, { file, from, signal }, target, bar.advance);
      from = (await sizeOf(partial)) ?? 0;
      if (from < file.size) throw new Failure("unreachable", `${file._id}: the line broke.`);
    } catch (error) {
      signal.throwIfAborted();
      from = (await sizeOf(partial)) ?? 0;
      const { code = "", syscall } = error as NodeJS.ErrnoException;
      const isLocal = syscall === "open" || syscall === "write" || code === "ENOSPC";
      const isBroken = !isLocal && (error as Error).name !== "StowageError";
      if (!isBroken || from <= before)
        throw isLocal || !isBroken ? error : new Failure("unreachable", `${file._id}: the line broke.`);
    }
  }
  bar.end(true);
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

async function getOne(context: Context, stowage: Stowage, progress: Progress, file: FileMetadata): Promise<void> {
  const { results, signal, values } = context;
  const path = await destinationOf(textOf(context, "output"), file);
  const row = { id: file._id, path, size: file.size, sha256: file.sha256 };
  if (!values.force && (await sizeOf(path)) !== undefined) {
    if (file.sha256 !== null && (await sizeOf(path)) === file.size && (await sha256Of(path)) === file.sha256) {
      return progress.above(() => results.print({ ...row, skipped: true }, [path, "already there"]));
    }
    throw new Failure("failed", `${path} is there already: name another with -o, or add --force.`);
  }
  const partial = `${path}.${file._id}.part`;
  await download(stowage, { file, partial, signal }, progress);
  if (file.sha256 !== null && (await sha256Of(partial)) !== file.sha256) {
    await unlink(partial);
    throw new Failure("altered", `${file._id}: what came has another SHA-256; nothing was kept.`);
  }
  if (file.sha256 === null) complain(`${file._id}: not checked, since it is not processed yet.`);
  await place(partial, path, values.force === true);
  progress.above(() => results.print({ ...row, skipped: false }, [path]));
}

async function run(context: Context): Promise<void> {
  const { args, signal } = context;
  const [id] = args;
  const output = textOf(context, "output");
  if (id === undefined) throw new Failure("usage", "Name the id of a file.");
  const stowage = await context.connect();
  for (const id of args) {
    const file = await stowage.files.get(id, { signal }).catch((error) => Promise.reject(failureOf(error, id)));
    if (output === "-") {
      await stream(stowage, { file, from: 0, signal }, process.stdout, () => {});
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
