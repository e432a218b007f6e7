import { and, type Column, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import type { EventType } from "../events/event-type.ts";
import { type Initiator, type NewEvent, newEventFrom, newEventsFrom } from "../events/events.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { files } from "./files.schema.ts";
import { FACTS } from "./files.ts";
import { type FileOf, isFile } from "./names.ts";

const iso = (milliseconds: Column) => sql`strftime('%Y-%m-%dT%H:%M:%fZ', ${milliseconds} / 1000.0, 'unixepoch')`;
const failure = sql`case when ${files.failureCode} is not null
  then json_object('code', ${files.failureCode}, 'message', coalesce(${files.failureMessage}, '')) end`;

/**
 * The data of an event: fields of the file's metadata, under their names in the API. It leaves out `path`, and what may be
 * personal: the tags of the audio, and what the team has set, except `reference`.
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

/**
 * Creates an event for each selected file before it is deleted, restored, or moved to another folder. `source` takes the place of
 * the files.
 */
export function fileEvents(
  deps: Deps,
  type: EventType,
  initiator: Initiator | SQL,
  teamId: string,
  isSelected: SQL | undefined,
  source: SQL = sql`${files}`,
): NewEvent {
  const isMove = type === FILE_EVENTS.updated;
  const subjectVersion = isMove ? sql`${files.version} + 1` : sql`${files.version}`;
  const updatedAt = new Date(deps.system.now()).toISOString();
  const moved = sql`json_set(${METADATA}, '$.__v', ${subjectVersion}, '$.updatedAt', ${updatedAt}, '$.fields', json('["folder"]'))`;
  const row = { subjectId: sql`${files.id}`, subjectVersion, data: isMove ? moved : METADATA };
  const from = sql`from ${source} where ${isSelected ?? sql`true`}`;
  return newEventsFrom(deps, type, initiator, teamId, row, from);
}

interface FileEventOptions {
  fields?: string[];
  uploadTokenId?: string | null;
  source?: SQL;
}

/**
 * Creates an event of a file that the previous query of the batch has changed. That of an update has the names of the changed
 * `fields`, and that of an upload the id of its upload token, if any. `source` takes the place of the files.
 */
export function fileEvent(
  deps: Deps,
  type: EventType,
  initiator: Initiator,
  file: FileOf,
  { fields, uploadTokenId, source = sql`${files}` }: FileEventOptions = {},
): NewEvent {
  const { teamId, id } = file;
  const withToken = sql`json_set(${METADATA}, '$.uploadTokenId', ${uploadTokenId})`;
  const withFields = sql`json_set(${METADATA}, '$.fields', json(${JSON.stringify(fields)}))`;
  const data = fields ? withFields : uploadTokenId ? withToken : METADATA;
  const row = { subjectVersion: sql`${files.version}`, data };
  const from = sql`from ${source} where ${and(isFile(file), sql`changes() > 0`)}`;
  return newEventFrom(deps, type, initiator, { teamId, id }, row, from);
}
