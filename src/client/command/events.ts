import type { Event, EventFilters, Webhook } from "../stowage.ts";
import { actionOf, type Command, type Context, limited, removeEach, textOf } from "./command.ts";
import { Failure } from "./failures.ts";

function printEvent({ results }: Context, event: Event): void {
  const { _id, createdAt, type, subject } = event;
  results.print(event, [_id, createdAt, type, subject.id], [24, 24, 17]);
}

export const events: Command = {
  summary: "List what happened in the team, or follow it",
  usage: ["events [--type T] [--after ID] [--limit N]", "events --follow [--type T] [--after ID]"],
  options: {
    follow: { type: "boolean", short: "f" },
    type: { type: "string" },
    after: { type: "string" },
    limit: { type: "string" },
  },
  meanings: {
    follow: "go on with what happens from now on, or since --after",
    type: "such as file.completed",
    after: "later than the event of this id",
    limit: "so many at most",
  },
  examples: ["stowage events --limit 20", "stowage events --follow --type file.completed --json"],
  async run(context) {
    const { events } = await context.connect();
    const filters = { type: textOf(context, "type") as EventFilters["type"], after: textOf(context, "after") };
    const found = context.values.follow ? events.follow(filters, context) : events.list(filters, context);
    for await (const event of limited(context, found)) printEvent(context, event);
  },
};

function printWebhook({ results }: Context, webhook: Webhook): void {
  const { _id, status, url, types } = webhook;
  results.print(webhook, [_id, status, url, types?.join(",") ?? "all"], [24, 8, 40]);
}

const ACTIONS = ["ls", "create", "update", "rm", "test", "secret", "deliveries", "redeliver", "replay"] as const;

/** Commas between the types; all of them without the option. */
function typesOf(context: Context): Webhook["types"] {
  return (textOf(context, "types")?.split(",") as Webhook["types"]) ?? null;
}

async function runWebhooks(context: Context): Promise<void> {
  const { results, values } = context;
  const { action, rest } = actionOf(context, ACTIONS);
  const { webhooks } = await context.connect();
  const description = textOf(context, "description");
  if (action === "ls") {
    for (const webhook of await webhooks.list(context)) printWebhook(context, webhook);
    return;
  }
  const [subject] = rest;
  if (subject === undefined) throw new Failure("usage", action === "create" ? "Give an address." : "Name an id.");
  if (action === "create") {
    const webhook = { url: subject, types: typesOf(context), description };
    results.printRecord(await webhooks.create(webhook, context));
  } else if (action === "update") {
    const status = values.enable ? "enabled" : values.disable ? "disabled" : undefined;
    const types = values.types === undefined ? undefined : typesOf(context);
    printWebhook(
      context,
      await webhooks.update(subject, { url: textOf(context, "url"), types, description, status }, context),
    );
  } else if (action === "rm") {
    await removeEach(context, rest, (id) => webhooks.delete(id, context));
  } else if (action === "test") results.printRecord(await webhooks.test(subject, context));
  else if (action === "secret") {
    results.printRecord(await webhooks.rotateSecret(subject, { ...context, revokeOld: values["revoke-old"] === true }));
  } else if (action === "redeliver") results.printRecord(await webhooks.redeliver(subject, context));
  else if (action === "replay") {
    const after = textOf(context, "after");
    if (after === undefined) throw new Failure("usage", "Name the event to begin behind: --after ID.");
    const failedOnly = values["failed-only"] === true;
    results.printRecord(await webhooks.replay(subject, { after, failedOnly, signal: context.signal }));
  } else {
    for await (const delivery of limited(context, webhooks.deliveries(subject, context))) {
      const { _id, type, status, attempts } = delivery;
      results.print(delivery, [_id, type, status, `${attempts.length} tries`], [24, 17, 9]);
    }
  }
}

export const webhooks: Command = {
  summary: "List, create, change, test and delete webhooks; look at deliveries, and send again",
  usage: [
    "webhooks [ls]",
    "webhooks create URL [--types T,T] [--description TEXT]",
    "webhooks update ID [--url URL] [--types T,T] [--description TEXT] [--enable | --disable]",
    "webhooks rm ID...",
    "webhooks test ID",
    "webhooks secret ID [--revoke-old]    (a new one)",
    "webhooks deliveries ID [--limit N]",
    "webhooks redeliver DELIVERY_ID",
    "webhooks replay ID --after EVENT_ID [--failed-only]",
  ],
  options: {
    types: { type: "string" },
    description: { type: "string" },
    url: { type: "string" },
    enable: { type: "boolean" },
    disable: { type: "boolean" },
    "revoke-old": { type: "boolean" },
    after: { type: "string" },
    "failed-only": { type: "boolean" },
    limit: { type: "string" },
  },
  meanings: {
    types: "such as file.completed,file.failed; all without it",
    description: "what it is for",
    url: "another address",
    enable: "send to it again",
    disable: "send no more to it",
    "revoke-old": "the old secret ends at once, and not in 24 hours",
    after: "an event's id",
    "failed-only": "only deliveries that failed",
    limit: "so many at most",
  },
  examples: [
    "stowage webhooks create https://hooks.example.com/stowage --types file.completed,file.failed",
    "stowage webhooks deliveries 0193477c0d2b4f6e8a1c3e50 --limit 5 --json",
  ],
  run: runWebhooks,
};
