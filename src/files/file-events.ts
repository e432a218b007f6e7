import { and, type Column, isNull, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type EventType, type Initiator, type NewEvent, newEventFrom, newEventsFrom } from "../events/events.ts";
import { files, isListed } from "./files.schema.ts";
import { FACTS, knownFiles, trashedFiles } from "./files.ts";
import { type FileOf, fileKey, isFile } from "./names.ts";

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

/** Where an event finds its file. In the trash, it has the values that the trash keeps. */
const PLACES = { files: () => sql`${files}`, trash: trashedFiles, both: knownFiles };
type Place = keyof typeof PLACES;

/** The events that many files can have at once. */
type FileEventType = "file.deleted" | "file.trashed" | "file.updated";

/** Creates an event for each file of `keys` before it is deleted, or moved to another folder. */
export function fileEvents(
  deps: Deps,
  type: FileEventType,
  initiator: Initiator | SQL,
  teamId: string,
  keys: SQL,
  place: Place = "files",
): NewEvent {
  const isMove = type === "file.updated";
  const subjectVersion = isMove ? sql`${files.version} + 1` : sql`${files.version}`;
  const updatedAt = new Date(deps.system.now()).toISOString();
  const moved = sql`json_set(${METADATA}, '$.__v', ${subjectVersion}, '$.updatedAt', ${updatedAt}, '$.fields', json('["folder"]'))`;
  const row = { subjectId: sql`${files.id}`, subjectVersion, data: isMove ? moved : METADATA };
  return newEventsFrom(deps, type, initiator, teamId, row, sql`from ${PLACES[place]()} where ${fileKey} in ${keys}`);
}

/**
 * Creates an event of a file. That of a deletion has the last metadata, and requires the same `condition` as the deletion; a
 * file that was never listed has none. That of an update has the names of the changed `fields`, and that of an upload the id
 * of its upload token, if any.
 */
export function fileEvent(
  deps: Deps,
  type: EventType & `file.${string}`,
  initiator: Initiator,
  file: FileOf,
  { fields, condition, place = "files" }: { fields?: string[]; condition?: SQL | undefined; place?: Place } = {},
): NewEvent {
  const { teamId, id } = file;
  const isBefore = type === "file.deleted" || type === "file.trashed";
  // A merge patch without a token adds nothing.
  const withToken = sql`json_patch(${METADATA}, json_object('uploadTokenId', ${files.uploadTokenId}))`;
  const withFields = sql`json_set(${METADATA}, '$.fields', json(${JSON.stringify(fields)}))`;
  const data = fields ? withFields : type === "file.uploaded" ? withToken : METADATA;
  const isWritten = isBefore ? and(isListed, isNull(files.hold), condition) : sql`changes() > 0`;
  const row = { subjectVersion: sql`${files.version}`, data };
  const event = newEventFrom(
    deps,
    type,
    initiator,
    { teamId, id },
    row,
    sql`from ${PLACES[place]()} where ${and(isFile(file), isWritten)}`,
  );
  return { ...event, position: isBefore ? 0 : 1 };
}
