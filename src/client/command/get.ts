import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { lstat, mkdir, open, rm, stat, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable, Transform, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import type { FileMetadata } from "../index.ts";
import { confirmDeletion, type Define, FILES, parseFolder, parseParallel, pathOf } from "./command.ts";
import type { Context } from "./context.ts";
import { Failure, failureAbout, failureOf } from "./failures.ts";
import { digestOf, findFiles } from "./local-files.ts";
import { findFile, type Named } from "./organizing.ts";
import { alreadyExists, localFolderOf, localNameOf, moveInPlace, type Place, placesOf } from "./places.ts";
import type { Progress } from "./progress.ts";
import { TRANSCRIPTS, transcriptPathOf, writeTranscript } from "./transcript-files.ts";

const sizeOf = async (path: string): Promise<number | undefined> => (await stat(path).catch(() => undefined))?.size;
const isFolder = async (cwd: string, path: string): Promise<boolean> =>
  /[\\/]$/.test(path) || (await stat(resolve(cwd, path)).catch(() => undefined))?.isDirectory() === true;

/** Paths are shown as given, relative to the working folder. */
async function destinationOf(cwd: string, output: string | undefined, file: FileMetadata): Promise<Place> {
  const [path, expected] = [localNameOf(file.name), file.name];
  if (output === undefined) return { path, expected };
  if (!(await isFolder(cwd, output))) return { path: output, expected: output };
  return { path: join(output, path), expected: join(output, expected) };
}

/** Where a download is written. */
interface Target {
  name: string;
  size(): Promise<number>;
  /** Opens it to write from byte `from`. */
  open(from: number): Promise<Writable>;
}

/** Never write through a link, which could point anywhere. Windows has no such flag. */
const PARTIAL_FLAGS = constants.O_RDWR | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0);

/** A file with a temporary name. It is never truncated: another run may be writing the same bytes to it. */
const partialTarget = (path: string, name: string): Target => ({
  name,
  size: async () => {
    const found = await lstat(path).catch(() => undefined);
    if (found && !found.isFile()) throw new Failure("failed", `${name} is not a file. Remove it.`);
    return found?.size ?? 0;
  },
  open: async (start) => (await open(path, PARTIAL_FLAGS)).createWriteStream({ start }),
});

/** Computes the digest on the way: stdout can't be read again. */
function stdoutTarget(stdout: Writable): Target & { sha256(): string } {
  const hash = createHash("sha256");
  let size = 0;
  const write = (bytes: Buffer, _: string, done: (error?: Error | null) => void) => {
    hash.update(bytes);
    size += bytes.length;
    stdout.write(bytes, done);
  };
  return {
    name: "stdout",
    size: async () => size,
    open: async () => new Writable({ write }),
    sha256: () => hash.digest("hex"),
  };
}

interface GetOptions {
  output?: string;
  folder?: string;
  force?: boolean;
  transcripts?: boolean;
  delete?: boolean;
  yes?: boolean;
  dryRun?: boolean;
  parallel: number;
}

const DEFAULT_PARALLEL = 4;

interface Download {
  context: Context;
  file: FileMetadata;
  target: Target;
  signal: AbortSignal;
  onProgress(doneBytes: number): void;
}

/** Streams the bytes after `from` to the target. */
async function stream({ context, file, target, signal, onProgress }: Download, from: number): Promise<void> {
  const writable = await target.open(from);
  try {
    const response = await context.stowage.files.download(file._id, { from }, { signal });
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

/** Resumes after each disconnect, as long as each attempt brings some bytes. */
async function download(run: Download): Promise<void> {
  const { file, target, signal } = run;
  const broken = new Failure("unreachable", `${file._id}: the connection was lost.`, { subject: file._id });
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

/** Compares the digest. The service knows that of a large file once it has processed it. @throws `altered` */
async function check(context: Context, file: FileMetadata, digest: string): Promise<void> {
  const { sha256 } = file.sha256 === null ? await context.stowage.files.get(file._id, context.call) : file;
  if (sha256 === null) context.above(() => context.complain(`${file._id}: checksum unknown until it is processed.`));
  else if (digest !== sha256)
    throw new Failure("altered", `${file._id}: checksum mismatch. Download it again.`, { subject: file._id });
}

async function getOne(
  context: Context,
  progress: Progress,
  file: FileMetadata,
  { path: name, expected }: Place,
  { force = false, dryRun = false }: GetOptions,
  signal: AbortSignal,
): Promise<void> {
  const { io, results } = context;
  const path = resolve(io.cwd, name);
  const renamedFrom = name === expected ? null : pathOf(file);
  const row = { id: file._id, path: name, size: file.size, sha256: file.sha256, renamedFrom };
  const texts = [name, ...(renamedFrom === null ? [] : [`renamed from ${renamedFrom}`])];
  const present = await sizeOf(path);
  if (present !== undefined) {
    if (present === file.size && file.sha256 !== null && (await digestOf(path, signal)) === file.sha256) {
      return context.above(() => results.print({ ...row, skipped: true }, [...texts, "already there"]));
    }
    if (!force) throw alreadyExists(name);
  }
  if (dryRun)
    return context.above(() => results.print({ ...row, skipped: false, download: true }, [...texts, "would download"]));
  await mkdir(dirname(path), { recursive: true }).catch(failureAbout(dirname(name)));
  const suffix = `.${file._id}.part`;
  const partial = path + suffix;
  const target = partialTarget(partial, name + suffix);
  // It can't be the beginning of this file.
  if ((await target.size()) > file.size) await unlink(partial);
  progress.expect(file.size);
  const bar = progress.begin(file.name, file.size);
  bar.resumeAt(await target.size());
  let isDone = false;
  try {
    await download({ context, file, target, signal, onProgress: bar.advance });
    isDone = true;
  } finally {
    bar.end(isDone);
  }
  await check(context, file, await digestOf(partial, signal)).catch(async (error) => {
    if (error instanceof Failure) await unlink(partial);
    throw error;
  });
  await moveInPlace(partial, path, name, force);
  context.above(() => results.print({ ...row, skipped: false }, texts));
}

async function get(context: Context, [given]: [string[]], options: GetOptions): Promise<void> {
  const { folder, output } = options;
  if ((folder === undefined) === (given.length === 0))
    throw new Failure("usage", "Give IDs or paths, or a folder with --folder.");
  if (folder === undefined) {
    if (options.delete || options.dryRun) throw new Failure("usage", "--delete and --dry-run go with --folder.");
    await getAll(context, given, options);
    return;
  }
  if (output === "-") throw new Failure("usage", "A folder can't be written to stdout.");
  if (options.delete && folder === "")
    throw new Failure("usage", "--delete would apply to all files of this folder. Name a folder of the service.");
  const files = await context.stowage.files.list({ under: folder }, context.call).toArray();
  if (files.length === 0) throw new Failure("not_found", `The folder ${folder} has no files.`, { subject: folder });
  const places = await placesOf(context.io.cwd, files, folder, output ?? ".", options.dryRun === true);
  const transcripts = await getAll(context, [...places.keys()], { ...options, output: "." }, places);
  if (!options.delete) return;
  // A file that failed could be one that would be deleted.
  if (context.exitCode !== 0) return context.notify("Deleted nothing, because not everything was received.");
  const kept = [...places.values()].map(({ path }) => path);
  await deleteSurplus(context, localFolderOf(folder, output ?? "."), [...kept, ...transcripts], options);
}

/** A download that was interrupted. The next run continues it. */
const PARTIAL = /\.[0-9a-f]{24}\.part$/;

/** Deletes the files of a folder of this machine that the service lacks, except what `upload` and `sync` skip. */
async function deleteSurplus(context: Context, folder: string, kept: string[], options: GetOptions): Promise<void> {
  const { io, signal, results } = context;
  if (options.dryRun && !(await isFolder(io.cwd, folder))) return;
  const failures: Failure[] = [];
  const onFailure = (failure: Failure) => failures.push(failure);
  const found = await findFiles([folder], { cwd: io.cwd, signal, exclude: [], onSkip: () => {}, onFailure });
  for (const failure of failures) context.fail(failure);
  // Some file systems ignore case, or compose characters: one file can have several paths.
  const keyOf = async (path: string) => {
    const { dev, ino } = await stat(resolve(io.cwd, path), { bigint: true });
    return `${dev}:${ino}`;
  };
  const keptKeys = new Set<string>();
  for (const path of [...kept, ...(options.transcripts ? [] : kept.map(transcriptPathOf))])
    await keyOf(path).then(
      (key) => keptKeys.add(key),
      () => {},
    );
  const surplus: Named[] = [];
  for (const { path, label } of found)
    if (!PARTIAL.test(path) && !keptKeys.has(await keyOf(path))) surplus.push({ id: path, label });
  const row = (path: string, isPlanned: boolean) => ({ path, ...(isPlanned ? { delete: true } : { deleted: true }) });
  if (options.dryRun) {
    for (const { label } of surplus) results.print(row(label, true), [label, "would delete"]);
    return;
  }
  const words = { verb: "Delete", noun: "file", done: "deleted" };
  if (!(await confirmDeletion(context, surplus, words, options, " They are on this machine."))) return;
  for (const { id: path, label } of surplus) {
    try {
      await rm(path);
      results.print(row(label, false), [label, words.done]);
    } catch (error) {
      await context.continueAfter(error, label);
    }
  }
}

/** @returns the transcripts on this machine that belong to the files */
async function getAll(
  context: Context,
  ids: string[],
  options: GetOptions,
  places?: Map<string, Place>,
): Promise<string[]> {
  const { io, signal } = context;
  const { output, force = false, dryRun = false } = options;
  if (output === "-" && options.transcripts) throw new Failure("usage", "--transcripts needs files, not stdout.");
  const hasMany = ids.length > 1;
  if (output === "-" && io.stdout.isTTY && !force)
    throw new Failure("usage", "Files can garble a terminal. Redirect stdout, or add --force.");
  const isIntoFolder = output === undefined || output === "-" || (await isFolder(io.cwd, output));
  if (hasMany && !isIntoFolder && (await sizeOf(resolve(io.cwd, output))) !== undefined)
    throw new Failure("usage", `${output} is not a folder, and can't hold several files.`, { subject: output });
  const find = async (given: string) => {
    const { id, label } = await findFile(context, given);
    return context.stowage.files.get(id, { signal }).catch(failureAbout(label));
  };
  if (output === "-") {
    for (const id of ids) {
      const file = await find(id);
      const target = stdoutTarget(io.stdout);
      await download({ context, file, target, signal, onProgress: () => {} });
      await check(context, file, target.sha256());
    }
    return [];
  }
  const taken = new Set([...(places?.values() ?? [])].map(({ path }) => path));
  const transcripts: string[] = [];
  const getTranscript = async (file: FileMetadata, path: string) => {
    const name = transcriptPathOf(path);
    if (!file.transcript) return;
    if (taken.has(name)) throw new Failure("failed", `${name}: several files would have this name.`, { subject: name });
    taken.add(name);
    transcripts.push(name);
    await writeTranscript(context, file, name, { isForced: force, isPlanned: dryRun });
  };
  const stop = new AbortController();
  const progress = context.startProgress();
  const queue = new Set(ids).values();
  const work = async () => {
    for (const id of queue) {
      // Its own, because Node 20 warns of the eleventh listener of a signal.
      const either = AbortSignal.any([signal, stop.signal]);
      if (either.aborted) return;
      try {
        const file = await find(id);
        // Several files go into a folder, which need not exist.
        const into = hasMany && !isIntoFolder ? `${output}/` : output;
        const place = places?.get(id) ?? (await destinationOf(io.cwd, into, file));
        await getOne(context, progress, file, place, options, either);
        if (options.transcripts) await getTranscript(file, place.path);
      } catch (error) {
        // A failure that the others would meet, too, stops them. A repeated command resumes them.
        if (!either.aborted) await context.continueAfter(error, id).catch((fatal) => stop.abort(fatal));
      }
    }
  };
  await Promise.all(Array.from({ length: options.parallel }, work)).finally(() => progress.close());
  signal.throwIfAborted();
  stop.signal.throwIfAborted();
  return transcripts;
}

export function addGetCommand(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("get")
      .argument("[files...]", FILES[1])
      .option("--folder <folder>", "all files in this folder and below it", parseFolder)
      .option("-o, --output <path>", "file or folder to write to, which is created, or - for stdout")
      .option("--force", "replace existing files that differ")
      .option(...TRANSCRIPTS)
      .option("--delete", "delete files of the folder from this machine that the service lacks")
      .option("--yes", "do not ask before deleting")
      .option("--dry-run", "show what would be downloaded and deleted, with --folder")
      .option("--parallel <n>", "number of files at a time", parseParallel, DEFAULT_PARALLEL),
    {
      ids: "files",
      summary: "Download files; resumes interrupted downloads and checks their checksums",
      examples: [
        "stowage get 0193477c0a5e2b7f4d1c8e90",
        "stowage get podcast/a.mp3 -o - | ffprobe -",
        "stowage get --folder podcast/2026 -o archive/",
        "stowage get --folder podcast/2026 --force --delete --dry-run",
      ],
      isResumable: true,
    },
    get,
  );
}
