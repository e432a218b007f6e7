import { relative } from "node:path";
import type { Command } from "commander";
import { type FileProperties, isServerError, StowageError } from "../stowage.ts";
import { collect, type Define, parseFolder, parseObject, parseParallel } from "./command.ts";
import { stateFolder } from "./config.ts";
import type { Client, Context } from "./context.ts";
import { EXIT_CODES, Failure, type FailureKind, failureOf } from "./failures.ts";
import { Journal } from "./journal.ts";
import { findFiles, type LocalFile } from "./local-files.ts";
import { Progress } from "./progress.ts";
import { checkSent, propertiesOf, type Run, type Sent, sendFile } from "./sending.ts";
import { withStdinFile } from "./stdin.ts";
import { isAltered, isForbidden, Verifier } from "./verifier.ts";

const DEFAULT_PARALLEL = 8;
/** Bounds the memory of files that are sent but not checked yet. */
const MAX_FINISHING = 500;
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
  /** False with `--no-check`. */
  check: boolean;
}

const propertiesGiven = ({ folder, tag: tags, reference, metadata }: UploadCommandOptions): FileProperties => ({
  ...(folder && { folder }),
  ...(tags && { tags }),
  ...(reference !== undefined && { reference }),
  ...(metadata && { metadata }),
});

/** Returns what the journal is for: the team, whatever its key. A public key can't read its team. */
async function scopeOf(stowage: Client, signal: AbortSignal): Promise<string> {
  try {
    const { items } = await stowage.keys.list({ limit: 1 }, { signal }).page();
    return `${stowage.url}\n${items[0]?.teamId}`;
  } catch (error) {
    if (isForbidden(error)) return `${stowage.url}\n${stowage.key}`;
    throw error;
  }
}

/** Errors that every other file would meet, too. */
const isFatal = (kind: FailureKind) => kind === "rejected" || kind === "unreachable" || kind === "interrupted";

/** Collects the failures of files, and stops the run at one that would hit all of them. */
class Failures {
  readonly all: Failure[] = [];
  readonly stop = new AbortController();
  readonly #context: Context;
  #serverErrorsInARow = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  succeed(): void {
    this.#serverErrorsInARow = 0;
  }

  add(failure: Failure): void {
    const isKnown = this.all.some(({ message }) => message === failure.message);
    this.all.push(failure);
    if (!isKnown) this.#context.above(() => this.#context.complain(failure.message));
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
  const { io, results } = context;
  const stowage = await context.connect();
  const failures = new Failures(context);
  const signal = AbortSignal.any([context.signal, failures.stop.signal]);
  const scope = scopeOf(stowage, signal);
  // Report a rejected key before a long walk through folders has ended.
  scope.catch((error) => failures.stop.abort(failureOf(error)));
  const onFailure = (failure: Failure) => failures.add(failure);
  const complain = (message: string) => context.notify(message);
  const files = await findFiles(paths, { cwd: io.cwd, signal, complain, onFailure });
  const journal = new Journal(stateFolder(io.env), await scope);
  const progress = new Progress(
    context.progressOutput,
    files.reduce((sum, { size }) => sum + size, 0),
  );
  context.above = (print) => progress.above(print);
  const verifier = new Verifier(stowage, signal, files.length);
  const properties = propertiesGiven(options);
  const run: Run = { context, stowage, journal, progress, verifier, properties, signal };

  const print = (file: LocalFile, { id, sha256, isSkipped }: Sent, problem: string | null) => {
    const path = relative(io.cwd, file.path) || file.path;
    const remark = problem === null ? (isSkipped ? ["already sent"] : []) : [`processing failed: ${problem}`];
    const row = { path: file.path, id, size: file.size, sha256, skipped: isSkipped, failure: problem };
    progress.above(() => results.print(row, [id, path, ...remark]));
  };
  const finish = async (file: LocalFile, sent: Sent) => {
    if (!sent.isSkipped && options.check) await checkSent(run, file, sent);
    const problem = options.wait ? await waitForProcessing(run, sent) : null;
    if (problem) failures.all.push(problem);
    print(file, sent, problem?.message ?? null);
  };
  const finishing = new Set<Promise<void>>();
  const fail = (error: unknown, file: LocalFile) => signal.aborted || failures.addError(error, file);
  const queue = files.values();
  const work = async () => {
    for (const file of queue) {
      if (signal.aborted) return;
      try {
        const sent = await sendFile(run, file);
        failures.succeed();
        const finished: Promise<void> = finish(file, sent)
          .catch((error) => void fail(error, file))
          .finally(() => finishing.delete(finished));
        finishing.add(finished);
        if (finishing.size > MAX_FINISHING) await Promise.race(finishing);
      } catch (error) {
        fail(error, file);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(options.parallel, files.length) }, work));
    verifier.flush();
    await Promise.all(finishing);
  } finally {
    progress.close();
    journal.close();
  }
  if (signal.aborted) throw signal.reason;
  context.exitCode = failures.exitCode();
}

async function uploadStdin(context: Context, paths: string[], options: UploadCommandOptions): Promise<void> {
  const { name = "stdin", wait, check } = options;
  if (paths.length > 1) throw new Failure("usage", "Upload stdin (-) without other files.");
  const stowage = await context.connect();
  const { signal } = context;
  await withStdinFile(context.io, async (file, sha256) => {
    const properties = propertiesOf({ properties: propertiesGiven(options) }, file);
    const { id } = await stowage.files.upload(file.path, { name, sha256, properties, signal });
    const verifier = new Verifier(stowage, signal, 1);
    if (check) await checkSent({ verifier }, file, { id, sha256, isSkipped: false });
    const problem = wait ? await waitForProcessing({ context, stowage, signal }, { id }) : null;
    const row = { path: "-", id, size: file.size, sha256, skipped: false, failure: problem?.message ?? null };
    context.results.print(row, [id, name, ...(problem ? [`processing failed: ${problem.message}`] : [])]);
    if (problem) context.exitCode = EXIT_CODES[problem.kind];
  });
}

/** @returns why processing failed, if it did */
async function waitForProcessing(
  { context, stowage, signal }: Pick<Run, "context" | "stowage" | "signal">,
  { id }: Pick<Sent, "id">,
): Promise<Failure | null> {
  try {
    const stored = await stowage.files.waitUntilProcessed(id, { signal });
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
    .option("--wait", "wait until each file is processed, and report failures")
    .option("--no-check", "don't compare checksums with the stored files");

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
      examples: ["stowage sync recordings/"],
      isResumable: true,
    },
    upload,
  );
}
