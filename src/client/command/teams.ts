import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import { StowageError, type Team } from "../index.ts";
import {
  addGroup,
  type Define,
  LIMIT,
  limited,
  parseBytes,
  parseCount,
  removeEach,
  TEAM_STATUSES,
  withDeletion,
} from "./command.ts";
import { Failure } from "./failures.ts";
import { formatBytes } from "./output.ts";
import { Questions } from "./questions.ts";
import { ageOf, sizeOf, type Table } from "./table.ts";

const TEAMS: Table<Team> = {
  fields: ({ _id, status, usage, name }) => [_id, status, `${usage.files} files`, formatBytes(usage.bytes), name],
  columns: [
    ["Name", ({ name }) => name],
    ["Status", ({ status }) => status],
    ["Files", ({ usage }) => usage.files.toLocaleString("en"), "right"],
    ["Size", ({ usage }) => sizeOf(usage.bytes), "right"],
    ["Created", ({ createdAt }) => ageOf(createdAt)],
    ["ID", ({ _id }) => _id],
  ],
};
const TEAM = ["<id>", "ID of the team"] as const;

type Quota = number | "default";
const parseQuota =
  (parse: (text: string) => number) =>
  (text: string): Quota =>
    text === "default" ? text : parse(text);
/** Null leaves a quota to the service. Commander would take a null for a missing value. */
const quotasOf = ({ maxBytes, maxFiles }: { maxBytes?: Quota; maxFiles?: Quota }) => ({
  maxBytes: maxBytes === "default" ? null : maxBytes,
  maxFiles: maxFiles === "default" ? null : maxFiles,
});
const MAX_BYTES = [
  "--max-bytes <size>",
  "storage quota, such as 50GB, or default for the service's",
  parseQuota(parseBytes),
] as const;
const MAX_FILES = ["--max-files <n>", "how many files the team can store, or default", parseQuota(parseCount)] as const;
const EMAIL = [
  "--notification-email <email>",
  "address that gets an email if a key expires soon or a webhook is disabled, or none",
] as const;
const emailOf = (email: string | undefined) => (email === "none" ? null : email);

function explainForbidden(error: unknown): never {
  const cause = error instanceof Failure ? error.cause : error;
  if (!(cause instanceof StowageError) || cause.code !== "forbidden") throw error;
  throw new Failure("rejected", "This command needs the operator token. Set it with --key or STOWAGE_KEY.");
}

/** Commands of the operator: their key is the operator token. */
export function addTeamCommands(program: CommandUnknownOpts, defineForAll: Define): void {
  const define: Define = (command, texts, action) =>
    defineForAll(command, texts, (...given: Parameters<typeof action>) => action(...given).catch(explainForbidden));
  const teams = addGroup(program, "teams", "List, create, edit, suspend, and delete teams (operator token).", [
    "stowage teams --status suspended",
    'stowage teams create "Radio Lovelace"',
  ]);
  define(
    teams
      .command("ls", { isDefault: true })
      .option("--name <prefix>", "start of the name")
      .addOption(new Option("--status <status>", "only teams with this status").choices(TEAM_STATUSES))
      .option(...LIMIT),
    { summary: "List teams" },
    async (context, _, { name, status, limit }) => {
      const found = context.stowage.teams.list({ name, status }, context.call);
      await context.results.printList(limited(limit, found), TEAMS);
    },
  );
  define(
    teams
      .command("create")
      .argument("<name>", "name of the team")
      .option(...MAX_BYTES)
      .option(...MAX_FILES)
      .option(...EMAIL)
      .option(
        "--database <n>",
        "number of the database that it lives in (default: the one with the most room)",
        parseCount,
      ),
    { summary: "Create a team and show its first API key once" },
    async (context, [name], { database, notificationEmail, ...quotas }) => {
      const input = { name, database, notificationEmail: emailOf(notificationEmail), ...quotasOf(quotas) };
      const { team, apiKey } = await context.stowage.teams.create(input, context.call);
      context.results.printRecord({ ...team, key: apiKey.key });
    },
  );
  define(teams.command("show").argument(...TEAM), { ids: "teams", summary: "Show a team" }, async (context, [id]) => {
    context.results.printRecord(await context.stowage.teams.get(id, context.call));
  });
  define(
    teams
      .command("update")
      .argument(...TEAM)
      .option("--name <name>", "new name")
      .option(...MAX_BYTES)
      .option(...MAX_FILES)
      .option(...EMAIL),
    {
      ids: "teams",
      summary: "Rename a team, or change its quotas and its address",
      examples: ["stowage teams update 0193477be8a01f9c3ad5e7b2 --max-bytes 50GB --max-files default"],
    },
    async (context, [id], { name, notificationEmail, ...quotas }) => {
      const changes = { name, notificationEmail: emailOf(notificationEmail), ...quotasOf(quotas) };
      await context.results.printList([await context.stowage.teams.update(id, changes, context.call)], TEAMS);
    },
  );
  for (const [verb, status, summary] of [
    ["suspend", "suspended", "Reject every token and link of a team until you resume it"],
    ["resume", "active", "Accept the tokens and links of a suspended team again"],
  ] as const) {
    define(teams.command(verb).argument(...TEAM), { summary }, async (context, [id]) => {
      await context.results.printList([await context.stowage.teams.update(id, { status }, context.call)], TEAMS);
    });
  }
  define(
    teams.command("reindex").argument(...TEAM),
    { ids: "teams", summary: "Rebuild the search of a team's transcripts" },
    async ({ stowage, call, results }, [id]) => {
      await stowage.teams.rebuildSearch(id, call);
      results.print({ id, rebuilding: true }, [id, "search is being rebuilt"]);
    },
  );
  define(
    withDeletion(teams.command("rm").argument(...TEAM)),
    { summary: "Delete a team with everything that it has; asks for its name", ids: "teams" },
    async (context, [id], { yes, dryRun }) => {
      const { name } = await context.stowage.teams.get(id, context.call);
      if (!yes && !dryRun) {
        const questions = new Questions(context.io);
        const answer = await questions
          .ask(`Type the team's name to delete it ("${name}")`)
          .finally(() => questions.close());
        if (answer !== name) throw new Failure("failed", "That is not the team's name. Nothing was deleted.");
      }
      const words = { verb: "Delete", noun: "team", done: "deleted" };
      const remove = () => context.stowage.teams.delete(id, context.call);
      await removeEach(context, [id], words, { yes: true, dryRun }, remove);
    },
  );
}
