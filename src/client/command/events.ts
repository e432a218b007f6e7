import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import type { Event } from "../index.ts";
import { type Define, EVENT_TYPES, LIMIT, limited, parsePosition, TEAM } from "./command.ts";
import { ageOf, type Table } from "./table.ts";

const FOLLOWED_WIDTHS = [24, 24, 17];

const EVENTS: Table<Event> = {
  fields: ({ _id, createdAt, type, subject }) => [_id, createdAt, type, subject.id],
  columns: [
    ["Name", ({ subject }) => subject.name ?? subject.id],
    ["Type", ({ type }) => type],
    ["Time", ({ createdAt }) => ageOf(createdAt)],
    ["By", ({ actor }) => actor.name ?? actor.kind],
    ["ID", ({ _id }) => _id],
  ],
};

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
      if (!follow)
        return context.results.printList(limited(limit, events.list({ ...filters, ...start }, context.call)), EVENTS);
      for await (const event of limited(limit, events.follow({ ...filters, after }, context.call)))
        context.results.print(event, EVENTS.fields(event), FOLLOWED_WIDTHS);
    },
  );
}
