import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import type { Delivery, Webhook } from "../index.ts";
import {
  addGroup,
  choices,
  type Define,
  EVENT_TYPES,
  IDS,
  LIMIT,
  limited,
  parseCount,
  parsePosition,
  removeEach,
  withDeletion,
} from "./command.ts";
import { validateUrl } from "./config.ts";
import { Failure } from "./failures.ts";
import { listen } from "./listening.ts";
import { ageOf, type Table } from "./table.ts";

const DELIVERY_STATUSES = ["pending", "succeeded", "failed", "failing", "waiting"] as const;
const ID = ["<id>", "ID of the webhook"] as const;
const DESCRIPTION = ["--description <text>", "what the webhook is for"] as const;

const typesOption = (description: string) =>
  choices("--types <list>", `event types, separated by commas${description}`, EVENT_TYPES);

const WEBHOOKS: Table<Webhook> = {
  fields: ({ _id, status, url, types }) => [_id, status, url, types?.join(",") ?? "all"],
  columns: [
    ["URL", ({ url }) => url],
    ["Health", ({ health }) => health],
    ["Types", ({ types }) => (types === null ? "all" : types.length > 1 ? `${types.length} types` : `${types[0]}`)],
    ["ID", ({ _id }) => _id],
  ],
};

const DELIVERIES: Table<Delivery> = {
  fields: ({ _id, type, status, attempts }) => {
    return [_id, type, status, `${attempts.length} ${attempts.length === 1 ? "attempt" : "attempts"}`];
  },
  columns: [
    ["Type", ({ type }) => type],
    ["Status", ({ status }) => status],
    ["Attempts", ({ attempts }) => String(attempts.length), "right"],
    ["Last", ({ attempts }) => ageOf(attempts.at(-1)?.at ?? null, "-")],
    ["Next", ({ nextAttemptAt }) => ageOf(nextAttemptAt, "-")],
    ["ID", ({ _id }) => _id],
  ],
};

export function addWebhookCommands(program: CommandUnknownOpts, define: Define): void {
  const webhooks = addGroup(program, "webhooks", "Manage webhooks and their deliveries.", [
    "stowage webhooks create https://hooks.example.com/stowage --types file.completed,file.failed",
    "stowage webhooks deliveries 0193477c0d2b4f6e8a1c3e50 --limit 5 --json",
  ]);
  addSetupCommands(webhooks, define);
  addDeliveryCommands(webhooks, define);
}

function addSetupCommands(webhooks: CommandUnknownOpts, define: Define): void {
  define(webhooks.command("ls", { isDefault: true }), { summary: "List webhooks" }, async (context) => {
    await context.results.printList(context.stowage.webhooks.list(context.call), WEBHOOKS);
  });
  define(
    webhooks
      .command("create")
      .argument("<url>", "endpoint URL")
      .addOption(typesOption(" (default: all)"))
      .option(...DESCRIPTION),
    { summary: "Create a webhook and show its signing secret once" },
    async (context, [url], { types = null, description }) => {
      context.results.printRecord(await context.stowage.webhooks.create({ url, types, description }, context.call));
    },
  );
  define(
    webhooks
      .command("update")
      .argument(...ID)
      .option("--endpoint <url>", "new endpoint URL")
      .addOption(typesOption(""))
      .option(...DESCRIPTION)
      .addOption(new Option("--enable", "resume sending").conflicts("disable"))
      .option("--disable", "stop sending"),
    { ids: "webhooks", summary: "Edit, enable, or disable a webhook" },
    async (context, [id], { endpoint: url, types, description, enable, disable }) => {
      const status = enable ? "enabled" : disable ? "disabled" : undefined;
      const { webhooks } = context.stowage;
      const updated = await webhooks.update(id, { url, types, description, status }, context.call);
      await context.results.printList([updated], WEBHOOKS);
    },
  );
  define(
    withDeletion(webhooks.command("rm").argument(...IDS)),
    { summary: "Delete webhooks", ids: "webhooks" },
    async (context, [ids], options) => {
      const find = async (id: string) => (await context.stowage.webhooks.get(id, context.call))._id;
      const words = { verb: "Delete", noun: "webhook", done: "deleted", find };
      await removeEach(context, ids, words, options, (id) => context.stowage.webhooks.delete(id, context.call));
    },
  );
  define(
    webhooks.command("test").argument(...ID),
    { ids: "webhooks", summary: "Send a test event; exits with 1 if the endpoint fails" },
    async (context, [id]) => {
      const attempt = await context.stowage.webhooks.test(id, context.call);
      context.results.printRecord(attempt);
      const { httpStatus, error } = attempt;
      if (httpStatus !== null && httpStatus >= 200 && httpStatus < 300 && error === null) return;
      context.fail(new Failure("failed", `The endpoint failed: ${error ?? `it responded ${httpStatus}`}.`));
    },
  );
  define(
    webhooks
      .command("secret")
      .argument(...ID)
      .option("--revoke-old", "revoke the old secret immediately instead of after 24 hours"),
    { ids: "webhooks", summary: "Rotate the signing secret" },
    async (context, [id], { revokeOld = false }) => {
      context.results.printRecord(await context.stowage.webhooks.rotateSecret(id, { revokeOld }, context.call));
    },
  );
}

function addDeliveryCommands(webhooks: CommandUnknownOpts, define: Define): void {
  define(
    webhooks
      .command("listen")
      .requiredOption("--forward-to <url>", "endpoint, such as http://localhost:3000/webhooks")
      .addOption(typesOption(" (default: all)"))
      .option(
        "--after <id or time>",
        "first forward the events after the event with this ID, or after this time",
        parsePosition,
      )
      .option("--limit <n>", "stop after this many events", parseCount),
    {
      summary: "Forward new events to an endpoint on this machine",
      notes:
        "Follows the event log, which needs no public URL. Messages are signed with a secret that is printed at the start, or with STOWAGE_WEBHOOK_SECRET. An event is sent once, even if the endpoint fails.",
      examples: ["stowage webhooks listen --forward-to http://localhost:3000/webhooks --types file.completed"],
    },
    async (context, _, options) => listen(context, { ...options, forwardTo: validateUrl(options.forwardTo) }),
  );
  define(
    webhooks
      .command("deliveries")
      .argument(...ID)
      .addOption(new Option("--status <status>", "only deliveries in this state").choices(DELIVERY_STATUSES))
      .option(...LIMIT),
    { ids: "webhooks", summary: "List deliveries, newest first" },
    async (context, [id], { limit, status }) => {
      const found = context.stowage.webhooks.deliveries(id, { status }, context.call);
      await context.results.printList(limited(limit, found), DELIVERIES);
    },
  );
  define(
    webhooks.command("redeliver").argument("<id>", "ID of the delivery"),
    { summary: "Redeliver one event now, and show the result" },
    async (context, [id]) => {
      context.results.printRecord(await context.stowage.webhooks.redeliver(id, context.call));
    },
  );
  define(
    webhooks
      .command("replay")
      .argument(...ID)
      .requiredOption(
        "--after <id or time>",
        "resend the events after the event with this ID, or after this time",
        parsePosition,
      )
      .option("--failed-only", "only failed deliveries")
      .option("--all", "continue until all are resent; each request resends a part"),
    { ids: "webhooks", summary: "Resend past events" },
    async (context, [id], { after, failedOnly = false, all = false }) => {
      let from = after;
      let deliveries = 0;
      for (;;) {
        const part = await context.stowage.webhooks.replay(id, { after: from, failedOnly }, context.call);
        deliveries += part.deliveries;
        if (!all || part.next === null) return context.results.printRecord({ ...part, deliveries });
        from = part.next;
      }
    },
  );
}
