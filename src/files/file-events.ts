import { type Column, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import type { About, EventType } from "../events/event-type.ts";
import { type Initiator, recorded, recordedEach } from "../events/events.ts";
import type { Batch } from "../platform/db.ts";
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
export const FILE_EVENT_FIELDS = Object.keys(DATA);
const METADATA = sql`json_object(${sql.join(
  Object.entries(DATA).map(([name, value]) => sql`${name}, ${value}`),
  sql`, `,
)})`;

interface Selection {
  type: EventType;
  /** As in `recordedEach`. */
  initiator: Initiator | SQL;
  teamId: string;
  where?: SQL | undefined;
  /** Takes the place of the files. */
  source?: SQL;
}

/** A deletion, restoration, or move of files to another folder, with an event for each that is selected before it. */
export function recordedFiles<C extends Batch>(
  deps: Deps,
  { type, initiator, teamId, where, source = sql`${files}` }: Selection,
  change: C,
) {
  const isMove = type === FILE_EVENTS.updated;
  const version = isMove ? sql`${files.version} + 1` : sql`${files.version}`;
  const updatedAt = new Date(deps.system.now()).toISOString();
  const moved = sql`json_set(${METADATA}, '$.__v', ${version}, '$.updatedAt', ${updatedAt}, '$.fields', json('["folder"]'))`;
  const subject = { teamId, id: sql`${files.id}`, version };
  const data = isMove ? moved : METADATA;
  return recordedEach(deps, { type, initiator, subject, data, from: source, where, reads: "before" }, change);
}

interface FileChange {
  type: EventType;
  initiator: Initiator;
  file: FileOf;
  /** The names of the fields that an update changes. */
  fields?: string[];
  about?: About[];
  /** Set if the file was uploaded with an upload token. */
  uploadTokenId?: string | null;
  /** Takes the place of the files. */
  source?: SQL;
}

/** The change of a file, with its event if it changes the file. The event has the file as it is then. */
export function recordedFile<C extends Batch>(
  deps: Deps,
  { type, initiator, file, fields, about, uploadTokenId, source = sql`${files}` }: FileChange,
  change: C,
) {
  const { teamId, id } = file;
  const withToken = sql`json_set(${METADATA}, '$.uploadTokenId', ${uploadTokenId})`;
  const withFields = sql`json_set(${METADATA}, '$.fields', json(${JSON.stringify(fields)}))`;
  const data = fields ? withFields : uploadTokenId ? withToken : METADATA;
  const subject = { teamId, id, version: sql`${files.version}` };
  return recorded(deps, { type, initiator, subject, data, about, from: source, where: isFile(file) }, change);
}
