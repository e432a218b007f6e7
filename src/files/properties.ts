import { and, isNull, ne, not, or, type SQL, sql } from "drizzle-orm";
import type { TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import { actorOf, fieldsOf, writeWithEvent } from "../events/events.ts";
import { firstOf } from "../platform/db.ts";
import { type ExpectedVersions, isOneOf } from "../platform/versions.ts";
import { fileEvent } from "./file-events.ts";
import { files, isHeld } from "./files.schema.ts";
import { changed, FACTS, LISTED_COLUMNS, type StoredFile, toStoredFile } from "./files.ts";
import { isFile, nameKey, searchPatch } from "./names.ts";

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
    searchKeys: JSON.stringify(
      patched(JSON.parse(searchPatch({ folder, reference, tags: changesOf(tags, true) }) ?? "{}")),
    ),
  };
}

/** Tags as a change of the searched ones. */
const changesOf = (tags: string[] | undefined, isKept: boolean) =>
  tags && Object.fromEntries(tags.map((tag) => [tag, isKept ? tag : null]));

/** The tags of a file after a change, as JSON. */
function changedTags({ tags, addedTags, removedTags }: FileChanges): SQL | undefined {
  if (tags) return sql`${JSON.stringify(tags)}`;
  const added = sql`json_each(${JSON.stringify(addedTags)})`;
  if (addedTags) {
    return sql`(select json_group_array(value) from (select value from json_each(${files.tags}) union all
      select value from ${added} where value not in (select value from json_each(${files.tags}))) tagged)`;
  }
  if (!removedTags) return undefined;
  const removed = sql`(select value from json_each(${JSON.stringify(removedTags)}))`;
  return sql`(select json_group_array(value) from json_each(${files.tags}) where value not in ${removed})`;
}

/** Why a change is refused. */
type Refusal = "file_held" | "version_mismatch" | "metadata_too_large" | "too_many_tags";

/** A change of a file: the columns that it sets, whether it makes a difference, and why it is refused. */
function changeOf(changes: FileChanges, versions: ExpectedVersions, now = 0, deleteAfterBy: string | null = null) {
  const { name, folder, reference, deleteAfter } = changes;
  const tags = changedTags(changes);
  const { tags: set, addedTags, removedTags } = changes;
  const tagChanges = changesOf(set ?? addedTags, true) ?? changesOf(removedTags, false);
  const patch = searchPatch({ folder, reference, tags: tagChanges });
  const searched = set ? sql`json_remove(${files.searchKeys}, '$.tags')` : files.searchKeys;
  const metadata = changes.metadata && sql`json_patch(${files.metadata}, ${JSON.stringify(changes.metadata)})`;
  const differences = [
    name !== undefined && sql`${FACTS.name} <> ${name}`,
    folder !== undefined && ne(files.folder, folder),
    reference !== undefined && sql`${files.reference} is not ${reference}`,
    deleteAfter !== undefined && sql`${files.deleteAfter} is not ${deleteAfter}`,
    tags && sql`${files.tags} <> ${tags}`,
    metadata && sql`${files.metadata} <> ${metadata}`,
  ].filter((difference) => difference !== false);
  const refusals: Partial<Record<Refusal, SQL>> = {
    ...(deleteAfter !== undefined && { file_held: isHeld }),
    ...(versions && { version_mismatch: not(isOneOf(files.version, versions)) }),
    ...(metadata && { metadata_too_large: sql`length(cast(${metadata} as blob)) > ${MAX_METADATA_BYTES}` }),
    ...(changes.addedTags && {
      too_many_tags: sql`json_array_length(${tags}) > ${MAX_TAGS} or length(cast(${tags} as blob)) > ${MAX_TAGS_BYTES}`,
    }),
  };
  return {
    columns: {
      ...(folder !== undefined && { folderSince: sql`iif(${files.folder} = ${folder}, ${files.folderSince}, ${now})` }),
      ...(name !== undefined && { name, nameKey: nameKey(name) }),
      ...{ folder, reference, deleteAfter, tags, metadata },
      ...(deleteAfter !== undefined && { deleteAfterBy: deleteAfter === null ? null : deleteAfterBy }),
      ...(patch && { searchKeys: sql`json_patch(${searched}, ${patch})` }),
    },
    differs: or(...differences),
    refusal: firstOf(refusals) as SQL<Refusal | null>,
  };
}

/** Why the change of a file would be refused. */
export const refusalOf = (changes: FileChanges, versions: ExpectedVersions = undefined) =>
  changeOf(changes, versions).refusal;

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
  const update = deps.db
    .update(files)
    .set({ ...columns, ...changed(deps.system.now()) })
    .where(and(isFile(key), differs, isNull(refusal)));
  return { update, event: fileEvent(deps, "file.updated", actor, key, { fields: fieldsOf(changes).map(eventField) }) };
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
  const batch = { check, change: fileUpdate(deps, actor, id, changes, versions), current };
  const {
    check: [found],
    current: [row],
    // After a lost response, a repetition would find another version.
  } = await writeWithEvent(deps, batch, { isIdempotent: versions === undefined });
  if (!found || !row) throw new AppError("not_found");
  if (found.refusal === "version_mismatch") throw new AppError("version_mismatch");
  if (found.refusal === "file_held") {
    throw new AppError("file_held", { message: "The file is held, so its `deleteAfter` can't be changed." });
  }
  if (found.refusal === "metadata_too_large") throw metadataTooLarge("metadata");
  return toStoredFile(deps, row);
}
