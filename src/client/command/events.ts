import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import { type Define, EVENT_TYPES, LIMIT, limited, parsePosition, TEAM } from "./command.ts";

const EVENT_WIDTHS = [24, 24, 17];

export function addEventCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("events")
      .option("-f, --follow", "keep printing new events")
      .addOption(new Option("--type <type>", "such as file.completed").choices(EVENT_TYPES))
      .option("--after <id or time>", "only events after the event with this ID, or after this time", parsePosition)
      .option(...LIMIT)
      .option(...TEAM),
    {
      summary: "List or follow the events of the team",
      examples: ["stowage events --limit 20", "stowage events --follow --type file.completed --json"],
    },
    async (context, _, { follow, type, after, limit, team: teamId }) => {
      const { events } = context.stowage;
      const filters = { type, teamId };
      const start = after?.includes("-") ? { createdAfter: after } : { after };
      const found = follow
        ? events.follow({ ...filters, after }, context.call)
        : events.list({ ...filters, ...start }, context.call);
      for await (const event of limited(limit, found)) {
        const { _id, createdAt, type, subject } = event;
        context.results.print(event, [_id, createdAt, type, subject.id], EVENT_WIDTHS);
      }
    },
  );
}
