#!/usr/bin/env node
import { parseArgs } from "node:util";
import { Stowage } from "../stowage.ts";
import { keys, users } from "./accounts.ts";
import type { Command, Context, Options } from "./command.ts";
import { loadConfig } from "./config.ts";
import { events, webhooks } from "./events.ts";
import { EXIT_CODES, Failure, failureOf } from "./failures.ts";
import { info, ls, rm, usage } from "./files.ts";
import { get } from "./get.ts";
import { login } from "./login.ts";
import { complain, Results } from "./output.ts";
import { upload } from "./upload.ts";

const COMMANDS: Record<string, Command> = { upload, ls, get, info, rm, usage, login, keys, users, events, webhooks };

const COMMON: Options = { json: { type: "boolean" }, help: { type: "boolean", short: "h" } };
const COMMON_MEANINGS = { json: "one JSON object a line", help: "this text" };

const OVERVIEW = `Sends files to a Stowage service, and looks after them.

Commands (\`stowage COMMAND --help\` tells more):
${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(9)} ${summary}`)
  .join("\n")}

Every command takes --json: one JSON object a line.
Address and key come from STOWAGE_URL and STOWAGE_KEY, or from what \`stowage login\` keeps.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 key refused, 4 not found, 5 service out of reach, 6 bytes altered,
130 interrupted. After 5 and 130 \`upload\` and \`get\` go on from there.

Examples:
  stowage login https://stowage.example.workers.dev
  stowage upload recordings/
  stowage ls --status failed --json
`;

function helpOf({ summary, usage, options = {}, meanings = {}, examples }: Command): string {
  const lines = Object.entries({ ...options, ...COMMON }).map(([name, { short, type }]) => {
    const spelled = `${short ? `-${short}, ` : ""}--${name}${type === "string" ? ` ${name.toUpperCase()}` : ""}`;
    return `  ${spelled.padEnd(24)} ${{ ...meanings, ...COMMON_MEANINGS }[name] ?? ""}`;
  });
  return [
    `${summary}.\n`,
    ...usage.map((line) => `Usage: stowage ${line}`),
    "\nOptions:",
    ...lines,
    "\nExamples:",
    ...examples.map((line) => `  ${line}`),
    "",
  ].join("\n");
}

async function connect(): Promise<Stowage & { url: string; key: string }> {
  const config = await loadConfig();
  return Object.assign(new Stowage(config), config);
}

/** Aborts at Ctrl-C. */
function interruptionOf({ isResumable }: Command): AbortSignal {
  const interruption = new AbortController();
  const interrupt = () => {
    // Whoever asks twice does not want to wait.
    if (interruption.signal.aborted) process.exit(EXIT_CODES.interrupted);
    const hint = isResumable ? " The same command goes on from here." : "";
    interruption.abort(new Failure("interrupted", `Interrupted.${hint}`));
  };
  process.on("SIGINT", interrupt).on("SIGTERM", interrupt);
  return interruption.signal;
}

async function main([name, ...rest]: string[]): Promise<void> {
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    process.stdout.write(OVERVIEW);
    if (name === undefined) process.exitCode = EXIT_CODES.usage;
    return;
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command) throw new Failure("usage", `There is no command "${name}": \`stowage --help\` lists them.`);
  const options = { ...command.options, ...COMMON };
  const { values, positionals } = parseArgs({ args: rest, options, allowPositionals: true });
  if (values.help) return void process.stdout.write(helpOf(command));
  const results = new Results(values.json === true);
  const signal = interruptionOf(command);
  await command.run({ args: positionals, values: values as Context["values"], results, signal, connect });
}

function fail(error: unknown): void {
  const failure = failureOf(error);
  complain(failure.message);
  process.exitCode = EXIT_CODES[failure.kind];
}

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // A reader that has seen enough, such as `head`, is no failure.
  if (error.code === "EPIPE") process.exit(0);
  fail(failureOf(error, "stdout"));
  process.exit();
});
process.stderr.on("error", () => undefined);
process.on("uncaughtException", (error) => {
  fail(error);
  process.exit();
});

await main(process.argv.slice(2)).catch(fail);
