import { and, eq, type SQLWrapper, sql } from "drizzle-orm";
import { type Credential, readAs } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { hasRow } from "../platform/db.ts";
import { fileObjects } from "./beside.schema.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { type FileKey, isFile, type Named, objectKey } from "./names.ts";

/* The objects beside the bytes of a file, and how they are read. beside-writes.ts writes them. */

/** All kinds of objects beside a file. */
export type Kind = "waveform" | "transcript";

type ObjectRow = typeof fileObjects.$inferSelect;

/** The key of an object beside a file in R2. No name of a file and no chunk has such a key. */
export const besideKey = ({ teamId, id }: FileKey, { kind, version }: Pick<ObjectRow, "kind" | "version">): string =>
  `${teamId}/${id}/${kind}/${version}`;

/** A current object. */
export interface BesideObject {
  version: string;
  language: string | null;
  reservedBytes: number;
  /** How many cues a transcript has, and how many that were sent it doesn't. */
  cues: number;
  skippedCues: number;
  updatedAt: number;
}

const isCurrentOfFile = (
  kind: Kind,
) => sql`${eq(fileObjects.teamId, teamOfFile)} and ${eq(fileObjects.fileId, files.id)}
  and ${fileObjects.kind} = ${kind} and ${fileObjects.name} = '' and ${fileObjects.state} = 'current'`;

/** The preview of the current object of a row of `files`. Null without one. D1 returns a BLOB as numbers. */
export const currentPreview = (kind: Kind) =>
  sql<number[] | null>`(select ${fileObjects.preview} from ${fileObjects} where ${isCurrentOfFile(kind)})`;

/** The current object of a row of `files`, as JSON for `parseObject`. Null without one. */
export const currentObject = (kind: Kind) =>
  sql<string | null>`(select json_object('version', ${fileObjects.version}, 'language', ${fileObjects.language},
    'reservedBytes', ${fileObjects.reservedBytes}, 'cues', ${fileObjects.cues}, 'skippedCues', ${fileObjects.skippedCues}, 'updatedAt', ${fileObjects.updatedAt})
    from ${fileObjects} where ${isCurrentOfFile(kind)})`;
export const parseObject = (json: string | null): BesideObject | null => (json === null ? null : JSON.parse(json));

/** Whether a row of `files` has an object that the service never replaces. */
export const hasLasting = (kind: Kind) =>
  hasRow(fileObjects, and(isCurrentOfFile(kind), eq(fileObjects.isProvisional, false)));

/** @returns the file's current object of this kind @throws `not_found`, also if the file has none */
export async function fetchObject(deps: Deps, credential: Credential<"files:read">, id: string, kind: Kind) {
  const { rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({ id: files.id, teamId: teamOfFile, json: currentObject(kind).as("json") })
      .from(files)
      .where(isFile({ ...viewer, id })),
  );
  const object = parseObject(rows[0]?.json ?? null);
  if (!rows[0] || !object) throw new AppError("not_found");
  return { ...object, key: besideKey(rows[0], { kind, version: object.version }) };
}

/** All objects beside a file, also those that are being written or were replaced, as JSON for `besideIn`. */
export const allBeside = (teamId: SQLWrapper, fileId: SQLWrapper) =>
  sql<string>`(select json_group_array(json_object('kind', ${fileObjects.kind}, 'version', ${fileObjects.version},
    'state', ${fileObjects.state})) from ${fileObjects}
    where ${eq(fileObjects.teamId, teamId)} and ${eq(fileObjects.fileId, fileId)})`;
export const besideIn = (json: string): Pick<ObjectRow, "kind" | "version" | "state">[] => JSON.parse(json);

/** The keys of all objects of a stored file. */
export const storedKeys = (file: Named & { beside: string }): string[] => [
  objectKey(file),
  ...besideIn(file.beside).map((object) => besideKey(file, object)),
];
