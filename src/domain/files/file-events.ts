import { and, type Column, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { files, isListed } from "../../platform/schema.ts";
import {
  type EventType,
  eventValues,
  type Initiator,
  insertEvent,
  insertEvents,
  type NewEvent,
} from "../events/events.ts";
import { FACTS } from "./files.ts";
import { type FileOf, fileKey, isFile } from "./names.ts";

const iso = (milliseconds: Column) => sql`strftime('%Y-%m-%dT%H:%M:%fZ', ${milliseconds} / 1000.0, 'unixepoch')`;
const failure = sql`case when ${files.failureCode} is not null
  then json_object('code', ${files.failureCode}, 'message', coalesce(${files.failureMessage}, '')) end`;

/**
 * The data of an event: fields of the file's metadata, under their names in the API. Without `path`, the tags of the audio,
 * and what the team has set, except `reference`.
 */
const DATA: Record<string, Column | SQL> = {
  _id: FACTS.id,
  teamId: FACTS.teamId,
  originalName: FACTS.originalName,
  fileType: FACTS.fileType,
  status: FACTS.status,
  createdAt: iso(FACTS.createdAt),
  updatedAt: iso(FACTS.updatedAt),
  __v: FACTS.version,
  filename: FACTS.filename,
  reference: FACTS.reference,
  size: FACTS.sizeBytes,
  mimeType: FACTS.mimeType,
  sha256: files.sha256,
  durationSeconds: FACTS.durationSeconds,
  processedAt: iso(files.processedAt),
  failure: sql`json(${failure})`,
  uploadedBy: sql`json_object('keyId', ${files.keyId}, 'userId', ${files.userId})`,
  audio: sql`json(json_remove(${files.audio}, '$.tags'))`,
};
const METADATA = sql`json_object(${sql.join(
  Object.entries(DATA).map(([name, value]) => sql`${name}, ${value}`),
  sql`, `,
)})`;

/** Creates an event for each file of `keys` before it is deleted, or moved to another folder. */
export function fileEvents(
  deps: Deps,
  type: "file.deleted" | "file.updated",
  initiator: Initiator,
  teamId: string,
  keys: SQL,
): NewEvent {
  const values = eventValues(deps, type, initiator, { teamId, id: "" });
  const isMove = type === "file.updated";
  const subjectVersion = isMove ? sql`${files.version} + 1` : sql`${files.version}`;
  const updatedAt = new Date(values.createdAt).toISOString();
  const moved = sql`json_set(${METADATA}, '$.__v', ${subjectVersion}, '$.updatedAt', ${updatedAt}, '$.fields', json('["folder"]'))`;
  const row = { subjectId: sql`${files.id}`, subjectVersion, data: isMove ? moved : METADATA };
  const insert = insertEvents(deps.db, values, row, sql`from ${files} where ${fileKey} in ${keys}`);
  return { teamId, insert, isMany: true };
}

/**
 * Creates an event of a file. A deletion has the last metadata, and no event if the file was never listed. An update has
 * the names of the changed `fields`, and an upload by an upload token has the id of that.
 */
export function fileEvent(
  deps: Deps,
  type: EventType & `file.${string}`,
  initiator: Initiator,
  file: FileOf,
  fields?: string[],
): NewEvent {
  const { teamId } = file;
  const values = eventValues(deps, type, initiator, file);
  const isBefore = type === "file.deleted";
  // A merge patch without a token adds nothing.
  const withToken = sql`json_patch(${METADATA}, json_object('uploadTokenId', ${files.uploadTokenId}))`;
  const withFields = sql`json_set(${METADATA}, '$.fields', json(${JSON.stringify(fields)}))`;
  const data = fields ? withFields : type === "file.uploaded" ? withToken : METADATA;
  const condition = and(isFile(file), isBefore ? isListed : sql`changes() > 0`);
  const row = { subjectVersion: sql`${files.version}`, data };
  const insert = insertEvent(deps.db, values, row, sql`from ${files} where ${condition}`);
  return { teamId, position: isBefore ? 0 : 1, insert };
}
