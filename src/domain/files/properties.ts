import { and, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import { type BoundQuery, type Param, preparedQuery } from "../../platform/db.ts";
import { files, isListed } from "../../platform/schema.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { writeWithEvent } from "../events/events.ts";
import { type ExpectedVersions, hasExpectedVersion, versionsParameter } from "../versions.ts";
import { fileEvent } from "./file-events.ts";
import { changed, type FileRow, LISTED_COLUMNS, type ListedRow, type StoredFile, toStoredFile } from "./files.ts";
import { type FileKey, isFile, nameKey } from "./names.ts";

/* The properties that a team sets on its files, at the upload or later: name, folder, reference, tags, and metadata. */

/** A folder is part of an index entry, and of the paths that the command line creates. */
export const MAX_FOLDER_BYTES = 512;
/** Each tag is a row. */
export const MAX_TAGS = 20;
export const MAX_TAG_LENGTH = 64;
export const MAX_REFERENCE_LENGTH = 128;
/** As compact JSON, after merging. The column is read with the whole row. */
export const MAX_METADATA_BYTES = 4096;
/** A patch as compact JSON: enough to replace all metadata. `json_patch` compares each name with all others. */
export const MAX_METADATA_PATCH_BYTES = 8 * 1024;
/** Names in a patch, at all depths. With 256 short ones, D1 merges within 10 ms. 1,170 would fit in the bytes and take 50. */
export const MAX_METADATA_PATCH_NAMES = 256;
/** Nested objects, and nested arrays. */
export const MAX_METADATA_DEPTH = 3;

export interface FileProperties {
  name?: string | undefined;
  /** Empty: outside all folders. */
  folder?: string | undefined;
  reference?: string | null | undefined;
  /** Without duplicates. */
  tags?: string[] | undefined;
  /** A merge patch (RFC 7396). */
  metadata?: object | undefined;
}

/** Changes that depend on the tags that a file has. */
interface TagChanges {
  addedTags?: string[] | undefined;
  removedTags?: string[] | undefined;
}
export type FileChanges = FileProperties & TagChanges;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Applies a merge patch, like `json_patch` in SQL. */
function merged(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const result = new Map(Object.entries(isObject(target) ? target : {}));
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) result.delete(name);
    else result.set(name, merged(result.get(name), value));
  }
  return Object.fromEntries(result);
}

function metadataText(target: string, patch: object, path = "metadata"): string {
  const text = JSON.stringify(merged(JSON.parse(target), patch));
  if (Buffer.byteLength(text) <= MAX_METADATA_BYTES) return text;
  throw invalidField(path, `Must have at most ${MAX_METADATA_BYTES} bytes as JSON.`);
}

/** The columns of a new file. @throws `invalid_input` for metadata that is too large */
export function propertyColumns(originalName: string, { name, folder, reference, tags, metadata }: FileProperties) {
  return {
    name: name ?? null,
    nameKey: nameKey(name ?? originalName),
    folder: folder ?? "",
    reference: reference ?? null,
    tags: JSON.stringify(tags ?? []),
    metadata: metadataText("{}", metadata ?? {}, "properties.metadata"),
  };
}

type Field = keyof FileChanges;
type ChangeValues = FileKey & { updatedAt: number; versions: string | null; nameKey: string } & Record<Field, string>;

const given = (param: Param<ChangeValues>, field: Field) => sql`(select value from json_each(${param(field)}))`;
const tagsWith = (param: Param<ChangeValues>) => sql`(select json_group_array(value) from (
  select value from json_each(${files.tags}) union all
  select value from json_each(${param("addedTags")}) where value not in (select value from json_each(${files.tags}))) tagged)`;
const tagsWithout = (param: Param<ChangeValues>) =>
  sql`(select json_group_array(value) from json_each(${files.tags}) where value not in ${given(param, "removedTags")})`;
const mergedMetadata = (param: Param<ChangeValues>) => sql`json_patch(${files.metadata}, ${param("metadata")})`;

/** How each change sets columns, whether it makes a difference, and its limit. */
const CHANGES: Record<Field, (param: Param<ChangeValues>) => { set: Record<string, SQL>; differs: SQL; fits?: SQL }> = {
  name: (param) => ({
    set: { name: sql`${param("name")}`, nameKey: sql`${param("nameKey")}` },
    differs: sql`${LISTED_COLUMNS.name.sql} <> ${param("name")}`,
  }),
  folder: (param) => ({
    set: { folder: sql`${param("folder")}` },
    differs: sql`${files.folder} <> ${param("folder")}`,
  }),
  reference: (param) => ({
    set: { reference: sql`${param("reference")}` },
    differs: sql`${files.reference} is not ${param("reference")}`,
  }),
  tags: (param) => ({
    set: { tags: sql`${param("tags")}` },
    differs: sql`${files.tags} <> ${param("tags")}`,
  }),
  addedTags: (param) => ({
    set: { tags: tagsWith(param) },
    differs: sql`${files.tags} <> ${tagsWith(param)}`,
    fits: sql`json_array_length(${tagsWith(param)}) <= ${MAX_TAGS}`,
  }),
  removedTags: (param) => ({
    set: { tags: tagsWithout(param) },
    differs: sql`${files.tags} <> ${tagsWithout(param)}`,
  }),
  metadata: (param) => ({
    set: { metadata: mergedMetadata(param) },
    differs: sql`${files.metadata} <> ${mergedMetadata(param)}`,
    fits: sql`length(cast(${mergedMetadata(param)} as blob)) <= ${MAX_METADATA_BYTES}`,
  }),
};

const FIELDS = Object.keys(CHANGES) as Field[];
/** The name of the field in events. */
const eventField = (field: Field) => (field === "addedTags" || field === "removedTags" ? "tags" : field);

const updates = new Map<string, (values: ChangeValues) => BoundQuery<{ id: string }[]>>();

/** An update of exactly these fields, because setting a column rewrites its indexes. It changes a file only if it differs. */
function updateOf(fields: Field[]) {
  const name = fields.join();
  const known = updates.get(name);
  if (known) return known;
  const update = preparedQuery((db, param: Param<ChangeValues>) => {
    const changes = fields.map((field) => CHANGES[field](param));
    const differs = sql.join(
      changes.map((change) => change.differs),
      sql` or `,
    );
    return db
      .update(files)
      .set({ ...Object.assign({}, ...changes.map(({ set }) => set)), ...changed(param) })
      .where(
        and(
          isFile(param),
          isListed,
          hasExpectedVersion(files.version, param("versions")),
          sql`(${differs})`,
          ...changes.map(({ fits }) => fits),
        ),
      )
      .returning({ id: files.id });
  });
  updates.set(name, update);
  return update;
}

/** The update of a file, with its event. A repetition changes nothing and has no event. */
export function fileUpdate(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: FileChanges,
  versions: ExpectedVersions = undefined,
) {
  const key = { id, teamId: actor.teamId };
  const { name, folder, reference, ...json } = changes;
  const texts = Object.entries(json).map(([field, value]) => [field, JSON.stringify(value)]);
  const fields = FIELDS.filter((field) => changes[field] !== undefined);
  const values = {
    ...{ ...key, name, folder, reference },
    ...Object.fromEntries(texts),
    nameKey: nameKey(name ?? ""),
    updatedAt: deps.system.now(),
    versions: versionsParameter(versions),
  } as ChangeValues;
  const event = fileEvent(deps, "file.updated", actor, key, fields.map(eventField));
  return { event, update: updateOf(fields)(values) };
}

type CurrentRow = ListedRow & Pick<FileRow, "metadata">;
const currentFile = preparedQuery((db, param: Param<FileKey>) =>
  db
    .select({ ...LISTED_COLUMNS, metadata: files.metadata })
    .from(files)
    .where(and(isFile(param), isListed)),
);

/** @throws `not_found`, `version_mismatch`, `invalid_input` for metadata that is too large after merging */
export async function updateFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: FileProperties,
  versions: ExpectedVersions,
): Promise<StoredFile> {
  const { event, update } = fileUpdate(deps, actor, id, changes, versions);
  const queries = [update, currentFile({ id, teamId: actor.teamId })] as const;
  const [updated, [row]] = (await writeWithEvent(deps, event, queries, {
    // After a lost response, a repetition would find another version.
    isIdempotent: versions === undefined,
  })) as [unknown[], CurrentRow[]];
  if (!row) throw new AppError("not_found");
  if (updated.length === 0) {
    if (versions && !versions.includes(row.version)) throw new AppError("version_mismatch");
    metadataText(row.metadata, changes.metadata ?? {});
  }
  return toStoredFile(deps, row);
}
