import { type Command, InvalidArgumentError } from "commander";
import { type Define, parseCount } from "./command.ts";
import { Failure } from "./failures.ts";
import { formatBytes } from "./output.ts";

const OFF = "off";

export function addUsageCommands(program: Command, define: Define): void {
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
    program.command("retention").argument("[days]", `days after its upload, or ${OFF}`, (text) => {
      if (text !== OFF && parseCount(text) === 0) throw new InvalidArgumentError(`It must be 1 or more, or ${OFF}.`);
      return text;
    }),
    {
      summary: "Show or set after how many days each file is deleted",
      examples: ["stowage retention", "stowage retention 365", `stowage retention ${OFF}`],
    },
    async (context, [given]) => {
      const { stowage, call, results } = context;
      const show = (days: number | null) => results.print({ days }, [days === null ? OFF : `${days} days`]);
      if (given !== undefined) {
        const { days } = await stowage.trash.setRetention(given === OFF ? null : Number(given), call);
        return show(days);
      }
      const { teamId } = await stowage.me(call);
      if (teamId === null) throw new Failure("rejected", "This command needs the API key of a team.");
      show((await stowage.teams.get(teamId, call)).retentionDays);
    },
  );
}
