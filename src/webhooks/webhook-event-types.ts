import { sql } from "drizzle-orm";
import { eventTypesOf, versionIn } from "../events/event-type.ts";
import { webhooks } from "./webhooks.schema.ts";

/** Without the path of the URL, which may contain a secret. A stored URL always has one. */
const shownUrl = sql`substr(${webhooks.url}, instr(${webhooks.url}, '://') + 3)`;
const shownName = sql`iif(${webhooks.description} <> '', ${webhooks.description}, substr(${shownUrl}, 1, instr(${shownUrl}, '/') - 1))`;

export const WEBHOOK_EVENTS = eventTypesOf(
  {
    name: "webhook",
    nameOf: ({ teamId, id }) =>
      sql`(select ${shownName} from ${webhooks} where ${webhooks.teamId} = ${teamId} and ${webhooks.id} = ${id})`,
    nameScope: "webhooks:read",
  },
  {
    created: { isDaily: true },
    updated: { isDaily: true, version: versionIn(webhooks, webhooks.teamId) },
    deleted: { isOmittable: true },
    disabled: { isOmittable: true },
  },
);
