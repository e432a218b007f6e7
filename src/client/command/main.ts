#!/usr/bin/env node
import { run } from "./cli.ts";
import { complainOf, EXIT_CODES, failureOf } from "./failures.ts";

const interruption = new AbortController();
function interrupt(): void {
  // The second Ctrl-C does not wait for the first to finish.
  if (interruption.signal.aborted) process.exit(EXIT_CODES.interrupted);
  interruption.abort(new Error("interrupted"));
}
process.on("SIGINT", interrupt).on("SIGTERM", interrupt);

function exitWith(error: unknown, subject?: string): never {
  process.exit(complainOf(process.stderr, failureOf(error, subject), process.argv.includes("--json")));
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
