import { and, type Column, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Db, type Param, preparedQuery } from "../../platform/db.ts";
import { files, isListed } from "../../platform/schema.ts";
import {
  type EventType,
  type EventValues,
  eventValues,
  type Initiator,
  insertEvent,
  type NewEvent,
} from "../events/events.ts";
import { type FileKey, isFile } from "./names.ts";

type FileEventValues = FileKey & Omit<EventValues, "data" | "subjectVersion">;
/** `fields` is a JSON array of the names of changed fields. */
type UpdateEventValues = FileEventValues & { fields: string };

const iso = (milliseconds: Column) => sql`strftime('%Y-%m-%dT%H:%M:%fZ', ${milliseconds} / 1000.0, 'unixepoch')`;

/** The current metadata of a file, without `path`, the tags of the audio, and what the team has set except `reference`. */
const METADATA = sql`json_object(
  '_id', ${files.id}, 'teamId', ${files.teamId}, 'originalName', ${files.originalName},
  'fileType', coalesce(${files.fileType}, 'other file'), 'status', ${files.status},
  'createdAt', ${iso(files.createdAt)}, 'updatedAt', ${iso(files.updatedAt)}, '__v', ${files.version},
  'filename', ${files.id} || '-' || ${files.originalName}, 'reference', ${files.reference}, 'size', coalesce(${files.sizeBytes}, 0),
  'mimeType', coalesce(${files.mimeType}, 'application/octet-stream'), 'sha256', ${files.sha256},
  'durationSeconds', json_extract(${files.audio}, '$.durationSeconds'), 'processedAt', ${iso(files.processedAt)},
  'failure', json(case when ${files.failureCode} is not null
    then json_object('code', ${files.failureCode}, 'message', coalesce(${files.failureMessage}, '')) end),
  'audio', json(json_remove(${files.audio}, '$.tags')))`;

const insertFileEvent = <V extends FileEventValues>(
  db: Db,
  param: Param<V>,
  { condition = sql`changes() > 0`, data = METADATA } = {},
) => {
  const isSubject = isFile(param as unknown as Param<FileKey>);
  const source = sql`from ${files} where ${and(isSubject, condition)}`;
  return insertEvent(db, param, { subjectVersion: sql`${files.version}`, data }, source);
};
const insertAfterChange = preparedQuery((db, param: Param<FileEventValues>) => insertFileEvent(db, param));
const insertBeforeEnd = preparedQuery((db, param: Param<FileEventValues>) =>
  insertFileEvent(db, param, { condition: isListed }),
);
const insertAfterUpdate = preparedQuery((db, param: Param<UpdateEventValues>) =>
  insertFileEvent(db, param, { data: sql`json_set(${METADATA}, '$.fields', json(${param("fields")}))` }),
);

/**
 * Creates an event of a file. A deletion has the last metadata, and no event if the file was never listed. An update has
 * the names of the changed `fields`.
 */
export function fileEvent(
  deps: Deps,
  type: EventType & `file.${string}`,
  initiator: Initiator,
  { teamId, id }: FileKey,
  fields?: string[],
): NewEvent {
  const isBefore = type === "file.deleted";
  const values = { ...eventValues(deps, type, initiator, { teamId, id }), id };
  if (fields) return { teamId, insert: insertAfterUpdate({ ...values, fields: JSON.stringify(fields) }) };
  return { teamId, position: isBefore ? 0 : 1, insert: (isBefore ? insertBeforeEnd : insertAfterChange)(values) };
}
