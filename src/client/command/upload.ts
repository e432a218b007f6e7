import { relative } from "node:path";
import type { Stowage } from "../stowage.ts";
import { type Command, type Context, textOf } from "./command.ts";
import { stateFolder } from "./config.ts";
import { EXIT_CODES, Failure, type FailureKind, failureOf } from "./failures.ts";
import { Journal } from "./journal.ts";
import { findFiles, type LocalFile } from "./local-files.ts";
import { complain, type Results } from "./output.ts";
import { Progress } from "./progress.ts";
import { checkSent, type Run, type Sent, sendFile } from "./sending.ts";
import { isForbidden, Verifier } from "./verifier.ts";

const DEFAULT_PARALLEL = 8;
const MAX_PARALLEL = 64;
/** More that are sent and not checked yet would only hold memory. */
const MAX_FINISHING = 500;

/** Whose uploads the journal tells of: a key may change, its team stays. A public key may not ask, and stands for itself. */
async function scopeOf(stowage: Stowage & { url: string; key: string }, signal: AbortSignal): Promise<string> {
  try {
    const { items } = await stowage.keys.list({ limit: 1 }, { signal }).page();
    return `${stowage.url}\n${items[0]?.teamId}`;
  } catch (error) {
    if (isForbidden(error)) return `${stowage.url}\n${stowage.key}`;
    throw error;
  }
}

function print(results: Results, file: LocalFile, { id, sha256, isSkipped }: Sent, problem: string | null): void {
  const path = relative(process.cwd(), file.path) || file.path;
  const remark = problem === null ? (isSkipped ? ["already sent"] : []) : [`processing failed: ${problem}`];
  const row = { path: file.path, id, size: file.size, sha256, skipped: isSkipped, failure: problem };
  results.print(row, [id, path, ...remark]);
}

/** Failures that any other file would meet too. */
const isFatal = (kind: FailureKind) => kind === "refused" || kind === "unreachable" || kind === "interrupted";

async function run(context: Context): Promise<void> {
  const { args, values, results, signal: interrupted } = context;
  if (args.length === 0) throw new Failure("usage", "Name the files or folders to upload.");
  const parallel = Number(textOf(context, "parallel") ?? DEFAULT_PARALLEL);
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > MAX_PARALLEL) {
    throw new Failure("usage", `--parallel must be 1 to ${MAX_PARALLEL}.`);
  }
  const stowage = await context.connect();
  const failures: Failure[] = [];
  const stop = new AbortController();
  const signal = AbortSignal.any([interrupted, stop.signal]);
  const asked = scopeOf(stowage, signal);
  // Nobody has to wait for a long walk through folders to hear that the key is refused.
  asked.catch((error) => stop.abort(failureOf(error)));
  const onFailure = (failure: Failure) => {
    failures.push(failure);
    complain(failure.message);
  };
  const files = await findFiles(args, onFailure, signal);
  const journal = new Journal(stateFolder(), await asked);
  const progress = new Progress(files.reduce((sum, { size }) => sum + size, 0));
  const verifier = new Verifier(stowage, signal, files.length);
  const sending: Run = { stowage, journal, progress, verifier, signal };
  const fail = (error: unknown, file: LocalFile) => {
    if (signal.aborted) return;
    const failure = failureOf(error, file.path);
    const isKnown = failures.some(({ message }) => message === failure.message);
    failures.push(failure);
    if (isFatal(failure.kind)) stop.abort(failure);
    else if (!isKnown) progress.above(() => complain(failure.message));
  };
  const finish = async (file: LocalFile, sent: Sent) => {
    if (!sent.isSkipped && !values["no-check"]) await checkSent(sending, file, sent);
    const problem = values.wait ? (await stowage.files.waitFor(sent.id, { signal })).failure : null;
    if (problem) failures.push(new Failure("failed", problem.message));
    progress.above(() => print(results, file, sent, problem?.message ?? null));
  };
  const finishing = new Set<Promise<void>>();
  const queue = files.values();
  const work = async () => {
    for (const file of queue) {
      if (signal.aborted) return;
      try {
        const sent = await sendFile(sending, file);
        const finished = finish(file, sent)
          .catch((error) => fail(error, file))
          .finally(() => finishing.delete(finished));
        finishing.add(finished);
        if (values.wait || finishing.size > MAX_FINISHING) await finished;
      } catch (error) {
        fail(error, file);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(parallel, files.length) }, work));
    verifier.flush();
    await Promise.all(finishing);
  } finally {
    progress.close();
  }
  if (signal.aborted) throw signal.reason;
  const [first, ...others] = failures;
  // Each was told of already; several of different kinds are a failure of no kind.
  if (first) process.exitCode = others.every(({ kind }) => kind === first.kind) ? EXIT_CODES[first.kind] : 1;
}

export const upload: Command = {
  summary: "Send files and folders; what was begun is resumed, what was sent is skipped",
  usage: ["upload PATH... [--parallel N] [--wait] [--no-check]"],
  options: { parallel: { type: "string" }, wait: { type: "boolean" }, "no-check": { type: "boolean" } },
  meanings: {
    parallel: `how many files at a time (${DEFAULT_PARALLEL})`,
    wait: "wait until each file is processed, and tell where that failed",
    "no-check": "don't compare the SHA-256 of what was stored",
  },
  examples: ["stowage upload interview.mp3", "stowage upload recordings/ --parallel 4", "stowage upload *.wav --json"],
  isResumable: true,
  run,
};
