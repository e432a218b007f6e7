import { and, eq, isNotNull, lte, not, or, type SQL, sql } from "drizzle-orm";
import { stillAllowed, type TeamActor } from "../access/authorization.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError } from "../errors.ts";
import { SYSTEM, writeWithEvent } from "../events/events.ts";
import { evaluate, firstOf, hasRow, insertWhere, write } from "../platform/db.ts";
import { HOUR } from "../platform/system.ts";
import { fileObjects } from "./beside.schema.ts";
import { besideKey, type Kind } from "./beside.ts";
import { MAX_LATE_WRITE_MILLISECONDS } from "./ending.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFile } from "./file-events.ts";
import { files, teamOfFile } from "./files.schema.ts";
import { changed } from "./files.ts";
import { type FileKey, type FileOf, isFile, isRemoved } from "./names.ts";
import { isTrashed, removed } from "./removed.schema.ts";

/*
 * How an object beside a file is written, such as its waveform:
 *
 *   writing -> current -> replaced
 *
 * The row is inserted as `writing`, the object is stored under a key of its own, and one batch makes the former current row
 * `replaced` and the new one `current`. So the last write that finishes wins, and a read finds the object that the row
 * describes. A replaced object stays for 15 minutes, for requests that have read its row.
 *
 * A file in the trash keeps its objects. Once it is erased, no write finishes, and its objects are deleted with its bytes.
 */

/** When the object of a writer that has died is deleted once more: R2 documents no limit after which it stores no late write. */
const SECOND_DELETION_MILLISECONDS = HOUR;
/** Rows of one batch. */
const DUE_OBJECTS = 500;

interface NewObject {
  kind: Kind;
  bytes: Uint8Array;
  reservedBytes?: number;
  isProvisional?: boolean;
  language?: string | null;
  cues?: number;
  skippedCues?: number;
  preview?: Buffer;
}

interface WriteOptions {
  /** Null if the service itself writes. */
  actor: TeamActor | null;
  /** Which current objects the new one may replace. */
  replaces: "all" | "provisional" | "none";
  /** Which files are the caller's. */
  isOfCaller?: SQL | undefined;
}

/** A condition on a current object: whether it may be replaced. */
const REPLACEABLE = { all: sql`true`, provisional: eq(fileObjects.isProvisional, true), none: sql`false` };

const isBeside = ({ teamId, id }: FileKey) => and(eq(fileObjects.teamId, teamId), eq(fileObjects.fileId, id));
const isVersion = (file: FileKey, version: string) => and(isBeside(file), eq(fileObjects.version, version));
const isCurrent = (file: FileKey, kind: Kind) =>
  and(
    isBeside(file),
    sql`${fileObjects.kind} = ${kind} and ${fileObjects.name} = '' and ${fileObjects.state} = 'current'`,
  );

/** The file is listed, or in the trash. */
const isKept = (file: FileOf) => or(hasRow(files, isFile(file)), hasRow(removed, and(isRemoved(file), isTrashed)));

/** The columns that lists show of the objects beside a file. */
const marks = (kind: Kind, isThere: boolean) => (kind === "transcript" ? { hasTranscript: isThere } : {});

const whenReplaced = (now: number) => ({ state: "replaced" as const, dueAt: now + MAX_LATE_WRITE_MILLISECONDS });

/** Reserves the quota that the new object needs, and inserts its row. @returns why it did not; null if it did */
async function begin(
  deps: Deps,
  file: FileOf,
  version: string,
  { kind, bytes: _, ...facts }: NewObject,
  { actor, replaces, isOfCaller }: WriteOptions,
) {
  const { db, settings, system } = deps;
  const { reservedBytes = 0 } = facts;
  const current = isCurrent(file, kind);
  const previousBytes = sql`coalesce((select ${fileObjects.reservedBytes} from ${fileObjects} where ${current}), 0)`;
  const maxBytes = sql`coalesce(${teams.maxBytes}, ${settings.maxTeamBytes})`;
  const exceeds = sql`${teams.bytes} + ${reservedBytes} - ${previousBytes} > ${maxBytes}`;
  const refusal = firstOf({
    kept: replaces === "all" ? undefined : hasRow(fileObjects, and(current, not(REPLACEABLE[replaces]))),
    // A smaller one is never refused. A repetition finds its own row, which counts already.
    quota_exceeded:
      reservedBytes === 0
        ? undefined
        : sql`${reservedBytes} > ${previousBytes} and not ${hasRow(fileObjects, isVersion(file, version))}
            and ${hasRow(teams, and(eq(teams.id, teamOfFile), exceeds))}`,
  });
  const isSelected = and(isFile(file), isOfCaller);
  const row = {
    teamId: sql`${teamOfFile}`,
    fileId: sql`${files.id}`,
    version,
    kind,
    name: "",
    state: "writing" as const,
    dueAt: system.now() + MAX_LATE_WRITE_MILLISECONDS,
    updatedAt: null,
    isProvisional: false,
    language: null,
    cues: null,
    skippedCues: null,
    preview: null,
    ...facts,
    reservedBytes,
  };
  const check = db.select({ refusal }).from(files).where(isSelected);
  const insert = insertWhere(db, fileObjects, row, sql`${isSelected} and ${refusal} is null`, sql`${files}`);
  const {
    check: [found],
  } = await write(deps, { check, insert }, { isIdempotent: true, caller: actor && stillAllowed(deps, actor) });
  return found ? found.refusal : "not_found";
}

/**
 * Makes the object current, in place of one that it may replace.
 * @returns when it became current, or null; whether the recovery job has abandoned it, and whether the file is there
 */
async function finish(
  deps: Deps,
  file: FileOf,
  version: string,
  { kind }: NewObject,
  { actor, replaces }: WriteOptions,
) {
  const { db } = deps;
  const now = deps.system.now();
  const isOwn = isVersion(file, version);
  const isWriting = eq(fileObjects.state, "writing");
  const isFinishable = and(isOwn, isWriting, isKept(file));
  const canFinish = and(isFinishable, not(hasRow(fileObjects, isCurrent(file, kind))));
  const replace = db
    .update(fileObjects)
    .set(whenReplaced(now))
    .where(and(isCurrent(file, kind), REPLACEABLE[replaces], hasRow(fileObjects, isFinishable)));
  // Before the row, because a repetition must not change the file again.
  const note = db
    .update(files)
    .set({ ...changed(now), ...marks(kind, true) })
    .where(and(isFile(file), hasRow(fileObjects, canFinish)));
  const mark = db
    .update(removed)
    .set({ file: sql`json_set(${removed.file}, '$.has_transcript', 1)` })
    .where(and(isRemoved(file), isTrashed, hasRow(fileObjects, canFinish)));
  const finished = db.update(fileObjects).set({ state: "current", dueAt: null, updatedAt: now }).where(canFinish);
  const updatedAt = sql<number | null>`(select ${fileObjects.updatedAt} from ${fileObjects} where ${isOwn})`;
  const isAbandoned = sql<0 | 1>`not ${hasRow(fileObjects, and(isOwn, isWriting))}`;
  const isThere = sql<0 | 1>`${isKept(file)}`;
  const end = evaluate(db, {
    updatedAt: updatedAt.as("updated"),
    isAbandoned: isAbandoned.as("abandoned"),
    isThere: isThere.as("there"),
  });
  const updated = { type: FILE_EVENTS.updated, initiator: actor ?? SYSTEM, file, fields: [kind], about: [kind] };
  const inTrash = kind === "transcript" ? [mark] : [];
  const batch = { replace, note: recordedFile(deps, updated, note), inTrash, finished, end };
  // The caller had the right when the write began.
  return (await writeWithEvent(deps, batch, { isIdempotent: true, caller: null })).end[0];
}

/** Deletes objects, then their rows, for which nobody need wait. */
async function removeObjects(deps: Deps, file: FileKey, objects: { kind: Kind; version: string }[]): Promise<void> {
  await deps.bytes.remove(objects.map((object) => besideKey(file, object)));
  const keys = objects.map(({ version }) => ({ teamId: file.teamId, fileId: file.id, version }));
  const ending = write(deps, deleteObjects(deps, keys), { isIdempotent: true, caller: null });
  deps.after(ending.catch((cause) => deps.log("warn", "file_cleanup_failed", { fileId: file.id, cause })));
}

/** The query that deletes the rows of objects, once these are deleted. */
export const deleteObjects = ({ db }: Deps, keys: { teamId: string; fileId: string; version: string }[]) =>
  db.delete(fileObjects).where(
    sql`(${fileObjects.teamId}, ${fileObjects.fileId}, ${fileObjects.version}) in (select value ->> 'teamId', value ->> 'fileId',
      value ->> 'version' from json_each(${JSON.stringify(keys.map(({ teamId, fileId, version }) => ({ teamId, fileId, version })))}))`,
  );

/**
 * Stores an object beside a file, in place of the one before.
 * @returns when it became current, in milliseconds since the epoch; "kept" if the one before stays, or "not_found"
 * @throws `quota_exceeded`
 */
export async function writeObject(
  deps: Deps,
  file: FileOf,
  object: NewObject,
  options: WriteOptions,
): Promise<number | "kept" | "not_found"> {
  const version = Buffer.from(deps.system.randomBytes(8)).toString("hex");
  const refusal = await begin(deps, file, version, object, options);
  if (refusal === "quota_exceeded") {
    throw new AppError("quota_exceeded", { message: "Storage quota exceeded. Delete files and retry." });
  }
  if (refusal !== null) return refusal;
  const own = { kind: object.kind, version };
  await deps.bytes.store(besideKey(file, own), object.bytes);
  const end = await finish(deps, file, version, object, options);
  if (typeof end?.updatedAt === "number") return end.updatedAt;
  await removeObjects(deps, file, [own]);
  if (!end?.isThere) return "not_found";
  if (end.isAbandoned) throw new AppError("unavailable");
  return "kept";
}

/**
 * Deletes the current object of a file, and those that it has replaced. A write that is in progress may still finish.
 * @throws `not_found`, also if there is none
 */
export async function deleteObject(deps: Deps, actor: TeamActor, id: string, kind: Kind): Promise<void> {
  const { db } = deps;
  const file = { ...actor, id };
  const now = deps.system.now();
  const isDeletable = and(isCurrent(file, kind), hasRow(files, isFile(file)));
  const note = db
    .update(files)
    .set({ ...changed(now), ...marks(kind, false) })
    .where(and(isFile(file), hasRow(fileObjects, isDeletable)));
  const replaced = whenReplaced(now);
  const { version, dueAt } = fileObjects;
  const wasCurrent = and(eq(fileObjects.state, "replaced"), isNotNull(fileObjects.updatedAt));
  const updated = { type: FILE_EVENTS.updated, initiator: actor, file, fields: [kind], about: [kind] };
  const batch = {
    note: recordedFile(deps, updated, note),
    replace: db.update(fileObjects).set(replaced).where(isDeletable),
    ended: db
      .select({ version, dueAt })
      .from(fileObjects)
      .where(and(isBeside(file), eq(fileObjects.kind, kind), wasCurrent)),
  };
  const { ended } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  // By an earlier attempt of this batch, too, whose response was lost.
  if (!ended.some((one) => one.dueAt === replaced.dueAt)) throw new AppError("not_found");
  await removeObjects(
    deps,
    file,
    ended.map((one) => ({ kind, version: one.version })),
  );
}

/**
 * Deletes replaced objects, then their rows. A row that is still `writing` after 15 minutes was left by a Worker that died or a
 * write that failed: from now on it can't become current, and its object is deleted now and once more an hour later.
 */
async function removeDueObjects(deps: Deps) {
  const { db } = deps;
  const now = deps.system.now();
  const { teamId, fileId, version, kind } = fileObjects;
  const columns = { teamId, fileId, version, kind };
  const isDue = lte(fileObjects.dueAt, now);
  const replaced = db
    .select(columns)
    .from(fileObjects)
    .where(and(isDue, eq(fileObjects.state, "replaced")))
    .orderBy(fileObjects.dueAt)
    .limit(DUE_OBJECTS);
  const next = sql`select team_id, file_id, version from ${fileObjects}
    where ${isDue} and ${eq(fileObjects.state, "writing")} order by due_at limit ${DUE_OBJECTS}`;
  const abandon = db
    .update(fileObjects)
    .set({ state: "replaced", dueAt: now + SECOND_DELETION_MILLISECONDS })
    .where(sql`(${teamId}, ${fileId}, ${version}) in (${next})`)
    .returning(columns);
  const rows = await write(deps, { replaced, abandon }, { isIdempotent: true, caller: null });
  const keys = [...rows.replaced, ...rows.abandon].map((row) => besideKey({ teamId: row.teamId, id: row.fileId }, row));
  await deps.bytes.remove(keys);
  if (rows.replaced.length > 0) {
    await write(deps, deleteObjects(deps, rows.replaced), { isIdempotent: true, caller: null });
  }
  return { objectsDeleted: keys.length };
}

export const dueObjects: RecoveryStep = {
  name: "objects",
  counts: ["objectsDeleted"],
  runBatch: removeDueObjects,
  maxBatches: 20,
  queries: 3,
};
