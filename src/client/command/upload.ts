import { relative } from "node:path";
import type { Command } from "commander";
import { type FileProperties, isServerError, StowageError } from "../stowage.ts";
import { collect, type Define, parseFolder, parseObject, parseParallel } from "./command.ts";
import { STATE_VARIABLE, stateFolder } from "./config.ts";
import type { Context } from "./context.ts";
import { EXIT_CODES, Failure, type FailureKind, failureOf } from "./failures.ts";
import { Journal } from "./journal.ts";
import { findFiles, type LocalFile } from "./local-files.ts";
import { isAltered, isForbidden, propertiesOf, type Run, type Sent, sendFile } from "./sending.ts";
import { withStdinFile } from "./stdin.ts";

const DEFAULT_PARALLEL = 8;
const NOTES = `Finished uploads are recorded in ~/.local/state/stowage, or in stowage below ${STATE_VARIABLE}.
To send an unchanged file again, delete it with \`stowage rm\` first.`;
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
}

const propertiesGiven = ({ folder, tag: tags, reference, metadata }: UploadCommandOptions): FileProperties => ({
  ...(folder && { folder }),
  ...(tags && { tags }),
  ...(reference !== undefined && { reference }),
  ...(metadata && { metadata }),
});

/** Errors that every other file would meet, too. */
const isFatal = (kind: FailureKind) => kind === "rejected" || kind === "unreachable" || kind === "interrupted";

/** Collects the failures of files, and stops the run at one that would hit all of them. */
class Failures {
  readonly all: Failure[] = [];
  readonly stop = new AbortController();
  readonly #context: Context;
  readonly #messages = new Set<string>();
  #serverErrorsInARow = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  succeed(): void {
    this.#serverErrorsInARow = 0;
  }

  add(failure: Failure): void {
    this.all.push(failure);
    if (this.#messages.has(failure.message)) return;
    this.#messages.add(failure.message);
    this.#context.above(() => this.#context.complain(failure.message));
  }

  addError(error: unknown, file: LocalFile): void {
    const failure = failureOf(error, file.path);
    const isAboutFile = error instanceof StowageError && isServerError(error);
    if (isAboutFile) this.#serverErrorsInARow += 1;
    const isBroken = this.#serverErrorsInARow > MAX_SERVER_ERRORS_IN_A_ROW;
    if (isBroken || (isFatal(failure.kind) && !isAboutFile)) {
      this.all.push(failure);
      this.stop.abort(failure);
    } else this.add(failure);
  }

  /** Failures of different kinds have no common exit code. */
  exitCode(): number {
    const [first, ...others] = this.all;
    if (!first) return 0;
    return others.every(({ kind }) => kind === first.kind) ? EXIT_CODES[first.kind] : EXIT_CODES.failed;
  }
}

async function upload(context: Context, paths: string[], options: UploadCommandOptions): Promise<void> {
  if (paths.includes("-")) return uploadStdin(context, paths, options);
  if (options.name !== undefined) throw new Failure("usage", "--name goes with -, the upload of stdin.");
  const { io, stowage } = context;
  const failures = new Failures(context);
  const signal = AbortSignal.any([context.signal, failures.stop.signal]);
  const me = stowage.me({ signal });
  // Report a rejected key before a long walk through folders has ended.
  me.catch((error) => failures.stop.abort(failureOf(error)));
  const onFailure = (failure: Failure) => failures.add(failure);
  const complain = (message: string) => context.notify(message);
  const files = await findFiles(paths, { cwd: io.cwd, signal, complain, onFailure });
  // The journal is for the team, whatever its key.
  const journal = new Journal(stateFolder(io.env), `${stowage.url}\n${(await me).teamId}`);
  const totalBytes = files.reduce((sum, { size }) => sum + size, 0);
  const progress = context.startProgress(totalBytes);
  const run: Run = { context, journal, progress, properties: propertiesGiven(options), signal };
  const queue = files.values();
  const work = async () => {
    for (const file of queue) {
      if (signal.aborted) return;
      try {
        const sent = await sendFile(run, file);
        failures.succeed();
        const problem = await report(run, file, relative(io.cwd, file.path) || file.path, sent, options.wait);
        if (problem) failures.all.push(problem);
      } catch (error) {
        if (!signal.aborted) failures.addError(error, file);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(options.parallel, files.length) }, work));
  } finally {
    progress.close();
    journal.close();
  }
  if (signal.aborted) throw signal.reason;
  context.exitCode = failures.exitCode();
}

async function uploadStdin(context: Context, paths: string[], options: UploadCommandOptions): Promise<void> {
  const { name = "stdin", wait } = options;
  if (paths.length > 1) throw new Failure("usage", "Upload stdin (-) without other files.");
  const { signal } = context;
  await withStdinFile(context.io, async (file, sha256) => {
    const properties = propertiesOf(propertiesGiven(options), file);
    const { id } = await context.stowage.files.upload(file.path, { name, sha256, properties, signal });
    const sent = { id, sha256, isSkipped: false, notApplied: [] };
    const problem = await report({ context, signal }, { ...file, path: "-" }, name, sent, wait);
    if (problem) context.exitCode = EXIT_CODES[problem.kind];
  });
}

type Reporting = Pick<Run, "context" | "signal">;

/** Prints a file that was sent, and first waits until it is processed if `isWaiting`. @returns why processing failed */
async function report(
  run: Reporting,
  { path, size }: LocalFile,
  shownPath: string,
  { id, sha256, isSkipped, notApplied }: Sent,
  isWaiting = false,
): Promise<Failure | null> {
  const { context } = run;
  const problem = isWaiting ? await findProblem(run, id) : null;
  const failure = problem?.message ?? null;
  const remarks = [
    ...(failure === null ? (isSkipped ? ["already sent"] : []) : [`processing failed: ${failure}`]),
    ...(notApplied.length > 0 ? [`not applied: ${notApplied.join(", ")} (${CHANGE_HINT})`] : []),
  ];
  const row = { path, id, size, sha256, skipped: isSkipped, notApplied, failure };
  context.above(() => context.results.print(row, [id, shownPath, ...remarks]));
  return problem;
}

/** Waits until a file is processed. @returns why processing failed, if it did */
async function findProblem({ context, signal }: Reporting, id: string): Promise<Failure | null> {
  try {
    const stored = await context.stowage.files.waitUntilProcessed(id, { signal });
    if (!stored.failure) return null;
    return new Failure(isAltered(stored) ? "altered" : "failed", stored.failure.message);
  } catch (error) {
    if (!isForbidden(error)) throw error;
    context.notify(`${id}: stored. This key can't read whether it was processed.`);
    return null;
  }
}

const withOptions = (command: Command) =>
  command
    .option("--parallel <n>", "number of files at a time", parseParallel, DEFAULT_PARALLEL)
    .option("--folder <folder>", "folder in the service, such as podcast/2026", parseFolder)
    .option("--tag <tag>", "tag of the files; can be repeated", collect)
    .option("--metadata <json>", 'your own fields, such as {"season":2}', parseObject)
    .option("--wait", "wait until each file is processed, and report failures");

export function addUploadCommands(program: Command, define: Define): void {
  define<UploadCommandOptions>(
    withOptions(
      program
        .command("upload")
        .argument("<paths...>", "files and folders, or - for stdin")
        .option("--name <name>", "name of the file that stdin becomes")
        .option("--reference <reference>", "your own ID of the file"),
    ),
    {
      summary: "Upload files and folders; keeps folders, resumes interrupted uploads, and skips finished ones",
      notes: NOTES,
      examples: [
        "stowage upload interview.mp3",
        "stowage upload recordings/ --folder podcast --tag interview",
        "ffmpeg -i a.wav -f mp3 - | stowage upload - --name a.mp3",
      ],
      isResumable: true,
    },
    upload,
  );
  define<UploadCommandOptions>(
    withOptions(program.command("sync").argument("<folders...>", "folders")),
    {
      summary: "Upload what is new or changed in folders since their last upload from this machine",
      notes: NOTES,
      examples: ["stowage sync recordings/"],
      isResumable: true,
    },
    upload,
  );
}
