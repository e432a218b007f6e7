import { and, isNull, ne, not, or, type SQL, sql } from "drizzle-orm";
import type { TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import { actorOf, fieldsOf, writeWithEvent } from "../events/events.ts";
import { firstOf } from "../platform/db.ts";
import { type ExpectedVersions, isExpectedVersion } from "../platform/versions.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFile } from "./file-events.ts";
import { files, isHeld } from "./files.schema.ts";
import { changed, FACTS, LISTED_COLUMNS, type StoredFile, toStoredFile } from "./files.ts";
import { fileHeld } from "./holds.ts";
import { isFile, nameKey, searchPatch, tagKeys } from "./names.ts";

/* The properties that a team sets on its files, at the upload or later: name, folder, reference, tags, and metadata. */

/** Each tag is a row. */
export const MAX_TAGS = 20;
export const MAX_TAG_LENGTH = 64;
/** All tags of a file as JSON. With metadata, names, folder and reference, the text of a row has about 8 KiB. */
export const MAX_TAGS_BYTES = 2048;
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
  /** Milliseconds since the epoch. */
  deleteAfter?: number | null | undefined;
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

/** Applies a merge patch to nothing, as `json_patch` does in SQL: removes fields that are null. */
function patched(patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const fields = Object.entries(patch).filter(([, value]) => value !== null);
  return Object.fromEntries(fields.map(([name, value]) => [name, patched(value)]));
}

const metadataTooLarge = (path: string) => invalidField(path, `Must have at most ${MAX_METADATA_BYTES} bytes as JSON.`);

/** The columns of a new file. @throws `invalid_input` for metadata that is too large */
export function propertyColumns(
  originalName: string,
  { name, folder, reference, deleteAfter, tags, metadata = {} }: FileProperties,
) {
  const text = JSON.stringify(patched(metadata));
  if (Buffer.byteLength(text) > MAX_METADATA_BYTES) throw metadataTooLarge("properties.metadata");
  return {
    name: name ?? null,
    nameKey: nameKey(name ?? originalName),
    folder: folder ?? "",
    reference: reference ?? null,
    deleteAfter: deleteAfter ?? null,
    tags: JSON.stringify(tags ?? []),
    metadata: text,
    searchKeys: searchPatch({ folder: folder || undefined, reference: reference ?? undefined, tags }) ?? "{}",
  };
}

/** JSON: the keys of the tags of a file after some were added or removed. Undefined for other changes. */
function changedTagKeys({ addedTags, removedTags }: TagChanges): SQL | undefined {
  const withoutKeys = (tags: string[]) => `{${tags.map((tag) => `${JSON.stringify(tag)}:null`).join()}}`;
  const patch = addedTags ? tagKeys(addedTags) : removedTags && withoutKeys(removedTags);
  return patch === undefined ? undefined : sql`json_patch(coalesce(${files.searchKeys} -> '$.tags', '{}'), ${patch})`;
}
const exceedLimits = sql`count(*) > ${MAX_TAGS} or length(cast(json_group_array(key) as blob)) > ${MAX_TAGS_BYTES}`;

/** A source of one row for an update that adds or removes tags: it reads them once, because each reading of 40 tags is 40 rows. */
const taggedSource = (keys: SQL, isOne: SQL | undefined) =>
  sql`(select json_group_array(key) as tags, json_group_object(key, value) as keys, group_concat(value, char(1)) as text,
    ${exceedLimits} as exceeds from json_each((select ${keys} from ${files} where ${isOne}))) tagged`;

/** Why a change is refused. */
type Refusal = "file_held" | "version_mismatch" | "metadata_too_large" | "too_many_tags";

const patchedMetadata = ({ metadata }: FileChanges) =>
  metadata && sql`json_patch(${files.metadata}, ${JSON.stringify(metadata)})`;

/** A change of a file: the columns that it sets, whether it makes a difference, and why it is refused. */
function changeOf(changes: FileChanges, versions: ExpectedVersions, now: number, deleteAfterBy: string) {
  const { name, folder, reference, deleteAfter } = changes;
  const fromSource = changes.addedTags ?? changes.removedTags;
  const tags = fromSource ? sql`tagged.tags` : changes.tags && sql`${JSON.stringify(changes.tags)}`;
  const patch = searchPatch({ folder, reference, tags: changes.tags });
  const searched = changes.tags ? sql`json_remove(${files.searchKeys}, '$.tags')` : files.searchKeys;
  const metadata = patchedMetadata(changes);
  const differences = [
    name !== undefined && sql`${FACTS.name} <> ${name}`,
    folder !== undefined && ne(files.folder, folder),
    reference !== undefined && sql`${files.reference} is not ${reference}`,
    deleteAfter !== undefined && sql`${files.deleteAfter} is not ${deleteAfter}`,
    tags && sql`${files.tags} <> ${tags}`,
    metadata && sql`${files.metadata} <> ${metadata}`,
  ].filter((difference) => difference !== false);
  return {
    columns: {
      ...(folder !== undefined && { folderSince: sql`iif(${files.folder} = ${folder}, ${files.folderSince}, ${now})` }),
      ...(name !== undefined && { name, nameKey: nameKey(name) }),
      folder,
      reference,
      deleteAfter,
      tags,
      metadata,
      ...(deleteAfter !== undefined && { deleteAfterBy: deleteAfter === null ? null : deleteAfterBy }),
      ...(patch && { searchKeys: sql`json_patch(${searched}, ${patch})` }),
      ...(fromSource && {
        searchKeys: sql`json_set(${files.searchKeys}, '$.tags', json(tagged.keys), '$.tagText', tagged.text)`,
      }),
    },
    differs: or(...differences),
    refusal: refusalOf(changes, versions, sql`tagged.exceeds`),
  };
}

/** Why the change of a file would be refused. @param exceedsTags whether it would have too many tags; by default reads them */
export function refusalOf(
  changes: FileChanges,
  versions: ExpectedVersions = undefined,
  exceedsTags = sql`(select ${exceedLimits} from json_each(${changedTagKeys(changes)}))`,
) {
  const metadata = patchedMetadata(changes);
  const refusals: Partial<Record<Refusal, SQL>> = {
    ...(changes.deleteAfter !== undefined && { file_held: isHeld }),
    ...(versions && { version_mismatch: not(isExpectedVersion(files.version, versions)) }),
    ...(metadata && { metadata_too_large: sql`length(cast(${metadata} as blob)) > ${MAX_METADATA_BYTES}` }),
    ...(changes.addedTags && { too_many_tags: exceedsTags }),
  };
  return firstOf(refusals) as SQL<Refusal | null>;
}

/** The name of the field in events. */
const eventField = (field: string) => (field === "addedTags" || field === "removedTags" ? "tags" : field);

/** The update of a file, with its event. A repetition changes nothing and has no event. */
export function fileUpdate(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: FileChanges,
  versions: ExpectedVersions = undefined,
) {
  const key = { ...actor, id };
  const { columns, differs, refusal } = changeOf(changes, versions, deps.system.now(), actorOf(actor, deps.requestId));
  const setting = deps.db.update(files).set({ ...columns, ...changed(deps.system.now()) });
  const keys = changedTagKeys(changes);
  const isChanged = and(isFile(key), differs, isNull(refusal));
  const update = keys ? setting.from(taggedSource(keys, isFile(key))).where(isChanged) : setting.where(isChanged);
  const fields = fieldsOf(changes).map(eventField);
  return recordedFile(deps, { type: FILE_EVENTS.updated, initiator: actor, file: key, fields }, update);
}

/** @throws `not_found`, `version_mismatch`, `file_held` for `deleteAfter` of a held file, `invalid_input` for metadata that is too large after merging */
export async function updateFile(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: FileProperties,
  versions: ExpectedVersions,
): Promise<StoredFile> {
  const isOne = and(isFile({ ...actor, id }));
  const check = deps.db
    .select({ refusal: refusalOf(changes, versions) })
    .from(files)
    .where(isOne);
  const current = deps.db.select(LISTED_COLUMNS).from(files).where(isOne);
  const batch = { check, update: fileUpdate(deps, actor, id, changes, versions), current };
  const {
    check: [found],
    current: [row],
    // After a lost response, a repetition would find another version.
  } = await writeWithEvent(deps, batch, { isIdempotent: versions === undefined, caller: actor });
  if (!found || !row) throw new AppError("not_found");
  if (found.refusal === "version_mismatch") throw new AppError("version_mismatch");
  if (found.refusal === "file_held") {
    throw new AppError(fileHeld, { message: "The file is held, so its `deleteAfter` can't be changed." });
  }
  if (found.refusal === "metadata_too_large") throw metadataTooLarge("metadata");
  return toStoredFile(deps, row);
}
