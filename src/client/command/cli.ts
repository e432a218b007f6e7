import { readFileSync } from "node:fs";
import { Command, CommanderError, InvalidArgumentError } from "@commander-js/extra-typings";
import { addAccountCommands } from "./accounts.ts";
import { addExamples, type Define, idKinds } from "./command.ts";
import { addCompletionCommand } from "./completion.ts";
import { Context, type Io } from "./context.ts";
import { addEventCommands } from "./events.ts";
import { complainOf, EXIT_CODES, Failure, failureAbout, failureOf } from "./failures.ts";
import { addFileCommands } from "./files.ts";
import { addFolderCommands } from "./folders.ts";
import { addGetCommand } from "./get.ts";
import { addLinkCommands } from "./links.ts";
import { addLoginCommands } from "./login.ts";
import { addOrganizingCommands } from "./organizing.ts";
import { addSearchCommand } from "./search.ts";
import { addTeamCommands } from "./teams.ts";
import { plain } from "./text.ts";
import { addTokenCommands } from "./tokens.ts";
import { addTranscriptCommands } from "./transcripts.ts";
import { addUnfinishedCommands } from "./unfinished.ts";
import { addUploadCommands } from "./upload.ts";
import { addUsageCommands } from "./usage.ts";
import { addWebhookCommands } from "./webhooks.ts";

const FOOTER = `
URL and key come from --url and --key, from STOWAGE_URL and STOWAGE_KEY, or from \`stowage login\`.
Other users of this machine can see --key. A profile is a second login: \`stowage login --profile staging\`. It is used by
--profile or STOWAGE_PROFILE. Commands that delete ask before, or take --yes, and show with --dry-run what they would do.
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

/** Arguments that are the ID of one record, which an error is about. */
const ID_ARGUMENTS = ["id", "file", "user"];

/** The name is part of a file name. */
function parseProfile(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name;
  throw new InvalidArgumentError("It must be 1 to 64 letters, digits, - or _.");
}

/** Runs the command line. @returns the exit code */
export async function run(argv: string[], io: Io): Promise<number> {
  let context: Context | undefined;
  let interruptionHint = "";
  const define: Define = (command, { summary, notes, examples = [], isResumable = false, ids }, action) => {
    if (ids) idKinds.set(command, ids);
    command.summary(summary).description([`${summary}.`, ...(notes ? [notes] : [])].join("\n\n"));
    if (examples.length > 0) addExamples(command, examples);
    command.action(async () => {
      if (isResumable) interruptionHint = " Run the same command again to resume.";
      const { STOWAGE_PROFILE: profile } = io.env;
      context = new Context(io, {
        ...(profile && { profile: parseProfile(profile) }),
        ...program.opts(),
      });
      const [first] = command.registeredArguments;
      const isAboutRecord = first && !first.variadic && ID_ARGUMENTS.includes(first.name());
      const running = action(context, command.processedArgs, command.opts());
      await (isAboutRecord ? running.catch(failureAbout(command.args[0] ?? "")) : running);
    });
  };
  const program = new Command("stowage")
    .description("Upload and manage files in Stowage.")
    .version(readVersion(), "-V, --version")
    .option("--json", "print one JSON object per line")
    .option("--quiet", "show no progress and no notices")
    .option("--debug", "show each request, without secrets")
    .option("--url <url>", "URL of the service")
    .option("--key <key>", "API key")
    .option("--profile <name>", "use the URL and key of this profile", parseProfile)
    .configureHelp({ showGlobalOptions: true })
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
  const groups = {
    "Files:": [
      addUploadCommands,
      addGetCommand,
      addFileCommands,
      addOrganizingCommands,
      addFolderCommands,
      addTranscriptCommands,
      addSearchCommand,
    ],
    "Uploads in progress:": [addUnfinishedCommands],
    "Sharing:": [addLinkCommands, addTokenCommands],
    "Team:": [addUsageCommands, addAccountCommands, addEventCommands, addWebhookCommands],
    "Operator:": [addTeamCommands],
    "This machine:": [addLoginCommands, addCompletionCommand],
  };
  for (const [heading, adders] of Object.entries(groups)) {
    program.commandsGroup(heading);
    for (const add of adders) add(program, define);
  }
  try {
    await program.parseAsync(argv, { from: "user" });
    return context?.exitCode ?? 0;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return 0;
      if (error.code === "commander.help") return EXIT_CODES.usage;
      return complainOf(io.stderr, new Failure("usage", usageMessage(error)), argv.includes("--json"));
    }
    const { json } = program.opts();
    if (io.signal.aborted)
      return complainOf(io.stderr, new Failure("interrupted", `Interrupted.${interruptionHint}`), json);
    const failure = failureOf(error);
    return complainOf(io.stderr, (await context?.explain(failure)) ?? failure, json);
  }
}

/** Turns commander's `error: unknown option '--nope'` and its suggestion into one sentence each. */
function usageMessage({ message }: CommanderError): string {
  const [problem = "", ...hints] = message
    .replace(/^error: /, "")
    .split("\n")
    .map(plain);
  const sentence = problem.charAt(0).toUpperCase() + problem.slice(1);
  return [/[.?!]$/.test(sentence) ? sentence : `${sentence}.`, ...hints].join(" ");
}
