import { type CommandUnknownOpts, InvalidArgumentError } from "@commander-js/extra-typings";
import { confirm, type Define, parseCount, pathOf, withDeletion } from "./command.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import { planDeletion } from "./organizing.ts";
import { formatBytes } from "./output.ts";

const OFF = "off";
const DAY_MILLISECONDS = 24 * 3_600_000;

/** Shows the files that this retention would delete soon. */
async function showOlder(context: Context, days: number): Promise<void> {
  const oldest = Date.now() - days * DAY_MILLISECONDS;
  // No upload is so old.
  if (oldest < 0) return;
  const createdBefore = new Date(oldest).toISOString();
  for await (const file of context.stowage.files.list({ createdBefore }, context.call))
    await planDeletion(context, [{ id: file._id, label: pathOf(file) }]);
}

export function addUsageCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program.command("usage"),
    { summary: "Show storage usage and quota", examples: ["stowage usage --json"] },
    async (context) => {
      const usage = await context.stowage.usage(context.call);
      const { files, bytes, maxFiles, maxBytes, trashFiles, trashBytes } = usage;
      const { results } = context;
      results.print(usage, ["files", `${files} of ${maxFiles}`], [6]);
      if (results.isJson) return;
      results.print({}, ["bytes", `${formatBytes(bytes)} of ${formatBytes(maxBytes)}`], [6]);
      if (trashFiles > 0) results.print({}, ["trash", `${trashFiles} files, ${formatBytes(trashBytes)}`], [6]);
    },
  );
  define(
    withDeletion(
      program.command("retention").argument("[days]", `days after its upload, or ${OFF}`, (text) => {
        const days = text === OFF ? text : parseCount(text);
        if (days === 0) throw new InvalidArgumentError(`It must be 1 or more, or ${OFF}.`);
        return days;
      }),
    ),
    {
      summary: "Show or set after how many days each file is deleted",
      notes: "With --dry-run, shows the files that are older.",
      examples: ["stowage retention", "stowage retention 365 --dry-run", `stowage retention ${OFF}`],
    },
    async (context, [given], options) => {
      const { stowage, call, results } = context;
      const show = (days: number | null) => results.print({ days }, [days === null ? OFF : `${days} days`]);
      if (given !== undefined) {
        const days = given === OFF ? null : given;
        if (options.dryRun) return days === null ? undefined : showOlder(context, days);
        // Without retention, nothing is deleted.
        if (days !== null)
          await confirm(context, `Delete each file ${days} days after its upload, and older ones soon?`, options);
        return show((await stowage.trash.setRetention(days, call)).days);
      }
      const { teamId } = await stowage.me(call);
      if (teamId === null) throw new Failure("rejected", "This command needs the API key of a team.");
      show((await stowage.teams.get(teamId, call)).retentionDays);
    },
  );
}
