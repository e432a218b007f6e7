import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { addAccountCommands } from "./accounts.ts";
import type { Define } from "./command.ts";
import { Context, type Io } from "./context.ts";
import { addEventCommands } from "./events.ts";
import { EXIT_CODES, failureOf } from "./failures.ts";
import { addFileCommands } from "./files.ts";
import { addGetCommand } from "./get.ts";
import { addLoginCommand } from "./login.ts";
import { complain, plain } from "./output.ts";
import { addUploadCommand } from "./upload.ts";
import { addWebhookCommands } from "./webhooks.ts";

const FOOTER = `
Every command accepts --json, which prints one JSON object per line.
URL and key come from STOWAGE_URL and STOWAGE_KEY, or from \`stowage login\`.
If the service is unreachable, commands retry for STOWAGE_RETRY_SECONDS (300).

Exit codes:
  0 success, 1 failed, 2 wrong usage, 3 key rejected, 4 not found, 5 service unreachable,
  6 checksum mismatch, 130 interrupted. After 5 and 130, run upload or get again to resume.

Examples:
  stowage login https://stowage.example.workers.dev
  stowage upload recordings/
  stowage ls --status failed --json`;

/** The manifest is next to the built command, and at the root of the source tree. */
function readVersion(): string {
  for (const path of ["./package.json", "../../../package.json"]) {
    try {
      return JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")).version;
    } catch {}
  }
  return "unknown";
}

/** Runs the command line. @returns the exit code */
export async function run(argv: string[], io: Io): Promise<number> {
  let exitCode = 0;
  let interruptionHint = "";
  const define: Define = (command, { summary, examples = [], isResumable = false }, action) => {
    command.summary(summary).description(`${summary}.`).option("--json", "print one JSON object per line");
    if (examples.length > 0)
      command.addHelpText("after", `\nExamples:\n${examples.map((one) => `  ${one}`).join("\n")}`);
    command.action(async () => {
      if (isResumable) interruptionHint = " Run the same command again to resume.";
      const options = command.opts();
      const context = new Context(io, options.json === true);
      await action(context, command.args, options as Parameters<typeof action>[2]);
      exitCode = context.exitCode;
    });
  };
  const program = new Command("stowage")
    .description("Upload and manage files in Stowage.")
    .version(readVersion(), "-V, --version")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      // Commander reports usage errors here; run() reports all errors in one form.
      writeErr: (text) => io.stderr.write(text),
      outputError: () => {},
      getOutHelpWidth: () => io.stdout.columns ?? 100,
      getErrHelpWidth: () => io.stderr.columns ?? 100,
    })
    .addHelpText("after", FOOTER);
  addUploadCommand(program, define);
  addFileCommands(program, define);
  addGetCommand(program, define);
  addLoginCommand(program, define);
  addAccountCommands(program, define);
  addEventCommands(program, define);
  addWebhookCommands(program, define);
  try {
    await program.parseAsync(argv, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return 0;
      if (error.code !== "commander.help") complain(io.stderr, usageMessage(error));
      return EXIT_CODES.usage;
    }
    if (io.signal.aborted) {
      complain(io.stderr, `Interrupted.${interruptionHint}`);
      return EXIT_CODES.interrupted;
    }
    const failure = failureOf(error);
    complain(io.stderr, failure.message);
    return EXIT_CODES[failure.kind];
  }
}

/** Turns commander's `error: unknown option '--nope'` and its suggestion into one sentence each. */
function usageMessage({ message }: CommanderError): string {
  const [problem = "", ...hints] = plain(message.replace(/^error: /, "")).split(/\ufffd/);
  const sentence = problem.charAt(0).toUpperCase() + problem.slice(1);
  return [/[.?!]$/.test(sentence) ? sentence : `${sentence}.`, ...hints].join(" ");
}
