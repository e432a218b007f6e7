import { type Command, InvalidArgumentError, Option } from "commander";
import type { Webhook } from "../stowage.ts";
import { addGroup, type Define, IDS, LIMIT, limited, removeEach } from "./command.ts";
import type { Context } from "./context.ts";

const WEBHOOK_WIDTHS = [24, 8, 40];
const DELIVERY_WIDTHS = [24, 17, 9];
const ID = ["<id>", "ID of the webhook"] as const;
const DESCRIPTION = ["--description <text>", "what the webhook is for"] as const;

type Types = NonNullable<Webhook["types"]>;

function parseTypes(text: string): Types {
  const types = text.split(",");
  if (types.includes("")) throw new InvalidArgumentError("It must be event types separated by commas.");
  return types as Types;
}

function printWebhook({ results }: Context, webhook: Webhook): void {
  const { _id, status, url, types } = webhook;
  results.print(webhook, [_id, status, url, types?.join(",") ?? "all"], WEBHOOK_WIDTHS);
}

export function addWebhookCommands(program: Command, define: Define): void {
  const webhooks = addGroup(program, "webhooks", "Manage webhooks and their deliveries.", [
    "stowage webhooks create https://hooks.example.com/stowage --types file.completed,file.failed",
    "stowage webhooks deliveries 0193477c0d2b4f6e8a1c3e50 --limit 5 --json",
  ]);
  addSetupCommands(webhooks, define);
  addDeliveryCommands(webhooks, define);
}

function addSetupCommands(webhooks: Command, define: Define): void {
  define(webhooks.command("ls", { isDefault: true }), { summary: "List webhooks" }, async (context) => {
    for (const webhook of await context.stowage.webhooks.list(context)) printWebhook(context, webhook);
  });
  define<{ types?: Types; description?: string }>(
    webhooks
      .command("create")
      .argument("<url>", "endpoint URL")
      .option("--types <types>", "event types, separated by commas (default: all)", parseTypes)
      .option(...DESCRIPTION),
    { summary: "Create a webhook and show its signing secret once" },
    async (context, [url = ""], { types = null, description }) => {
      context.results.printRecord(await context.stowage.webhooks.create({ url, types, description }, context));
    },
  );
  define<{ endpoint?: string; types?: Types; description?: string; enable?: boolean; disable?: boolean }>(
    webhooks
      .command("update")
      .argument(...ID)
      .option("--endpoint <url>", "new endpoint URL")
      .option("--types <types>", "event types, separated by commas", parseTypes)
      .option(...DESCRIPTION)
      .addOption(new Option("--enable", "resume sending").conflicts("disable"))
      .option("--disable", "stop sending"),
    { summary: "Edit, enable, or disable a webhook" },
    async (context, [id = ""], { endpoint: url, types, description, enable, disable }) => {
      const status = enable ? "enabled" : disable ? "disabled" : undefined;
      printWebhook(context, await context.stowage.webhooks.update(id, { url, types, description, status }, context));
    },
  );
  define(webhooks.command("rm").argument(...IDS), { summary: "Delete webhooks" }, async (context, ids) => {
    await removeEach(context, ids, (id) => context.stowage.webhooks.delete(id, context));
  });
  define(webhooks.command("test").argument(...ID), { summary: "Send a test event" }, async (context, [id = ""]) => {
    context.results.printRecord(await context.stowage.webhooks.test(id, context));
  });
  define<{ revokeOld?: boolean }>(
    webhooks
      .command("secret")
      .argument(...ID)
      .option("--revoke-old", "revoke the old secret immediately instead of after 24 hours"),
    { summary: "Rotate the signing secret" },
    async (context, [id = ""], { revokeOld = false }) => {
      const { signal } = context;
      context.results.printRecord(await context.stowage.webhooks.rotateSecret(id, { signal, revokeOld }));
    },
  );
}

function addDeliveryCommands(webhooks: Command, define: Define): void {
  define<{ limit?: number }>(
    webhooks
      .command("deliveries")
      .argument(...ID)
      .option(...LIMIT),
    { summary: "List deliveries, newest first" },
    async (context, [id = ""], { limit }) => {
      for await (const delivery of limited(limit, context.stowage.webhooks.deliveries(id, context))) {
        const { _id, type, status, attempts } = delivery;
        const count = `${attempts.length} ${attempts.length === 1 ? "attempt" : "attempts"}`;
        context.results.print(delivery, [_id, type, status, count], DELIVERY_WIDTHS);
      }
    },
  );
  define(
    webhooks.command("redeliver").argument("<id>", "ID of the delivery"),
    { summary: "Redeliver one event" },
    async (context, [id = ""]) => {
      context.results.printRecord(await context.stowage.webhooks.redeliver(id, context));
    },
  );
  define<{ after: string; failedOnly?: boolean }>(
    webhooks
      .command("replay")
      .argument(...ID)
      .requiredOption("--after <id>", "resend the events after the event with this ID")
      .option("--failed-only", "only failed deliveries"),
    { summary: "Resend past events" },
    async (context, [id = ""], { after, failedOnly = false }) => {
      const { signal } = context;
      context.results.printRecord(await context.stowage.webhooks.replay(id, { after, failedOnly, signal }));
    },
  );
}
