import { sql } from "drizzle-orm";
import type { Identified } from "../access/names.ts";
import { eventTypesOf } from "../events/event-type.ts";
import { files, teamOfFile } from "./files.schema.ts";

export const nameOfFile = ({ teamId, id }: Identified) =>
  sql`(select coalesce(${files.name}, ${files.originalName}) from ${files} where ${teamOfFile} = ${teamId} and ${files.id} = ${id})`;

export const FILE_EVENTS = eventTypesOf(
  { name: "file", nameOf: nameOfFile, nameScope: "files:read", isCounted: true },
  {
    uploaded: {},
    completed: {},
    failed: {},
    deleted: { isOmittable: true },
    trashed: { isOmittable: true },
    restored: {},
    held: {},
    released: {},
    reprocessed: {},
    updated: {},
  },
);
