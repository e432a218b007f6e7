import { sql } from "drizzle-orm";
import { eventTypesOf } from "../events/event-type.ts";
import { nameOfFile } from "../files/file-event-types.ts";
import { links } from "./links.schema.ts";

export const LINK_EVENTS = eventTypesOf(
  {
    name: "link",
    nameOf: ({ teamId, id }) =>
      sql`(select coalesce(${links.name}, ${nameOfFile({ teamId: links.teamId, id: links.fileId })}) from ${links} where ${links.id} = ${id} and ${links.teamId} = ${teamId})`,
    nameScope: "files:download",
    isCounted: true,
  },
  { created: {}, revoked: { isOmittable: true } },
);
