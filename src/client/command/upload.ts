import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import type { Command, CommandUnknownOpts, OptionValues } from "@commander-js/extra-typings";
import {
  type AudioMetadata,
  type ErrorCode,
  type FileMetadata,
  type FileProperties,
  isMeasured,
  type Me,
  type StoredFile,
  StowageError,
} from "../index.ts";
import { isServerError } from "../internal.ts";
import { collectList, confirmDeletion, type Define, parseFolder, parseObject, parseParallel } from "./command.ts";
import { STATE_VARIABLE, stateFolder } from "./config.ts";
import type { Context } from "./context.ts";
import { EXIT_CODES, Failure, failureOf, isForbidden } from "./failures.ts";
import { Journal } from "./journal.ts";
import { findFiles, type LocalFile, parsePattern, storedFolderOf, type Walk } from "./local-files.ts";
import { changeAll, planDeletion } from "./organizing.ts";
import { findSame, isAltered, placeIn, propertiesOf, type Run, type Sent, sendFile } from "./send-file.ts";
import { withStdinFile } from "./stdin.ts";
import { distinct, findSurplus, listStored, matchRenamed } from "./syncing.ts";
import { pairTranscripts, sendTranscript, TRANSCRIPTS } from "./transcript-files.ts";

const DEFAULT_PARALLEL = 8;
const SKIPPED = "Hidden and empty files in folders are skipped, and links are not followed.";
const UPLOAD_NOTES = `${SKIPPED} Finished uploads are recorded in ~/.local/state/stowage, or in stowage below ${STATE_VARIABLE}. To send an unchanged file again, delete it with \`stowage rm\` first.`;
const SYNC_NOTES = `${SKIPPED} Files are compared by folder, name, size, and SHA-256. A changed file becomes a second file with the same name, unless --delete deletes the old one. Excluded and skipped files are never deleted.`;
const CHANGE_HINT = "use `stowage mv` and `stowage tag`, or `stowage rm` and upload the file again";
/** More server errors in a row mean that the service is broken, not that it can't take one file. */
const MAX_SERVER_ERRORS_IN_A_ROW = 16;

interface UploadCommandOptions {
  parallel: number;
  wait?: boolean;
  name?: string;
  folder?: string;
  tag?: string[];
  reference?: string;
  metadata?: Record<string, unknown>;
  exclude?: RegExp[];
  transcripts?: boolean;
}

interface SyncOptions extends UploadCommandOptions {
  delete?: boolean;
  dryRun?: boolean;
  yes?: boolean;
}

const propertiesGiven = ({ folder, tag: tags, reference, metadata }: UploadCommandOptions): FileProperties => ({
  ...(folder && { folder }),
  ...(tags && { tags }),
  ...(reference !== undefined && { reference }),
  ...(metadata && { metadata }),
});

/** Codes of limits that every other file would reach, too. */
const FULL: string[] = ["quota_exceeded", "file_limit_reached", "upload_limit_reached"] satisfies ErrorCode[];

/** Errors that every other file would meet, too. */
function isFatal({ kind, cause }: Failure): boolean {
  const isFull = cause instanceof StowageError && FULL.includes(cause.code);
  return isFull || kind === "rejected" || kind === "unreachable" || kind === "interrupted";
}

/** Counts what happens to files, and stops the run at a failure that would hit all of them. */
class Tally {
  readonly failures: Failure[] = [];
  readonly stop = new AbortController();
  readonly #context: Context;
  /** The number of files per outcome, in the order of the last line. */
  readonly counts = { "to upload": 0, uploaded: 0, "already sent": 0, "to delete": 0, deleted: 0 };
  readonly #messages = new Set<string>();
  #serverErrorsInARow = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  count(outcome: keyof Tally["counts"], files = 1): void {
    this.#serverErrorsInARow = 0;
    this.counts[outcome] += files;
  }

  add(failure: Failure): void {
    this.failures.push(failure);
    if (this.#messages.has(failure.message)) return;
    this.#messages.add(failure.message);
    this.#context.fail(failure);
  }

  addError(error: unknown, { label }: LocalFile): void {
    const failure = failureOf(error, label);
    const isAboutFile = error instanceof StowageError && isServerError(error);
    if (isAboutFile) this.#serverErrorsInARow += 1;
    const isBroken = this.#serverErrorsInARow > MAX_SERVER_ERRORS_IN_A_ROW;
    if (isBroken || (isFatal(failure) && !isAboutFile)) this.stop.abort(failure);
    else this.add(failure);
  }

  /**
   * Prints the last line, such as "19 uploaded, 1 failed", if the run had several files.
   * @param failedBefore the failures that are not about these files
   */
  summarize(files: number, failedBefore: number): void {
    const failed = this.failures.length;
    const { "to delete": _, deleted: __, ...sent } = this.counts;
    const done = Object.values(sent).reduce((sum, count) => sum + count, 0);
    const counts = { ...this.counts, failed, "not sent": files - done - (failed - failedBefore) };
    const shown = Object.entries(counts).flatMap(([outcome, count]) => (count > 0 ? [`${count} ${outcome}`] : []));
    if (shown.length > 1 || done + failed > 1 || files > 1) this.#context.notify(`${shown.join(", ")}.`);
  }

  /** Failures of different kinds have no common exit code. */
  exitCode(): number {
    const [first, ...others] = this.failures;
    if (!first) return 0;
    return others.every(({ kind }) => kind === first.kind) ? EXIT_CODES[first.kind] : EXIT_CODES.failed;
  }
}

const upload = (context: Context, [paths]: [string[]], options: UploadCommandOptions) =>
  paths.includes("-") ? uploadStdin(context, paths, options) : send(context, paths, options, false);

/** Whether a file was uploaded with this key, or by this user. */
const isBy = (by: StoredFile["uploadedBy"], { keyId, userId }: Me) =>
  by.keyId === keyId || (userId !== null && by.userId === userId);

/** Sends files. `isSync`: compares them with those that the service has, instead of with the journal. */
async function send(context: Context, paths: string[], options: SyncOptions, isSync: boolean): Promise<void> {
  if (options.name !== undefined) throw new Failure("usage", "--name goes with -, the upload of stdin.");
  const { io, stowage } = context;
  const tally = new Tally(context);
  const signal = AbortSignal.any([context.signal, tally.stop.signal]);
  const me = stowage.me({ signal });
  // Report a rejected key before a long walk through folders has ended.
  me.catch((error) => tally.stop.abort(failureOf(error)));
  const { exclude = [] } = options;
  const properties = propertiesGiven(options);
  const placeOf = (file: Pick<LocalFile, "path" | "folder">) => placeIn(properties, file);
  const skipped: string[] = [];
  const onSkip: Walk["onSkip"] = (file, reason) => {
    skipped.push(placeOf(file));
    if (reason !== "") context.notify(`Skipped ${file.label}: ${reason}.`);
  };
  const onFailure = (failure: Failure) => tally.add(failure);
  const found = await findFiles(paths, { cwd: io.cwd, signal, exclude, onSkip, onFailure });
  if (found.length === 0 && tally.failures.length === 0) context.notify("There are no files to send.");
  // The journal is for the team, whatever its key.
  const caller = await me;
  const roots = paths.map((path) => [properties.folder, storedFolderOf(io.cwd, path)].filter(Boolean).join("/"));
  const stored = isSync ? await listStored(stowage, roots, signal) : undefined;
  const { files: paired, transcripts } = options.transcripts
    ? pairTranscripts(found)
    : { files: found, transcripts: new Map<string, LocalFile>() };
  const files = stored ? matchRenamed(paired, stored, placeOf, properties.folder) : paired;
  const journal = new Journal(stateFolder(io.env), `${stowage.url}\n${caller.teamId}`);
  const progress = context.startProgress(files.reduce((sum, { size }) => sum + size, 0));
  const run: Run = { context, journal, progress, properties, signal, stored };
  const toSend = isSync ? [...distinct(files, placeOf, onFailure)] : files;
  const failedBefore = tally.failures.length;
  const queue = toSend.values();
  const sentPaths = new Set<string>();
  const work = async () => {
    for (const file of queue) {
      if (signal.aborted) return;
      try {
        const same = await findSame(run, file);
        if (!same) sentPaths.add(placeOf(file));
        if (!same && options.dryRun) {
          context.above(() => context.results.print({ path: file.label, upload: true }, [file.label, "would upload"]));
          tally.count("to upload");
          continue;
        }
        const sent = same ?? (await sendFile(run, file));
        if (sent.isSkipped) progress.skip(file.size);
        const problem = await report(run, file, sent, options.wait);
        if (problem) tally.failures.push(problem);
        else tally.count(sent.isSkipped ? "already sent" : "uploaded");
        const transcript = transcripts.get(file.path);
        if (transcript) await sendTranscript(context, sent.id, transcript, signal, options.dryRun);
      } catch (error) {
        if (!signal.aborted) tally.addError(error, file);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(options.parallel, files.length) }, work));
  } finally {
    progress.close();
    journal.close();
  }
  context.signal.throwIfAborted();
  if (stored && options.delete && !signal.aborted) {
    // A file that can't be read could be one that would be deleted.
    if (tally.failures.length > 0) context.notify("Deleted nothing, because not everything was sent.");
    else {
      const surplus = findSurplus(stored, {
        local: [...files, ...transcripts.values()].map(placeOf),
        sentPaths,
        skipped,
        roots,
        exclude,
      });
      if (options.dryRun) tally.count("to delete", await planDeletion(context, surplus));
      else if (surplus.length > 0) {
        const words = { verb: "Delete", noun: "file", done: "deleted" };
        const foreign = surplus.filter(({ uploadedBy }) => !isBy(uploadedBy, caller)).length;
        const remark = foreign > 0 ? ` Others uploaded ${foreign} of them.` : "";
        if (await confirmDeletion(context, surplus, words, options, remark))
          tally.count("deleted", await changeAll(context, surplus, { action: "delete" }, words.done));
      }
    }
  }
  if (tally.stop.signal.aborted) tally.add(await context.explain(tally.stop.signal.reason));
  tally.summarize(toSend.length, failedBefore);
  context.exitCode = tally.exitCode() || context.exitCode;
}

async function sync(context: Context, [paths]: [string[]], options: SyncOptions): Promise<void> {
  for (const path of paths) {
    const isFile = (await stat(resolve(context.io.cwd, path)).catch(() => undefined))?.isFile();
    if (isFile) {
      const message = `${path} is not a folder. Send files with \`stowage upload\`.`;
      throw new Failure("usage", message, { subject: path });
    }
    if (options.delete && !options.folder && storedFolderOf(context.io.cwd, path) === "")
      throw new Failure("usage", "--delete would apply to all files of the team. Name a folder, or add --folder.");
  }
  await send(context, paths, options, true);
}

async function uploadStdin(context: Context, paths: string[], options: UploadCommandOptions): Promise<void> {
  const { name = "stdin", wait } = options;
  if (paths.length > 1) throw new Failure("usage", "Upload stdin (-) without other files.");
  const { signal } = context;
  await withStdinFile(context.io, async (file, sha256) => {
    const properties = propertiesOf(propertiesGiven(options), file);
    const { id } = await context.stowage.files.upload(file.path, { name, sha256, properties, signal });
    const sent = { id, sha256, isSkipped: false, notApplied: [] };
    const problem = await report({ context, signal }, { ...file, path: "-", label: name }, sent, wait);
    if (problem) context.exitCode = EXIT_CODES[problem.kind];
  });
}

type Reporting = Pick<Run, "context" | "signal"> & Partial<Pick<Run, "stored">>;

/** Prints a file that was sent, and first waits until it is processed if `isWaiting`. @returns why processing failed */
async function report(
  run: Reporting,
  { path, size, label }: LocalFile,
  { id, sha256, isSkipped, notApplied }: Sent,
  isWaiting = false,
): Promise<Failure | null> {
  const { context, stored } = run;
  const { problem = null, audio = null } = isWaiting ? await waitFor(run, id) : {};
  const failure = problem?.message ?? null;
  // Whoever wants no notices of a sync wants to see its changes.
  const isUnchanged = stored !== undefined && isSkipped && !problem && notApplied.length === 0;
  if (isUnchanged && context.options.quiet && !context.results.isJson) return null;
  const remarks = [
    ...(failure === null ? (isSkipped ? ["already sent"] : []) : [`processing failed: ${failure}`]),
    ...(audio && !isMeasured(audio) ? [`no waveform: the service can't decode ${formatOf(audio)}`] : []),
    ...(notApplied.length > 0 ? [`not applied: ${notApplied.join(", ")} (${CHANGE_HINT})`] : []),
  ];
  const row = { path, id, size, sha256, skipped: isSkipped, notApplied, failure };
  context.above(() => context.results.print(row, [id, label, ...remarks]));
  return problem;
}

/** Names the codec and the container: the service decodes some codecs in some containers. */
const formatOf = ({ codec, container }: Pick<AudioMetadata, "codec" | "container">): string =>
  [codec, container?.replace(/\/.*/, "")].filter(Boolean).join(" in ") || "this format";

/** Waits until a file is processed. @returns why processing failed, if it did, and what its audio is */
async function waitFor(
  { context, signal }: Reporting,
  id: string,
): Promise<{ problem?: Failure; audio?: FileMetadata["audio"] }> {
  try {
    const stored = await context.stowage.files.waitUntilProcessed(id, { signal });
    const { failure, audio, hasWaveform } = stored;
    if (!failure) return { audio: hasWaveform ? null : audio };
    return { problem: new Failure(isAltered(stored) ? "altered" : "failed", failure.message) };
  } catch (error) {
    if (!isForbidden(error)) throw error;
    context.notify(`${id}: stored. This key can't read whether it was processed.`);
    return {};
  }
}

const withOptions = <A extends unknown[], O extends OptionValues, G extends OptionValues>(command: Command<A, O, G>) =>
  command
    .option("--parallel <n>", "number of files at a time", parseParallel, DEFAULT_PARALLEL)
    .option("--folder <folder>", "folder in the service, such as podcast/2026", parseFolder)
    .option("--tag <tags>", "tags of the files, separated by commas; can be repeated", collectList)
    .option("--metadata <json>", 'your own fields, such as {"season":2}', parseObject)
    .option("--exclude <pattern>", "leave out names or paths such as *.tmp or drafts/; can be repeated", parsePattern)
    .option(...TRANSCRIPTS)
    .option("--wait", "wait until each file is processed, and report failures");

export function addUploadCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    withOptions(
      program
        .command("upload")
        .argument("<paths...>", "files and folders, or - for stdin")
        .option("--name <name>", "name of the file that stdin becomes")
        .option("--reference <reference>", "your own ID of the file"),
    ),
    {
      summary: "Upload files and folders; keeps folders, resumes interrupted uploads, and skips finished ones",
      notes: UPLOAD_NOTES,
      examples: [
        "stowage upload interview.mp3",
        "stowage upload recordings/ --folder podcast --tag interview",
        "ffmpeg -i a.wav -f mp3 - | stowage upload - --name a.mp3",
      ],
      isResumable: true,
    },
    upload,
  );
  define(
    withOptions(program.command("sync").argument("<folders...>", "folders"))
      .option("--delete", "delete files of these folders from the service that this machine lacks, and old versions")
      .option("--yes", "do not ask before deleting")
      .option("--dry-run", "show what would be uploaded and deleted"),
    {
      summary: "Upload what the service lacks of folders, or has with other contents",
      notes: SYNC_NOTES,
      examples: ["stowage sync recordings/", "stowage sync recordings/ --exclude '*.tmp' --delete --dry-run"],
      isResumable: true,
    },
    sync,
  );
}
