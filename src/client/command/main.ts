#!/usr/bin/env node
import { run } from "./cli.ts";
import { EXIT_CODES, failureOf } from "./failures.ts";
import { complain } from "./output.ts";

const interruption = new AbortController();
function interrupt(): void {
  // The second Ctrl-C does not wait for the first to finish.
  if (interruption.signal.aborted) process.exit(EXIT_CODES.interrupted);
  interruption.abort(new Error("interrupted"));
}
process.on("SIGINT", interrupt).on("SIGTERM", interrupt);

function exitWith(error: unknown, subject?: string): never {
  const failure = failureOf(error, subject);
  complain(process.stderr, failure.message);
  process.exit(EXIT_CODES[failure.kind]);
}

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // A reader such as `head` closes the pipe when it has seen enough.
  if (error.code === "EPIPE") process.exit(0);
  exitWith(error, "stdout");
});
process.stderr.on("error", () => undefined);
process.on("uncaughtException", (error) => exitWith(error));

const { stdin, stdout, stderr, env } = process;
const { signal } = interruption;
process.exitCode = await run(process.argv.slice(2), { stdin, stdout, stderr, env, cwd: process.cwd(), signal });
